"""``merope poses resample``: poses at another rate, or another number of them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from merope.cli.pose_options import ReadFlags
from merope.cli.poses.writing import WriteFlags, clocked
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from torch import Tensor


def resample(
    file: Path,
    /,
    *,
    write: Annotated[WriteFlags, tyro.conf.arg(name="")],
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
    times: Path | None = None,
    trajectory_fps: float | None = None,
    fps: float | None = None,
    num_frames: int | None = None,
) -> None:
    """Write poses at another rate, or another number of them, over the same time.

    Centres are interpolated along straight lines, rotations the shorter way. A lens with values for every frame is
    interpolated too. Frames of a video are thinned together with their poses by `merope data convert --fps`.

    Args:
        file: A pose file.
        write: What is written.
        read: How to read it.
        times: File with the time of each pose in seconds, one a line, for files without times.
        trajectory_fps: Poses per second of a file without times.
        fps: Poses per second that are written: every 1 / fps s from the first on, up to the last.
        num_frames: Poses that are written, at equal times from first to last, in place of --fps.
    """
    import numpy as np
    import torch

    from merope.data.poses.conversion import frame_lens
    from merope.data.poses.facts import time_facts
    from merope.data.poses.files import load_pose_file, read_times

    if (fps is None) == (num_frames is None):
        raise UsageError("give either --fps or --num-frames: how many poses a second, or how many in all.")
    loaded = load_pose_file(
        file,
        format=read.required_format(),
        options=read.options(),
        times=None if times is None else read_times(times),
    )
    loaded.require_frames()
    poses = clocked(loaded, trajectory_fps)
    if num_frames is not None:
        resampled = poses.resample(num_frames)
    elif fps is not None and poses.times is not None:
        resampled = poses.at_rate(fps)
    else:
        raise UsageError(
            f"{file} does not say when its poses are. Give --trajectory-fps, how many there are in a second, or --times."
        )
    if poses.times is not None:
        facts = time_facts(poses.times)
        if facts.gaps:
            print(
                f"{len(facts.gaps)} gaps of up to {facts.max_spacing:.4g} s between poses (elsewhere "
                f"{facts.median_spacing:.4g} s) are filled by a straight line"
            )

    def at_frames(values: "Tensor") -> "Tensor":
        clock = np.arange(len(poses)) if poses.times is None else poses.times.numpy()
        wanted = (
            np.linspace(clock[0], clock[-1], len(resampled)) if resampled.times is None else resampled.times
        )
        return torch.from_numpy(np.interp(wanted, clock, values.numpy()))

    write.write(
        replace(loaded, poses=resampled, camera=frame_lens(loaded, at_frames), frame_ids=None, names=None)
    )
