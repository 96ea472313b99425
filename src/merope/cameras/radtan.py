"""Radial-tangential distortion of the normalised plane (Brown-Conrady), as OpenCV writes it.

    x' = x g(s) + 2 p1 x y + p2 (s + 2 x^2),    s = x^2 + y^2
    y' = y g(s) + 2 p2 x y + p1 (s + 2 y^2),    g(s) = (1 + k1 s + k2 s^2 + k3 s^3) / (1 + k4 s + k5 s^2 + k6 s^3)

Its Jacobian is symmetric, so the map is the gradient of a potential and one-to-one wherever that potential is
strictly convex. The part around the centre where the Jacobian is positive definite is the valid part; what
lies beyond its edge folds back over it.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from merope.cameras.inverse import (
    MAX_RADIUS,
    MIN_SLOPE,
    edge_tolerance,
    first_positive_root,
    invert_increasing,
)
from merope.cameras.parameters import Parameter, align, per_view


class RadialTangential(NamedTuple):
    """The coefficients, each a number or a tensor [*view]."""

    k1: Parameter = 0.0
    k2: Parameter = 0.0
    p1: Parameter = 0.0
    p2: Parameter = 0.0
    k3: Parameter = 0.0
    k4: Parameter = 0.0
    k5: Parameter = 0.0
    k6: Parameter = 0.0

    @property
    def radius_limit(self) -> Tensor:
        """Undistorted radius [*view] where the radial part stops growing, at most ``MAX_RADIUS``.

        Less where tangential terms fold some directions and let them unfold again further out: what lies there falls on
        pixels of others.
        """
        return per_view(_one_to_one_radius, *self)

    def aligned(self, like: Tensor) -> "RadialTangential":
        """The coefficients lined up with the front axes of ``like``."""
        return RadialTangential(*(align(value, like) for value in self))

    def distort(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distorted plane coordinates, and where the map is one-to-one; zero elsewhere.

        ``x`` and ``y`` lead with [*view] and may be any finite numbers.
        """
        within = _within(x.detach(), y.detach(), align(self.radius_limit, x))
        x, y = torch.where(within, x, 0), torch.where(within, y, 0)
        mapped_x, mapped_y, jacobian = _map(x, y, self.aligned(x))
        return mapped_x, mapped_y, within & _positive_definite(jacobian)

    def undistort(self, x: Tensor, y: Tensor, *, max_steps: int = 60) -> tuple[Tensor, Tensor, Tensor]:
        """The plane coordinates that ``distort`` takes to (x, y), and where there are such; zero elsewhere.

        Newton's method from the exact solution of the radial part. The gradient is that of the implicit
        function, with respect to the coefficients too.
        """
        coefficients = self.aligned(x)
        with torch.no_grad():
            root_x, root_y, valid = self._solve(x, y, max_steps)
        x, y = torch.where(valid, x, 0), torch.where(valid, y, 0)
        mapped_x, mapped_y, jacobian = _map(root_x, root_y, coefficients)
        step_x, step_y = _solve_symmetric(tuple(j.detach() for j in jacobian), mapped_x - x, mapped_y - y)
        return root_x - step_x, root_y - step_y, valid

    def _solve(self, x: Tensor, y: Tensor, max_steps: int) -> tuple[Tensor, Tensor, Tensor]:
        coefficients = self.aligned(x)
        limit = align(self.radius_limit, x)

        def radial(radius: Tensor) -> tuple[Tensor, Tensor]:
            value, slope = _gain(radius * radius, coefficients)
            return radius * value, value + 2 * radius * radius * slope

        distance = torch.hypot(x, y)
        # With tangential terms the image reaches a little past the radial part's: start at its edge there,
        # and further in where the map has folded already.
        start = invert_increasing(radial, torch.minimum(distance, radial(limit)[0]), limit)
        eps = torch.finfo(x.dtype).eps
        scale = torch.where(distance > 0, start / torch.where(distance > 0, distance, 1), 0)
        root_x, root_y = x * scale, y * scale
        mapped_x, mapped_y, jacobian = _map(root_x, root_y, coefficients)
        for _ in range(20):
            convex = _positive_definite(jacobian)
            if bool(convex.all()):
                break
            root_x, root_y = (
                torch.where(convex, root_x, 0.9 * root_x),
                torch.where(convex, root_y, 0.9 * root_y),
            )
            mapped_x, mapped_y, jacobian = _map(root_x, root_y, coefficients)
        # Damped Newton on a convex potential: a step must stay where it is convex and shrink the residual.
        residual = torch.hypot(mapped_x - x, mapped_y - y)
        damping = torch.ones_like(x)
        for _ in range(max_steps):
            step_x, step_y = _solve_symmetric(jacobian, mapped_x - x, mapped_y - y)
            if bool((torch.hypot(step_x, step_y) <= 4 * eps * (1 + start)).all()):
                break
            next_x, next_y = root_x - damping * step_x, root_y - damping * step_y
            next_mapped_x, next_mapped_y, next_jacobian = _map(next_x, next_y, coefficients)
            next_residual = torch.hypot(next_mapped_x - x, next_mapped_y - y)
            better = next_residual < residual
            better &= _within(next_x, next_y, limit) & _positive_definite(next_jacobian)
            damping = torch.where(better, (2 * damping).clamp(max=1), damping / 2)
            residual = torch.where(better, next_residual, residual)
            root_x, root_y = torch.where(better, next_x, root_x), torch.where(better, next_y, root_y)
            mapped_x = torch.where(better, next_mapped_x, mapped_x)
            mapped_y = torch.where(better, next_mapped_y, mapped_y)
            pairs = zip(next_jacobian, jacobian, strict=True)
            xx, xy, yy = (torch.where(better, following, current) for following, current in pairs)
            jacobian = (xx, xy, yy)
        # A root found has a residual of a few eps times the polynomial's largest term; a missing one of
        # the order of its distance to the image's edge.
        solved = residual <= eps**0.65 * (1 + distance)
        valid = solved & _within(root_x, root_y, limit) & _positive_definite(jacobian)
        return torch.where(valid, root_x, 0), torch.where(valid, root_y, 0), valid


def _gain(s: Tensor, c: RadialTangential) -> tuple[Tensor, Tensor]:
    """g(s) and its derivative."""
    above = 1 + s * (c.k1 + s * (c.k2 + s * c.k3))
    below = 1 + s * (c.k4 + s * (c.k5 + s * c.k6))
    above_slope = c.k1 + s * (2 * c.k2 + s * 3 * c.k3)
    below_slope = c.k4 + s * (2 * c.k5 + s * 3 * c.k6)
    return above / below, (above_slope * below - above * below_slope) / (below * below)


def _map(x: Tensor, y: Tensor, c: RadialTangential) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Distorted coordinates and the Jacobian's entries xx, xy, yy."""
    s = x * x + y * y
    gain, slope = _gain(s, c)
    mapped_x = x * gain + 2 * c.p1 * x * y + c.p2 * (s + 2 * x * x)
    mapped_y = y * gain + 2 * c.p2 * x * y + c.p1 * (s + 2 * y * y)
    xx = gain + 2 * x * x * slope + 2 * c.p1 * y + 6 * c.p2 * x
    xy = 2 * x * y * slope + 2 * c.p1 * x + 2 * c.p2 * y
    yy = gain + 2 * y * y * slope + 6 * c.p1 * y + 2 * c.p2 * x
    return mapped_x, mapped_y, (xx, xy, yy)


def _positive_definite(jacobian: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    xx, xy, yy = jacobian
    return ((xx + yy) > 0) & ((xx * yy - xy * xy) > 0)


def _solve_symmetric(jacobian: tuple[Tensor, ...], right_x: Tensor, right_y: Tensor) -> tuple[Tensor, Tensor]:
    xx, xy, yy = jacobian
    determinant = xx * yy - xy * xy
    determinant = torch.where(determinant.abs() < MIN_SLOPE, MIN_SLOPE, determinant)
    return (yy * right_x - xy * right_y) / determinant, (xx * right_y - xy * right_x) / determinant


def _within(x: Tensor, y: Tensor, limit: Tensor) -> Tensor:
    return torch.hypot(x, y) <= limit * (1 + edge_tolerance(x))


@lru_cache(maxsize=1024)
def _one_to_one_radius(
    k1: float, k2: float, p1: float, p2: float, k3: float, k4: float, k5: float, k6: float
) -> float:
    limit = _fold_radius(k1, k2, k3, k4, k5, k6)
    tangential = math.hypot(p1, p2)
    if tangential == 0:
        return limit
    # The terms turn with (p2, p1) and are mirrored about it, so half a turn from it shows all directions.
    radii = torch.as_tensor(np.geomspace(limit / 1e4, limit, 1024))[:, None]
    turn = torch.linspace(0, math.pi, 65, dtype=torch.float64)
    terms = RadialTangential(k1, k2, 0.0, tangential, k3, k4, k5, k6)
    convex = _positive_definite(_map(radii * turn.cos(), radii * turn.sin(), terms)[2])
    again = (convex & ((~convex).cumsum(0) > 0)).any(1).nonzero()
    return limit if len(again) == 0 else float(radii[int(again[0]) - 1])


def _fold_radius(k1: float, k2: float, k3: float, k4: float, k5: float, k6: float) -> float:
    above, below = np.array([1.0, k1, k2, k3]), np.array([1.0, k4, k5, k6])
    order = np.arange(4)
    # Numerator of d(r g)/dr in powers of s: (a + 2 s a') b - 2 s a b', with s a' = order * a.
    numerator = np.convolve((1 + 2 * order) * above, below) - np.convolve(above, 2 * order * below)
    fold = first_positive_root(*numerator.tolist())
    # Just short of a pole of g, which the slope's sign does not show.
    pole = first_positive_root(*below.tolist())
    return min(MAX_RADIUS, math.sqrt(fold), math.sqrt(pole) * (1 - 1e-6))
