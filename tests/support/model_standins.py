"""Stand-ins for feed-forward models: the official signatures and output layouts, with cameras read off the pixels.

The packages of VGGT and VGGT-Omega are on no index. What is fixed here is what their sources say. ``VGGT(img_size,
patch_size, embed_dim, enable_camera, enable_point, enable_depth, enable_track)`` and ``VGGTOmega(patch_size, embed_dim,
enable_camera, enable_depth, enable_alignment)`` take images [S, 3, H, W] or [B, S, 3, H, W] in [0, 1] and give "pose_enc"
[B, S, 9] float32: t, quaternion x y z w, field of view down and across (vggt/models/vggt.py, ``VGGT.forward``;
vggt/utils/pose_enc.py, ``extri_intri_to_pose_encoding``, "absT_quaR_FoV"; vggt_omega/utils/pose_enc.py).

A stand-in keeps a camera for each shade of grey among its weights and looks up the mean of every image, so that it notices
frames in another order, of another size or in another range. Like the real ones it puts the first frame at the identity and
chooses a scale of its own.
"""

import sys
import types
from pathlib import Path

import numpy as np
import torch
from torch import nn

from merope.geometry.poses import Poses

# Grey of frame n, so that the mean of an image in [0, 1] says which it is.
SHADES = 4


def grey_frames(num: int, *, height: int, width: int) -> np.ndarray:
    """Frame n is of the grey n * SHADES."""
    shade = (np.arange(num) * SHADES).astype(np.uint8)
    return np.broadcast_to(shade[:, None, None, None], (num, height, width, 3)).copy()


def official_encoding(T_cam_world: np.ndarray, fx: float, fy: float, height: int, width: int) -> np.ndarray:
    """extri_intri_to_pose_encoding by its formula: scipy's scalar-last quaternion of R in x_cam = R x_world + t."""
    from scipy.spatial.transform import Rotation

    quaternion = Rotation.from_matrix(T_cam_world[:, :3, :3]).as_quat(canonical=True)
    fov = np.array([2 * np.arctan(height / 2 / fy), 2 * np.arctan(width / 2 / fx)])
    return np.concatenate([T_cam_world[:, :3, 3], quaternion, np.tile(fov, (len(T_cam_world), 1))], axis=1)


class _Aggregator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrices", torch.eye(4).repeat(256 // SHADES, 1, 1))
        # Units of the model for a metre, and tangents of half the fields of view, across and down.
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("tangents", torch.ones(2))


class VGGT(nn.Module):
    def __init__(
        self,
        img_size: int = 518,
        patch_size: int = 14,
        embed_dim: int = 1024,
        enable_camera: bool = True,
        enable_point: bool = True,
        enable_depth: bool = True,
        enable_track: bool = True,
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.aggregator = _Aggregator()
        self.point_head = nn.Linear(2, 2) if enable_point else None
        self.depth_head = nn.Linear(2, 2) if enable_depth else None
        self.track_head = nn.Linear(2, 2) if enable_track else None

    def forward(self, images: torch.Tensor, query_points: torch.Tensor | None = None) -> dict:
        return {"pose_enc": encode(self.aggregator, images, self.patch_size), "images": images}


class VGGTOmega(nn.Module):
    def __init__(
        self,
        patch_size: int = 16,
        embed_dim: int = 1024,
        enable_camera: bool = True,
        enable_depth: bool = True,
        enable_alignment: bool = False,
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.aggregator = _Aggregator()
        self.dense_head = nn.Linear(2, 2) if enable_depth else None
        self.alignment_head = nn.Linear(2, 2) if enable_alignment else None

    def forward(self, images: torch.Tensor) -> dict:
        return {"pose_enc": encode(self.aggregator, images, self.patch_size), "images": images}


def encode(aggregator: _Aggregator, images: torch.Tensor, patch_size: int) -> torch.Tensor:
    if images.ndim == 4:
        images = images[None]
    height, width = images.shape[-2:]
    assert images.dtype == torch.float32 and images.shape[2] == 3
    assert height % patch_size == 0 and width % patch_size == 0
    shade = images[0].double().mean(dim=(1, 2, 3)) * 255 / SHADES
    frames = shade.round().long()
    assert float((shade - frames).abs().max()) < 1e-3, "images are not in [0, 1], or not the frames"
    world_to_cam = aggregator.matrices[frames].double().numpy()
    world_to_cam = world_to_cam @ np.linalg.inv(world_to_cam[0])
    # A scale of its own for every pass, as by the mean distance of points.
    world_to_cam[:, :3, 3] *= float(aggregator.scale) * (1 + 0.1 * int(frames[0]))
    across, down = aggregator.tangents.double().tolist()
    encoding = official_encoding(world_to_cam, width / 2 / across, height / 2 / down, height, width)
    # The heads do not normalise their quaternions.
    encoding[:, 3:7] *= 1.7
    return torch.from_numpy(encoding).float()[None]


def write_weights(path: Path, kind: type[nn.Module], poses: Poses, *, tan_x: float, tan_y: float) -> Path:
    """Weights under which frame n of `grey_frames` has pose n, and images these tangents of half fields of view."""
    model = kind()
    model.aggregator.matrices[: len(poses)] = poses.T_cam_world.float()
    model.aggregator.tangents[:] = torch.tensor([tan_x, tan_y])
    model.aggregator.scale.fill_(0.3)
    torch.save(model.state_dict(), path)
    return path


def install(monkeypatch) -> None:
    """Puts the stand-ins where the packages would be."""
    for name, kind in (("vggt.models.vggt", VGGT), ("vggt_omega.models", VGGTOmega)):
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = types.ModuleType(".".join(parts[:end]))
            module.__path__ = []
            monkeypatch.setitem(sys.modules, module.__name__, module)
        setattr(sys.modules[name], kind.__name__, kind)
