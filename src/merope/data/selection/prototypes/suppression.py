"""Non-maximum suppression of paths by Frechet distance: those that are kept, and which of them stands for each."""

# Numba infers the types of these functions at each call.
# ruff: noqa: ANN001
# mypy: disable-error-code="no-untyped-def"

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64
from numba import njit
from tqdm import tqdm

from merope.data.selection.prototypes.frechet import bounding_boxes, distance_squared, is_within

# Paths between two movements of the progress bar.
_STRIDE = 4096
# Cells along an axis; their numbers along three axes then fit 64 bits.
_MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Suppressed:
    """What is left of an order of paths."""

    kept: Int64[np.ndarray, "kept"]
    """Numbers of the paths that are kept, in their order."""
    kept_by: Int32[np.ndarray, "path"]
    """For each path the place in `kept` of the one that suppressed it; for a kept one its own."""


def suppress(
    paths: Float32[np.ndarray, "path point 3"],
    order: Int64[np.ndarray, "path"],
    *,
    threshold: float = 1.0,
    progress: bool = False,
) -> Suppressed:
    """Go through the paths in ``order``; keep one unless its discrete Frechet distance to a kept one is <= ``threshold``.

    A path is suppressed by the first of the kept ones that is so near. Any two kept paths are further apart than the
    threshold. It is exact: `suppress_plainly` gives the same, which tests hold it to.

    A path is compared with kept ones alone, and of these with those whose end points lie in the same or a neighbouring cell
    of a grid (27 of them) as wide as the threshold: the distance is never below that of the end points. Memory is linear in
    the number of paths; time depends on how many kept paths end near each other.

    Raises:
        ValueError: if ``order`` is not an order of the paths, ``threshold`` is not positive, or a path is not finite.
    """
    _require(paths, order, threshold)
    cells, neighbours = _grid(paths[:, -1].astype(np.float64), threshold)
    count = len(paths)
    kept, kept_by = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int32)
    heads, tails = np.full((2, len(neighbours)), -1, dtype=np.int32)
    following = np.full(count, -1, dtype=np.int32)
    boxes, num_kept = bounding_boxes(paths) if count else np.empty((0, 6), np.float32), 0
    with tqdm(total=count, desc="suppression", unit="path", disable=not progress) as bar:
        for start in range(0, count, _STRIDE):
            part = order[start : start + _STRIDE]
            num_kept = _suppress(
                paths,
                boxes,
                part,
                cells,
                neighbours,
                threshold * threshold,
                kept,
                kept_by,
                num_kept,
                heads,
                tails,
                following,
            )
            bar.update(len(part))
    return Suppressed(kept[:num_kept].copy(), kept_by)


def suppress_plainly(
    paths: Float32[np.ndarray, "path point 3"], order: Int64[np.ndarray, "path"], *, threshold: float = 1.0
) -> Suppressed:
    """The same by brute force: the whole distance to every kept path, no bound, no grid. The reference for tests."""
    _require(paths, order, threshold)
    kept, kept_by = np.empty(len(paths), dtype=np.int64), np.empty(len(paths), dtype=np.int32)
    num_kept = _suppress_plainly(paths, order, threshold * threshold, kept, kept_by)
    return Suppressed(kept[:num_kept].copy(), kept_by)


def _require(paths: np.ndarray, order: np.ndarray, threshold: float) -> None:
    if not 0 < threshold < np.inf:
        raise ValueError(f"threshold must be > 0; got {threshold}.")
    if len(order) != len(paths) or not np.array_equal(np.sort(order), np.arange(len(paths))):
        raise ValueError(f"order must hold each number from 0 to {len(paths) - 1} once.")
    if not np.isfinite(paths).all():
        raise ValueError("paths must be finite.")


def _grid(ends: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """The cell of each end point, and of each cell that is used the used ones among its 27 neighbours, else -1."""
    if len(ends) == 0:
        return np.empty(0, np.int32), np.empty((0, 27), np.int32)
    least, spread = ends.min(axis=0), float(np.ptp(ends, axis=0).max())
    # A little wider than the threshold: rounding then cannot put two end points that are so near two cells apart.
    width = max(threshold, spread / _MOST_CELLS) * (1 + 1e-6)
    places = np.floor((ends - least) / width).astype(np.int64) + 1
    sizes = places.max(axis=0) + 2
    strides = np.array([sizes[1] * sizes[2], sizes[2], 1])
    keys, cells = np.unique(places @ strides, return_inverse=True)
    steps = np.stack(np.meshgrid(*3 * [np.arange(-1, 2)], indexing="ij"), axis=-1).reshape(-1, 3) @ strides
    neighbours = np.full((len(keys), 27), -1, dtype=np.int32)
    for column, step in enumerate(steps):
        found = np.minimum(np.searchsorted(keys, keys + step), len(keys) - 1)
        there = keys[found] == keys + step
        neighbours[there, column] = found[there]
    return cells.astype(np.int32), neighbours


@njit(cache=True, nogil=True, error_model="numpy")
def _suppress(
    paths, boxes, order, cells, neighbours, limit, kept, kept_by, num_kept, heads, tails, following
):
    """A stretch of the order. Each cell has a chain of the kept paths that end there, the earliest first."""
    above = np.empty(paths.shape[1], dtype=np.bool_)
    below = np.empty(paths.shape[1], dtype=np.bool_)
    for path in order:
        earliest = num_kept
        for cell in neighbours[cells[path]]:
            place = heads[cell] if cell >= 0 else -1
            while 0 <= place < earliest:
                other = kept[place]
                if is_within(paths[path], paths[other], boxes[path], boxes[other], limit, above, below):
                    earliest = place
                    break
                place = following[place]
        kept_by[path] = earliest
        if earliest == num_kept:
            kept[num_kept] = path
            cell = cells[path]
            if heads[cell] < 0:
                heads[cell] = num_kept
            else:
                following[tails[cell]] = num_kept
            tails[cell] = num_kept
            num_kept += 1
    return num_kept


@njit(cache=True, nogil=True, error_model="numpy")
def _suppress_plainly(paths, order, limit, kept, kept_by):
    row = np.empty(paths.shape[1])
    num_kept = 0
    for path in order:
        kept_by[path] = num_kept
        for place in range(num_kept):
            if distance_squared(paths[path], paths[kept[place]], row) <= limit:
                kept_by[path] = place
                break
        if kept_by[path] == num_kept:
            kept[num_kept] = path
            num_kept += 1
    return num_kept
