"""``merope data scale``: the one translation scale of a training set, and how its cameras move."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.data.trajectory_inputs import TrajectoryFlags
from merope.cli.pose_options import ReadFlags
from merope.cli.telling import tell_first
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.selection.motion_statistics import MotionStatistics


def scale(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    out: Path | None = None,
    pose_policy: Literal["last", "first", "mean"] = "last",
    temporal_stride: int = 4,
    trajectories: Annotated[TrajectoryFlags, tyro.conf.arg(name="")] = TrajectoryFlags(),
    read: Annotated[ReadFlags, tyro.conf.arg(name="")] = ReadFlags(),
) -> None:
    """Measure the translation scale that GTA, PRoPE, UCPE and their like share, on the motion of training clips.

    A clip's baseline is the root mean square distance between its latent frames; one over the median of it, over the
    clips that move, is the scale. Poses alone are read. With --split only the clips that it names count, and the result is
    stored in it; it also goes beside each cache among the inputs (motion.json), where `merope train finetune` finds it, and
    to --out. `merope train finetune --scale FILE` takes any of these files.

    Args:
        inputs: Caches of latents, folders of clips, data sets (--reader), or files of many trajectories (.npy, .npz).
        out: JSON file that is written.
        pose_policy: Which of its frames a latent frame takes its pose from, as in training.
        temporal_stride: Frames per latent frame after the first; 4 for Wan.
        trajectories: Which trajectories. Clips of a cache are taken as they are.
        read: How pose files are read.
    """
    from dataclasses import replace

    import torch

    from merope.data.caches.latent_cache import is_latent_cache
    from merope.data.checks.expected_clips import COMPARABLE
    from merope.data.clips.clip import ClipError
    from merope.data.selection.motion_statistics import (
        MOTION_FILE,
        measure_motion,
        read_motion_inputs,
        write_motion,
    )
    from merope.data.selection.splits import write_split
    from merope.files import require_folder

    if not inputs:
        raise UsageError("name at least one cache of latents, folder of clips or file of trajectories.")
    if out is not None:
        require_folder(out.parent)
    # One small matrix after another: threads would wait for each other.
    torch.set_num_threads(1)
    split = trajectories.only()
    skipped: list[ClipError] = []
    found = measure_motion(
        read_motion_inputs(inputs, trajectories.options(read), only=split),
        pose_policy=pose_policy,
        temporal_stride=temporal_stride,
        skipped=skipped,
        progress=True,
    )
    tell_first("left out", skipped)
    made = {
        "command": "data scale",
        "inputs": [path.resolve().name for path in inputs],
        "split": None if split is None else split.name,
    }
    stored = []
    if split is not None and trajectories.split is not None:
        write_split(trajectories.split, replace(split, statistics={**split.statistics, **found.to_dict()}))
        stored.append(trajectories.split)
    files = [path / MOTION_FILE for path in inputs if is_latent_cache(path)]
    for path in [*files, *([out] if out is not None else [])]:
        write_motion(path, found, made=made)
        stored.append(path)
    print("\n".join(_lines(found)))
    if split is not None and found.clips < COMPARABLE * len(split):
        print(
            f"note: the split names {len(split)} clips and {found.clips} were measured; are inputs missing?"
        )
    if stored:
        print(f"stored in {', '.join(map(str, stored))}")
    else:
        print("stored nowhere: name a file with --out, or the split of the training clips with --split")


def _lines(found: "MotionStatistics") -> list[str]:
    unit, one = ("m", "metre") if found.unit == "m" else ("units", "unit")
    latent = 1 + (found.num_frames - 1) // found.temporal_stride
    lines = [
        f"translation scale: {found.scale.per_metre:.6g} per {one}: the median baseline, "
        f"{1 / found.scale.per_metre:.4g} {unit}, becomes one; longest distance {found.scale.reach:.4g} {unit}",
        f"{found.clips} clips of {found.num_frames} frames ({latent} latent frames, pose policy {found.pose_policy}); "
        f"{found.static} of them stand (within {found.standing:g} {unit}) and do not count",
        f"{'':<10}{'mean':>10}{'5 %':>10}{'median':>10}{'95 %':>10}{'max':>10}  {unit}",
    ]
    for name in ("baseline", "reach", "path", "step"):
        values = found.motion[name]
        lines.append(
            f"{name:<10}" + "".join(f"{values[key]:>10.4g}" for key in ("mean", "p05", "p50", "p95", "max"))
        )
    right, down, ahead = found.motion["axis_rms"]
    lines.append(f"root mean square position: {right:.4g} right, {down:.4g} down, {ahead:.4g} ahead")
    return lines
