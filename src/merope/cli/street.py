"""The loop that the demo and the benchmarks share: command, render, generate, recover, score."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import merope
from merope.adapters.command import spec_lens
from merope.adapters.spec import VideoSpec
from merope.data.clips.video import Frames
from merope.evaluation.benchmarks.worlds import with_variants as with_variants
from merope.evaluation.estimators.motion_network.estimator import NetworkEstimator
from merope.evaluation.result import EvaluationResult
from merope.evaluation.scoring import ClipPair, evaluate_clips
from merope.generation import VideoModel, check_command, generate, load_video_model
from merope.geometry.poses import Poses
from merope.worlds import build_world, render

WEIGHTS = Path(merope.__file__).resolve().parent / "weights" / "tiny-street"
"""Weights that ship with the package."""

LABELS = {"merope": "MeRoPE", "native": "no camera encoding"}
"""What tables and plots call each shipped model."""

FLOOR = "noise floor"
"""Label of the estimator's own error on true renders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreetClip:
    """A command and the world in which it is driven, rendered."""

    clip_id: str
    poses: Poses
    truth: Frames
    """True frames [T, H, W, 3] along the command; the first are the prefix."""
    seed: int
    """Seed of the noise."""


def quiet_autocast() -> None:
    """Drop torch's note, in the middle of a progress bar, that under autocast it takes the plain rms_norm."""
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")


def load_models(names: Sequence[str] = ("merope", "native"), folder: Path = WEIGHTS) -> dict[str, VideoModel]:
    """The shipped models by name."""
    quiet_autocast()
    return {name: load_video_model(folder / name) for name in names}


def load_estimator(folder: Path = WEIGHTS) -> NetworkEstimator:
    """The shipped pose estimator."""
    return NetworkEstimator.load(folder / "estimator.safetensors")


def render_commands(
    name: str, commands: Mapping[str, Poses], spec: VideoSpec, *, seed: int, samples: int = 2
) -> list[StreetClip]:
    """One world that keeps clear of every command, and the true frames along each."""
    for poses in commands.values():
        check_command(poses, spec)
    world = build_world(seed, paths=list(commands.values()))
    camera = spec_lens(spec)
    return [
        StreetClip(
            clip_id=f"{name}-{label}",
            poses=poses,
            truth=render(world, camera, poses, samples=samples).rgb,
            seed=seed,
        )
        for label, poses in commands.items()
    ]


def generate_clips(
    model: VideoModel, clips: Sequence[StreetClip], *, steps: int, batch: int = 12, progress: bool = True
) -> list[Frames]:
    """Generated frames of every clip, from its first frames and its command."""
    import numpy as np

    videos: list[Frames] = []
    for first in range(0, len(clips), batch):
        chunk = clips[first : first + batch]
        made = generate(
            model,
            np.stack([clip.truth[: model.spec.prefix_frames] for clip in chunk]),
            [clip.poses for clip in chunk],
            seeds=[clip.seed for clip in chunk],
            steps=steps,
            progress=progress,
        )
        videos.extend(made)
    return videos


def recover(estimator: NetworkEstimator, videos: Sequence[Frames], spec: VideoSpec) -> list[Poses]:
    """Trajectories read off the frames; the estimator sees pixels, lens and frame rate only."""
    camera = spec_lens(spec)
    return [estimator.estimate(video, camera, fps=spec.fps).poses for video in videos]


def score(
    clips: Sequence[StreetClip], recovered: Sequence[Poses], spec: VideoSpec, *, label: str
) -> EvaluationResult:
    """The paper's metrics over clips, with the shares of generated frames beside them."""
    pairs = [
        ClipPair(
            clip_id=clip.clip_id, commanded=clip.poses, estimated=poses, first_generated=spec.prefix_frames
        )
        for clip, poses in zip(clips, recovered, strict=True)
    ]
    return evaluate_clips(pairs, label=label, scale="metric")


def table(results: Mapping[str, EvaluationResult]) -> str:
    """One row per result: rot, tr, AUC@3, AUC@10, CamMC, over all frames of the clip."""
    columns = (
        ("rot_deg", "rot (deg)"),
        ("tr_percent", "tr (%)"),
        ("auc_3", "AUC@3"),
        ("auc_10", "AUC@10"),
        ("cammc", "CamMC"),
    )
    width = max(len(label) for label in results)
    lines = ["  ".join([" " * width, *(f"{title:>9}" for _, title in columns)])]
    for label, result in results.items():
        summary = result.summary()
        cells = []
        for key, _ in columns:
            value = summary[key].metric.value
            cells.append(f"{'-' if value is None else format(value, '.2f'):>9}")
        lines.append("  ".join([f"{label:<{width}}", *cells]))
    return "\n".join(lines)
