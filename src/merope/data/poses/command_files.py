"""A commanded path from a pose file: a window of it, in metres, with one pose for each frame of a video."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from merope.data.poses.files import load_pose_file, read_times
from merope.data.poses.table import ReadOptions
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses, Unit

Extend = Literal["none", "hold", "constant-velocity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One pose per frame, and what was done to the file's poses to get there, in sentences."""

    poses: Poses
    notes: tuple[str, ...]
    camera: dict[str, object] | None = None
    """The lens that the file carries, as `CameraModel.to_dict` gives it; None for formats without one."""
    projection_note: str | None = None
    """Said where the file's rotations had to be projected, see `PoseFile.projection_note`."""


def read_command(
    path: Path,
    *,
    format: str,
    num_frames: int,
    fps: float,
    start: int = 0,
    trajectory_fps: float | None = None,
    times: Path | None = None,
    unit: Unit | None = None,
    scale: float = 1.0,
    extend: Extend = "none",
    trim: bool = False,
    stride: int | None = None,
    wanted_unit: Unit = "m",
) -> Command:
    """The poses of ``num_frames`` frames at ``fps``, from pose ``start`` of the file on.

    Time is that of ``times`` (a file, seconds), else the file's own, else ``trajectory_fps`` poses a second, else one
    pose per frame. Poses between two of the file's are interpolated, none is invented beyond its end unless ``extend``
    says how. ``scale`` is metres per unit of the file. Where the file is too short, ``trim`` gives fewer frames instead:
    the largest 1 + ``stride`` k that it has. ``stride`` (frames per latent frame) also says that both are on offer.
    ``wanted_unit`` is the unit of the cameras that the model was trained on.

    Raises:
        PoseFileError: if the file cannot be read.
        ValueError: if ``scale``, ``fps`` or ``trajectory_fps`` is not positive, or ``extend`` is unknown.
        TrajectoryError: if the unit is not the wanted one and there is no scale, or the file does not reach from
            ``start`` over all frames.
    """
    if extend not in get_args(Extend):
        raise ValueError(f"extend must be one of {', '.join(get_args(Extend))}; got {extend!r}.")
    if scale <= 0 or fps <= 0 or (trajectory_fps is not None and trajectory_fps <= 0):
        raise ValueError(
            f"--scale, --trajectory-fps and the video's rate must be > 0; got {scale}, {trajectory_fps} and {fps}."
        )
    stamps = None if times is None else read_times(times)
    file = load_pose_file(path, format=format, times=stamps, options=ReadOptions(unit=unit))
    poses = file.poses
    if file.pose_policy is not None:
        raise TrajectoryError(
            f"{path} says that its poses are those of latent frames (pose_policy {file.pose_policy!r}), {num_frames} frames "
            "are commanded by a pose each. Give the poses of the frames."
        )
    if poses.unit != wanted_unit and scale == 1.0:
        words = "metres" if wanted_unit == "m" else f"{wanted_unit} lengths"
        said = (
            f"Say --unit {wanted_unit} if its lengths are {words}, or give"
            if poses.unit == "unknown"
            else "Give"
        )
        raise TrajectoryError(
            f"{path}: its unit is {poses.unit!r}; the model is commanded in {words}. {said} the {words} per unit with "
            "--scale."
        )
    if not 0 <= start < len(poses):
        raise TrajectoryError(
            f"--start {start} is outside {path}, which has {len(poses)} poses (0 to {len(poses) - 1})."
        )
    clock = poses.times
    if clock is None:
        clock = torch.arange(len(poses), dtype=torch.float64) / (trajectory_fps or fps)
    wanted = clock[start] + torch.arange(num_frames, dtype=torch.float64) / fps
    available = int((wanted <= clock[-1] + 1e-6).sum())
    kept = num_frames
    if available < num_frames and extend == "none":
        fitting = 1 + (available - 1) // stride * stride if stride else available
        if not trim:
            raise TrajectoryError(_too_short(path, clock, start, num_frames, fps, stride and fitting))
        kept = fitting
    timed = Poses(
        R_world_cam=poses.R_world_cam, center_world=poses.center_world * scale, times=clock, unit=wanted_unit
    )
    sampled = timed.interpolate(wanted[: min(available, kept)].clamp_max(clock[-1]))
    window = Poses(R_world_cam=sampled.R_world_cam, center_world=sampled.center_world, unit=wanted_unit)
    notes = [_reading(poses, start, clock, float(wanted[min(available, kept) - 1]), fps, trajectory_fps)]
    notes += file.notes
    if kept < num_frames:
        dropped = f", so that frame {kept}" if available == kept + 1 else f", so that frames {kept}"
        until = "" if available <= kept + 1 else f" to {available - 1}"
        notes.append(
            f"trimmed from {num_frames} to {kept} frames, 1 + {stride} k"
            + (f"{dropped}{until} of the path are left out" if available > kept else "")
        )
    elif available < num_frames:
        window = extended(window, num_frames, extend)
        how = "stay at its last pose" if extend == "hold" else "go on as its last step did"
        notes.append(f"the path ends at frame {available - 1}; frames {available} to {num_frames - 1} {how}")
    if scale != 1.0:
        notes.append(f"lengths multiplied by {scale:g}")
    return Command(poses=window, notes=tuple(notes), camera=file.camera, projection_note=file.projection_note)


def extended(poses: Poses, num_frames: int, how: Extend) -> Poses:
    """``poses`` followed by more of them, up to ``num_frames``: the last one held, or its last step repeated.

    "constant-velocity" repeats the last relative pose, turn included: a car in a bend goes on in a circle.

    Raises:
        TrajectoryError: if a single pose, which has no velocity, is to go on at constant velocity.
    """
    missing = num_frames - len(poses)
    if missing <= 0:
        return poses
    R_world_last, center_world = poses.R_world_cam[-1], poses.center_world[-1]
    # Of a pose in the coordinates of the one before it.
    R_before_next, offset_before = torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    if how == "constant-velocity":
        if len(poses) < 2:
            raise TrajectoryError(
                "one pose has no velocity to go on with. Use --pose-extend hold, or a longer trajectory."
            )
        R_before_next, offset_before = poses.relative(-2, -1)
    rotations, centers = list(poses.R_world_cam), list(poses.center_world)
    for _ in range(missing):
        center_world = center_world + R_world_last @ offset_before
        R_world_last = R_world_last @ R_before_next
        rotations.append(R_world_last)
        centers.append(center_world)
    # Through from_matrices, which takes the rounding of a long product out of the rotations.
    matrices = torch.cat([torch.stack(rotations), torch.stack(centers)[:, :, None]], dim=2)
    return Poses.from_matrices(matrices, unit=poses.unit)


def _too_short(
    path: Path, clock: torch.Tensor, start: int, num_frames: int, fps: float, fitting: int | None
) -> str:
    seconds = (num_frames - 1) / fps
    latest = int((clock <= clock[-1] - seconds + 1e-6).sum()) - 1
    mend = (
        f"use --start {latest} or less" if latest >= 0 else "choose a longer file, or check --trajectory-fps"
    )
    if fitting is not None:
        mend += ", or --pose-extend hold|constant-velocity" + (
            f", or --num-frames {fitting}" if fitting > 1 else ""
        )
    return (
        f"{path} ({len(clock)} poses) ends {float(clock[-1] - clock[start]):.1f} s after pose {start}; {num_frames} frames "
        f"at {fps:g} Hz need {seconds:.1f} s: {mend}."
    )


def _reading(
    poses: Poses, start: int, clock: torch.Tensor, until: float, fps: float, trajectory_fps: float | None
) -> str:
    """Which poses of the file became frames, and at what rate."""
    last = min(int(torch.searchsorted(clock, until - 1e-6)), len(clock) - 1)
    span = f"poses {start} to {last} of {len(poses)}"
    if poses.times is not None:
        return f"{span}, by their times, at {fps:g} Hz"
    if trajectory_fps is None:
        return f"{span}, one per frame at {fps:g} Hz"
    return f"{span}, {trajectory_fps:g} a second, at {fps:g} Hz"
