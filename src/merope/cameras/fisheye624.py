"""Project Aria's fisheye: a polynomial of the angle, then tangential and thin-prism distortion."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from merope.cameras.base import PixelOrigin, camera_model
from merope.cameras.inverse import MAX_RADIUS, MIN_SLOPE, edge_tolerance, first_positive_root
from merope.cameras.parameters import Parameter, align, per_view, require
from merope.cameras.radial import RadialLens

Jacobian = tuple[Tensor, Tensor, Tensor, Tensor]


@camera_model("fisheye624")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fisheye624(RadialLens):
    """Six radial, two tangential and four thin-prism coefficients (Project Aria's documentation, "FISHEYE624").

        x = direction * theta (1 + k0 theta^2 + k1 theta^4 + ... + k5 theta^12)
        x' = x + 2 (p . x) x + |x|^2 p + (s0 |x|^2 + s1 |x|^4, s2 |x|^2 + s3 |x|^4),    p = (p0, p1)

    Invalid: angles from the polynomial's fold on, plane points beyond ``max_radius``, and radii from which on the
    second line might not be one-to-one (``plane_limit``; far outside the image of any real calibration).
    """

    k0: Parameter = 0.0
    """Coefficient of theta^3."""
    k1: Parameter = 0.0
    """Coefficient of theta^5."""
    k2: Parameter = 0.0
    """Coefficient of theta^7."""
    k3: Parameter = 0.0
    """Coefficient of theta^9."""
    k4: Parameter = 0.0
    """Coefficient of theta^11."""
    k5: Parameter = 0.0
    """Coefficient of theta^13."""
    p0: Parameter = 0.0
    """Tangential, horizontal."""
    p1: Parameter = 0.0
    """Tangential, vertical."""
    s0: Parameter = 0.0
    """Thin prism, horizontal, of r^2."""
    s1: Parameter = 0.0
    """Thin prism, horizontal, of r^4."""
    s2: Parameter = 0.0
    """Thin prism, vertical, of r^2."""
    s3: Parameter = 0.0
    """Thin prism, vertical, of r^4."""
    max_radius: Parameter = MAX_RADIUS
    """Largest distance from the principal point that the lens is calibrated for, in focal lengths."""

    @classmethod
    def from_aria(
        cls,
        projection_params: Sequence[float],
        *,
        height: int,
        width: int,
        valid_radius_px: float | None = None,
        max_theta: float = math.pi,
        pixel_origin: PixelOrigin = "center",
    ) -> Self:
        """The lens of Aria's parameters (f, cx, cy, k0, ..., k5, p0, p1, s0, ..., s3).

        Aria counts pixels from the centre of the first. ``valid_radius_px`` is its limit of the image circle, and
        ``max_theta`` its "max solid angle", radians from the axis.

        Raises:
            ValueError: if ``projection_params`` are not 15 numbers.
        """
        if len(projection_params) != 15:
            raise ValueError(
                "projection_params must be the 15 numbers f, cx, cy, k0 to k5, p0, p1, s0 to s3, "
                f"got {len(projection_params)}."
            )
        focal_px, cx, cy, k0, k1, k2, k3, k4, k5, p0, p1, s0, s1, s2, s3 = projection_params
        return cls(
            fx=focal_px,
            fy=focal_px,
            cx=cx,
            cy=cy,
            width=width,
            height=height,
            pixel_origin=pixel_origin,
            max_theta=max_theta,
            k0=k0,
            k1=k1,
            k2=k2,
            k3=k3,
            k4=k4,
            k5=k5,
            p0=p0,
            p1=p1,
            s0=s0,
            s1=s1,
            s2=s2,
            s3=s3,
            max_radius=MAX_RADIUS if valid_radius_px is None else valid_radius_px / focal_px,
        )

    @property
    def plane_limit(self) -> Tensor:
        """Radius [*view], before tangential and prism terms, within which these surely are one-to-one."""
        return per_view(_plane_limit, self.p0, self.p1, self.s0, self.s1, self.s2, self.s3)

    def _check_lens(self) -> None:
        # Not super(): a dataclass with slots is another class than the one written here.
        RadialLens._check_lens(self)
        require("max_radius", self.max_radius, above=0)

    def _radius(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        s = theta * theta
        value, slope = torch.zeros_like(theta), torch.zeros_like(theta)
        radial = (self.k0, self.k1, self.k2, self.k3, self.k4, self.k5)
        for power, k in reversed(list(enumerate(radial, start=1))):
            k = align(k, theta)
            value, slope = s * (k + value), s * ((2 * power + 1) * k + slope)
        return theta * (1 + value), 1 + slope

    def _fold_theta(self) -> Tensor:
        return per_view(_fold_theta, self.k0, self.k1, self.k2, self.k3, self.k4, self.k5)

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        within = self._within_circle(x, y)
        x, y, straight = self._undistort(torch.where(within, x, 0), torch.where(within, y, 0))
        dirs_cam, valid = RadialLens._plane_to_rays(self, x, y)
        return dirs_cam, within & straight & valid

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, valid = RadialLens._points_to_plane(self, points_cam)
        limit = align(self.plane_limit, x) * (1 + edge_tolerance(x))
        valid = valid & (torch.hypot(x.detach(), y.detach()) <= limit)
        x, y, _ = self._distort(torch.where(valid, x, 0), torch.where(valid, y, 0))
        return x, y, valid & self._within_circle(x, y)

    def _within_circle(self, x: Tensor, y: Tensor) -> Tensor:
        limit = align(self.max_radius, x).detach() * (1 + edge_tolerance(x))
        return torch.hypot(x.detach(), y.detach()) <= limit

    def _distort(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Jacobian]:
        """Tangential and prism terms added, and the Jacobian's entries xx, xy, yx, yy."""
        named = (self.p0, self.p1, self.s0, self.s1, self.s2, self.s3)
        p0, p1, s0, s1, s2, s3 = (align(value, x) for value in named)
        s = x * x + y * y
        along = 2 * (p0 * x + p1 * y)
        mapped_x = x + along * x + s * (p0 + s0 + s1 * s)
        mapped_y = y + along * y + s * (p1 + s2 + s3 * s)
        # Derivatives of the last terms by s.
        slope_x, slope_y = p0 + s0 + 2 * s1 * s, p1 + s2 + 2 * s3 * s
        xx = 1 + along + 2 * x * (p0 + slope_x)
        xy = 2 * x * p1 + 2 * y * slope_x
        yx = 2 * y * p0 + 2 * x * slope_y
        yy = 1 + along + 2 * y * (p1 + slope_y)
        return mapped_x, mapped_y, (xx, xy, yx, yy)

    def _undistort(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What ``_distort`` takes to (x, y), and where there is such within ``plane_limit``; zero elsewhere.

        The gradient is that of the implicit function, with respect to the coefficients too.
        """
        with torch.no_grad():
            root_x, root_y, valid = self._solve(x, y)
        x, y = torch.where(valid, x, 0), torch.where(valid, y, 0)
        mapped_x, mapped_y, (xx, xy, yx, yy) = self._distort(root_x, root_y)
        fixed = (xx.detach(), xy.detach(), yx.detach(), yy.detach())
        step_x, step_y = _newton_step(fixed, mapped_x - x, mapped_y - y)
        return root_x - step_x, root_y - step_y, valid

    def _solve(self, x: Tensor, y: Tensor, *, max_steps: int = 100) -> tuple[Tensor, Tensor, Tensor]:
        # Within the limit, subtracting the residual brings any point nearer to the root (the terms have a
        # Lipschitz constant below 1), and clamping to the disc does so too. Newton's step where it is better.
        limit = align(self.plane_limit, x)
        eps = torch.finfo(x.dtype).eps
        root_x, root_y = _clamp_to_disc(x, y, limit)
        mapped_x, mapped_y, jacobian = self._distort(root_x, root_y)
        for _ in range(max_steps):
            miss_x, miss_y = mapped_x - x, mapped_y - y
            step_x, step_y = _newton_step(jacobian, miss_x, miss_y)
            if bool((torch.hypot(step_x, step_y) <= 4 * eps * (1 + torch.hypot(root_x, root_y))).all()):
                break
            newton_x, newton_y = _clamp_to_disc(root_x - step_x, root_y - step_y, limit)
            tried_x, tried_y, _ = self._distort(newton_x, newton_y)
            better = torch.hypot(tried_x - x, tried_y - y) <= torch.hypot(miss_x, miss_y) / 2
            plain_x, plain_y = _clamp_to_disc(root_x - miss_x, root_y - miss_y, limit)
            root_x, root_y = torch.where(better, newton_x, plain_x), torch.where(better, newton_y, plain_y)
            mapped_x, mapped_y, jacobian = self._distort(root_x, root_y)
        # A root found has a residual of a few eps; a missing one of the order of its distance to the disc.
        valid = torch.hypot(mapped_x - x, mapped_y - y) <= eps**0.65 * (1 + torch.hypot(x, y))
        return torch.where(valid, root_x, 0), torch.where(valid, root_y, 0), valid


def _newton_step(jacobian: Jacobian, right_x: Tensor, right_y: Tensor) -> tuple[Tensor, Tensor]:
    xx, xy, yx, yy = jacobian
    determinant = (xx * yy - xy * yx).clamp(min=MIN_SLOPE)
    return (yy * right_x - xy * right_y) / determinant, (xx * right_y - yx * right_x) / determinant


def _clamp_to_disc(x: Tensor, y: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    distance = torch.hypot(x, y)
    scale = torch.where(distance > limit, limit / torch.where(distance > limit, distance, 1), 1)
    return x * scale, y * scale


def _fold_theta(*radial: float) -> float:
    slopes = [(2 * power + 1) * k for power, k in enumerate(radial, start=1)]
    return math.sqrt(first_positive_root(1.0, *slopes))


def _plane_limit(p0: float, p1: float, s0: float, s1: float, s2: float, s3: float) -> float:
    # The terms' derivative is at most 6 |p| r + 2 |(s0, s2)| r + 4 |(s1, s3)| r^3; below 1, x -> x' is one-to-one.
    linear = 6 * math.hypot(p0, p1) + 2 * math.hypot(s0, s2)
    return min(MAX_RADIUS, first_positive_root(-1.0, linear, 0.0, 4 * math.hypot(s1, s3)))
