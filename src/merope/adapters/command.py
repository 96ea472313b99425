"""Commanded cameras of a clip as the rays of its latent tokens; training and generation share it."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from merope.adapters.spec import VideoSpec
from merope.cameras import CameraModel, TokenGrid, latent_poses
from merope.cameras.rays import ViewRays
from merope.geometry.poses import Poses


def latent_matrices(cameras: Sequence[Poses], spec: VideoSpec) -> Float[Tensor, "clip view 4 4"]:
    """Camera-to-world matrices of the latent frames; each clip's first camera is the origin."""
    return torch.stack(
        [
            latent_poses(
                poses.rebase_to_first(), policy=spec.pose_policy, stride=spec.temporal_stride
            ).T_world_cam
            for poses in cameras
        ]
    )


def latent_rays(T_world_cam: Float[Tensor, "clip view 4 4"], spec: VideoSpec) -> ViewRays:
    """Rays of every token of clips whose latent frames have these poses."""
    rows, cols = spec.token_grid
    camera = CameraModel.from_dict(spec.camera)
    dirs, valid = TokenGrid(rows, cols).token_rays(camera)
    clips, views = T_world_cam.shape[:2]
    return ViewRays.from_poses(
        T_world_cam,
        dirs.expand(clips, views, -1, -1),
        valid=valid.expand(clips, views, -1),
        grid=(rows, cols),
        camera=camera,
    )
