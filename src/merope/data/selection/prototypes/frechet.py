"""The discrete Frechet distance of paths in three dimensions, and whether it is within a threshold, which costs far less.

With p of P and q of Q points, a coupling is a sequence of pairs (i, j) from (0, 0) to (P - 1, Q - 1) in which i, j or both
go up by one; the distance is the least, over couplings, of the longest |p_i - q_j|. It is never below the Frechet distance
of the curves through the points, and above it by at most the longest step of either.

Everything is compared as squares in float64, by the same operations in the same order, so the fast decision is the slow
one to the last bit. Every bound below only replaces a difference of coordinates by one that is no larger in magnitude, and
rounding keeps that order.
"""

# Numba infers the types of these functions at each call.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def"

import numpy as np
from jaxtyping import Bool, Float32, Float64
from numba import njit

_kernel = njit(cache=True, nogil=True, error_model="numpy")


def frechet_distances(
    first: Float32[np.ndarray, "pair point 3"], second: Float32[np.ndarray, "pair point_2 3"]
) -> Float64[np.ndarray, "pair"]:
    """The discrete Frechet distance of each pair of paths, in their unit.

    Raises:
        ValueError: if there are not as many first as second paths, a path has no points, or a value is not finite.
    """
    _require_pairs(first, second)
    out = np.empty(len(first))
    _distances(first, second, out)
    return np.sqrt(out)


def frechet_within(
    first: Float32[np.ndarray, "pair point 3"],
    second: Float32[np.ndarray, "pair point_2 3"],
    threshold: float,
) -> Bool[np.ndarray, "pair"]:
    """Whether the discrete Frechet distance of each pair is at most ``threshold``, without computing it.

    Raises:
        ValueError: as `frechet_distances`, or if ``threshold`` is negative or not finite.
    """
    _require_pairs(first, second)
    if not 0 <= threshold < np.inf:
        raise ValueError(f"threshold must be a length; got {threshold}.")
    out = np.empty(len(first), dtype=np.bool_)
    _decisions(first, second, bounding_boxes(first), bounding_boxes(second), threshold * threshold, out)
    return out


def frechet_lower_bounds(
    first: Float32[np.ndarray, "pair point 3"], second: Float32[np.ndarray, "pair point_2 3"]
) -> Float64[np.ndarray, "pair bound"]:
    """Three lengths that the distance is never below: by end points, by bounding boxes, by points outside of boxes."""
    _require_pairs(first, second)
    out = np.empty((len(first), 3))
    _bounds(first, second, bounding_boxes(first), bounding_boxes(second), out)
    return np.sqrt(out)


def bounding_boxes(paths: Float32[np.ndarray, "path point 3"]) -> Float32[np.ndarray, "path 6"]:
    """Least x, y, z and largest x, y, z of each path."""
    return np.concatenate([paths.min(axis=1), paths.max(axis=1)], axis=1)


def _require_pairs(first: np.ndarray, second: np.ndarray) -> None:
    if len(first) != len(second) or first.shape[1] == 0 or second.shape[1] == 0:
        raise ValueError(
            f"paths must come in pairs and have points; got {list(first.shape)} and {list(second.shape)}."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("paths must be finite.")


@_kernel
def between_squared(p, i, q, j):
    """|p_i - q_j|^2 in float64."""
    x = np.float64(p[i, 0]) - np.float64(q[j, 0])
    y = np.float64(p[i, 1]) - np.float64(q[j, 1])
    z = np.float64(p[i, 2]) - np.float64(q[j, 2])
    return x * x + y * y + z * z


@_kernel
def ends_squared(p, q):
    """A lower bound: every coupling pairs the first points with each other, and the last ones."""
    return max(between_squared(p, 0, q, 0), between_squared(p, p.shape[0] - 1, q, q.shape[0] - 1))


@_kernel
def boxes_squared(box_p, box_q):
    """A lower bound: the farthest that one side of p's box is from the same side of q's.

    Let p_i have p's largest x. A coupling pairs it with some q_j, whose x is at most q's largest, so
    |p_i - q_j| >= max p.x - max q.x; with p and q exchanged, the magnitude. Least values and the other axes alike.
    """
    largest = 0.0
    for side in range(6):
        gap = np.float64(box_p[side]) - np.float64(box_q[side])
        largest = max(largest, gap * gap)
    return largest


@_kernel
def outside_squared(p, box_q, limit):
    """A lower bound: the farthest that a point of p is from q's box; stops above ``limit``.

    A coupling pairs each p_i with some q_j, which lies in q's box: |p_i - q_j| is at least the distance from p_i to it.
    """
    largest = 0.0
    for i in range(p.shape[0]):
        total = 0.0
        for axis in range(3):
            value = np.float64(p[i, axis])
            gap = max(np.float64(box_q[axis]) - value, value - np.float64(box_q[3 + axis]), 0.0)
            total += gap * gap
        largest = max(largest, total)
        if largest > limit:
            break
    return largest


@_kernel
def coupled_by_number(p, q, limit):
    """Whether pairing equal numbers of points, which is a coupling, stays within the limit; False of unequal lengths."""
    same = p.shape[0] == q.shape[0]
    i = 0
    while same and i < p.shape[0]:
        same = between_squared(p, i, q, i) <= limit
        i += 1
    return same


@_kernel
def distance_squared(p, q, row):
    """The square of the distance: for each p_i in turn, ``row[j]`` is that of the paths up to i and j."""
    row[0] = between_squared(p, 0, q, 0)
    for j in range(1, q.shape[0]):
        row[j] = max(row[j - 1], between_squared(p, 0, q, j))
    for i in range(1, p.shape[0]):
        diagonal = row[0]
        row[0] = max(row[0], between_squared(p, i, q, 0))
        for j in range(1, q.shape[0]):
            before = min(diagonal, row[j], row[j - 1])
            diagonal = row[j]
            row[j] = max(before, between_squared(p, i, q, j))
    return row[q.shape[0] - 1]


@_kernel
def reaches_end(p, q, limit, above, below):
    """Whether a coupling stays within the limit: the pairs it can reach, one p_i after another, until there are none.

    ``above`` and ``below`` are rows of truth values, of which those between the first and the last reached are valid.
    """
    first, last = 0, -1
    for j in range(q.shape[0]):
        if between_squared(p, 0, q, j) > limit:
            break
        above[j] = True
        last = j
    for i in range(1, p.shape[0]):
        if last < 0:
            return False
        next_first, next_last, left = -1, -1, False
        for j in range(first, q.shape[0]):
            if j > last + 1 and not left:
                break
            open_here = left or (j <= last and above[j]) or (first < j <= last + 1 and above[j - 1])
            left = open_here and between_squared(p, i, q, j) <= limit
            below[j] = left
            if left:
                next_last = j
                if next_first < 0:
                    next_first = j
        first, last = next_first, next_last
        above, below = below, above
    return last == q.shape[0] - 1


@_kernel
def is_within(p, q, box_p, box_q, limit, above, below):
    """Whether the squared distance is at most ``limit``: cheap refusals, then a cheap consent, then the couplings."""
    if ends_squared(p, q) > limit or boxes_squared(box_p, box_q) > limit:
        return False
    if coupled_by_number(p, q, limit):
        return True
    if outside_squared(p, box_q, limit) > limit or outside_squared(q, box_p, limit) > limit:
        return False
    return reaches_end(p, q, limit, above, below)


@_kernel
def _distances(first, second, out):
    row = np.empty(second.shape[1])
    for pair in range(first.shape[0]):
        out[pair] = distance_squared(first[pair], second[pair], row)


@_kernel
def _decisions(first, second, boxes_first, boxes_second, limit, out):
    above = np.empty(second.shape[1], dtype=np.bool_)
    below = np.empty(second.shape[1], dtype=np.bool_)
    for pair in range(first.shape[0]):
        out[pair] = is_within(
            first[pair], second[pair], boxes_first[pair], boxes_second[pair], limit, above, below
        )


@_kernel
def _bounds(first, second, boxes_first, boxes_second, out):
    for pair in range(first.shape[0]):
        p, q, box_p, box_q = first[pair], second[pair], boxes_first[pair], boxes_second[pair]
        out[pair, 0] = ends_squared(p, q)
        out[pair, 1] = boxes_squared(box_p, box_q)
        out[pair, 2] = max(outside_squared(p, box_q, np.inf), outside_squared(q, box_p, np.inf))
