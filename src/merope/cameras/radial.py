"""Lenses whose distance from the centre depends on the angle from the axis alone."""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from merope.cameras.base import CameraModel
from merope.cameras.inverse import edge_tolerance, invert_increasing
from merope.cameras.parameters import Parameter, align, require, to_tensor

# Distances from the axis below this (for a largest coordinate of 1) are on it: the linear limit is exact
# there, and the square still fits float32.
ON_AXIS = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RadialLens(CameraModel):
    """A lens with ``|(x, y)| = radius(theta)``, theta being the angle from the axis.

    A model gives the increasing function, of slope 1 at the axis, and the angle where it folds; this class
    does the rest. One whose formula is the inverse, the angle at a radius, gives ``_theta`` too. Invalid:
    angles beyond ``theta_limit`` even where the polynomial comes back into the image, and the exact
    backward axis, which has no azimuth.
    """

    max_theta: Parameter = math.pi
    """Largest angle from the axis that the lens is calibrated for or sees, radians."""

    @abstractmethod
    def _radius(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Radius on the plane and its derivative, at angles of shape [*view, ...]."""

    @abstractmethod
    def _fold_theta(self) -> Tensor:
        """Smallest angle [*view] at which the radius stops growing, infinity if it never does."""

    def _theta(self, radius: Tensor, limit: Tensor) -> Tensor:
        """Angle at a radius between 0 and that of the angle ``limit``."""
        return invert_increasing(self._radius, radius, limit)

    def _check_lens(self) -> None:
        # Half a turn in float32 is a little more than half a turn.
        require("max_theta", self.max_theta, above=0, at_most=math.pi * (1 + 1e-6))

    @property
    def theta_limit(self) -> Tensor:
        """Largest valid angle from the axis, radians: ``max_theta`` or the fold, whichever comes first."""
        fold = self._fold_theta()
        return torch.minimum(fold, to_tensor(self.max_theta).detach().to(fold)).clamp(max=math.pi)

    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        limit = align(self.theta_limit, x)
        squared = x * x + y * y
        off_axis = squared > ON_AXIS**2
        radius = torch.sqrt(torch.where(off_axis, squared, 1))
        largest = self._radius(limit)[0].detach()
        valid = ~off_axis | (radius.detach() <= largest * (1 + edge_tolerance(x)))
        target = torch.minimum(torch.where(off_axis & valid, radius, 0), largest)
        theta = self._theta(target, limit)
        sine, cosine = torch.sin(theta), torch.cos(theta)
        # A whole circle of the plane would be the backward axis.
        valid = valid & ((cosine > 0) | (sine > ON_AXIS))
        scale = torch.where(off_axis, sine / radius, 1)
        return torch.stack((x * scale, y * scale, cosine), -1), valid

    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, z = points_cam.unbind(-1)
        squared = x * x + y * y
        off_axis = squared > ON_AXIS**2
        side = torch.sqrt(torch.where(off_axis, squared, 1))
        theta = torch.where(off_axis, torch.atan2(side, z), 0)
        limit = align(self.theta_limit, x)
        valid = torch.where(off_axis, theta.detach() <= limit * (1 + edge_tolerance(x)), z > 0)
        radius = self._radius(torch.where(valid, theta, 0))[0]
        ahead = torch.where(off_axis | (z <= 0), 1, z)
        scale = torch.where(off_axis, radius / side, 1 / ahead)
        return x * scale, y * scale, valid
