"""WoodScape's fisheye: the distance from the centre is a polynomial of the angle."""

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from merope.cameras.base import PixelOrigin, camera_model
from merope.cameras.inverse import fold_of_polynomial, polynomial
from merope.cameras.parameters import Parameter, align, per_view
from merope.cameras.radial import RadialLens


@camera_model("radial_polynomial")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RadialPolynomial(RadialLens):
    """``radius = theta + k2 theta^2 + k3 theta^3 + k4 theta^4`` (Yogamani et al. 2019, WoodScape).

    ``fx`` is the focal length in pixels and the coefficients have no unit, so that a resized lens keeps
    them. WoodScape's files give pixels: see ``from_pixels``. Everything from the angle on where the polynomial
    stops growing is invalid.
    """

    k2: Parameter = 0.0
    """Coefficient of theta^2, in focal lengths."""
    k3: Parameter = 0.0
    """Coefficient of theta^3, in focal lengths."""
    k4: Parameter = 0.0
    """Coefficient of theta^4, in focal lengths."""

    @classmethod
    def from_pixels(
        cls,
        *,
        k1_px: Parameter,
        k2_px: Parameter,
        k3_px: Parameter,
        k4_px: Parameter,
        cx: Parameter,
        cy: Parameter,
        height: int,
        width: int,
        pixel_origin: PixelOrigin = "center",
        aspect_ratio: Parameter = 1.0,
        max_theta: Parameter = math.pi,
    ) -> Self:
        """The lens of ``r = k1 theta + k2 theta^2 + k3 theta^3 + k4 theta^4`` with r in pixels.

        ``aspect_ratio`` stretches rows, as in WoodScape's files, whose principal point is
        ``width / 2 - 0.5 + cx_offset`` from the first pixel's centre.

        Raises:
            ValueError: if ``k1_px``, the focal length, is not positive.
        """
        return cls(
            fx=k1_px,
            fy=k1_px * aspect_ratio,
            cx=cx,
            cy=cy,
            width=width,
            height=height,
            pixel_origin=pixel_origin,
            k2=k2_px / k1_px,
            k3=k3_px / k1_px,
            k4=k4_px / k1_px,
            max_theta=max_theta,
        )

    def _radius(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return polynomial(theta, [align(k, theta) for k in (self.k2, self.k3, self.k4)])

    def _fold_theta(self) -> Tensor:
        return per_view(fold_of_polynomial, self.k2, self.k3, self.k4)
