"""Which way is up: poses in the gravity-aligned world of their first camera."""

import math
from collections.abc import Sequence

import torch

from merope.geometry.poses import Poses

Up = tuple[float, float, float]
"""Unit vector against gravity."""

# Sine of the angle to the vertical below which a camera's forward direction says nothing about its heading: files
# with six digits are off by that much.
_VERTICAL = 1e-6


def unit_up(up_world: Sequence[float]) -> Up:
    """A direction against gravity, of any length, as a unit vector.

    Raises:
        ValueError: if it is not three finite numbers, or of no length.
    """
    try:
        x, y, z = (float(value) for value in up_world)
        length = math.hypot(x, y, z)
        if not 0 < length < math.inf:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"up_world must be the direction against gravity as three numbers, such as (0, 0, 1); got {up_world!r:.80}."
        ) from None
    return x / length, y / length, z / length


def rebase_to_level(poses: Poses, up_world: Sequence[float]) -> Poses:
    """The same motion in the level world of the first camera, as UCPE's absolute map takes PanShot's clips.

    Its origin is the first camera's centre, y is down along gravity, and z is the horizontal part of the first camera's
    forward direction: no yaw, while pitch and roll stay. ``up_world`` is the direction against gravity in the world of
    ``poses``. A first camera that is level gives `Poses.rebase_to_first`.

    A camera that looks straight up or down (to 1e-6 rad) has no such part. Then its x axis, which is horizontal, is the
    world's: the limit of pitching a camera without roll. Looking down, z is where the top of the image points.

    Raises:
        ValueError: if ``up_world`` is no direction.
    """
    rebased = poses.rebase_to_first()
    # In the axes of the first camera, in which rebased poses are.
    down_first = -(poses.R_world_cam[0].mT @ torch.tensor(unit_up(up_world), dtype=torch.float64))
    forward_first = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    ahead_first = forward_first - (forward_first @ down_first) * down_first
    if float(ahead_first.norm()) < _VERTICAL:
        right_first = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        ahead_first = torch.linalg.cross(right_first, down_first)
    ahead_first = ahead_first / ahead_first.norm()
    R_level_first = torch.stack([torch.linalg.cross(down_first, ahead_first), down_first, ahead_first])
    return rebased.transformed(R_level_first, torch.zeros(3, dtype=torch.float64))
