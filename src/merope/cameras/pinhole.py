"""The pinhole: straight lines stay straight."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.base import MAX_SLOPE, CameraModel, PixelOrigin, camera_model
from merope.cameras.parameters import Parameter, to_tensor


@camera_model("pinhole")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pinhole(CameraModel):
    """A lens without distortion: ``x = X / Z``.

    Points at or behind the image plane are invalid, and so are those within 1e-6 rad of it.
    """

    @classmethod
    def from_fov(
        cls, *, fov_x_deg: Parameter, height: int, width: int, pixel_origin: PixelOrigin = "corner"
    ) -> "Pinhole":
        """Square pixels, the axis through the raster's middle, and a horizontal field of view in degrees.

        Raises:
            ValueError: if a field of view is not inside (0, 180).
        """
        if not bool(((to_tensor(fov_x_deg) > 0) & (to_tensor(fov_x_deg) < 180)).all()):
            raise ValueError(
                f"fov_x_deg must be inside (0, 180) for a pinhole, got {fov_x_deg}. Wider lenses: "
                "UnifiedCamera.from_fov, KannalaBrandt.from_fov, Equirectangular."
            )
        half = fov_x_deg * (math.pi / 360)
        tangent = half.tan() if isinstance(half, Tensor) else math.tan(half)
        focal_px = width / 2 / tangent
        shift = 0.0 if pixel_origin == "corner" else 0.5
        return cls(
            fx=focal_px,
            fy=focal_px,
            cx=width / 2 - shift,
            cy=height / 2 - shift,
            width=width,
            height=height,
            pixel_origin=pixel_origin,
        )

    @classmethod
    def from_matrix(
        cls, matrix: Float[Tensor, "*view 3 3"], *, height: int, width: int, pixel_origin: PixelOrigin
    ) -> "Pinhole":
        """Reads the calibration matrix K with rows (fx, 0, cx), (0, fy, cy), (0, 0, 1).

        Raises:
            ValueError: if K has skew or is not of that form.
        """
        rest = torch.stack((matrix[..., 0, 1], matrix[..., 1, 0], matrix[..., 2, 0], matrix[..., 2, 1]))
        if bool((rest != 0).any()) or bool((matrix[..., 2, 2] != 1).any()):
            raise ValueError(
                f"matrix must be [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], got {matrix.tolist()}. "
                "Divide by its last entry; skew is not supported."
            )
        return cls(
            fx=matrix[..., 0, 0],
            fy=matrix[..., 1, 1],
            cx=matrix[..., 0, 2],
            cy=matrix[..., 1, 2],
            width=width,
            height=height,
            pixel_origin=pixel_origin,
        )

    def matrix(self) -> Float[Tensor, "*view 3 3"]:
        """The calibration matrix K, float64, in pixels of this raster and its ``pixel_origin``."""
        parts = [to_tensor(p).to(torch.float64) for p in (self.fx, self.fy, self.cx, self.cy)]
        fx, fy, cx, cy = torch.broadcast_tensors(*parts)
        zero, one = torch.zeros_like(fx), torch.ones_like(fx)
        rows = [torch.stack(row, -1) for row in ((fx, zero, cx), (zero, fy, cy), (zero, zero, one))]
        return torch.stack(rows, -2)

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return slopes_to_rays(x, y), torch.ones_like(x, dtype=torch.bool)

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return points_to_slopes(points_cam)


def slopes_to_rays(x: Float[Tensor, "*batch"], y: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch 3"]:
    """Unit vectors along (x, y, 1)."""
    length = torch.sqrt(x * x + y * y + 1)
    return torch.stack((x / length, y / length, 1 / length), -1)


def points_to_slopes(points_cam: Float[Tensor, "*batch 3"]) -> tuple[Tensor, Tensor, Tensor]:
    """X / Z, Y / Z and where both are at most ``MAX_SLOPE`` with Z positive; zeros elsewhere."""
    x, y, z = points_cam.unbind(-1)
    side = torch.maximum(x.detach().abs(), y.detach().abs())
    valid = (z > 0) & (z * MAX_SLOPE >= side)
    z = torch.where(valid, z, 1)
    return torch.where(valid, x, 0) / z, torch.where(valid, y, 0) / z, valid
