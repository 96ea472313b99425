"""The equirectangular panorama: longitude across, latitude down."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from merope.cameras.base import CameraModel, PixelOrigin, camera_model
from merope.cameras.inverse import edge_tolerance
from merope.cameras.radial import ON_AXIS


@camera_model("equirectangular")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Equirectangular(CameraModel):
    """``x`` is the longitude atan2(X, Z), ``y`` the latitude below the horizon atan2(Y, |(X, Z)|), radians.

    ``fx`` and ``fy`` are pixels per radian, so a resized or cropped panorama is one too. Every direction is
    valid; pixels beyond half a turn or past a pole are not. The seam is behind the camera. At a pole every
    longitude is the same direction: it projects to longitude 0.
    """

    @classmethod
    def full_sphere(
        cls, *, height: int, width: int, pixel_origin: PixelOrigin = "corner"
    ) -> "Equirectangular":
        """The whole sphere on one raster, forward at its middle."""
        shift = 0.0 if pixel_origin == "corner" else 0.5
        return cls(
            fx=width / (2 * math.pi),
            fy=height / math.pi,
            cx=width / 2 - shift,
            cy=height / 2 - shift,
            width=width,
            height=height,
            pixel_origin=pixel_origin,
        )

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        slack = 1 + edge_tolerance(x)
        valid = (x.detach().abs() <= math.pi * slack) & (y.detach().abs() <= math.pi / 2 * slack)
        level = torch.cos(y)
        return torch.stack((level * torch.sin(x), torch.sin(y), level * torch.cos(x)), -1), valid

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, z = points_cam.unbind(-1)
        squared = x * x + z * z
        off_pole = squared > ON_AXIS**2
        level = torch.where(off_pole, torch.sqrt(torch.where(off_pole, squared, 1)), 0)
        longitude = torch.atan2(torch.where(off_pole, x, 0), torch.where(off_pole, z, 1))
        return longitude, torch.atan2(y, level), torch.ones_like(off_pole)
