"""What a search of an index asks for, and how the best frames of all candidates are picked."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which frames count as history of a pose, and how many of them are wanted.

    Frames are ranked by distance / max_distance + angle / max_angle, the smallest first; of equal ones (to nine
    digits behind the point) the frame that was indexed first.

    Raises:
        ValueError: if a bound has no meaning.
    """

    k: int = 4
    """Frames for each pose, at most."""
    max_distance: float = 10.0
    """Largest distance between the centres, metres."""
    max_angle_deg: float = 45.0
    """Largest angle between the optical axes, degrees."""
    min_overlap: float = 0.25
    """Smallest share of the pose's view that a frame has to see: of points along its rays, at `depths`."""
    depths: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0)
    """Where these points are, metres along the ray."""
    max_per_clip: int = 1
    """Frames of one clip for each pose, at most: neighbouring frames show the same."""
    min_time_apart: float = math.inf
    """Seconds by which a frame of the same traversal must be earlier or later; infinite for other traversals alone. A
    frame of the same clip never counts."""
    lateral: tuple[float, float] | None = None
    """Distance to the left or the right of the path, metres from and to; None where that does not matter."""

    def __post_init__(self) -> None:
        if self.k < 1 or self.max_per_clip < 1:
            raise ValueError(f"k and max_per_clip must be at least 1; got {self.k} and {self.max_per_clip}.")
        if not 0 < self.max_distance < math.inf:
            raise ValueError(f"max_distance must be positive metres; got {self.max_distance:g}.")
        if not 0 < self.max_angle_deg <= 180:
            raise ValueError(
                f"max_angle_deg must be above 0 and at most 180 degrees; got {self.max_angle_deg:g}."
            )
        if not 0 <= self.min_overlap <= 1:
            raise ValueError(f"min_overlap is a share between 0 and 1; got {self.min_overlap:g}.")
        if not self.min_time_apart >= 0:
            raise ValueError(f"min_time_apart must be 0 s or more; got {self.min_time_apart:g}.")
        if not self.depths or not all(0 < depth < math.inf for depth in self.depths):
            raise ValueError(f"depths must be positive metres, at least one; got {self.depths}.")
        if self.lateral is not None and not 0 <= self.lateral[0] <= self.lateral[1] < math.inf:
            raise ValueError(
                f"lateral must be two distances in metres, the smaller one first; got {self.lateral}."
            )

    @property
    def max_angle(self) -> float:
        """`max_angle_deg` in radians."""
        return math.radians(self.max_angle_deg)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Frames within all bounds but that of overlap, sorted by pose and rank."""

    query: Int[np.ndarray, "cand"]
    """Number of the pose."""
    row: Int[np.ndarray, "cand"]
    """Place of the frame in the index."""
    whole_clip: Int[np.ndarray, "cand"]
    """What `Search.max_per_clip` counts by."""
    distance: Float[np.ndarray, "cand"]
    angle: Float[np.ndarray, "cand"]
    score: Float[np.ndarray, "cand"]

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, chosen: np.ndarray) -> "Candidates":
        return Candidates(
            query=self.query[chosen],
            row=self.row[chosen],
            whole_clip=self.whole_clip[chosen],
            distance=self.distance[chosen],
            angle=self.angle[chosen],
            score=self.score[chosen],
        )

    def ranked(self) -> "Candidates":
        """The same, sorted."""
        # Frames of a car that stands are equal but for the last digits, which differ from one processor to another.
        return self[np.lexsort((self.row, np.round(self.score, 9), self.query))]


OverlapOf = Callable[[np.ndarray], Float[np.ndarray, "_"]]
"""The overlap of the candidates with these places."""


def pick(
    candidates: Candidates, search: Search, overlap_of: OverlapOf
) -> tuple[Int[np.ndarray, "hit"], Float[np.ndarray, "hit"]]:
    """Places of the best of sorted candidates, at most k for each pose and max_per_clip of each clip, and their overlaps.

    The result is that of going down the ranks one by one. Overlaps are computed only as far down as needed: first of those
    that would be taken if all passed, then, where some did not, of ever more.
    """
    overlap = np.full(len(candidates), np.nan)
    open_places = np.arange(len(candidates))
    taken = [np.empty(0, dtype=np.int64)]
    ahead = 1
    while len(open_places):
        part = candidates[open_places]
        first = _first(part, search.k, search.max_per_clip)
        unknown = np.isnan(overlap[open_places])
        undecided = np.isin(part.query, part.query[first & unknown])
        taken.append(open_places[first & ~undecided])
        wanted = (
            undecided
            & unknown
            & _first(part, _capped(search.k * ahead), _capped(search.max_per_clip * ahead))
        )
        places = open_places[wanted]
        if len(places):
            overlap[places] = overlap_of(places)
        failed = overlap[open_places] < search.min_overlap
        open_places = open_places[undecided & ~failed]
        ahead *= 2
    chosen = np.sort(np.concatenate(taken))
    return chosen, overlap[chosen]


def _first(candidates: Candidates, k: int, max_per_clip: int) -> Bool[np.ndarray, "cand"]:
    """Which of sorted candidates are the first ``k`` of their pose, with at most so many of a clip."""
    order = np.lexsort((candidates.whole_clip, candidates.query))
    by_clip = candidates.query[order], candidates.whole_clip[order]
    allowed = np.empty(len(order), dtype=bool)
    allowed[order] = _place_in_run(*by_clip) < max_per_clip
    kept = np.flatnonzero(allowed)
    first = np.zeros(len(order), dtype=bool)
    first[kept] = _place_in_run(candidates.query[kept]) < k
    return first


def _place_in_run(*keys: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... within each run of equal keys."""
    count = len(keys[0])
    starts = np.zeros(count, dtype=bool)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    places = np.arange(count)
    return places - np.maximum.accumulate(np.where(starts, places, 0))


def _capped(count: int) -> int:
    return min(count, 1 << 40)


def angle_between(
    dirs_a: Float[np.ndarray, "cand 3"], dirs_b: Float[np.ndarray, "cand 3"]
) -> Float[np.ndarray, "cand"]:
    """Angles between unit vectors, radians, with all digits also near 0 and 180 degrees."""
    return 2 * np.arctan2(length(dirs_a - dirs_b), length(dirs_a + dirs_b))


def length(vectors: Float[np.ndarray, "cand 3"]) -> Float[np.ndarray, "cand"]:
    """Lengths, added up in one order, so that equal vectors have equal lengths and ties stay ties."""
    x, y, z = vectors.T
    return np.sqrt(x * x + y * y + z * z)


def optical_axes(rotation_xyzw: Float[np.ndarray, "cand 4"]) -> Float[np.ndarray, "cand 3"]:
    """The z axis of each camera in the world: the third column of its rotation."""
    x, y, z, w = rotation_xyzw.T
    return np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
