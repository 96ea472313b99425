"""``merope poses turn``: the left-turn and right-turn variants of a trajectory."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.pose_options import ReadFlags
from merope.cli.poses.writing import WriteFlags, clocked

if TYPE_CHECKING:
    from merope.geometry.poses import Poses


def turn(
    file: Path,
    /,
    *,
    write: Annotated[WriteFlags, tyro.conf.arg(name="")],
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
    side: Literal["left", "right", "both"] = "both",
    turn_start: int = 8,
    times: Path | None = None,
    trajectory_fps: float | None = None,
    start: int = 0,
    count: int | None = None,
    step: int = 1,
    up: Literal["auto", "x", "-x", "y", "-y", "z", "-z"] = "auto",
    curvature: float = 0.04,
    ramp_length: float = 4.0,
    axle_to_camera: float = 1.7,
    min_radius: float = 7.0,
    max_lateral_acceleration: float = 4.0,
) -> None:
    """Bend a drive to the left, to the right, or both: the same start, then a curve.

    After frame TURN_START the path gets extra curvature per metre, as a car could drive it: no tighter than MIN_RADIUS and
    no faster through a bend than MAX_LATERAL_ACCELERATION allows. Everything up to that frame stays as it is to the last
    bit, and so do heights and the distance covered in every frame. Poses must be in metres (--unit m).

    Args:
        file: A pose file.
        write: What is written. With both sides, -left and -right are put before the ending of OUT.
        read: How to read the file.
        side: To which side.
        turn_start: Last frame before the turn; 8 where 9 frames are given.
        times: File with the time of each pose in seconds, one a line, for files without times.
        trajectory_fps: Poses per second of a file without times; how sharp a turn may be depends on speed.
        start: First pose that is taken; --turn-start counts from there.
        count: How many poses are taken; by default all that follow.
        step: Take every step-th pose.
        up: World axis that points up. auto finds the up direction from the path and the cameras' own up.
        curvature: Extra curvature, 1 / metres.
        ramp_length: Metres over which it grows from zero.
        axle_to_camera: Metres from the rear axle forward to the camera; 0 for a camera on no car.
        min_radius: Smallest radius that the vehicle drives, metres.
        max_lateral_acceleration: Largest sideways acceleration, m/s^2.
    """
    from merope.data.poses.conversion import frame_lens
    from merope.data.poses.files import load_pose_file, read_times, window
    from merope.geometry.turns import Side, turn_variant
    from merope.geometry.up_direction import common_up

    loaded = load_pose_file(
        file,
        format=read.required_format(),
        options=read.options(),
        times=None if times is None else read_times(times),
    )
    loaded.require_frames()
    poses = window(clocked(loaded, trajectory_fps), start=start, count=count, step=step)
    camera = frame_lens(loaded, lambda values: values[start::step][: len(poses)])
    up_world = (
        None if up == "auto" else [(-1.0 if up[0] == "-" else 1.0) * (axis == up[-1]) for axis in "xyz"]
    )
    sides: tuple[Side, ...] = ("left", "right") if side == "both" else (side,)
    targets = {each: write.out if side != "both" else _beside(write.out, each) for each in sides}
    write.require_free(*targets.values())
    variants = {
        each: turn_variant(
            poses,
            side=each,
            start=turn_start,
            up_world=up_world,
            curvature=curvature,
            ramp_length=ramp_length,
            axle_to_camera=axle_to_camera,
            min_radius=min_radius,
            max_lateral_acceleration=max_lateral_acceleration,
        )
        for each in sides
    }
    if up_world is None:
        numbers = ", ".join(f"{round(value, 3) + 0.0:.3f}" for value in common_up(poses).tolist())
        print(f"up is ({numbers}), from the path and the cameras")
    for note in _doubts(poses, turn_start, axle_to_camera):
        print(note)
    for each, variant in variants.items():
        changed = replace(loaded, poses=variant, camera=camera, frame_ids=None, names=None)
        write.write(changed, target=targets[each], notes=each == sides[0])
        print(f"{targets[each]}: {each}, {_difference(poses, variant)}")


def _beside(out: Path, side: str) -> Path:
    """drive.json -> drive-left.json, drive.txt.gz -> drive-left.txt.gz."""
    stem, dot, endings = out.name.partition(".")
    return out.with_name(f"{stem}-{side}{dot}{endings}")


def _doubts(poses: "Poses", turn_start: int, axle_to_camera: float) -> list[str]:
    """What makes the result other than a car's turn."""
    from merope.data.poses.readings import FITS, readings

    asked = readings(poses.T_world_cam[turn_start:, :3].numpy())[0]
    if asked.path_length == 0:
        return [f"the camera does not move after pose {turn_start}, so there is nothing to turn"]
    if asked.heading < FITS and axle_to_camera > 0:
        return [
            f"the camera does not move the way it looks (mean cosine {asked.heading:.2f}), as a car's would: "
            "--axle-to-camera 0 turns it about itself"
        ]
    return []


def _difference(poses: "Poses", variant: "Poses") -> str:
    """How far the end of the variant is from that of the path."""
    import math

    from merope.geometry.rotations import rotation_angle

    turned = math.degrees(float(rotation_angle(poses.R_world_cam[-1], variant.R_world_cam[-1])))
    apart = float((poses.center_world[-1] - variant.center_world[-1]).norm())
    return f"ends {apart:.4g} m from the path, turned {turned:.4g} deg more"
