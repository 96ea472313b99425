"""A second derivation of MeRoPE's U_ab, pair by pair in numpy, from Eqs. 5-11 and B.1 of the paper.

It shares no formula with the library: rotations are built from axis and angle, anchors by turning the far
direction about the normal of its epipolar plane, native phases from positions' differences.
"""

import math

import numpy as np

from merope.cameras.rays import ViewRays
from merope.encodings import MeRoPE

E_Z = np.array([0.0, 0.0, 1.0])


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rotation by an angle about a unit axis."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return (
        math.cos(angle) * np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * np.outer(axis, axis)
    )


def frame(direction: np.ndarray) -> np.ndarray:
    """Eq. 5: the smallest rotation from e_z to the direction; a half turn about x straight behind."""
    normal = np.cross(E_Z, direction)
    length = np.linalg.norm(normal)
    if length < 1e-12:
        return np.eye(3) if direction[2] > 0 else np.diag([1.0, -1.0, -1.0])
    return turn(normal / length, math.atan2(length, direction[2]))


def anchor_frames(far: np.ndarray, offset: np.ndarray, encoding: MeRoPE) -> list[np.ndarray]:
    """Eq. 9 and the frames of Eq. 10, with both collapses."""
    baseline = np.linalg.norm(offset)
    normal = np.cross(far, offset)
    if baseline == 0 or np.linalg.norm(normal) < 1e-12 * baseline:
        return [frame(far)] * len(encoding.fractions)
    normal = normal / np.linalg.norm(normal)
    nearest = offset + encoding.min_scene_depth * far
    arc = math.atan2(np.linalg.norm(np.cross(far, nearest)), far @ nearest)
    turns = [turn(normal, fraction * arc) for fraction in encoding.fractions]
    if encoding.anchor_frames == "transported":
        return [one @ frame(far) for one in turns]
    return [frame(one @ far) for one in turns]


def plane(phase: float) -> np.ndarray:
    """Rot of Eq. 8."""
    return np.array([[math.cos(phase), -math.sin(phase)], [math.sin(phase), math.cos(phase)]])


def blocks(queries: ViewRays, keys: ViewRays, encoding: MeRoPE, at: tuple[int, int, int, int, int]) -> list:
    """The diagonal blocks of U_ab for query (view, patch) and key (view, patch) of one clip."""
    clip, i, p, j, q = at
    layout = encoding.resolved_layout
    R_i, R_j = queries.R_world_cam[clip, i].numpy(), keys.R_world_cam[clip, j].numpy()
    offset = R_i.T @ (keys.center_world[clip, j] - queries.center_world[clip, i]).numpy()
    d_query, d_key = queries.dirs_cam[clip, i, p].numpy(), keys.dirs_cam[clip, j, q].numpy()
    out: list[np.ndarray] = []
    if "disp" in encoding.components:
        far = R_i.T @ R_j @ d_key
        for anchor in anchor_frames(far, offset, encoding):
            out += [frame(d_query).T @ anchor] * (layout.disp // 3 // len(encoding.fractions))
    else:
        out.append(np.eye(layout.disp))
    if "rot" in encoding.components:
        out += [frame(d_query).T @ R_i.T @ R_j @ frame(d_key)] * (layout.rot // 3)
    else:
        out.append(np.eye(layout.rot))
    if "trans" in encoding.components:
        count = layout.trans // 6
        if encoding.single_frequency is not None:
            lengths = [encoding.single_frequency] * count
        else:
            ends = math.log(encoding.wavelength_min), math.log(encoding.wavelength_max)
            lengths = np.exp(np.linspace(*ends, count)).tolist()
        out += [plane(2 * math.pi / length * offset[axis]) for axis in range(3) for length in lengths]
    else:
        out.append(np.eye(layout.trans))
    steps = (
        (keys.time[clip, j] - queries.time[clip, i]).item(),
        (keys.row[q] - queries.row[p]).item(),
        (keys.col[q] - queries.col[p]).item(),
    )
    for step, width in zip(steps, layout.native, strict=True):
        out += [plane(step * encoding.native_base ** (-2 * m / width)) for m in range(width // 2)]
    return out


def dense(queries: ViewRays, keys: ViewRays, encoding: MeRoPE) -> np.ndarray:
    """Every U_ab, [B, Nq, Nk, d, d]."""
    batch, num, other = queries.batch, queries.tokens_per_view, keys.tokens_per_view
    size = encoding.head_dim
    out = np.zeros((batch, queries.num_tokens, keys.num_tokens, size, size))
    for place in np.ndindex(batch, queries.num_views, num, keys.num_views, other):
        clip, i, p, j, q = place
        start = 0
        for block in blocks(queries, keys, encoding, place):
            side = len(block)
            out[clip, i * num + p, j * other + q, start : start + side, start : start + side] = block
            start += side
        assert start == size
    return out
