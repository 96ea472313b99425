"""Other readings of an estimate, and how well each fits the command: what `axes` and `mirrored` decide from.

A reading is a mistake undone: other camera axes, matrices that map the other way, a mirrored world. All of them are
judged in one product by CamMC, which sees orientation and signed motion at once.
"""

from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from merope.evaluation.metrics.paper import Aligned, geodesic_angle, max_normalised
from merope.geometry.poses import Poses
from merope.geometry.rotations import project_to_so3

Kind = Literal["axes", "reversed", "mirrored"]
# Scores closer than this per frame are equal: several readings explain a straight or a level path equally well...
_TIE_PER_FRAME = 1e-4
# ...or, of a noisy estimate, equally badly. Below a tenth more, what is common explains better than what is not.
_NOISY_TIE = 1.1
_MAX_SPREAD_DEG = 2.0
_MAX_OFF_AXIS_DEG = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to read the estimate: in words, and as what a user would do about it; ``common`` if it has a name.

    ``constant_turn_deg`` is how far R_gt^T R_est is from the reading's axes before any gauge, where it is the same turn
    in every frame (spread below 2 degrees); None where it is not, that is where world frames differ.
    """

    kind: Kind
    words: str
    way_out: str
    cammc: float
    common: bool
    constant_turn_deg: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """x_opencv = matrix x_estimate: a row of the table that readings are made of."""

    matrix: tuple[int, ...]
    words: str
    way_out: str
    rank: int


def _named(name: str, flag: str) -> tuple[str, str]:
    return name, f"read the estimate with --camera-axes {flag} (or, if it was read so, opencv)"


_NO_FLAG = "no reading flag undoes this; convert the file"
# Ranks decide ties: the mistakes people make go first. Reversed motion is 2, mirrors 3.
_RANK_UNNAMED = 5
_NAMED = {
    (1, 0, 0, 0, -1, 0, 0, 0, -1): (*_named("OpenGL camera axes (x right, y up, z back)", "opengl"), 0),
    (0, -1, 0, 0, 0, -1, 1, 0, 0): (*_named("vehicle axes (x forward, y left, z up)", "flu"), 0),
    (0, 1, 0, 0, 0, 1, 1, 0, 0): (*_named("vehicle axes (x forward, y right, z down)", "frd"), 0),
    (0, 1, 0, 0, 0, -1, 1, 0, 0): (
        *_named("the left-handed axes of Unreal (x forward, y right, z up)", "unreal"),
        1,
    ),
    (-1, 0, 0, 0, -1, 0, 0, 0, -1): ("the same path driven the other way", "", 2),
    (-1, 0, 0, 0, -1, 0, 0, 0, 1): ("a camera turned upside down (half turn about its z axis)", _NO_FLAG, 4),
    (-1, 0, 0, 0, 1, 0, 0, 0, -1): (
        "a camera that looks backwards (half turn about its y axis)",
        _NO_FLAG,
        4,
    ),
}
_MIRRORED_BOTH = (
    "the file was written in left-handed axes and has right-handed rotations, which --mirror x|y|z cannot undo: read with "
    "--camera-axes unreal it needs flu, and else an export with the axes of world and camera converted together"
)
_MIRRORED_CENTERS = (
    "the world of the file is left-handed: read it with --mirror {axis} where its rotations have determinant -1, and "
    "else negate {axis} of its centres"
)


@cache
def _signed_axes() -> tuple[tuple[_Axes, ...], Tensor]:
    """The 48 signed permutations of the axes and their matrices; the first is the identity."""
    identity = torch.eye(3, dtype=torch.float64)
    rows: list[_Axes] = []
    for order in permutations(range(3)):
        for signs in product((1.0, -1.0), repeat=3):
            matrix = identity[list(order)] * torch.tensor(signs, dtype=torch.float64)[:, None]
            flat = tuple(int(entry) for entry in matrix.flatten().tolist())
            diagonal = [flat[0], flat[4], flat[8]]
            if flat in _NAMED:
                words, way_out, rank = _NAMED[flat]
            elif float(torch.det(matrix)) < 0 and sum(diagonal) == 1 and 0 not in diagonal:
                axis = "xyz"[diagonal.index(-1)]
                words, way_out, rank = (
                    f"a mirror image, {axis} of camera and world negated",
                    _MIRRORED_BOTH,
                    3,
                )
            else:
                rows_text = [list(flat[start : start + 3]) for start in (0, 3, 6)]
                hand = "other" if float(torch.det(matrix)) > 0 else "left-handed"
                words, way_out = f"{hand} camera axes (x_opencv = {rows_text} x_estimate)", _NO_FLAG
                rank = _RANK_UNNAMED
            rows.append(_Axes(matrix=flat, words=words, way_out=way_out, rank=rank))
    return tuple(rows), torch.tensor([row.matrix for row in rows], dtype=torch.float64).reshape(-1, 3, 3)


def best_reading(commanded: Poses, estimated: Poses, aligned: Aligned) -> Reading:
    """The reading that brings the estimate closest to the command, other than the one given.

    Tried are the 47 other signed permutations of the camera's axes (the left-handed ones are mirror images, and one of
    those is the reversed path), world-to-camera matrices in any right-handed axes, transposed rotations, and centres
    with one world axis negated. Among equals go first: axes that the raw rotations confirm, then common mistakes.
    """
    axes, matrices = _signed_axes()
    proper = torch.linalg.det(matrices) > 0
    num = len(aligned)
    found: list[tuple[float, int, Reading]] = []

    def add(score: float, rank: int, reading: Reading) -> None:
        found.append((score, rank, reading))

    turn = constant_turn(commanded, estimated)
    confirmed: list[float | None] = [None] * len(axes)
    if turn is not None:
        off_axis = torch.rad2deg(geodesic_angle(turn.expand_as(matrices[proper]), matrices[proper])).tolist()
        for row, off in zip(proper.nonzero().flatten().tolist(), off_axis, strict=True):
            confirmed[row] = off if off < _MAX_OFF_AXIS_DEG else None
    scores = _cammc_in_axes(aligned, aligned.R_hat_rel, aligned.center_hat_rel, matrices)
    for row, (named, score) in enumerate(zip(axes, scores, strict=True)):
        if row == 0:
            continue
        kind: Kind = "axes" if proper[row] else "reversed" if named.rank == 2 else "mirrored"
        rank = -1 if confirmed[row] is not None else named.rank
        add(
            score,
            rank,
            Reading(
                kind=kind,
                words=named.words,
                way_out=named.way_out,
                cammc=score,
                common=rank < _RANK_UNNAMED,
                constant_turn_deg=confirmed[row],
            ),
        )
    for words, way_out, rank, kind, score in _other_readings(commanded, estimated, aligned):
        add(
            score,
            rank,
            Reading(kind=kind, words=words, way_out=way_out, cammc=score, common=rank < _RANK_UNNAMED),
        )
    tie = _TIE_PER_FRAME * num
    close = _NOISY_TIE * min(score for score, _, _ in found) + tie
    commonest = min(rank for score, rank, _ in found if score <= close)
    rivals = [(score, reading) for score, rank, reading in found if rank == commonest]
    least = min(score for score, _ in rivals)
    return next(reading for score, reading in rivals if score <= least + tie)


def _other_readings(
    commanded: Poses, estimated: Poses, aligned: Aligned
) -> list[tuple[str, str, int, Kind, float]]:
    readings: list[tuple[str, str, int, Kind, float]] = []
    R_cam_world = estimated.R_world_cam.mT
    center_inverse = -(R_cam_world @ estimated.center_world[..., None]).squeeze(-1)
    R_first = estimated.R_world_cam[0]
    # Read the other way round: relative to the first camera, (R_1 R_t^T, R_1 (o'_t - o'_1)).
    R_inverse_rel = R_first @ R_cam_world
    center_inverse_rel = (center_inverse - center_inverse[0]) @ R_first.T
    axes, matrices = _signed_axes()
    proper = (torch.linalg.det(matrices) > 0).nonzero().flatten().tolist()
    scores = _cammc_in_axes(aligned, R_inverse_rel, center_inverse_rel, matrices[proper])
    for row, score in zip(proper, scores, strict=True):
        words = "world-to-camera matrices read as camera-to-world"
        way_out = (
            "read the estimate with --direction world-to-camera (or, if it was read so, camera-to-world)"
        )
        rank = 0
        if row != 0:
            words += f", in {axes[row].words}"
            way_out += "; " + axes[row].way_out
            rank = axes[row].rank + _RANK_UNNAMED
        readings.append((words, way_out, rank, "axes", score))
    identity = matrices[:1]
    transposed = _cammc_in_axes(
        aligned,
        R_inverse_rel,
        (estimated.center_world - estimated.center_world[0]) @ R_first.T,
        identity,
    )
    readings.append(
        (
            "transposed rotations (row-vector matrices)",
            "transpose the rotations in the file",
            0,
            "axes",
            transposed[0],
        )
    )
    step = estimated.center_world - estimated.center_world[0]
    for axis in range(3):
        mirrored = step.clone()
        mirrored[:, axis] *= -1
        (score,) = _cammc_in_axes(aligned, aligned.R_hat_rel, mirrored @ R_first, identity)
        name = "xyz"[axis]
        readings.append(
            (
                f"a path mirrored in its world, {name} of the centres negated",
                _MIRRORED_CENTERS.format(axis=name),
                3,
                "mirrored",
                score,
            )
        )
    return readings


def _cammc_in_axes(
    aligned: Aligned,
    R_hat_rel: Float[Tensor, "view 3 3"],
    center_hat_rel: Float[Tensor, "view 3"],
    axes: Float[Tensor, "reading 3 3"],
) -> list[float]:
    """CamMC (Eq. 43) of (A R_hat A^T, A o_hat) for every A, by 6 - 2 tr and the law of cosines.

    Good to 1e-7 per frame, which is enough to compare readings.
    """
    R, center = aligned.R_rel, max_normalised(aligned.center_rel)
    center_hat = max_normalised(center_hat_rel)
    # tr(R^T A R_hat A^T) = sum over i, a, j, b of (R_ij R_hat_ab) (A_ia A_jb)
    products = torch.einsum("tij,tab->tiajb", R, R_hat_rel).flatten(1)
    pairs = torch.einsum("kia,kjb->kiajb", axes, axes).flatten(1)
    traces = products @ pairs.T
    cosines = torch.einsum("ti,ta->tia", center, center_hat).flatten(1) @ axes.flatten(1).T
    lengths = center.square().sum(-1) + center_hat.square().sum(-1)
    squares = (6 - 2 * traces) + (lengths[:, None] - 2 * cosines)
    return [float(total) for total in squares.clamp_min(0).sqrt().sum(0).tolist()]


def constant_turn(commanded: Poses, estimated: Poses) -> Float[Tensor, "3 3"] | None:
    """The rotation R_gt^T R_est where it is the same in every frame to 2 degrees, before any gauge; else None."""
    R_cam_estimated = commanded.R_world_cam.mT @ estimated.R_world_cam
    mean = project_to_so3(R_cam_estimated.mean(0))
    spread_deg = torch.rad2deg(geodesic_angle(mean.expand_as(R_cam_estimated), R_cam_estimated)).max()
    return mean if float(spread_deg) < _MAX_SPREAD_DEG else None
