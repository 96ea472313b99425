"""Level drives along straight roads and circles, for tests of pose files and of what is measured on them."""

import math

import torch

from merope.geometry.poses import Poses, Unit
from merope.geometry.rotations import rotvec_to_matrix


def drive(
    num: int, *, length: float = 20.0, turn_deg: float = 0.0, turning: float = 1.0, unit: Unit = "m"
) -> Poses:
    """``num`` poses in a world with y down, looking along a path that turns left by ``turn_deg``.

    It turns along the middle of the path, over its share ``turning``, and is straight before and after. Steps are equal.
    """
    share = torch.linspace(0, 1, num, dtype=torch.float64)
    heading = -math.radians(turn_deg) * ((share - 0.5) / turning + 0.5).clamp(0, 1)
    middle = (heading[1:] + heading[:-1]) / 2
    steps = torch.stack([middle.sin(), 0 * middle, middle.cos()], dim=-1) * length / max(num - 1, 1)
    yaw = torch.stack([0 * heading, heading, 0 * heading], dim=-1)
    return Poses(
        R_world_cam=rotvec_to_matrix(yaw),
        center_world=torch.cat([torch.zeros(1, 3, dtype=torch.float64), steps.cumsum(dim=0)]),
        unit=unit,
    )
