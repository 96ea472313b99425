"""Trajectories out of whatever holds them: folders of clips, data sets, pose files, and arrays of many paths."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from merope.data.clips.clip import Clip, ClipError
from merope.data.datasets import ClipSet, open_dataset
from merope.data.poses.files import load_pose_file
from merope.data.poses.table import ReadOptions
from merope.data.selection.prototypes.arc_length import relative_centers
from merope.data.selection.prototypes.path_files import PATH_SUFFIXES, read_path_file
from merope.data.selection.splits import Split
from merope.errors import MeropeError
from merope.geometry.gravity import Up
from merope.geometry.poses import Poses, Unit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory:
    """What one clip's camera did."""

    source: str
    """Data set or folder that it comes from."""
    clip_id: str
    """Name within the source; that of the clip or, for a window, "ID@00049" after its first frame."""
    centers: Float[np.ndarray, "time 3"]
    """Centres in the axes of the first camera, in `unit`; float32 only where a file holds them relative and so."""
    unit: Unit
    """What a length of 1 is."""
    fps: float | None = None
    """Poses per second; None where nothing says, and of poses with times, which do."""
    up_world: Up | None = None
    """Unit vector against gravity in the world of the poses; None where nobody knows."""
    load_poses: Callable[[], Poses] | None
    """Gives the poses, camera-to-world; None where the file holds positions alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """How inputs are read and cut.

    Raises:
        ValueError: if a count or the rate is not positive.
    """

    num_frames: int | None = 49
    """Frames in a window; None takes every clip and every pose file as a whole."""
    stride: int | None = None
    """Frames from the start of a window to that of the next; None lets windows share no frame."""
    fps: float | None = None
    """Frames per second that faster clips are thinned to, as in `Clip.windows`."""
    allow_gaps: bool = False
    """Whether windows may reach over missing frames, as in `Clip.windows`."""
    source: str | None = None
    """Name of the data set; None takes what clips say, or the name of the file's folder."""
    format: str | None = None
    """Format of pose files (`merope.data.poses.formats.FORMATS`)."""
    read: ReadOptions = ReadOptions()
    """How pose files are read; its unit is also that of arrays that do not say theirs."""
    reader: str = "folder"
    """What a folder holds: a name in `merope.data.datasets.DATASETS`."""
    reader_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of that reader."""

    def __post_init__(self) -> None:
        for name in ("num_frames", "stride", "fps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive; got {value}.")
        if self.num_frames is None and self.stride is not None:
            raise ValueError("stride is between windows; give num_frames (--frames) too.")


def read_trajectories(
    inputs: Sequence[str | Path],
    options: InputOptions,
    *,
    only: Split | None = None,
    tell: Callable[[str], None] = lambda note: None,
) -> Iterator[Trajectory | ClipError]:
    """The trajectories in these files and folders, one after another.

    A folder is a data set of the kind ``options.reader``; ``.npy`` and ``.npz`` without a pose ``format`` are arrays of many
    paths (`read_path_file`); any other file holds poses in ``options.format``. What cannot be read costs itself alone: its
    error stands in its place. ``only`` leaves out what a split does not name, as far as possible without opening it.
    ``tell`` is called with every sentence that a reader has to say of what it read.

    Raises:
        ValueError: if there are no inputs, or a pose file without a format.
        FileNotFoundError: if an input does not exist.
        MeropeError: if an input as a whole cannot be read.
    """
    if not inputs:
        raise ValueError("inputs must name at least one folder of clips or file of trajectories.")
    wanted = None if only is None else _names(only)
    for path in map(Path, inputs):
        if not path.exists():
            raise FileNotFoundError(2, "No such file or folder", str(path))
        if path.is_dir() and options.format is None:
            clips = open_dataset(options.reader, path, **options.reader_options)
            for note in clips.notes:
                tell(note)
            found: Iterable[Trajectory | ClipError] = _of_clips(clips, options, wanted)
        elif path.suffix in PATH_SUFFIXES and options.format is None:
            found = _of_array(path, options)
        else:
            found = _of_pose_file(path, options, wanted, tell)
        for each in found:
            if isinstance(each, ClipError) or only is None or only.cluster_of(each.source, each.clip_id):
                yield each


def _names(split: Split) -> set[str]:
    """Names of the clips that hold what a split names: "ID" also for its window "ID@00049"."""
    names = {clip.clip_id for clip in split.clips}
    return names | {name.rpartition("@")[0] for name in names if "@" in name}


def _of_clips(
    clips: ClipSet, options: InputOptions, wanted: set[str] | None
) -> Iterator[Trajectory | ClipError]:
    for number, clip_id in enumerate(clips.ids):
        if wanted is not None and clip_id not in wanted:
            continue
        try:
            clip = clips[number]
            parts: Sequence[Clip] = [clip]
            if options.num_frames is not None:
                parts = clip.windows(
                    options.num_frames,
                    stride=options.stride,
                    fps=options.fps,
                    allow_gaps=options.allow_gaps,
                )
        except ClipError as error:
            yield error
            continue
        for part in parts:
            yield replace(
                _trajectory(options.source or part.source, part.clip_id, part.poses),
                fps=part.fps,
                up_world=part.up_world,
            )


def _of_pose_file(
    path: Path, options: InputOptions, wanted: set[str] | None, tell: Callable[[str], None]
) -> Iterator[Trajectory | ClipError]:
    if options.format is None:
        raise ValueError(
            f"{path} is a file of poses, so format (--format) must say which; it is never guessed. "
            "`merope poses inspect` says what a file may be."
        )
    source = options.source or path.resolve().parent.name
    name = path.name.split(".")[0]
    if wanted is not None and name not in wanted:
        return
    try:
        file = load_pose_file(path, format=options.format, options=options.read)
    except MeropeError as error:
        yield ClipError(source, name, error)
        return
    for note in file.notes:
        tell(f"{path.name}: {note}")
    length, poses = options.num_frames, file.poses
    if length is None:
        yield _trajectory(source, name, poses)
        return
    if len(poses) < length:
        yield ClipError(
            source, name, f"it has {len(poses)} poses; a window has {length} (--frames, or --whole)."
        )
        return
    for start in range(0, len(poses) - length + 1, options.stride or length):
        yield _trajectory(source, f"{name}@{start:05d}", poses[start : start + length])


def _of_array(path: Path, options: InputOptions) -> Iterator[Trajectory]:
    file = read_path_file(path, source=options.source, unit=options.read.unit)
    for number, (source, clip_id) in enumerate(zip(file.sources, file.clip_ids, strict=True)):
        yield Trajectory(
            source=source,
            clip_id=clip_id,
            centers=file.centers[number],
            unit=file.unit,
            load_poses=None if file.matrices is None else _loader(file.matrices, number, file.unit),
        )


def _loader(matrices: np.ndarray, number: int, unit: Unit) -> Callable[[], Poses]:
    # Poses check every rotation, which is worth it for the few that are asked for.
    import torch

    return lambda: Poses.from_matrices(
        torch.from_numpy(np.array(matrices[number], dtype=np.float64)), unit=unit
    )


def _trajectory(source: str, clip_id: str, poses: Poses) -> Trajectory:
    return Trajectory(
        source=source,
        clip_id=clip_id,
        centers=relative_centers(poses),
        unit=poses.unit,
        load_poses=lambda: poses,
    )
