"""Generated clips scored: cameras recovered from their frames, held against the cameras that commanded them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from merope.data.clips.generated import GeneratedClip
from merope.data.poses.table import ReadOptions
from merope.errors import MeropeError
from merope.evaluation.estimators.base import PoseEstimator, Recovered, RecoveryFailed
from merope.evaluation.estimators.files import PoseFileEstimator
from merope.evaluation.metrics.paper import AngleMethod
from merope.evaluation.result import EvaluationResult
from merope.evaluation.scoring import ClipPair, OnFailure, evaluate_clips
from merope.files import atomic_path

# What generated clips are told by; where all clips agree it stands in the settings of the evaluation.
_TOLD = ("model", "adapter", "dtype", "steps", "guidance", "flow_shift")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedScores:
    """The evaluation of a folder of generated clips, and which of them were not recovered as they should be."""

    result: EvaluationResult
    recovered: dict[str, Recovered]
    """Trajectories by clip id; without those that failed."""
    failed: dict[str, str]
    """Why nothing was recovered, by clip id. These clips count as ``on_failure`` says."""
    partial: dict[str, str]
    """How many frames were registered and what fills the others, by clip id. These clips are scored."""
    notes: tuple[str, ...]
    """What the estimator says of every clip; what it says of some stands in the result's settings."""


def score_generated(
    generated: Iterable[GeneratedClip],
    estimator: PoseEstimator | Callable[[GeneratedClip], PoseEstimator],
    *,
    label: str = "generated",
    on_failure: OnFailure = "worst",
    method: AngleMethod = "atan2",
    scale: Literal["metric", "up_to_scale"] | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    progress: bool = True,
) -> GeneratedScores:
    """Recover every clip's cameras from its lossless frames and score them (`evaluate_clips`).

    ``estimator`` sees frames, lens and frame rate, never the command; a function of the clip gives each one its own.
    Frames that were given count in the figures over all frames and not in those over generated ones.

    Raises:
        ValueError: if there are no clips, or all failed and are skipped.
        MeropeError: if a clip's frames cannot be read or do not fit its poses.
    """
    pairs: list[ClipPair] = []
    recovered: dict[str, Recovered] = {}
    failed: dict[str, str] = {}
    name = getattr(estimator, "name", "poses")
    clips = list(generated)
    for clip in tqdm(clips, desc="recovering", unit="clip", disable=not progress):
        chosen = estimator if isinstance(estimator, PoseEstimator) else estimator(clip)
        found: Recovered | None = None
        try:
            found = chosen.estimate(clip.frames(), clip.lens, fps=clip.fps)
        except RecoveryFailed as error:
            failed[clip.clip_id] = str(error)
        else:
            recovered[clip.clip_id] = found
        pairs.append(
            ClipPair(
                clip_id=clip.clip_id,
                commanded=clip.commanded,
                estimated=found,
                first_generated=clip.prefix_frames or None,
            )
        )
    shared: dict[str, Any] = {}
    for key in _TOLD:
        values = [clip.result.get("settings", {}).get(key) for clip in clips]
        if values and all(value == values[0] for value in values):
            shared[key] = values[0]
    # What is said of every clip; what differs from clip to clip stands beside each one.
    sets = [set(found.notes) for found in recovered.values()]
    notes = sorted(set.intersection(*sets)) if sets else []
    own = {clip: [note for note in found.notes if note not in notes] for clip, found in recovered.items()}
    result = evaluate_clips(
        pairs,
        label=label,
        on_failure=on_failure,
        method=method,
        scale=scale,
        seed=seed,
        settings={
            "estimator": name,
            "estimator_notes": notes,
            "estimator_notes_by_clip": {clip: rest for clip, rest in own.items() if rest},
            "frames": "lossless PNG",
            "fps": sorted({clip.fps for clip in clips}),
            "generated_with": shared,
            "recovery_failed": failed,
            **(settings or {}),
        },
    )
    partial = {
        clip.clip_id: clip.flags["partial_registration"]
        for clip in result.clips
        if "partial_registration" in clip.flags
    }
    return GeneratedScores(
        result=result, recovered=recovered, failed=failed, partial=partial, notes=tuple(notes)
    )


def estimates_in(
    folder: str | Path, *, format: str, options: ReadOptions | None = None
) -> Callable[[GeneratedClip], PoseFileEstimator]:
    """Estimators that read what another program recovered: for clip CASE/TRAJECTORY the file FOLDER/CASE/TRAJECTORY.*.

    Raises:
        MeropeError: when used, if a clip has no such file or several.
    """
    folder = Path(folder)

    def of(clip: GeneratedClip) -> PoseFileEstimator:
        place = folder / clip.clip_id
        found = sorted(
            path for path in place.parent.glob("*") if path.is_file() and _stem(path) == place.name
        )
        if len(found) != 1:
            raise MeropeError(
                f"clip {clip.clip_id} needs one file of estimated poses, {place}.* ; "
                + (f"there are {', '.join(path.name for path in found)}." if found else "there is none.")
            )
        return PoseFileEstimator(path=found[0], format=format, options=options)

    return of


def _stem(path: Path) -> str:
    """A file's name without what tells its kind, such as .txt, .json or .txt.gz."""
    name = path.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name


def write_recovered(folder: str | Path, recovered: dict[str, Recovered]) -> None:
    """Recovered trajectories as text, FOLDER/CASE/TRAJECTORY.txt: a frame number and a KITTI row for each registered frame.

    `estimates_in` with format "kitti" and ``index_column`` reads them back, frames that were not registered included.
    """
    for clip_id, found in recovered.items():
        rows = found.poses.T_world_cam[:, :3].flatten(1).tolist()
        unit = "metres" if found.scale == "metric" else "up to one scale"
        lines = [f"# frame, then camera-to-world row by row; {unit}; {found.fill}"]
        lines += [
            f"{frame} {' '.join(repr(value) for value in row)}"
            for frame, row in enumerate(rows)
            if bool(found.registered[frame])
        ]
        with atomic_path(Path(folder) / f"{clip_id}.txt") as temporary:
            temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
