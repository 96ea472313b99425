"""A second derivation of the encodings by 4 x 4 matrices, pair by pair in numpy, from the relative pose of Eq. 2.

It shares no formula with the library: no anchor, no product of factors, ray frames from azimuth and elevation, the
lens's matrix from pixels to the image by one change of units.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np

from merope.cameras.rays import ViewRays
from tests.encodings.derivation import plane, turn

Pair = tuple[int, int, int, int, int]
"""Clip, query view, query patch, key view, key patch."""

E_X, E_Y = np.array([1.0, 0, 0]), np.array([0, 1.0, 0])


def relative_pose(queries: ViewRays, keys: ViewRays, at: Pair, per_metre: float = 1.0) -> np.ndarray:
    """Eq. 2: rotation and displacement of the key's camera, seen from the query's."""
    clip, i, _, j, _ = at
    R_i, R_j = queries.R_world_cam[clip, i].numpy(), keys.R_world_cam[clip, j].numpy()
    out = np.eye(4)
    out[:3, :3] = R_i.T @ R_j
    away = (keys.center_world[clip, j] - queries.center_world[clip, i]).numpy()
    out[:3, 3] = R_i.T @ away * per_metre
    return out


def lens_matrix(rays: ViewRays, clip: int, view: int) -> np.ndarray:
    """The pinhole matrix in units of the image with its origin in the middle, as 4 x 4."""

    def of_view(parameter) -> float:
        return float(parameter[clip, view]) if hasattr(parameter, "shape") else parameter

    lens = rays.lens
    pixels = np.array(
        [[of_view(lens.fx), 0, of_view(lens.cx)], [0, of_view(lens.fy), of_view(lens.cy)], [0, 0, 1]]
    )
    to_image = np.array([[1 / lens.width, 0, -0.5], [0, 1 / lens.height, -0.5], [0, 0, 1]])
    out = np.eye(4)
    out[:3, :3] = to_image @ pixels
    return out


def level_frame(direction: np.ndarray) -> np.ndarray:
    """Turn by the azimuth about the camera's y axis after the elevation about its x axis."""
    x, y, z = direction
    out = np.eye(4)
    out[:3, :3] = turn(E_Y, math.atan2(x, z)) @ turn(E_X, math.atan2(-y, math.hypot(x, z)))
    return out


def image_turns(queries: ViewRays, keys: ViewRays, at: Pair, width: int) -> list[np.ndarray]:
    """Plane rotations by (query - key) steps in column and then in row, 100 to the power -m / M."""
    _, _, p, _, q = at
    count = width // 4
    return [
        plane(float(step) * 100 ** (-m / count))
        for step in (queries.col[p] - keys.col[q], queries.row[p] - keys.row[q])
        for m in range(count)
    ]


def dense(
    queries: ViewRays, keys: ViewRays, size: int, blocks: Callable[[Pair], Iterable[np.ndarray]]
) -> np.ndarray:
    """Every U_ab from its diagonal blocks, [B, Nq, Nk, d, d]."""
    num, other = queries.tokens_per_view, keys.tokens_per_view
    out = np.zeros((queries.batch, queries.num_tokens, keys.num_tokens, size, size))
    for at in np.ndindex(queries.batch, queries.num_views, num, keys.num_views, other):
        clip, i, p, j, q = at
        start = 0
        for block in blocks(at):
            side = len(block)
            out[clip, i * num + p, j * other + q, start : start + side, start : start + side] = block
            start += side
        assert start == size
    return out
