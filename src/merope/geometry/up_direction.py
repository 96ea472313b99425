"""`common_up`: which way is up in the world of a drive that does not say so."""

import torch
from jaxtyping import Float
from torch import Tensor

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses

# Square metres. A path much longer than its root decides the up direction along itself; the cameras' own up axes decide
# the rest, such as the roll of a straight drive and everything for a parked car.
_UP_WEIGHT = 1.0


def common_up(poses: Poses) -> Float[Tensor, "3"]:
    """The unit up vector of a drive in its own world, from the path and the cameras' own up axes.

    It minimises, over the frames, (up . (c_t - mean))^2 plus 1 m^2 times |up - up_t|^2 with up_t the camera's up axis
    (-y): one linear solve. A long level path need not trust a tilted camera, and a parked one trusts nothing else.

    Raises:
        TrajectoryError: if the mean of the cameras' up axes is shorter than 0.3, so that there is no common one.
    """
    camera_up = -poses.R_world_cam[:, :, 1].mean(dim=0)
    if camera_up.norm() < 0.3:
        raise TrajectoryError(
            "poses have no common up direction: the mean of the cameras' up axes (-y) has length "
            f"{camera_up.norm():.2f}. Give poses in OpenCV axes (x right, y down, z forward)."
        )
    centered = poses.center_world - poses.center_world.mean(dim=0)
    scatter = centered.T @ centered / len(poses)
    identity = torch.eye(3, dtype=torch.float64)
    up = torch.linalg.solve(scatter + _UP_WEIGHT * identity, _UP_WEIGHT * camera_up)
    return up / up.norm()
