"""Scaramuzza's omnidirectional camera (OCamCalib): the ray's depth is a polynomial of the radius."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from merope.cameras.base import PixelOrigin, camera_model
from merope.cameras.inverse import MAX_RADIUS, MIN_SLOPE, first_positive_root, invert_increasing
from merope.cameras.parameters import Parameter, align, per_view, to_tensor
from merope.cameras.radial import RadialLens


@camera_model("ocam")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OCam(RadialLens):
    """Plane points see ``(x, y, 1 + a2 r^2 + a3 r^3 + ... + a6 r^6)``, r = |(x, y)| (Scaramuzza et al. 2006).

    A shear stands between that plane and the pixels: ``u = fx (x + shear_x y) + cx`` and
    ``v = fy (shear_y x + y) + cy``. ``fx`` and ``fy`` are focal lengths in pixels and the coefficients have no
    unit, so that a resized lens keeps them; files give pixels: see ``from_pixels``.

    Everything beyond the radius where the angle from the axis stops growing is invalid.
    """

    a2: Parameter = 0.0
    """Coefficient of r^2, in focal lengths."""
    a3: Parameter = 0.0
    """Coefficient of r^3, in focal lengths."""
    a4: Parameter = 0.0
    """Coefficient of r^4, in focal lengths."""
    a5: Parameter = 0.0
    """Coefficient of r^5, in focal lengths."""
    a6: Parameter = 0.0
    """Coefficient of r^6, in focal lengths."""
    shear_x: Parameter = 0.0
    """How far a unit of y moves a pixel sideways, in units of fx."""
    shear_y: Parameter = 0.0
    """How far a unit of x moves a pixel down, in units of fy."""

    @classmethod
    def from_pixels(
        cls,
        *,
        taylor_coefficient: Sequence[float],
        distortion_center: Sequence[float],
        stretch_matrix: Sequence[Sequence[float]],
        height: int,
        width: int,
        pixel_origin: PixelOrigin = "center",
        max_theta: Parameter = math.pi,
    ) -> Self:
        """The lens of a calibration file of py-OCamCalib, which names the first three arguments.

        A pixel is ``stretch_matrix @ (x, y) + distortion_center`` and sees ``(x, y, f(r))``, z forward, with
        ``f(r) = sum_i taylor_coefficient[i] r^i``, all in pixels.

        Raises:
            ValueError: if the polynomial has a linear term, too many terms or does not look forward, or the matrix
                is not two by two, mirrors or collapses the image.
        """
        if not 2 <= len(taylor_coefficient) <= 7 or taylor_coefficient[1] != 0:
            raise ValueError(
                "taylor_coefficient must be f, 0, a2, ... up to a6, from the constant up, "
                f"got {list(taylor_coefficient)}."
            )
        focal_px, _, *rest = taylor_coefficient
        if not focal_px > 0:
            raise ValueError(
                f"taylor_coefficient must begin with a focal length above 0, got {focal_px}. The MATLAB toolbox looks "
                "along -z and puts rows first: change all signs and reverse the centre and both axes of the matrix."
            )
        if [len(row) for row in stretch_matrix] != [2, 2] or len(distortion_center) != 2:
            raise ValueError(
                "stretch_matrix must be two rows of two numbers and distortion_center two numbers, "
                f"got {stretch_matrix} and {distortion_center}."
            )
        (xx, xy), (yx, yy) = stretch_matrix
        if not (xx > 0 and yy > 0 and xx * yy > xy * yx):
            raise ValueError(
                f"stretch_matrix must have positive diagonal and determinant, got {stretch_matrix}."
            )
        # With r in focal lengths, f(r) / f0 = 1 + sum_i a_i f0^(i - 1) r^i.
        scaled = [value * focal_px ** (power - 1) for power, value in enumerate(rest, start=2)]
        a2, a3, a4, a5, a6 = [*scaled, *[0.0] * 5][:5]
        return cls(
            fx=focal_px * xx,
            fy=focal_px * yy,
            cx=distortion_center[0],
            cy=distortion_center[1],
            width=width,
            height=height,
            pixel_origin=pixel_origin,
            shear_x=xy / xx,
            shear_y=yx / yy,
            a2=a2,
            a3=a3,
            a4=a4,
            a5=a5,
            a6=a6,
            max_theta=max_theta,
        )

    def _check_lens(self) -> None:
        # Not super(): a dataclass with slots is another class than the one written here.
        RadialLens._check_lens(self)
        if not bool((to_tensor(self.shear_x) * to_tensor(self.shear_y) < 1).all()):
            raise ValueError(
                f"shear_x and shear_y must have a product below 1, got {self.shear_x} and {self.shear_y}: "
                "the image would be mirrored."
            )

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        shear_x, shear_y = align(self.shear_x, x), align(self.shear_y, x)
        determinant = 1 - shear_x * shear_y
        straight_x, straight_y = (x - shear_x * y) / determinant, (y - shear_y * x) / determinant
        return RadialLens._plane_to_rays(self, straight_x, straight_y)

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, valid = RadialLens._points_to_plane(self, points_cam)
        return x + align(self.shear_x, x) * y, align(self.shear_y, x) * x + y, valid

    def _radius(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        largest, angle = align(per_view(_fold_radius, *self._coefficients), theta), self._angle_of(theta)
        radius = invert_increasing(angle, torch.minimum(theta, angle(largest)[0].detach()), largest)
        return radius, 1 / angle(radius)[1].clamp(min=MIN_SLOPE)

    def _theta(self, radius: Tensor, limit: Tensor) -> Tensor:
        return self._angle_of(radius)(radius)[0]

    def _fold_theta(self) -> Tensor:
        return per_view(_theta_at_fold, *self._coefficients)

    @property
    def _coefficients(self) -> tuple[Parameter, ...]:
        return self.a2, self.a3, self.a4, self.a5, self.a6

    def _angle_of(self, like: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The angle from the axis at radii of the plane shaped as ``like``, and its derivative."""
        terms = [align(a, like) for a in self._coefficients]

        def angle(radius: Tensor) -> tuple[Tensor, Tensor]:
            depth, slope = torch.zeros_like(radius), torch.zeros_like(radius)
            for power, a in reversed(list(enumerate(terms, start=2))):
                depth, slope = radius * (a + depth), radius * (power * a + slope)
            depth = 1 + radius * depth
            return torch.atan2(radius, depth), (depth - radius * slope) / (radius * radius + depth * depth)

        return angle


def _fold_radius(*coefficients: float) -> float:
    # The numerator of the angle's derivative is f - r f' = 1 - sum_i (i - 1) a_i r^i.
    terms = [(1 - power) * a for power, a in enumerate(coefficients, start=2)]
    return min(MAX_RADIUS, first_positive_root(1.0, 0.0, *terms))


def _theta_at_fold(*coefficients: float) -> float:
    radius = _fold_radius(*coefficients)
    return math.atan2(radius, 1 + sum(a * radius**power for power, a in enumerate(coefficients, start=2)))
