"""Pairwise joint pose error and its area under the threshold curve (Eqs. 41, 42), pooled exactly over clips.

A clip of T frames has T (T - 1) / 2 pairs. They are counted against integer thresholds in blocks, so a
5 000-frame clip needs no more memory than a short one, and none is ever subsampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from merope.evaluation.metrics.paper import Aligned, AngleMethod, angle_of, moving

# The error of a pair whose commanded or recovered translation vanishes: no threshold reaches it.
SENTINEL_DEG = 1e6
MAX_THRESHOLD_DEG = 10
_BLOCK_PAIRS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCounts:
    """Pairs of one clip (or, added up, of many) below each integer threshold.

    ``below[k - 1]`` counts pairs with joint error < k degrees under the paper's unoriented direction,
    ``below_oriented`` those that also move the right way; ``num_vanishing`` got the sentinel.
    """

    num_pairs: int
    num_vanishing: int
    below: tuple[int, ...]
    below_oriented: tuple[int, ...]

    def __add__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(
            num_pairs=self.num_pairs + other.num_pairs,
            num_vanishing=self.num_vanishing + other.num_vanishing,
            below=tuple(a + b for a, b in zip(self.below, other.below, strict=True)),
            below_oriented=tuple(
                a + b for a, b in zip(self.below_oriented, other.below_oriented, strict=True)
            ),
        )

    def auc_percent(self, threshold_deg: int, *, oriented: bool = False) -> float | None:
        """AUC@threshold in percent (Eq. 42); None where there are no pairs.

        Raises:
            ValueError: if the threshold is not an integer from 1 to 10.
        """
        if not 1 <= threshold_deg <= MAX_THRESHOLD_DEG:
            raise ValueError(
                f"threshold_deg must be a whole number from 1 to {MAX_THRESHOLD_DEG}, got {threshold_deg}."
            )
        if self.num_pairs == 0:
            return None
        counts = self.below_oriented if oriented else self.below
        return 100.0 * sum(counts[:threshold_deg]) / (threshold_deg * self.num_pairs)

    @classmethod
    def none_below(cls, num_pairs: int) -> "PairCounts":
        """Counts of a clip whose every pair fails."""
        zeros = (0,) * MAX_THRESHOLD_DEG
        return cls(num_pairs=num_pairs, num_vanishing=num_pairs, below=zeros, below_oriented=zeros)


def direction_error_deg(
    offset: Float[Tensor, "*batch 3"],
    offset_hat: Float[Tensor, "*batch 3"],
    *,
    oriented: bool = False,
    vanishing: float = 1e-9,
    method: AngleMethod = "atan2",
) -> Float[Tensor, "*batch"]:
    """Angle between two translations in degrees, sign ignored as in Eq. 41 unless ``oriented``.

    Degenerate: the sentinel (1e6) where either is no longer than ``vanishing``.
    """
    return _direction_errors(offset, offset_hat, vanishing, method)[1 if oriented else 0]


def _direction_errors(
    offset: Tensor, offset_hat: Tensor, vanishing: float, method: AngleMethod
) -> tuple[Tensor, Tensor]:
    """`direction_error_deg` without and with orientation, which share all but the sign of the cosine."""
    dot = (offset * offset_hat).sum(-1)
    defined = moving(offset, vanishing) & moving(offset_hat, vanishing)
    if method == "acos":
        lengths = (offset.norm(dim=-1) * offset_hat.norm(dim=-1)).clamp_min(1e-300)
        angles = [torch.acos((cosine / lengths).clamp(-1, 1)) for cosine in (dot.abs(), dot)]
    else:
        sine = torch.linalg.cross(offset, offset_hat).norm(dim=-1)
        angles = [torch.atan2(sine, cosine) for cosine in (dot.abs(), dot)]
    unoriented, oriented = (torch.where(defined, torch.rad2deg(angle), SENTINEL_DEG) for angle in angles)
    return unoriented, oriented


def _block_errors(
    aligned: Aligned, rows: slice, first_column: int, method: AngleMethod
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotation, unoriented and oriented direction errors (deg) of pairs (rows, first_column...), [rows, columns]."""
    R_i, R_hat_i = aligned.R_rel[rows], aligned.R_hat_rel[rows]
    # R_ij^T R_hat_ij = R_j^T (R_i R_hat_i^T) R_hat_j is conjugate to D_i^T D_j with D_t = R_hat_t R_t^T, so the
    # angle of every pair comes from one product of per-frame matrices.
    D = aligned.R_hat_rel @ aligned.R_rel.transpose(-1, -2)
    R_delta = torch.einsum("iba,jbc->ijac", D[rows], D[first_column:])
    rotation = torch.rad2deg(angle_of(R_delta, method=method))
    # Translations of T_i^{-1} T_j, in camera i's own frame.
    step = aligned.center_rel[None, first_column:] - aligned.center_rel[rows, None]
    step_hat = aligned.center_hat_rel[None, first_column:] - aligned.center_hat_rel[rows, None]
    offset = torch.einsum("iba,ijb->ija", R_i, step)
    offset_hat = torch.einsum("iba,ijb->ija", R_hat_i, step_hat)
    unoriented, oriented = _direction_errors(offset, offset_hat, aligned.vanishing, method)
    return rotation, unoriented, oriented


def pair_errors_deg(
    aligned: Aligned, *, oriented: bool = False, method: AngleMethod = "atan2"
) -> Float[Tensor, "pair"]:
    """Joint error e_ij = max(rotation, direction) in degrees of all pairs i < j, row by row (Eq. 41).

    Keeps all T (T - 1) / 2 values; `count_pairs` does not.
    """
    rotation, unoriented_error, oriented_error = _block_errors(aligned, slice(0, len(aligned)), 0, method)
    joint = torch.maximum(rotation, oriented_error if oriented else unoriented_error)
    i, j = torch.triu_indices(len(aligned), len(aligned), offset=1)
    return joint[i, j]


def count_pairs(aligned: Aligned, *, first: int = 0, method: AngleMethod = "atan2") -> PairCounts:
    """Count the pairs of a clip below 1, 2, ..., 10 degrees (strictly, as in Eq. 42).

    ``first`` keeps pairs whose later frame is at or after it: with the number of given frames, pairs that
    involve generated content.
    """
    return count_pairs_from(aligned, (first,), method=method)[0]


def count_pairs_from(
    aligned: Aligned, firsts: Sequence[int], *, method: AngleMethod = "atan2"
) -> list[PairCounts]:
    """`count_pairs` for several ``first`` at once: errors are computed once, and counted for each."""
    num_frames = len(aligned)
    earliest = min(firsts)
    counts = [PairCounts.none_below(0) for _ in firsts]
    start = 0
    while start < num_frames - 1:
        first_column = max(start + 1, earliest)
        columns = num_frames - first_column
        if columns <= 0:
            break
        stop = min(start + max(1, _BLOCK_PAIRS // columns), num_frames - 1)
        rotation, unoriented, oriented = _block_errors(aligned, slice(start, stop), first_column, method)
        column = torch.arange(first_column, num_frames)[None]
        later = column > torch.arange(start, stop)[:, None]
        vanishing = unoriented >= SENTINEL_DEG
        places = [_place(torch.maximum(rotation, direction)) for direction in (unoriented, oriented)]
        for index, first in enumerate(firsts):
            kept = later if first <= first_column else later & (column >= first)
            below, below_oriented = (
                torch.bincount(place[kept], minlength=MAX_THRESHOLD_DEG + 1).cumsum(0)[:MAX_THRESHOLD_DEG]
                for place in places
            )
            counts[index] += PairCounts(
                num_pairs=int(kept.sum()),
                num_vanishing=int((vanishing & kept).sum()),
                below=tuple(below.tolist()),
                below_oriented=tuple(below_oriented.tolist()),
            )
        start = stop
    return counts


def _place(joint: Float[Tensor, "row column"]) -> Int[Tensor, "row column"]:
    """The whole degrees below each error, 0 to 10: an error equal to k counts from k + 1 on, since e < k is strict."""
    return joint.clamp(max=MAX_THRESHOLD_DEG).floor().long()
