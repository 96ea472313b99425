"""`HistoryIndex`: the posed frames of many clips, found by place, direction and what they see."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int

from merope.cameras import CameraModel
from merope.data.datasets import ClipSet, open_dataset
from merope.data.history.hits import HistoryFrame, Hit, Hits, frames_of
from merope.data.history.nearby import search_index
from merope.data.history.paths import QueryPath
from merope.data.history.search import Search
from merope.data.history.shards import HistoryError, Shard, shard_folders, whole_clip
from merope.errors import MissingDependency
from merope.geometry.poses import Poses
from merope.geometry.rotations import quaternion_to_matrix

if TYPE_CHECKING:
    from scipy.spatial import cKDTree


@dataclass(frozen=True, kw_only=True, eq=False)
class HistoryIndex:
    """An index on disk, opened without reading it. Frames are numbered over all shards, and so are clips.

    The search tree of a world is built when the world is asked for first.
    """

    shards: tuple[Shard, ...]
    roots: Mapping[str, str] = field(default_factory=dict)
    """Where data sets have moved to: their roots as they were indexed, and as they are."""

    @classmethod
    def open(cls, path: str | Path, *, roots: Mapping[str, str | Path] | None = None) -> "HistoryIndex":
        """The index in a folder that `merope history index` wrote.

        Raises:
            HistoryError: if there is no index, or a part of it is damaged.
            MissingDependency: if SciPy is not installed.
        """
        try:
            import scipy.spatial  # noqa: F401
        except ModuleNotFoundError:
            raise MissingDependency.for_extra(
                "scipy", extra="data", purpose="searching an index of frames"
            ) from None
        folders = shard_folders(Path(path)) if Path(path).is_dir() else []
        if not folders:
            raise HistoryError(
                f"{path} holds no index of frames. `merope history index CLIPS --out INDEX` makes one."
            )
        moved = {old: str(new) for old, new in (roots or {}).items()}
        return cls(shards=tuple(Shard.open(folder) for folder in folders), roots=moved)

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    def __getstate__(self) -> dict[str, object]:
        # Data workers build what they need for themselves.
        return {"shards": self.shards, "roots": self.roots}

    @property
    def num_clips(self) -> int:
        """Clips whose frames are in it."""
        return int(self.first_clips[-1])

    @cached_property
    def worlds(self) -> dict[str, int]:
        """How many frames there are in each world."""
        counts: dict[str, int] = {}
        for shard in self.shards:
            for name, rows in shard.worlds.items():
                counts[name] = counts.get(name, 0) + len(rows)
        return dict(sorted(counts.items()))

    def has_clip(self, source: str, clip_id: str) -> bool:
        """Whether the clip, a window of it, or the clip that it is a window of, has frames here."""
        return self.number_of("whole_clip", whole_clip(source, clip_id)) is not None

    def path_of(self, source: str, clip_id: str) -> QueryPath:
        """The cameras of a clip as they were indexed, to search for what is near it.

        Raises:
            HistoryError: if the index does not have the clip.
        """
        wanted = source.encode(), clip_id.encode()
        for shard in self.shards:
            columns = shard.columns
            for clip in np.flatnonzero(columns["clip_id"] == wanted[1]).tolist():
                if columns["source"][clip] != wanted[0]:
                    continue
                rows = np.arange(*np.searchsorted(columns["clip"], [clip, clip + 1]))
                times = torch.tensor(columns["time"][rows])
                poses = Poses(
                    R_world_cam=quaternion_to_matrix(torch.tensor(columns["rotation_xyzw"][rows])),
                    center_world=torch.tensor(columns["center_world"][rows]),
                    times=None if times.isnan().any() else times,
                )
                return QueryPath(
                    poses=poses,
                    lens=shard.lens(int(columns["clip_lens"][clip])),
                    world=shard.world_of(clip),
                    clip=(source, clip_id),
                    traversal=shard.text("traversal", clip),
                )
        raise HistoryError(
            f"the index has no clip {source}/{clip_id}. `merope history index` adds clips to it."
        )

    def world_of(self, source: str, clip_id: str) -> str | None:
        """The world of a clip, also by the name of one of its windows; None where the index does not have it."""
        whole = self.number_of("whole_clip", whole_clip(source, clip_id))
        if whole is None:
            return None
        clip = int(np.argmax(self.names["whole_clip"][1] == whole))
        number = int(np.searchsorted(self.first_clips, clip, side="right")) - 1
        return self.shards[number].world_of(clip - int(self.first_clips[number]))

    def query(self, path: QueryPath, search: Search | None = None) -> Hits:
        """The best frames for each pose of a path, other than those of its own clip.

        Raises:
            HistoryError: if the index does not know the path's world, or frames of the same traversal are to count by their
                time and the path has no times.
            TrajectoryError: if ``search.lateral`` is asked for and the path does not move.
        """
        return search_index(self, path, search or Search())

    def frames(self, *hits: Hit) -> tuple[HistoryFrame, ...]:
        """The images of these hits, each with its lens and its pose relative to the pose that it was found for.

        Each clip is opened once, and its frames are decoded together.

        Raises:
            HistoryError: if the index holds only the poses of a clip, or the clip has changed since it was indexed.
            ClipError: if a clip cannot be opened or decoded.
        """
        return frames_of(self, hits)

    def locate(self, row: int) -> tuple[Shard, int]:
        """The shard that holds a frame, and its place there."""
        number = int(np.searchsorted(self.first_rows, row, side="right")) - 1
        return self.shards[number], row - int(self.first_rows[number])

    def data_set(self, shard: Shard, number: int) -> ClipSet:
        """What decodes the clips of a shard that have this number for their data set; opened once.

        Raises:
            HistoryError: if its root is not there any more.
        """
        about = shard.data_sets[number]
        root = self.roots.get(about["root"], about["root"])
        if not Path(root).is_dir():
            raise HistoryError(
                f"{root}, where frames were indexed, is not there. If it has moved, open the index with "
                "roots={old: new}."
            )
        key = f"{shard.folder}/{number}"
        if key not in self._opened:
            self._opened[key] = open_dataset(about["reader"], root, **about["options"])
        return self._opened[key]

    @cached_property
    def _opened(self) -> dict[str, ClipSet]:
        return {}

    @cached_property
    def first_rows(self) -> Int[np.ndarray, "shards"]:
        """The number of each shard's first frame, and behind them that of all frames."""
        return np.cumsum([0, *(shard.num_rows for shard in self.shards)])

    @cached_property
    def first_clips(self) -> Int[np.ndarray, "shards"]:
        """The same for clips."""
        return np.cumsum([0, *(shard.num_clips for shard in self.shards)])

    @cached_property
    def names(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Whole clips and traversals: all names, sorted, and for each clip of the index the number of its name."""
        found = {}
        for name in ("whole_clip", "traversal"):
            texts = np.concatenate([shard.columns[name] for shard in self.shards])
            found[name] = np.unique(texts, return_inverse=True)
        return found

    def number_of(self, column: str, text: str) -> int | None:
        """The number in `names` of a whole clip or a traversal, None where the index has no such."""
        names, _ = self.names[column]
        wanted = text.encode()
        # NumPy would cut a longer text to the length of the names.
        if len(wanted) > names.dtype.itemsize:
            return None
        place = int(np.searchsorted(names, np.asarray(wanted, dtype=names.dtype)))
        return place if place < len(names) and names[place] == wanted else None

    @cached_property
    def _trees(self) -> dict[tuple[int, str], "cKDTree"]:
        return {}

    def tree(self, number: int, world: str) -> "cKDTree":
        """The search tree over the centres of a world in one shard; its points count from the world's first row there.

        Raises:
            HistoryError: if the shard is damaged.
        """
        from scipy.spatial import cKDTree

        key = number, world
        if key not in self._trees:
            shard = self.shards[number]
            rows = shard.worlds[world]
            clips = shard.columns["clip"][rows.start : rows.stop]
            centers = shard.columns["center_world"][rows.start : rows.stop]
            if not (np.isfinite(centers).all() and clips.min() >= 0 and clips.max() < shard.num_clips):
                raise HistoryError(
                    f"{shard.folder} is a damaged part of an index. Delete it and index its clips again."
                )
            # Splitting at the middle builds twice as fast as at the median and searches as fast.
            self._trees[key] = cKDTree(centers, balanced_tree=False, copy_data=False)
        return self._trees[key]

    def gathered(self, names: tuple[str, ...], rows: np.ndarray) -> list[np.ndarray]:
        """These columns at rows of the whole index."""
        shard_of = np.searchsorted(self.first_rows, rows, side="right") - 1
        gathered = []
        for name in names:
            column = self.shards[0].columns[name]
            values = np.empty((len(rows), *column.shape[1:]), dtype=column.dtype)
            for number in np.unique(shard_of).tolist():
                here = shard_of == number
                values[here] = self.shards[number].columns[name][rows[here] - self.first_rows[number]]
            gathered.append(values)
        return gathered

    def lens_numbers(self, rows: np.ndarray) -> Int[np.ndarray, "cand 2"]:
        """The shard of each frame, and the number of its lens there."""
        shard_of = np.searchsorted(self.first_rows, rows, side="right") - 1
        lens = np.empty(len(rows), dtype=np.int64)
        for number in np.unique(shard_of).tolist():
            here = shard_of == number
            columns = self.shards[number].columns
            lens[here] = columns["clip_lens"][columns["clip"][rows[here] - self.first_rows[number]]]
        return np.stack([shard_of, lens], axis=1)

    @cached_property
    def _lenses(self) -> dict[tuple[int, int], CameraModel]:
        return {}

    def lens(self, shard: int, number: int) -> CameraModel:
        """The lens with this number in a shard, read once."""
        key = shard, number
        if key not in self._lenses:
            self._lenses[key] = self.shards[shard].lens(number)
        return self._lenses[key]
