"""`place_on_ground`: a trajectory from anywhere, rigidly moved onto the ground plane of a world."""

import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.up_direction import common_up
from merope.worlds.world import MIN_HEIGHT


def place_on_ground(poses: Poses, *, camera_height: float = 1.65) -> Poses:
    """The same motion, standing on z = 0: mean camera height ``camera_height``, first camera at x = y = 0 looking along x.

    Up is where the path and the cameras say: it minimises, over the frames, (up . (c_t - mean))^2 plus 1 m^2
    times |up - up_t|^2 with up_t the camera's own up axis (-y), which is one linear solve. So a long level path
    need not trust a tilted camera, and a parked car trusts nothing else. The input may have any axes (KITTI's
    world has y down) and any origin; the motion is rigid, hence relative poses stay as they are.

    Degenerate: cameras without a common up direction (mean up axis shorter than 0.3), and first cameras that look
    straight up or down, whose heading is then that of their up axis.

    Raises:
        ValueError: if ``camera_height`` is below 0.5 m.
        TrajectoryError: if the poses are not in metres, have no common up direction, or leave the ground plane so
            far that a camera would be less than 0.5 m above it.
    """
    if camera_height < MIN_HEIGHT:
        raise ValueError(f"camera_height must be at least {MIN_HEIGHT} m; got {camera_height}.")
    if poses.unit != "m":
        raise TrajectoryError(
            f"poses must be in metres to stand in a metric world; their unit is {poses.unit!r}. "
            "Scale them to metres first."
        )
    up = common_up(poses)
    forward = poses.R_world_cam[0, :, 2]
    ahead = forward - (forward @ up) * up
    if ahead.norm() < 1e-3:
        ahead = -poses.R_world_cam[0, :, 1] + (poses.R_world_cam[0, :, 1] @ up) * up
    ahead = ahead / ahead.norm()
    R_ground_world = torch.stack([ahead, torch.linalg.cross(up, ahead), up])
    center = poses.center_world @ R_ground_world.T
    offset = -center[0]
    offset[2] = camera_height - center[:, 2].mean()
    placed = poses.transformed(R_ground_world, offset)
    height = placed.center_world[:, 2]
    if height.min() < MIN_HEIGHT:
        index = int(height.argmin())
        raise TrajectoryError(
            f"poses leave the ground plane: at a mean height of {camera_height} m camera {index} is at "
            f"{height[index]:.2f} m, the highest at {height.max():.2f} m. "
            "Cut the trajectory into shorter windows, which are flatter, or raise camera_height."
        )
    return placed
