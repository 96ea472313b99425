"""Making an index of frames: the poses of clips from data sets or pose files, and no frame decoded."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from merope.cameras import CameraModel
from merope.data.clips.clip import Clip, ClipError
from merope.data.datasets import ClipSet, open_dataset
from merope.data.history.paths import place_of
from merope.data.history.shards import ClipRows, HistoryError, Shard, shard_folders, write_shard
from merope.data.poses.files import PoseFile, load_pose_file
from merope.data.poses.table import ReadOptions
from merope.errors import MeropeError
from merope.files import only_process, require_folder
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_LOCK = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """What is indexed and how it is called.

    Raises:
        ValueError: if ``every`` is not positive.
    """

    reader: str = "folder"
    """What a folder holds: a name in `merope.data.datasets.DATASETS`."""
    reader_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of that reader."""
    format: str | None = None
    """Format of pose files; with it inputs are files of poses, a clip each, without frames."""
    read: ReadOptions = ReadOptions()
    """How pose files are read."""
    lens: CameraModel | None = None
    """Lens of pose files that have none."""
    world: str | None = None
    """World of all poses; None takes the "world" in the provenance of each clip."""
    traversal: str | None = None
    """Drive that all clips are of; None takes the "traversal" in the provenance, else each clip is one of its own."""
    source: str | None = None
    """Name of the data set; None takes what clips say, or the name of the file's folder."""
    every: int = 1
    """Index every so many frames."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1; got {self.every}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What came of indexing."""

    clips: int
    """Clips that were added."""
    frames: int
    """Frames that were added."""
    there: int
    """Clips that the index had already."""
    skipped: tuple[ClipError, ...]
    """What was left out, and why."""
    notes: tuple[str, ...]
    """What readers say of their clips."""


def add_to_index(
    index: str | Path,
    inputs: Sequence[str | Path],
    options: IndexOptions | None = None,
    *,
    progress: bool = False,
) -> IndexReport:
    """Index the frames of these data sets or pose files, in a new part of the index: all of it appears, or nothing.

    Clips that the index has already (by source and name) are passed over; a clip that cannot be read, is not in metres, or
    does not say its world costs that clip alone. Until it is written a frame takes 72 bytes.

    Raises:
        FileNotFoundError: if an input does not exist.
        HistoryError: if nothing can be indexed, or another process adds to the index.
        MeropeError: if an input as a whole cannot be read.
    """
    options, index = options or IndexOptions(), Path(index)
    if not inputs:
        raise ValueError("inputs must name at least one folder of clips or pose file.")
    for path in map(Path, inputs):
        if not path.exists():
            raise FileNotFoundError(2, "No such file or folder", str(path))
    require_folder(index)
    foreign = sorted(path.name for path in index.iterdir() if not path.name.startswith("."))
    if foreign and not shard_folders(index):
        raise HistoryError(
            f"{index} holds other things ({', '.join(foreign[:3])}). Name an index, or a new folder (--out)."
        )
    with only_process(index / _LOCK) as alone:
        if not alone:
            raise HistoryError(f"another process is adding to {index}. Wait until it is done.")
        # Nobody else writes here: these are what is left of processes that were killed.
        for left_over in index.glob(".shard-*.tmp"):
            shutil.rmtree(left_over)
        return _add(index, inputs, options, progress=progress)


def _add(index: Path, inputs: Sequence[str | Path], options: IndexOptions, *, progress: bool) -> IndexReport:
    seen = _names(index)
    data_sets: list[dict[str, Any]] = []
    skipped: list[ClipError] = []
    taken: list[ClipRows] = []
    notes: list[str] = []
    there = 0
    for path in map(Path, inputs):
        if options.format is not None:
            found: Iterable[ClipRows | ClipError] = _of_pose_file(path, options)
            total = 1
        else:
            clips = open_dataset(options.reader, path, **options.reader_options)
            data_sets.append(
                {
                    "reader": options.reader,
                    "root": str(path.resolve()),
                    "options": dict(options.reader_options),
                }
            )
            notes += clips.notes
            found, total = _of_clips(clips, options, len(data_sets) - 1), len(clips)
        for each in tqdm(found, desc=path.name, unit="clip", total=total, disable=not progress):
            if isinstance(each, ClipError):
                skipped.append(each)
            elif (each.source, each.clip_id) in seen:
                there += 1
            else:
                seen.add((each.source, each.clip_id))
                taken.append(each)
    if not taken and not there:
        raise HistoryError(
            f"there is nothing to index. {skipped[0] if skipped else 'The inputs hold no clips.'}"
        )
    if taken:
        write_shard(index, taken, data_sets)
    return IndexReport(
        clips=len(taken),
        frames=sum(len(clip.frame) for clip in taken),
        there=there,
        skipped=tuple(skipped),
        notes=tuple(notes),
    )


def _names(index: Path) -> set[tuple[str, str]]:
    names = set()
    for folder in shard_folders(index):
        columns = Shard.open(folder).columns
        pairs = zip(columns["source"].tolist(), columns["clip_id"].tolist(), strict=True)
        names |= {(source.decode("utf-8"), clip_id.decode("utf-8")) for source, clip_id in pairs}
    return names


def _of_clips(clips: ClipSet, options: IndexOptions, data_set: int) -> Iterator[ClipRows | ClipError]:
    for clip in clips.clips(skip_broken=True):
        if isinstance(clip, ClipError):
            yield ClipError(options.source or clip.source, clip.clip_id, clip.reason)
            continue
        try:
            yield _of_clip(clip, options, data_set)
        except ClipError as error:
            yield ClipError(options.source or error.source, error.clip_id, error.reason)


def _of_clip(clip: Clip, options: IndexOptions, data_set: int) -> ClipRows:
    world, traversal = place_of(clip, world=options.world, traversal=options.traversal)
    return _rows(
        options,
        source=options.source or clip.source,
        clip_id=clip.clip_id,
        world=world,
        traversal=traversal,
        poses=clip.poses,
        lens=clip.lens,
        times=clip.times,
        data_set=data_set,
    )


def _of_pose_file(path: Path, options: IndexOptions) -> Iterator[ClipRows | ClipError]:
    assert options.format is not None
    source, clip_id = options.source or path.resolve().parent.name, path.name.split(".")[0]
    if options.world is None:
        raise HistoryError(
            f"{path} is a file of poses and does not say which world they are in: name it with world (--world)."
        )
    try:
        file = load_pose_file(path, format=options.format, options=options.read)
        yield _rows(
            options,
            source=source,
            clip_id=clip_id,
            world=options.world,
            traversal=options.traversal or f"{source}/{clip_id}",
            poses=file.poses,
            lens=lens_of_file(file, options.lens),
            times=np.full(len(file.poses), np.nan) if file.poses.times is None else file.poses.times.numpy(),
            data_set=None,
        )
    except ClipError as error:
        yield error
    except (MeropeError, OSError) as error:
        yield ClipError(source, clip_id, error)


def lens_of_file(file: PoseFile, given: CameraModel | None) -> CameraModel:
    """The lens that was given for a pose file, else the file's own.

    Raises:
        MeropeError: if there is none, or the poses are not a camera's.
    """
    if file.body != "camera":
        raise MeropeError(
            f"{file.source} holds poses of the {file.body}, not of a camera; convert it to those of the camera first"
        )
    if given is not None:
        return given
    if file.camera is None:
        raise MeropeError(
            f"{file.source} has no lens, and what it sees is not known: name one with lens (--lens)"
        )
    try:
        return CameraModel.from_dict(file.camera)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise MeropeError(f"{file.source} has no lens that can be read: {error}") from error


def _rows(
    options: IndexOptions, *, source: str, clip_id: str, poses: Poses, times: np.ndarray, **known: Any
) -> ClipRows:
    if poses.unit != "m":
        raise ClipError(
            source,
            clip_id,
            f"its poses are in unit {poses.unit!r}, and distances in an index are metres. If a length of 1 is a metre, say "
            "so in its files or to its reader (unit m).",
        )
    frame = np.arange(0, len(poses), options.every)
    chosen = torch.from_numpy(frame)
    try:
        return ClipRows(
            source=source,
            clip_id=clip_id,
            center_world=poses.center_world[chosen].numpy(),
            rotation_xyzw=matrix_to_quaternion(poses.R_world_cam[chosen]).numpy(),
            frame=frame,
            time=times[frame],
            **known,
        )
    except HistoryError as error:
        raise ClipError(source, clip_id, error) from None
