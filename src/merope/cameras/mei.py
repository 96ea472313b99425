"""The unified camera behind radial-tangential distortion, as calibrated by Mei and Rives."""

from dataclasses import dataclass

from torch import Tensor

from merope.cameras.base import CameraModel, camera_model
from merope.cameras.parameters import Parameter, align, to_tensor
from merope.cameras.radtan import RadialTangential
from merope.cameras.unified import plane_to_sphere, sphere_to_plane


@camera_model("mei")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mei(CameraModel):
    """``x = X / (Z + xi |P|)``, then the distortion of OpenCV's k1, k2, p1, p2 (Mei and Rives 2007).

    The model of OpenCV's ``omnidir``, of camodocal and of Kalibr's ``omni-radtan``; ``fx`` and ``fy`` are
    their gamma1 and gamma2. Without distortion it is the unified camera.

    Invalid: what the unified camera does not see, and everything beyond the plane radius (at most 100) where the distortion
    folds back over the image.
    """

    xi: Parameter
    """Distance of the projection centre behind the sphere's, in radii; 0 or more."""
    k1: Parameter = 0.0
    """Radial, of r^2."""
    k2: Parameter = 0.0
    """Radial, of r^4."""
    p1: Parameter = 0.0
    """Tangential, vertical."""
    p2: Parameter = 0.0
    """Tangential, horizontal."""

    def _check_lens(self) -> None:
        if not bool((to_tensor(self.xi) >= 0).all()):
            raise ValueError(f"xi must not be negative, got {self.xi}.")

    @property
    def distortion(self) -> RadialTangential:
        """The distortion of the unified camera's plane."""
        return RadialTangential(self.k1, self.k2, self.p1, self.p2)

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y, straight = self.distortion.undistort(x, y)
        dirs_cam, valid = plane_to_sphere(x, y, align(self.xi, x))
        return dirs_cam, straight & valid

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, seen = sphere_to_plane(points_cam, self.xi)
        x, y, valid = self.distortion.distort(x, y)
        return x, y, seen & valid
