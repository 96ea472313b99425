"""The extended unified camera model (EUCM): an ellipsoid in place of the unified model's sphere."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras.base import MAX_SLOPE, CameraModel, camera_model
from merope.cameras.inverse import edge_tolerance
from merope.cameras.parameters import Parameter, align, per_view, require, to_tensor


@camera_model("extended_unified")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtendedUnified(CameraModel):
    """``x = X / (alpha d + (1 - alpha) Z)``, ``d = sqrt(beta (X^2 + Y^2) + Z^2)`` (Khomutenko et al. 2016).

    With beta 1 it is the unified camera with ``xi = alpha / (1 - alpha)``, its focal lengths divided by
    ``1 - alpha``; alpha 0 is a pinhole.

    Valid: ``Z >= -w d`` with w the smaller of ``alpha / (1 - alpha)`` and its inverse, and for alpha > 0.5
    plane radii up to ``1 / sqrt(beta (2 alpha - 1))``. For alpha <= 0.5 all of the plane.
    """

    alpha: Parameter
    """Share of the ellipsoid's distance in the depth that divides, 0 to 1."""
    beta: Parameter
    """Squared half-axis of the ellipsoid along the optical axis, in units of the other two; above 0."""

    def _check_lens(self) -> None:
        require_alpha(self.alpha)
        require("beta", self.beta, above=0)

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z, valid = plane_to_depth(x, y, align(self.alpha, x), align(self.beta, x))
        length = torch.sqrt(x * x + y * y + z * z)
        return torch.stack((x, y, z), -1) / length[..., None], valid

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, z = points_cam.unbind(-1)
        return ellipsoid_to_plane(x, y, z, self.alpha, self.beta)


def require_alpha(alpha: Parameter) -> None:
    """Raises ValueError unless every view's ``alpha`` lies in [0, 1]."""
    if not bool(((to_tensor(alpha) >= 0) & (to_tensor(alpha) <= 1)).all()):
        raise ValueError(f"alpha must be at least 0 and at most 1, got {alpha}.")


def plane_to_depth(
    x: Float[Tensor, "*batch"], y: Float[Tensor, "*batch"], alpha: Tensor, beta: Tensor | float
) -> tuple[Float[Tensor, "*batch"], Bool[Tensor, "*batch"]]:
    """The z with which (x, y, z) is seen at the plane point (x, y), and whether there is one.

    ``alpha`` and ``beta`` broadcast against ``x``.
    """
    squared = beta * (x * x + y * y)
    discriminant = 1 - (2 * alpha - 1) * squared
    # At the rim both terms of the discriminant are near 1 and only their rounding is left.
    valid = discriminant.detach() >= -edge_tolerance(x)
    positive = discriminant > 0
    root = torch.where(positive, torch.sqrt(torch.where(positive, discriminant, 1)), 0)
    # Two forms of the same root: the first is 0 / 0 at alpha 1, the second at alpha 0.5.
    near_one = alpha > 0.75
    below = torch.where(near_one, 1, 1 - alpha + alpha * root)
    steep = torch.where(near_one, 2 * alpha - 1, 1)
    z = torch.where(near_one, (alpha * root - (1 - alpha)) / steep, (1 - alpha * alpha * squared) / below)
    return z, valid


def ellipsoid_to_plane(
    x: Float[Tensor, "*batch"],
    y: Float[Tensor, "*batch"],
    z: Float[Tensor, "*batch"],
    alpha: Parameter,
    beta: Parameter,
) -> tuple[Tensor, Tensor, Tensor]:
    """Plane coordinates of the points (x, y, z), not all zero, and whether there are such."""
    distance = torch.sqrt(align(beta, z) * (x * x + y * y) + z * z)
    weight = align(alpha, z)
    depth = weight * distance + (1 - weight) * z
    lowest = align(per_view(_lowest_ratio, alpha), z)
    side = torch.maximum(x.detach().abs(), y.detach().abs())
    valid = (z >= (lowest - edge_tolerance(z)) * distance) & (depth > 0) & (depth * MAX_SLOPE >= side)
    depth = torch.where(valid, depth, 1)
    return x / depth, y / depth, valid.detach()


def _lowest_ratio(alpha: float) -> float:
    """Smallest z / d: where the depth is zero (alpha up to 0.5), or where the image folds (above)."""
    smaller, larger = sorted((alpha, 1 - alpha))
    return -smaller / larger
