"""Commanded cameras of a clip as the rays of its latent tokens; training and generation share it."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from merope.adapters.spec import VideoSpec
from merope.cameras import CameraModel, TokenGrid, latent_poses
from merope.cameras.rays import ViewRays
from merope.geometry.gravity import Up, rebase_to_level
from merope.geometry.poses import Poses


def latent_matrices(
    cameras: Sequence[Poses], spec: VideoSpec, *, up_world: Sequence[Up] | None = None
) -> Float[Tensor, "clip view 4 4"]:
    """Camera-to-world matrices of the latent frames, float64; each clip's first camera is the origin.

    ``up_world`` says for each clip which way is against gravity in its own world. Then y is down along gravity and the
    first camera keeps its pitch and roll (`rebase_to_level`); without it, the axes are those of the first camera.

    Raises:
        ValueError: if ``up_world`` holds not one direction per clip, or the poses are not the spec's frames.
    """
    if up_world is None:
        seen = [poses.rebase_to_first() for poses in cameras]
    elif len(up_world) != len(cameras):
        raise ValueError(f"up_world must hold one direction per clip, {len(cameras)}; got {len(up_world)}.")
    else:
        seen = [rebase_to_level(poses, up) for poses, up in zip(cameras, up_world, strict=True)]
    return torch.stack(
        [
            latent_poses(poses, policy=spec.pose_policy, stride=spec.temporal_stride).T_world_cam
            for poses in seen
        ]
    )


def spec_lens(spec: VideoSpec) -> CameraModel:
    """The lens that all clips of a model share.

    Raises:
        ValueError: if each clip brings its own.
    """
    if spec.camera is None:
        raise ValueError("this spec has no lens of its own: give one lens per clip.")
    return CameraModel.from_dict(spec.camera)


def latent_rays(
    T_world_cam: Float[Tensor, "clip view 4 4"],
    spec: VideoSpec,
    lenses: Sequence[CameraModel] | None = None,
) -> ViewRays:
    """Rays of every token of clips whose latent frames have these poses.

    ``lenses`` holds one lens per clip, for frames of the spec's size; None takes the spec's own.

    Raises:
        ValueError: if there is no lens, not one per clip, or one for frames of another size.
    """
    rows, cols = spec.token_grid
    clips, views = T_world_cam.shape[:2]
    if lenses is None:
        lenses = [spec_lens(spec)] * clips
    if len(lenses) != clips:
        raise ValueError(f"lenses must hold one lens per clip, {clips}; got {len(lenses)}.")
    for lens in lenses:
        spec.require_size(lens.height, lens.width)
    grid = TokenGrid(rows, cols)
    same = all(lens.to_dict() == lenses[0].to_dict() for lens in lenses)
    # One lens for all clips, the usual case, is looked through once.
    seen = [grid.token_rays(lens) for lens in (lenses[:1] if same else lenses)]
    dirs = torch.stack([dirs for dirs, _ in seen]).expand(clips, -1, -1)
    valid = torch.stack([valid for _, valid in seen]).expand(clips, -1)
    return ViewRays.from_poses(
        T_world_cam,
        dirs[:, None].expand(clips, views, -1, -1),
        valid=valid[:, None].expand(clips, views, -1),
        grid=(rows, cols),
        camera=lenses[0] if same else None,
    )
