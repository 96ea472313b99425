"""NVIDIA's f-theta camera: a polynomial between the distance from the centre and the angle, in either direction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from merope.cameras.base import PixelOrigin, camera_model
from merope.cameras.inverse import MAX_RADIUS, MIN_SLOPE, fold_of_polynomial, invert_increasing, polynomial
from merope.cameras.parameters import Parameter, align, per_view, to_tensor
from merope.cameras.radial import RadialLens

PolynomialOf = Literal["angle", "radius"]


@camera_model("f_theta")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FTheta(RadialLens):
    """``polynomial(t) = t + k2 t^2 + k3 t^3 + k4 t^4 + k5 t^5``, of the angle or of the radius.

    The lens model of NVIDIA's DriveWorks, Cosmos-Drive-Dreams and RDS-HQ. ``polynomial_of="angle"``: the radius is
    the polynomial of theta, and unprojecting inverts it; ``"radius"``: theta is the polynomial of the radius, and
    projecting inverts it. ``fx`` is the focal length in pixels and the coefficients have no unit, so that a resized
    lens keeps them; files give pixels: see ``from_pixels``.

    Everything beyond the place where the polynomial stops growing is invalid.
    """

    polynomial_of: PolynomialOf
    """What the polynomial takes: "angle" (the files' is_bw 0) or "radius" (is_bw 1)."""
    k2: Parameter = 0.0
    """Coefficient of the square, in focal lengths and radians."""
    k3: Parameter = 0.0
    """Coefficient of the third power."""
    k4: Parameter = 0.0
    """Coefficient of the fourth power."""
    k5: Parameter = 0.0
    """Coefficient of the fifth power."""

    @classmethod
    def from_pixels(
        cls,
        coefficients: Sequence[Parameter],
        *,
        polynomial_of: PolynomialOf,
        cx: Parameter,
        cy: Parameter,
        height: int,
        width: int,
        pixel_origin: PixelOrigin = "center",
        max_theta: Parameter = math.pi,
    ) -> Self:
        """The lens of ``theta = sum p_i r^i`` ("radius") or ``r = sum p_i theta^i`` ("angle"), r in pixels.

        ``coefficients`` are p_0 to at most p_5, p_0 being zero.

        Raises:
            ValueError: if there are fewer than 2 or more than 6 coefficients, p_0 is not 0 or p_1 not positive.
        """
        if not 2 <= len(coefficients) <= 6:
            raise ValueError(f"coefficients must be p_0 to p_5, 2 to 6 numbers, got {len(coefficients)}.")
        constant, linear, *rest = coefficients
        if bool((to_tensor(constant) != 0).any()):
            raise ValueError(
                f"coefficients must begin with p_0 = 0, got {constant}: the axis would be a circle. "
                "The order is from the constant up."
            )
        if not bool((to_tensor(linear) > 0).all()):
            raise ValueError(f"coefficients must have p_1 above 0, got {linear}.")
        if polynomial_of == "radius":
            focal_px = 1 / linear
            scaled = [value / linear**power for power, value in enumerate(rest, start=2)]
        else:
            focal_px = linear
            scaled = [value / linear for value in rest]
        k2, k3, k4, k5 = [*scaled, *[0.0] * 4][:4]
        return cls(
            fx=focal_px,
            fy=focal_px,
            cx=cx,
            cy=cy,
            width=width,
            height=height,
            pixel_origin=pixel_origin,
            polynomial_of=polynomial_of,
            k2=k2,
            k3=k3,
            k4=k4,
            k5=k5,
            max_theta=max_theta,
        )

    def _check_lens(self) -> None:
        # Not super(): a dataclass with slots is another class than the one written here.
        RadialLens._check_lens(self)
        if self.polynomial_of not in get_args(PolynomialOf):
            raise ValueError(
                f"polynomial_of must be 'angle' or 'radius', got {self.polynomial_of!r}. "
                "A file with is_bw 1 has the polynomial of the radius."
            )

    def _radius(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        if self.polynomial_of == "angle":
            return self._polynomial(theta)
        terms = [align(k, theta) for k in self._coefficients]
        largest = align(per_view(_fold_radius, *self._coefficients), theta)
        target = torch.minimum(theta, polynomial(largest, terms)[0].detach())
        radius = invert_increasing(lambda argument: polynomial(argument, terms), target, largest)
        return radius, 1 / polynomial(radius, terms)[1].clamp(min=MIN_SLOPE)

    def _theta(self, radius: Tensor, limit: Tensor) -> Tensor:
        if self.polynomial_of == "angle":
            return RadialLens._theta(self, radius, limit)
        return self._polynomial(radius)[0]

    def _fold_theta(self) -> Tensor:
        fold = fold_of_polynomial if self.polynomial_of == "angle" else _theta_at_fold
        return per_view(fold, *self._coefficients)

    @property
    def _coefficients(self) -> tuple[Parameter, ...]:
        return self.k2, self.k3, self.k4, self.k5

    def _polynomial(self, argument: Tensor) -> tuple[Tensor, Tensor]:
        return polynomial(argument, [align(k, argument) for k in self._coefficients])


def _fold_radius(*coefficients: float) -> float:
    return min(MAX_RADIUS, fold_of_polynomial(*coefficients))


def _theta_at_fold(*coefficients: float) -> float:
    radius = _fold_radius(*coefficients)
    return radius + sum(k * radius**power for power, k in enumerate(coefficients, start=2))
