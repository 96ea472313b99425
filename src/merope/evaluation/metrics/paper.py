"""The per-frame pose metrics of the paper's appendix B.2 (Eqs. 35-40 and 43-45), float64 throughout.

T frames; index 0 is the paper's t = 1. ``*_rel`` is relative to the first frame. These functions know
trajectories only: whoever recovered the poses, and from what, is not their business.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.geometry.poses import Poses
from merope.geometry.rotations import angle_from_identity

AngleMethod = Literal["atan2", "acos"]
# Eq. 38
MAX_NORM_EPSILON = 1e-9


def geodesic_angle(
    R_a: Float[Tensor, "*batch 3 3"], R_b: Float[Tensor, "*batch 3 3"], *, method: AngleMethod = "atan2"
) -> Float[Tensor, "*batch"]:
    """Angle in radians between two rotations (Eq. 36 without its conversion to degrees).

    The default takes ``atan2(sin, cos)`` from the antisymmetric part and the trace, exact to float64 at 0;
    ``acos`` is the paper's formula, which has a floor near 1e-8 rad. Near 180 degrees the antisymmetric part
    vanishes and the angle comes from the trace's side of ``atan2``, which is exact there too.
    """
    return angle_of(R_a.mT @ R_b, method=method)


def angle_of(
    R_delta: Float[Tensor, "*batch 3 3"], *, method: AngleMethod = "atan2"
) -> Float[Tensor, "*batch"]:
    """`geodesic_angle` from the product R_a^T R_b, for callers that have it."""
    if method == "acos":
        cosine = (R_delta.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
        return torch.acos(cosine.clamp(-1, 1))
    if method != "atan2":
        raise ValueError(f"method must be 'atan2' or 'acos', got {method!r}.")
    return angle_from_identity(R_delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Commanded and estimated motion relative to the first frame (Eq. 35); the estimate carries a hat in the paper.

    ``vanishing`` is the translation length below which a direction is rounding noise: 1e-9, or more where the
    source centres lie so far from the origin that float64 itself resolves less.
    """

    R_rel: Float[Tensor, "view 3 3"]
    center_rel: Float[Tensor, "view 3"]
    R_hat_rel: Float[Tensor, "view 3 3"]
    center_hat_rel: Float[Tensor, "view 3"]
    vanishing: float = 1e-9

    def __len__(self) -> int:
        return len(self.R_rel)

    @classmethod
    def from_poses(cls, commanded: Poses, estimated: Poses) -> "Aligned":
        """Put both trajectories in the frame of their own first camera, with the closed-form inverse.

        Raises:
            ValueError: if the lengths differ or there are fewer than two frames.
        """
        if len(commanded) != len(estimated):
            raise ValueError(
                f"commanded and estimated must have the same number of poses, got {len(commanded)} and "
                f"{len(estimated)}. Match them first (by frame index or time), or take a window of each."
            )
        if len(commanded) < 2:
            raise ValueError(f"a trajectory needs at least 2 poses to be compared, got {len(commanded)}.")
        R_rel, center_rel = _relative_to_first(commanded)
        R_hat_rel, center_hat_rel = _relative_to_first(estimated)
        largest = max(float(commanded.center_world.abs().max()), float(estimated.center_world.abs().max()))
        return cls(
            R_rel=R_rel,
            center_rel=center_rel,
            R_hat_rel=R_hat_rel,
            center_hat_rel=center_hat_rel,
            vanishing=max(1e-9, 16 * torch.finfo(torch.float64).eps * largest),
        )


def _relative_to_first(poses: Poses) -> tuple[Tensor, Tensor]:
    R_world_cam = poses.R_world_cam.detach().to(device="cpu", dtype=torch.float64)
    center_world = poses.center_world.detach().to(device="cpu", dtype=torch.float64)
    R_first_world = R_world_cam[0].T
    return R_first_world @ R_world_cam, (center_world - center_world[0]) @ R_first_world.T


def frames_from(aligned: Aligned, first: int) -> slice:
    """Frames a mean or sum runs over: from ``first`` on, the first frame of the clip left out of means by callers."""
    if not 0 <= first < len(aligned):
        raise ValueError(
            f"first_generated must lie in [0, {len(aligned) - 1}] for {len(aligned)} poses, got {first}."
        )
    return slice(first, None)


def rot_deg(aligned: Aligned, *, first: int = 0, method: AngleMethod = "atan2") -> float:
    """Mean geodesic rotation error in degrees over t >= 2 (rot, Eq. 39), or over frames from ``first`` on."""
    frames = frames_from(aligned, max(first, 1))
    return float(
        torch.rad2deg(geodesic_angle(aligned.R_rel[frames], aligned.R_hat_rel[frames], method=method)).mean()
    )


def least_squares_scale(aligned: Aligned, *, positive: bool = False) -> float:
    """The scale s* that fits the recovered centres to the commanded ones (Eq. 37); its sign is free.

    With ``positive`` the best scale that is not negative, which is 0 for a path that runs backwards: given to
    `tr_percent`, reversed motion is an error there too.

    Degenerate: 0 for an estimate that does not move, where Eq. 37 is 0/0.
    """
    if is_static(aligned.center_hat_rel, vanishing=aligned.vanishing):
        return 0.0
    scale = float((aligned.center_hat_rel * aligned.center_rel).sum() / aligned.center_hat_rel.square().sum())
    return max(scale, 0.0) if positive else scale


def is_static(center_rel: Float[Tensor, "view 3"], *, vanishing: float = 1e-9) -> bool:
    """Whether a trajectory stays where it started, to rounding: `Aligned.vanishing`, root mean square."""
    return float(center_rel.square().sum(-1).mean().sqrt()) < vanishing


def tr_percent(aligned: Aligned, *, first: int = 0, scale: float | None = None) -> float:
    """Mean centre error after the scale s*, in percent of the commanded chord (tr%, Eq. 40).

    Degenerate: infinite or NaN where the command ends where it began; `evaluate_clip` reports that as undefined.
    """
    frames = frames_from(aligned, max(first, 1))
    scale = least_squares_scale(aligned) if scale is None else scale
    errors = (aligned.center_rel[frames] - scale * aligned.center_hat_rel[frames]).norm(dim=-1)
    return float(errors.mean() / aligned.center_rel[-1].norm() * 100)


def max_normalised(center_rel: Float[Tensor, "view 3"]) -> Float[Tensor, "view 3"]:
    """Centres divided by their largest distance from the first frame plus 1e-9 (Eq. 38)."""
    return center_rel / (center_rel.norm(dim=-1).max() + MAX_NORM_EPSILON)


def cammc(aligned: Aligned, *, first: int = 0) -> float:
    """Sum over frames of the Frobenius error of the 3 x 4 relative poses, max-normalised (CamMC, Eq. 43)."""
    frames = frames_from(aligned, first)
    rotation = (aligned.R_rel - aligned.R_hat_rel)[frames].square().sum((-1, -2))
    center = (
        (max_normalised(aligned.center_rel) - max_normalised(aligned.center_hat_rel))[frames].square().sum(-1)
    )
    return float((rotation + center).sqrt().sum())


def rot_err_rad(aligned: Aligned, *, first: int = 0, method: AngleMethod = "atan2") -> float:
    """Sum over frames of the geodesic rotation error in radians (RotErr, Eq. 44)."""
    frames = frames_from(aligned, first)
    return float(geodesic_angle(aligned.R_rel[frames], aligned.R_hat_rel[frames], method=method).sum())


def trans_err(aligned: Aligned, *, first: int = 0) -> float:
    """Sum over frames of the centre error, each trajectory max-normalised (TransErr, Eq. 45)."""
    frames = frames_from(aligned, first)
    error = (max_normalised(aligned.center_rel) - max_normalised(aligned.center_hat_rel))[frames]
    return float(error.norm(dim=-1).sum())


def metres_ratio(aligned: Aligned) -> float:
    """Metres recovered per metre commanded: the slope of recovered on commanded centres.

    1 for a perfect metric estimate, 0.5 where half the way was travelled, 0 for a still one, negative for
    a reversed one. Beside s* because it stays finite where the estimate does not move.

    Degenerate: NaN where the command does not move.
    """
    return float((aligned.center_hat_rel * aligned.center_rel).sum() / aligned.center_rel.square().sum())


def rotation_errors_rad(aligned: Aligned, *, method: AngleMethod = "atan2") -> Float[Tensor, "view"]:
    """Geodesic rotation error of every frame in radians, the first (zero) included."""
    return geodesic_angle(aligned.R_rel, aligned.R_hat_rel, method=method)


def center_errors(aligned: Aligned) -> Float[Tensor, "view"]:
    """Distance of every frame's scaled recovered centre from the commanded one, in the commanded unit."""
    return (aligned.center_rel - least_squares_scale(aligned) * aligned.center_hat_rel).norm(dim=-1)


def moving(center: Float[Tensor, "*batch 3"], vanishing: float) -> Bool[Tensor, "*batch"]:
    """Where a translation has a direction."""
    return center.norm(dim=-1) > vanishing
