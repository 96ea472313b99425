"""The rigid motion, or rigid motion and scale, that lays one path over another (Umeyama, IEEE PAMI 1991)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.errors import TrajectoryError

# Below this share of the first singular value of the centred centres the second one is noise: the path is a line.
COLLINEAR_SHARE = 1e-3
# Spread (root mean square, in the path's own unit) below which centres are one point.
STATIC_SPREAD = 1e-9


class AlignmentUndefined(TrajectoryError):
    """Centres that do not determine the alignment; the message is the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """x_target = scale * R_target_source x_source + offset_target; ``scale`` is 1 for a rigid motion."""

    R_target_source: Float[Tensor, "3 3"]
    offset_target: Float[Tensor, "3"]
    scale: float

    def apply(self, center_source: Float[Tensor, "view 3"]) -> Float[Tensor, "view 3"]:
        """Source centres in the target's coordinates."""
        return self.scale * center_source @ self.R_target_source.T + self.offset_target


def why_no_rotation(center: Float[Tensor, "view 3"]) -> str | None:
    """Why these centres do not fix a rotation, as the end of a sentence; None where they do.

    Fewer than three centres, one point, or a line: the second singular value of the centred centres is below
    1e-3 of the first.
    """
    if len(center) < 3:
        return f"has {len(center)} centres, and an alignment needs 3"
    # Eigenvalues of the scatter are the squared singular values; 1e-3 squared is far above float64's rounding.
    centred = center - center.mean(0)
    squared = torch.linalg.eigvalsh(centred.T @ centred).clamp_min(0).tolist()
    largest, second = squared[2] ** 0.5, squared[1] ** 0.5
    if largest / len(center) ** 0.5 < STATIC_SPREAD:
        return "stays at one point"
    if second < COLLINEAR_SHARE * largest:
        return (
            f"is a straight line (second singular value {second / largest:.2g} of the first, below "
            f"{COLLINEAR_SHARE:g}): rotation about the path axis is unobservable"
        )
    return None


def align(
    center_target: Float[Tensor, "view 3"], center_source: Float[Tensor, "source 3"], *, with_scale: bool
) -> Alignment:
    """The least-squares rigid motion, or with ``with_scale`` similarity, from source to target centres.

    Minimises sum |x_target - (s R x_source + t)|^2 over rotations R (determinant 1), t, and s where it is free:
    Umeyama's Eqs. 34-43, from the singular vectors of the covariance with the sign of the last one corrected.
    All in float64; both sides are centred first, so map coordinates of millions of metres keep their digits.

    Raises:
        ValueError: if the numbers of centres differ.
        AlignmentUndefined: if either side does not fix a rotation (`why_no_rotation`).
    """
    return align_both_ways(center_target, center_source)[1 if with_scale else 0]


def align_both_ways(
    center_target: Float[Tensor, "view 3"], center_source: Float[Tensor, "source 3"]
) -> tuple[Alignment, Alignment]:
    """The SE(3) and the Sim(3) alignment of `align`, which share their rotation."""
    if len(center_target) != len(center_source):
        raise ValueError(
            f"both sides must have the same number of centres, got {len(center_target)} and {len(center_source)}. "
            "Match them first (by frame index or time)."
        )
    target, source = (center.detach().to("cpu", torch.float64) for center in (center_target, center_source))
    for name, center in (("commanded", target), ("recovered", source)):
        problem = why_no_rotation(center)
        if problem is not None:
            raise AlignmentUndefined(f"the {name} path {problem}")
    mean_target, mean_source = target.mean(0), source.mean(0)
    target, source = target - mean_target, source - mean_source
    left, singular, right = torch.linalg.svd(target.T @ source)
    signs = torch.ones(3, dtype=torch.float64)
    if float(torch.det(left) * torch.det(right)) < 0:
        signs[2] = -1
    rotation = left @ (signs[:, None] * right)
    rigid, similar = (
        Alignment(
            R_target_source=rotation, offset_target=mean_target - scale * rotation @ mean_source, scale=scale
        )
        for scale in (1.0, float((singular * signs).sum() / source.square().sum()))
    )
    return rigid, similar
