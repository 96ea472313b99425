"""The Kannala-Brandt fisheye: an odd polynomial of the angle (OpenCV's fisheye, Kalibr's equidistant)."""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from merope.cameras.base import PixelOrigin, camera_model
from merope.cameras.inverse import first_positive_root
from merope.cameras.parameters import Parameter, align, per_view, require
from merope.cameras.radial import RadialLens


@camera_model("kannala_brandt")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KannalaBrandt(RadialLens):
    """``radius = theta (1 + k1 theta^2 + k2 theta^4 + k3 theta^6 + k4 theta^8)``, theta up to a half turn.

    With all k zero it is the equidistant fisheye. Many calibrations fold: beyond the angle where the
    polynomial's derivative vanishes it comes back towards the centre. Everything from there on is invalid.
    """

    k1: Parameter = 0.0
    """Coefficient of theta^3."""
    k2: Parameter = 0.0
    """Coefficient of theta^5."""
    k3: Parameter = 0.0
    """Coefficient of theta^7."""
    k4: Parameter = 0.0
    """Coefficient of theta^9."""

    @classmethod
    def from_fov(
        cls,
        *,
        fov_x_deg: Parameter,
        height: int,
        width: int,
        max_theta: Parameter | None = None,
        pixel_origin: PixelOrigin = "corner",
    ) -> "KannalaBrandt":
        """An equidistant lens whose horizontal field of view (degrees, up to 360) spans the raster's width.

        The image circle touches the left and right edge: rays beyond half the field of view are invalid, in
        the corners too. Pass ``max_theta`` (radians) for a lens that reaches further.

        Raises:
            ValueError: if a field of view is not in (0, 360].
        """
        require("fov_x_deg", fov_x_deg, at_most=360, above=0)
        half = fov_x_deg * (math.pi / 360)
        shift = 0.0 if pixel_origin == "corner" else 0.5
        return cls(
            fx=width / 2 / half,
            fy=width / 2 / half,
            cx=width / 2 - shift,
            cy=height / 2 - shift,
            width=width,
            height=height,
            pixel_origin=pixel_origin,
            max_theta=half if max_theta is None else max_theta,
        )

    def _radius(self, theta: Float[Tensor, "*batch"]) -> tuple[Tensor, Tensor]:
        k1, k2, k3, k4 = (align(k, theta) for k in (self.k1, self.k2, self.k3, self.k4))
        s = theta * theta
        radius = theta * (1 + s * (k1 + s * (k2 + s * (k3 + s * k4))))
        slope = 1 + s * (3 * k1 + s * (5 * k2 + s * (7 * k3 + s * (9 * k4))))
        return radius, slope

    def _fold_theta(self) -> Tensor:
        return per_view(_fold_theta, self.k1, self.k2, self.k3, self.k4)


def _fold_theta(k1: float, k2: float, k3: float, k4: float) -> float:
    return math.sqrt(first_positive_root(1.0, 3 * k1, 5 * k2, 7 * k3, 9 * k4))
