"""``merope poses keyframes``: a camera path through a few poses."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from merope.cli.pose_options import ReadFlags
from merope.cli.poses.writing import WriteFlags


def keyframes(
    file: Path,
    /,
    *,
    write: Annotated[WriteFlags, tyro.conf.arg(name="")],
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
    times: Path | None = None,
    num_frames: int | None = None,
    fps: float | None = None,
    shape: Literal["spline", "straight"] = "spline",
    pace: Literal["constant", "times"] = "constant",
    easing: Literal["linear", "smooth"] = "linear",
) -> None:
    """Make a camera path of many frames through the poses of a file.

    Rotations turn the shorter way from each keyframe to the next.

    Args:
        file: Pose file with the keyframes.
        write: What is written.
        read: How to read the keyframes.
        times: File with the time of each keyframe in seconds, one a line, for --pace times and files without times.
        num_frames: Frames of the path.
        fps: Frames per second. With --pace times either this or --num-frames, else both.
        shape: spline: a centripetal Catmull-Rom spline through the centres. straight: straight pieces between them.
        pace: constant: constant speed along the whole path. times: each keyframe at its own time.
        easing: With constant pace, linear, or smooth: at rest at both ends.
    """
    from merope.data.poses.conversion import frame_lens
    from merope.data.poses.files import load_pose_file, read_times
    from merope.geometry.keyframes import half_turns, keyframe_path

    loaded = load_pose_file(
        file,
        format=read.required_format(),
        options=read.options(),
        times=None if times is None else read_times(times),
    )
    loaded.require_frames()
    path = keyframe_path(loaded.poses, num_frames=num_frames, fps=fps, shape=shape, pace=pace, easing=easing)
    for number in half_turns(loaded.poses):
        print(
            f"keyframes {number} and {number + 1} are half a turn apart, and either way is as short: put a keyframe between "
            "them that says which"
        )
    camera = frame_lens(loaded, lambda values: values)
    if camera is not None and any(isinstance(value, list) for value in camera.values()):
        print("the lens of the keyframes differs between them and is left out")
        camera = None
    write.write(replace(loaded, poses=path, camera=camera, frame_ids=None, names=None))
