"""OpenCV's standard camera: a pinhole behind radial-tangential distortion."""

from dataclasses import dataclass

from torch import Tensor

from merope.cameras.base import CameraModel, camera_model
from merope.cameras.parameters import Parameter
from merope.cameras.pinhole import points_to_slopes, slopes_to_rays
from merope.cameras.radtan import RadialTangential


@camera_model("opencv")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenCV(CameraModel):
    """Radial (k1, k2, k3), rational (k4, k5, k6) and tangential (p1, p2) distortion, ``cv2.projectPoints``.

    Invalid: points at or behind the image plane, and everything beyond the radius where the distortion
    folds back over the image. Note OpenCV's order of coefficients: k1, k2, p1, p2, k3, k4, k5, k6.
    """

    k1: Parameter = 0.0
    """Radial, of r^2."""
    k2: Parameter = 0.0
    """Radial, of r^4."""
    p1: Parameter = 0.0
    """Tangential, vertical."""
    p2: Parameter = 0.0
    """Tangential, horizontal."""
    k3: Parameter = 0.0
    """Radial, of r^6."""
    k4: Parameter = 0.0
    """Radial denominator, of r^2."""
    k5: Parameter = 0.0
    """Radial denominator, of r^4."""
    k6: Parameter = 0.0
    """Radial denominator, of r^6."""

    @property
    def distortion(self) -> RadialTangential:
        """The distortion of the normalised plane."""
        return RadialTangential(self.k1, self.k2, self.p1, self.p2, self.k3, self.k4, self.k5, self.k6)

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y, valid = self.distortion.undistort(x, y)
        return slopes_to_rays(x, y), valid

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, ahead = points_to_slopes(points_cam)
        x, y, valid = self.distortion.distort(x, y)
        return x, y, ahead & valid
