"""The search itself: frames of an index within the bounds of a `Search`, for all poses of a path together."""

import math
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from merope.data.history.hits import Hits
from merope.data.history.overlap import overlaps, view_points
from merope.data.history.paths import QueryPath, sideways
from merope.data.history.search import Candidates, Search, angle_between, length, optical_axes, pick
from merope.data.history.shards import HistoryError, whole_clip
from merope.geometry.rotations import quaternion_to_matrix

if TYPE_CHECKING:
    from merope.data.history.index import HistoryIndex

# Pairs of pose and frame that are looked at together; a car that waits at a light leaves a thousand frames in one place.
_PAIRS = 1 << 20
# Poses whose neighbours are counted together.
_POSES = 4096


def search_index(index: "HistoryIndex", path: QueryPath, search: Search) -> Hits:
    """`HistoryIndex.query`."""
    found = Hits.none(len(path), search.k, index)
    for chosen, overlap in matches(index, path, search):
        fill(found, path, chosen, overlap)
    return found


def matches(
    index: "HistoryIndex", path: QueryPath, search: Search
) -> Iterator[tuple[Candidates, Float[np.ndarray, "hit"]]]:
    """The best frames of some poses at a time, sorted by pose and rank, with their overlaps.

    Raises:
        HistoryError: as `HistoryIndex.query`.
        TrajectoryError: likewise.
    """
    if 0 < search.min_time_apart < math.inf and path.poses.times is None:
        raise HistoryError(
            "frames of the same traversal are told apart by their times, and the poses have none. Give times, or leave "
            "min_time_apart (--same-traversal-after) out."
        )
    filtering = _Filter(index, path, search)
    points = view_points(path.lens, search.depths)
    for candidates in filtering.candidates():

        def overlap_of(places: np.ndarray, candidates: Candidates = candidates) -> np.ndarray:
            return _overlaps(index, path, points, candidates[places])

        places, overlap = pick(candidates, search, overlap_of)
        yield candidates[places], overlap


def fill(found: Hits, path: QueryPath, chosen: Candidates, overlap: Float[np.ndarray, "hit"]) -> None:
    """Put frames, sorted by pose and rank, into their places."""
    starts = np.searchsorted(chosen.query, chosen.query)
    at = chosen.query, np.arange(len(chosen)) - starts
    R_query_hit, offset_query = _relative(found.index, path, chosen)
    found.row[at], found.overlap[at] = chosen.row, overlap
    found.distance[at], found.angle[at], found.score[at] = chosen.distance, chosen.angle, chosen.score
    found.R_query_hit[at], found.offset_query[at] = R_query_hit.numpy(), offset_query.numpy()


def _world_of(index: "HistoryIndex", path: QueryPath) -> str:
    """The world that the path names, else that of its clip in the index."""
    world = path.world
    if world is None and path.clip is not None:
        world = index.world_of(*path.clip)
        if world is None:
            raise HistoryError(
                f"the index has no clip {'/'.join(path.clip)}, so nothing says which world its poses are in. Name it with "
                "world (--world)."
            )
    if world is None or world not in index.worlds:
        known = list(index.worlds)
        more = f" and {len(known) - 10} more" if len(known) > 10 else ""
        raise HistoryError(
            f"the index knows no world {world!r}; it has {', '.join(known[:10])}{more}. Clips are comparable only "
            "within one world: name the one that the poses are in (--world)."
        )
    return world


class _Filter:
    """All bounds but that of overlap, which is dear."""

    def __init__(self, index: "HistoryIndex", path: QueryPath, search: Search) -> None:
        self.index, self.search, self.world = index, search, _world_of(index, path)
        self.centers = path.poses.center_world.numpy()
        self.axes = path.poses.R_world_cam[:, :, 2].numpy()
        self.times = None if path.poses.times is None else path.poses.times.numpy()
        self.right = None if search.lateral is None else sideways(path.poses)
        self.own_clip = None if path.clip is None else index.number_of("whole_clip", whole_clip(*path.clip))
        self.own_traversal = _traversal_of(index, path, self.own_clip)

    def candidates(self) -> Iterator[Candidates]:
        """What is within the bounds, for some poses at a time, sorted by pose and rank."""
        # Distances are computed again; the tree's own rounding must not leave out a frame on the very bound.
        radius = self.search.max_distance * (1 + 1e-9)
        trees = [
            (number, self.index.tree(number, self.world))
            for number, shard in enumerate(self.index.shards)
            if self.world in shard.worlds
        ]
        for start in range(0, len(self.centers), _POSES):
            part = self.centers[start : start + _POSES]
            counts = sum(tree.query_ball_point(part, radius, return_length=True) for _, tree in trees)
            for first, stop in _runs(counts, _PAIRS):
                queries = np.arange(start + first, start + stop)
                parts = [
                    self._near(number, queries, tree.query_ball_point(self.centers[queries], radius))
                    for number, tree in trees
                ]
                yield _joined(parts).ranked()

    def _near(self, number: int, queries: Int[np.ndarray, "query"], lists: Any) -> Candidates:
        """Of the rows that the tree of a shard gives for each of these poses, those within all bounds."""
        index, search = self.index, self.search
        shard, columns = index.shards[number], index.shards[number].columns
        query = np.repeat(queries, [len(rows) for rows in lists])
        row = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=len(query))
        row += shard.worlds[self.world].start
        clip = columns["clip"][row] + index.first_clips[number]
        offset = columns["center_world"][row] - self.centers[query]
        distance = length(offset)
        angle = angle_between(optical_axes(columns["rotation_xyzw"][row]), self.axes[query])
        keep = (distance <= search.max_distance) & (angle <= search.max_angle)
        whole = index.names["whole_clip"][1][clip]
        if self.own_clip is not None:
            keep &= whole != self.own_clip
        if self.own_traversal is not None and search.min_time_apart > 0:
            same = index.names["traversal"][1][clip] == self.own_traversal
            if math.isinf(search.min_time_apart) or self.times is None:
                keep &= ~same
            else:
                apart = np.abs(columns["time"][row] - self.times[query])
                keep &= ~same | (apart >= search.min_time_apart)
        if search.lateral is not None and self.right is not None:
            aside = np.abs((offset * self.right[query]).sum(axis=1))
            keep &= (aside >= search.lateral[0]) & (aside <= search.lateral[1])
        found = Candidates(
            query=query,
            row=row + index.first_rows[number],
            whole_clip=whole,
            distance=distance,
            angle=angle,
            score=distance / search.max_distance + angle / search.max_angle,
        )
        return found[np.flatnonzero(keep)]


def _traversal_of(index: "HistoryIndex", path: QueryPath, own_clip: int | None) -> int | None:
    """The number of the path's traversal: as it says, else as the index knows its clip."""
    if path.traversal is not None:
        return index.number_of("traversal", path.traversal)
    if own_clip is None:
        return None
    return int(index.names["traversal"][1][np.argmax(index.names["whole_clip"][1] == own_clip)])


def _relative(index: "HistoryIndex", path: QueryPath, found: Candidates) -> tuple[Tensor, Tensor]:
    """R_query_cand, and the candidates' centres in the frames of their queries: float64 world coordinates end here."""
    rotation, center = index.gathered(("rotation_xyzw", "center_world"), found.row)
    R_query_world = path.poses.R_world_cam[found.query].mT
    offset_world = torch.from_numpy(center - path.poses.center_world.numpy()[found.query])
    R_query_cand = R_query_world @ quaternion_to_matrix(torch.from_numpy(rotation))
    return R_query_cand, (R_query_world @ offset_world[..., None])[..., 0]


def _overlaps(
    index: "HistoryIndex", path: QueryPath, points: Tensor, found: Candidates
) -> Float[np.ndarray, "_"]:
    R_query_cand, offset_query = _relative(index, path, found)
    R_cand_query = R_query_cand.mT
    offset_cand = -(R_cand_query @ offset_query[..., None])[..., 0]
    shares = np.empty(len(found))
    lens_of = index.lens_numbers(found.row)
    for shard, number in np.unique(lens_of, axis=0).tolist():
        same = np.flatnonzero((lens_of == (shard, number)).all(axis=1))
        lens = index.lens(shard, number)
        shares[same] = overlaps(points, R_cand_query[same], offset_cand[same], lens).numpy()
    return shares


def _joined(parts: list[Candidates]) -> Candidates:
    if len(parts) == 1:
        return parts[0]
    names = ("query", "row", "whole_clip", "distance", "angle", "score")
    return Candidates(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _runs(counts: Int[np.ndarray, "query"], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of queries whose counts add up to at most ``most``; one query with more is a range of its own."""
    start, total = 0, 0
    for number, count in enumerate(counts.tolist()):
        if number > start and total + count > most:
            yield start, number
            start, total = number, 0
        total += count
    if start < len(counts):
        yield start, len(counts)
