"""Pose files as runs: one file against another, or folders of them whose files have the same names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merope.data.poses.files import PoseFile, load_pose_file
from merope.data.poses.table import ReadOptions
from merope.errors import MeropeError, TrajectoryError
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.matching import FILLED, MAX_TIME_DIFFERENCE, Matched, Missing, match_poses
from merope.evaluation.runs.kept import read_kept
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.sources import ClipSource

FOLDER_FORMATS = frozenset(
    ("colmap", "colmap-binary", "tri-dgp", "rds-hq", "nerfstudio", "argoverse2", "recammaster", "nuscenes")
)
"""Formats whose reader takes a folder for one trajectory; there a folder is no set of clips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileClips:
    """Clips out of pose files, and how they came about, in words and numbers."""

    clips: tuple[RunClip, ...]
    notes: tuple[str, ...]
    """One sentence each: how poses were matched, what is left over, what is missing."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The same for files, JSON types."""


def clips_of_pair(
    commanded: PoseFile,
    estimated: PoseFile,
    *,
    name: str | None = None,
    window: int | None = None,
    first_generated: int | None = None,
    missing: Missing = "leave-out",
    max_time_difference: float = MAX_TIME_DIFFERENCE,
) -> FileClips:
    """The clips of two files: their matched poses (`match_poses`), whole or cut into windows without overlap.

    ``name`` is the clip's; without it clips are named after their frames. A window in which no frame has an estimated pose
    counts as one whose recovery failed.

    Raises:
        TrajectoryError: if poses cannot be matched, or ``window`` is longer than what matched.
        ValueError: if ``window`` is below 2.
    """
    if window is not None and window < 2:
        raise ValueError(f"window (--window) must be 2 or more, got {window}.")
    try:
        matched = match_poses(
            commanded.poses,
            estimated.poses,
            commanded_ids=commanded.frame_ids,
            estimated_ids=estimated.frame_ids,
            nan_rows=estimated.nan_rows,
            missing=missing,
            max_time_difference=max_time_difference,
        )
    except TrajectoryError as error:
        raise error if name is None else TrajectoryError(f"clip {name}: {error}") from None
    total = len(matched.commanded)
    if window is not None and window > total:
        raise TrajectoryError(
            f"--window {window} is longer than the {total} matched poses{f' of clip {name}' if name else ''}. "
            f"Use --window {total} or less, or leave it out."
        )
    length = window or total
    starts = range(0, total - length + 1, length)
    clips = tuple(
        _clip(matched, start, length, name, first_generated, whole=window is None) for start in starts
    )
    rest = total - length * len(clips)
    notes = [matched.rule]
    if rest:
        notes.append(
            f"{rest} pose{'s' if rest > 1 else ''} at the end do{'' if rest > 1 else 'es'} not fill a clip of {length} and "
            f"{'are' if rest > 1 else 'is'} left out"
        )
    settings = {
        "matching": matched.rule,
        "num_commanded": matched.num_commanded,
        "num_estimated": matched.num_estimated,
        "num_scored": total - rest,
        "num_not_registered": int((~matched.registered).sum()),
        "num_with_estimate": int(matched.registered.sum()),
        "num_nan": int(matched.nan.sum()),
        "num_frames_left_over": rest,
    }
    return FileClips(clips=clips, notes=tuple(notes), settings=settings)


def _clip(
    matched: Matched, start: int, length: int, name: str | None, first_generated: int | None, *, whole: bool
) -> RunClip:
    rows = slice(start, start + length)
    commanded, estimated = matched.commanded, matched.estimated
    if length < len(commanded):
        commanded, estimated = commanded[rows], estimated[rows]
    registered = matched.registered[rows]
    span = f"frames {matched.frames[start]} to {matched.frames[start + length - 1]}"
    clip_id = span if name is None else name if whole else f"{name}, {span}"
    found = bool(registered.any())
    filled = "none needed" if bool(registered.all()) else FILLED
    return RunClip(
        clip_id=clip_id,
        commanded=commanded,
        recovered=Recovered(poses=estimated, registered=registered, scale="metric", fill=filled)
        if found
        else None,
        failure=None if found else f"none of its {length} frames has an estimated pose",
        first_generated=first_generated,
        nan_rows=tuple(matched.nan[rows].nonzero().flatten().tolist()),
    )


def pose_files_in(folder: str | Path) -> dict[str, Path]:
    """The files below a folder by their names in it, without the ending: ``street/left`` for ``street/left.txt.gz``.

    Hidden files, and this project's ``manifest.json``, are passed over.

    Raises:
        MeropeError: if the folder holds no file, or two of the same name.
    """
    folder = Path(folder)
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if hidden or path.name == "manifest.json" or not path.is_file():
            continue
        name = (relative.parent / stem(path)).as_posix()
        if name in found:
            raise MeropeError(
                f"{folder} has two files for clip {name}: {found[name].name} and {path.name}. Leave one there."
            )
        found[name] = path
    if not found:
        raise MeropeError(f"{folder} holds no files; there should be one with the poses of every clip.")
    return found


def stem(path: Path) -> str:
    """A file's name without what tells its kind, such as .txt, .json or .txt.gz."""
    name = path.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name


def clips_of_folders(
    commanded: Mapping[str, PoseFile],
    estimated: Mapping[str, PoseFile],
    *,
    window: int | None = None,
    first_generated: int | None = None,
    missing: Missing = "leave-out",
    max_time_difference: float = MAX_TIME_DIFFERENCE,
    failures: Mapping[str, str] | None = None,
) -> FileClips:
    """The clips of two sets of files, by name. A command without an estimate is a clip whose recovery failed.

    ``failures`` says why, for clips where that is known.

    Raises:
        TrajectoryError: if a pair cannot be matched.
        MeropeError: if no name is on both sides.
    """
    both = [name for name in commanded if name in estimated]
    absent = [name for name in commanded if name not in estimated]
    extra = [name for name in estimated if name not in commanded]
    if not both:
        raise MeropeError(
            f"no clip has a file on both sides: commanded are {_some(absent)}, estimated {_some(extra)}. Files belong "
            "together that have the same name in both folders, endings aside."
        )
    clips: list[RunClip] = []
    rules: dict[str, list[str]] = {}
    numbers: dict[str, int] = {}
    for name in both:
        pair = clips_of_pair(
            commanded[name],
            estimated[name],
            name=name,
            window=window,
            first_generated=first_generated,
            missing=missing,
            max_time_difference=max_time_difference,
        )
        clips += pair.clips
        for note in pair.notes:
            rules.setdefault(note, []).append(name)
        for key, value in pair.settings.items():
            if isinstance(value, int):
                numbers[key] = numbers.get(key, 0) + value
    for name in absent:
        poses = commanded[name].poses
        numbers["num_commanded"] += len(poses)
        length = window or len(poses)
        for start in range(0, len(poses) - length + 1, length):
            clips.append(
                RunClip(
                    clip_id=name if window is None else f"{name}, frames {start} to {start + length - 1}",
                    commanded=poses[start : start + length],
                    recovered=None,
                    failure=(failures or {}).get(name, "there is no file of estimated poses for it"),
                    first_generated=first_generated,
                )
            )
    notes = [f"{_some(names)}: {note}" for note, names in rules.items()]
    if absent:
        notes.append(f"{len(absent)} of {len(commanded)} clips have no estimated poses: {_some(absent)}")
    if extra:
        notes.append(
            f"{len(extra)} estimated files belong to no commanded one and are left out: {_some(extra)}"
        )
    settings = {
        "matching": [{"rule": note, "clips": names} for note, names in rules.items()],
        "without_estimate": absent,
        "without_command": extra,
        **numbers,
    }
    return FileClips(clips=tuple(clips), notes=tuple(notes), settings=settings)


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:5])} and {len(names) - 5} more" if len(names) > 5 else ", ".join(names)


def clips_with_files(
    sources: Sequence[ClipSource], folder: str | Path, *, format: str, options: ReadOptions | None = None
) -> tuple[RunClip, ...]:
    """Clips with frames and the cameras that another program recovered: FOLDER/CASE/TRAJECTORY.* for clip CASE/TRAJECTORY.

    Files that `merope evaluate` kept (``recovered/LABEL``) say themselves what they are, whatever ``format`` is. Frames
    without a row are filled by interpolation. A clip without a file, or of another length, is one whose recovery failed.

    Raises:
        MeropeError: if a clip has several files, or one cannot be read.
    """
    files = pose_files_in(folder)
    clips = []
    recovered: Recovered | None
    failure: str | None
    nan_rows: tuple[int, ...]
    for source in sources:
        recovered, failure, nan_rows = None, None, ()
        if (path := files.get(source.clip_id)) is None:
            failure = f"there is no file of estimated poses for it, {Path(folder) / source.clip_id}.*"
        elif (kept := read_kept(path)) is not None:
            recovered, failure = kept.recovered, kept.failure
        else:
            file = load_pose_file(path, format=format, options=options)
            file.require_frames()
            try:
                matched = match_poses(
                    source.commanded,
                    file.poses,
                    commanded_ids=None if file.frame_ids is None else range(len(source.commanded)),
                    estimated_ids=file.frame_ids,
                    nan_rows=file.nan_rows,
                    missing="interpolate",
                )
            except TrajectoryError as error:
                failure = str(error)
            else:
                nan_rows = tuple(matched.nan.nonzero().flatten().tolist())
                recovered = Recovered(
                    poses=matched.estimated,
                    registered=matched.registered,
                    scale="metric",
                    fill="none needed" if bool(matched.registered.all()) else FILLED,
                    notes=(f"poses read from {path.name}",),
                )
        if recovered is not None and len(recovered.poses) != len(source.commanded):
            failure, recovered = f"{path} has {len(recovered.poses)} frames", None
        clips.append(
            RunClip(
                clip_id=source.clip_id,
                commanded=source.commanded,
                recovered=recovered,
                failure=failure,
                first_generated=source.first_generated,
                fps=source.fps,
                lens=source.lens,
                frames=source.frames,
                nan_rows=nan_rows,
            )
        )
    return tuple(clips)
