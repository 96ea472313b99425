"""Which pose a latent frame has.

A causal video autoencoder keeps the first frame alone and folds each following group of ``stride`` frames
into one latent frame, so 1 + stride k frames become 1 + k latents. Which moment of its group a latent stands
for is a choice that a trained model depends on.
"""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from merope.geometry.poses import Poses
from merope.geometry.rotations import mean_rotation


def latent_pose_index(
    num_frames: int, policy: Literal["last", "first"] = "last", stride: int = 4
) -> Int[Tensor, " latent"]:
    """Frame whose pose each latent frame takes: the last or the first of its group.

    For 49 frames, stride 4: "last" gives 0, 4, 8, ..., 48 and "first" 0, 1, 5, ..., 45.

    Raises:
        ValueError: if ``num_frames`` is not 1 + stride k, or the policy is unknown.
    """
    if stride < 1:
        raise ValueError(f"stride must be at least 1, got {stride}.")
    if num_frames < 1 or (num_frames - 1) % stride:
        raise ValueError(
            f"num_frames must be 1 + {stride} k, got {num_frames}. "
            f"Use {max(0, num_frames - 1) // stride * stride + 1} frames."
        )
    if policy not in ("last", "first"):
        raise ValueError(
            f"policy must be 'last' or 'first' here, got {policy!r}. 'mean' has no single frame: "
            "use latent_poses."
        )
    last = torch.arange(0, num_frames, stride)
    return last if policy == "last" else (last - (stride - 1)).clamp(min=0)


def latent_poses(
    poses: Poses, *, policy: Literal["last", "first", "mean"] = "last", stride: int = 4
) -> Poses:
    """The pose of each latent frame: the last, the first or the mean of its group's poses.

    The mean takes the arithmetic mean of centres and times and the chordal mean of rotations (the rotation
    nearest to the mean matrix).

    Degenerate: the mean of rotations that turn by half a turn or more within one group is arbitrary.

    Raises:
        ValueError: if the number of poses is not 1 + stride k, or the policy is unknown.
    """
    if policy not in ("last", "first", "mean"):
        raise ValueError(f"policy must be 'last', 'first' or 'mean', got {policy!r}.")
    if policy != "mean":
        return poses[latent_pose_index(len(poses), policy, stride)]
    latent_pose_index(len(poses), "last", stride)

    def groups(values: Tensor) -> Tensor:
        return values[1:].reshape(-1, stride, *values.shape[1:])

    def means(values: Tensor) -> Tensor:
        return torch.cat((values[:1], groups(values).mean(1)))

    return Poses(
        R_world_cam=torch.cat((poses.R_world_cam[:1], mean_rotation(groups(poses.R_world_cam)))),
        center_world=means(poses.center_world),
        times=None if poses.times is None else means(poses.times),
        unit=poses.unit,
    )
