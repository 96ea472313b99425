"""The double sphere camera: a ray meets one unit sphere, then another that is shifted along the axis."""

from dataclasses import dataclass

import torch
from torch import Tensor

from merope.cameras.base import CameraModel, camera_model
from merope.cameras.extended_unified import ellipsoid_to_plane, plane_to_depth, require_alpha
from merope.cameras.parameters import Parameter, align, to_tensor


@camera_model("double_sphere")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DoubleSphere(CameraModel):
    """``x = X / (alpha d2 + (1 - alpha) Z2)``, ``Z2 = Z + xi |P|``, ``d2 = |(X, Y, Z2)|`` (Usenko et al. 2018).

    It is the extended unified camera with beta 1, seen from a centre moved by xi. With xi 0 it is that camera,
    with alpha 0 the unified camera.

    Valid: ``Z2 >= -w d2`` with w the smaller of ``alpha / (1 - alpha)`` and its inverse, and for alpha > 0.5
    plane radii up to ``1 / sqrt(2 alpha - 1)``. These are the exact ends of the image. The bound of the paper,
    ``Z > -w2 |P|``, leaves out a ring of rays that the lens does see where xi is positive, and lets one in that lands on
    pixels of others where it is negative.
    """

    xi: Parameter
    """Distance between the centres of the two spheres, in radii; above -1 and below 1."""
    alpha: Parameter
    """Share of the second sphere's distance in the depth that divides, 0 to 1."""

    def _check_lens(self) -> None:
        if not bool((to_tensor(self.xi).abs() < 1).all()):
            raise ValueError(
                f"xi must lie above -1 and below 1, got {self.xi}. A larger xi is a unified camera's: UnifiedCamera."
            )
        require_alpha(self.alpha)

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        xi = align(self.xi, x)
        z, valid = plane_to_depth(x, y, align(self.alpha, x), 1.0)
        squared = x * x + y * y
        # The unit sphere around the first centre, met by the line from the second: never zero for |xi| < 1.
        root = torch.sqrt(z * z + (1 - xi * xi) * squared)
        stretch = (z * xi + root) / (z * z + squared)
        return torch.stack((stretch * x, stretch * y, stretch * z - xi), -1), valid

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, z = points_cam.unbind(-1)
        length = torch.sqrt(x * x + y * y + z * z)
        return ellipsoid_to_plane(x, y, z + align(self.xi, z) * length, self.alpha, 1.0)
