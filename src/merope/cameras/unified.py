"""The unified camera model (UCM): a sphere seen from a point ``xi`` behind its centre."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras.base import MAX_SLOPE, CameraModel, PixelOrigin, camera_model
from merope.cameras.inverse import edge_tolerance
from merope.cameras.parameters import Parameter, align, per_view, to_tensor


@camera_model("unified")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnifiedCamera(CameraModel):
    """``x = X / (Z + xi |P|)`` for any xi >= 0: 0 is a pinhole, 1 stereographic (Geyer and Daniilidis 2000).

    Valid: for xi < 1 rays with a cosine from the axis above -xi, all of the plane; for xi >= 1 rays with a
    cosine of at least -1/xi, plane radii up to ``1 / sqrt(xi^2 - 1)``.
    """

    xi: Parameter
    """Distance of the projection centre behind the sphere's, in radii."""

    @classmethod
    def from_fov(
        cls,
        *,
        fov_x_deg: Parameter,
        xi: Parameter,
        height: int,
        width: int,
        pixel_origin: PixelOrigin = "corner",
    ) -> "UnifiedCamera":
        """Square pixels, a centred axis and a horizontal field of view in degrees: UCPE's parametrisation.

        ``f = (W / 2) (cos t + xi) / sin t`` with t half the field of view.

        Raises:
            ValueError: if no lens with this ``xi`` has this field of view.
        """
        half = torch.deg2rad(to_tensor(fov_x_deg).to(torch.float64)) / 2
        depth = to_tensor(xi).to(torch.float64)
        # At the limit itself the focal length is zero, but for rounding.
        allowed = torch.cos(half) > 1e-9 - torch.minimum(depth, 1 / depth)
        if not bool((allowed & (half > 0) & (half < math.pi)).all()):
            raise ValueError(
                f"fov_x_deg must be above 0 and keep cos(fov / 2) above -min(xi, 1 / xi), got {fov_x_deg} with "
                f"xi {xi}. The widest lenses have xi near 1."
            )
        focal_px: Parameter = width / 2 * (torch.cos(half) + depth) / torch.sin(half)
        if not isinstance(fov_x_deg, Tensor) and not isinstance(xi, Tensor):
            focal_px = float(focal_px)
        shift = 0.0 if pixel_origin == "corner" else 0.5
        return cls(
            fx=focal_px,
            fy=focal_px,
            cx=width / 2 - shift,
            cy=height / 2 - shift,
            width=width,
            height=height,
            pixel_origin=pixel_origin,
            xi=xi,
        )

    def _check_lens(self) -> None:
        if not bool((to_tensor(self.xi) >= 0).all()):
            raise ValueError(f"xi must not be negative, got {self.xi}.")

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return plane_to_sphere(x, y, align(self.xi, x))

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return sphere_to_plane(points_cam, self.xi)


def plane_to_sphere(
    x: Float[Tensor, "*batch"], y: Float[Tensor, "*batch"], xi: Tensor
) -> tuple[Float[Tensor, "*batch 3"], Bool[Tensor, "*batch"]]:
    """The unit ray of a plane point, and whether its line meets the sphere; ``xi`` broadcasts against ``x``."""
    squared = x * x + y * y
    discriminant = 1 + (1 - xi * xi) * squared
    # At the rim both terms of the discriminant are near 1 and only their rounding is left.
    valid = discriminant.detach() >= -edge_tolerance(x)
    positive = discriminant > 0
    root = torch.where(positive, torch.sqrt(torch.where(positive, discriminant, 1)), 0)
    stretch = (xi + root) / (1 + squared)
    # stretch - xi, without its cancellation far from the centre.
    forward = (root - xi * squared) / (1 + squared)
    return torch.stack((stretch * x, stretch * y, forward), -1), valid


def sphere_to_plane(points_cam: Float[Tensor, "*batch 3"], xi: Parameter) -> tuple[Tensor, Tensor, Tensor]:
    """Plane coordinates of points whose largest coordinate is 1 in magnitude, and whether there are such."""
    x, y, z = points_cam.unbind(-1)
    length = torch.sqrt(x * x + y * y + z * z)
    depth = z + align(xi, z) * length
    lowest = align(per_view(_lowest_cosine, xi), z)
    side = torch.maximum(x.detach().abs(), y.detach().abs())
    valid = (z >= (lowest - edge_tolerance(z)) * length) & (depth > 0) & (depth * MAX_SLOPE >= side)
    depth = torch.where(valid, depth, 1)
    return x / depth, y / depth, valid.detach()


def _lowest_cosine(xi: float) -> float:
    return -min(xi, 1 / xi) if xi > 0 else 0.0
