"""What a search finds: arrays for all poses together, or a `Hit` by itself, and its image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt8

from merope.cameras import CameraModel
from merope.data.history.shards import HistoryError

if TYPE_CHECKING:
    from merope.data.history.index import HistoryIndex

# Metres by which a pose may be off what was indexed. Both are read from the same files, so they should be equal.
_SAME = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hit:
    """A frame that was found for a pose."""

    query: int
    """Number of the pose."""
    row: int
    """Number of the frame in the index."""
    source: str
    clip_id: str
    frame: int
    """Number of the frame in its clip."""
    time: float
    """Seconds, by the clip's clock; NaN where unknown."""
    traversal: str
    distance: float
    """Between the centres, metres."""
    angle: float
    """Between the optical axes, radians."""
    overlap: float
    """Share of the pose's view that the frame sees."""
    score: float
    """What it was ranked by, see `Search`; smaller is better."""
    R_query_hit: Float[np.ndarray, "3 3"]
    """Takes the frame's camera coordinates to those of the pose; float64."""
    offset_query: Float[np.ndarray, "3"]
    """The frame's centre in the camera coordinates of the pose, metres; float64."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HistoryFrame:
    """A hit with its image."""

    hit: Hit
    image: UInt8[np.ndarray, "height width 3"]
    lens: CameraModel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hits:
    """The frames found for each pose, best first; ``hits[3]`` are those of pose 3.

    A place that no frame fills has row -1, infinite distance, angle and score, overlap 0 and the identity for its pose.
    """

    index: "HistoryIndex"
    row: Int[np.ndarray, "query k"]
    distance: Float[np.ndarray, "query k"]
    angle: Float[np.ndarray, "query k"]
    overlap: Float[np.ndarray, "query k"]
    score: Float[np.ndarray, "query k"]
    R_query_hit: Float[np.ndarray, "query k 3 3"]
    offset_query: Float[np.ndarray, "query k 3"]

    @classmethod
    def none(cls, num_queries: int, k: int, index: "HistoryIndex") -> "Hits":
        """Nothing found yet."""
        shape = num_queries, k
        return cls(
            index=index,
            row=np.full(shape, -1, dtype=np.int64),
            distance=np.full(shape, np.inf),
            angle=np.full(shape, np.inf),
            overlap=np.zeros(shape),
            score=np.full(shape, np.inf),
            R_query_hit=np.broadcast_to(np.eye(3), (*shape, 3, 3)).copy(),
            offset_query=np.zeros((*shape, 3)),
        )

    def __len__(self) -> int:
        return len(self.row)

    @property
    def counts(self) -> Int[np.ndarray, "query"]:
        """How many frames were found for each pose."""
        return (self.row >= 0).sum(axis=1)

    def __getitem__(self, query: int) -> tuple[Hit, ...]:
        """The frames found for one pose, best first."""
        found = []
        for place, row in enumerate(self.row[query].tolist()):
            if row < 0:
                break
            shard, own = self.index.locate(row)
            clip = int(shard.columns["clip"][own])
            found.append(
                Hit(
                    query=query,
                    row=row,
                    source=shard.text("source", clip),
                    clip_id=shard.text("clip_id", clip),
                    frame=int(shard.columns["frame"][own]),
                    time=float(shard.columns["time"][own]),
                    traversal=shard.text("traversal", clip),
                    distance=float(self.distance[query, place]),
                    angle=float(self.angle[query, place]),
                    overlap=float(self.overlap[query, place]),
                    score=float(self.score[query, place]),
                    R_query_hit=self.R_query_hit[query, place],
                    offset_query=self.offset_query[query, place],
                )
            )
        return tuple(found)


def frames_of(index: "HistoryIndex", hits: Sequence[Hit]) -> tuple[HistoryFrame, ...]:
    """`HistoryIndex.frames`."""
    by_clip: dict[tuple[str, int], list[int]] = {}
    for number, hit in enumerate(hits):
        shard, own = index.locate(hit.row)
        by_clip.setdefault((str(shard.folder), int(shard.columns["clip"][own])), []).append(number)
    found: dict[int, HistoryFrame] = {}
    for numbers in by_clip.values():
        wanted = sorted({hits[number].frame for number in numbers})
        images, lens = _decoded(index, hits[numbers[0]], [hits[number] for number in numbers], wanted)
        for number in numbers:
            hit = hits[number]
            found[number] = HistoryFrame(hit=hit, image=images[wanted.index(hit.frame)], lens=lens)
    return tuple(found[number] for number in range(len(hits)))


def _decoded(
    index: "HistoryIndex", first: Hit, hits: Sequence[Hit], wanted: list[int]
) -> tuple[np.ndarray, CameraModel]:
    """The frames with these numbers, of the one clip that all hits are of."""
    shard, own = index.locate(first.row)
    clip_number = int(shard.columns["clip"][own])
    data_set = int(shard.columns["clip_data_set"][clip_number])
    name = f"{first.source}/{first.clip_id}"
    if data_set < 0:
        raise HistoryError(
            f"{name} was indexed as poses alone and has no frames. Index its clip with its reader (--reader)."
        )
    clips = index.data_set(shard, data_set)
    changed = f"{name} is not what was indexed{{}}. Index it anew."
    if first.clip_id not in clips.ids:
        raise HistoryError(changed.format(": there is no clip of this name any more"))
    clip = clips.clip(first.clip_id)
    if clip.lens != shard.lens(int(shard.columns["clip_lens"][clip_number])):
        raise HistoryError(changed.format(": its lens is another"))
    if wanted[-1] >= len(clip):
        raise HistoryError(changed.format(f": it has {len(clip)} frames and frame {wanted[-1]} was found"))
    for hit in hits:
        own = index.locate(hit.row)[1]
        moved = np.abs(clip.poses.center_world[hit.frame].numpy() - shard.columns["center_world"][own]).max()
        if moved > _SAME:
            raise HistoryError(changed.format(f": frame {hit.frame} is {moved:.3g} m elsewhere"))
    return clip.frames(wanted), clip.lens
