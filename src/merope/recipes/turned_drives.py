"""`turned_drive`: a drive from any world, bent to the left or to the right as rendered worlds bend theirs."""

from typing import Literal

import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.up_direction import common_up
from merope.worlds import turn_variant


def turned_drive(
    poses: Poses, *, side: Literal["left", "right"], start: int = 8, fps: float | None = None
) -> Poses:
    """The drive with extra curvature to one side after frame ``start`` (`merope.worlds.turn_variant`), in its own world.

    Up is the drive's common up direction (`merope.geometry.up_direction.common_up`). Frames 0 to ``start`` are those of
    the drive to the last bit: with 9 given frames the turn begins behind the last of them. How sharp it may be depends on
    speed, so poses without times need ``fps``.

    Raises:
        TrajectoryError: if the drive has no rate, is not longer than ``start``, is not in metres, or has no up direction.
    """
    if poses.times is None and fps is None:
        raise TrajectoryError(
            "a turn needs to know how fast the drive is, and its poses have no times. Say how many there are in a second "
            "(--rate)."
        )
    if len(poses) <= start + 1:
        raise TrajectoryError(f"a drive of {len(poses)} poses has none behind frame {start} that could turn.")
    up = common_up(poses)
    # Any horizontal axis: the one least along up, made orthogonal to it.
    axis = torch.eye(3, dtype=torch.float64)[int(up.abs().argmin())]
    x_world = torch.linalg.cross(axis, up)
    x_world = x_world / x_world.norm()
    R_level_world = torch.stack([x_world, torch.linalg.cross(up, x_world), up])
    origin_world = poses.center_world[0]
    level = poses.transformed(R_level_world, -(R_level_world @ origin_world))
    turned = turn_variant(level, side=side, start=start, **({} if fps is None else {"fps": fps}))
    back = turned.transformed(R_level_world.T, origin_world)
    kept = start + 1
    return Poses(
        R_world_cam=torch.cat([poses.R_world_cam[:kept], back.R_world_cam[kept:]]),
        center_world=torch.cat([poses.center_world[:kept], back.center_world[kept:]]),
        times=poses.times,
        unit=poses.unit,
    )
