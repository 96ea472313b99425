"""How much a camera shakes: `jitter_deg`, the change of its motion from frame to frame."""

import math

import torch

from merope.geometry.poses import Poses
from merope.geometry.rotations import rotation_angle


def jitter_deg(poses: Poses, *, near_depth: float = math.inf) -> float:
    """Degrees by which the image of the nearest surface leaves its constant motion, root mean square over the frames.

    For each frame but the first and the last it is the angle between the turns before and after it, plus the change of the
    step there, ||c_{t+1} - 2 c_t + c_{t-1}||, seen from ``near_depth`` (in the poses' unit). So it depends neither on the
    world nor on its scale; a camera that moves and turns evenly has 0, whatever its speed. Without a near depth the turns
    alone count. It is per frame and grows with the square of the time between frames: compare clips of one rate.

    Fewer than three frames have no change of motion and give 0.

    Raises:
        ValueError: if ``near_depth`` is not positive.
    """
    if not near_depth > 0:
        raise ValueError(f"near_depth must be positive; got {near_depth:g}.")
    if len(poses) < 3:
        return 0.0
    # In camera axes a constant turn is one matrix.
    turns = poses.R_world_cam[:-1].mT @ poses.R_world_cam[1:]
    changes = rotation_angle(turns[:-1], turns[1:])
    if math.isfinite(near_depth):
        bends = poses.center_world.diff(dim=0).diff(dim=0).norm(dim=-1)
        changes = changes + bends / near_depth
    return math.degrees(float(torch.sqrt((changes * changes).mean())))
