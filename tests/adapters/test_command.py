"""Commanded cameras as rays of latent tokens."""

from dataclasses import replace

import pytest
import torch

from merope.adapters.command import latent_matrices, latent_rays
from merope.cameras import CameraModel, Pinhole
from merope.geometry.poses import Poses
from merope.worlds.drives import drive
from tests.support.tiny_run import tiny_spec


def paths(count=2):
    return [drive("curve", seed=seed, num_frames=13, fps=10.0) for seed in range(count)]


@pytest.mark.parametrize("policy", ["last", "first"])
def test_latent_poses_are_frames_of_the_clip_seen_from_its_first_camera(policy):
    spec = tiny_spec(pose_policy=policy)
    chosen = [0, 4, 8, 12] if policy == "last" else [0, 1, 5, 9]
    out = latent_matrices(paths(), spec)
    assert out.shape == (2, 4, 4, 4)
    assert out.dtype == torch.float64
    for clip, poses in enumerate(paths()):
        first = torch.linalg.inv(poses.T_world_cam[0])
        torch.testing.assert_close(out[clip], first @ poses.T_world_cam[chosen], rtol=0, atol=1e-9)
    torch.testing.assert_close(out[:, 0], torch.eye(4, dtype=torch.float64).expand(2, 4, 4))


def test_where_the_world_has_its_origin_does_not_matter():
    spec = tiny_spec()
    moved = [
        poses.transformed(poses.R_world_cam[3], torch.tensor([300.0, -80.0, 12.0], dtype=torch.float64))
        for poses in paths()
    ]
    torch.testing.assert_close(
        latent_matrices(moved, spec), latent_matrices(paths(), spec), rtol=0, atol=1e-9
    )


def test_rays_are_those_of_the_patch_centres_in_row_major_order():
    spec = tiny_spec()
    rays = latent_rays(latent_matrices(paths(), spec), spec)
    assert rays.dirs_cam.shape == (2, 4, 12, 3)
    assert rays.valid.all()
    # 90 degrees over 32 pixels: focal length 16, middle (16, 12); patches of 8 pixels, row-major in 3 x 4.
    wanted = torch.tensor(
        [[(8 * col + 4 - 16) / 16, (8 * row + 4 - 12) / 16, 1.0] for row in range(3) for col in range(4)]
    )
    wanted = wanted / wanted.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(rays.dirs_cam[1, 2].float(), wanted, rtol=0, atol=1e-6)


def test_each_clip_keeps_its_own_cameras():
    spec = tiny_spec()
    both = latent_rays(latent_matrices(paths(), spec), spec)
    second = latent_rays(latent_matrices(paths()[1:], spec), spec)
    torch.testing.assert_close(both.center_world[1], second.center_world[0])
    torch.testing.assert_close(both.R_world_cam[1], second.R_world_cam[0])


def test_too_few_poses_are_refused():
    with pytest.raises(ValueError):
        latent_matrices([Poses.from_matrices(paths(1)[0].T_world_cam[:12])], tiny_spec())


def test_lenses_of_their_own_are_looked_through_clip_by_clip():
    spec = replace(tiny_spec(), camera=None)
    wide, narrow = (Pinhole.from_fov(fov_x_deg=fov, height=24, width=32) for fov in (110.0, 50.0))
    matrices = latent_matrices(paths(), spec)
    both = latent_rays(matrices, spec, [wide, narrow])
    for clip, lens in enumerate([wide, narrow]):
        alone = latent_rays(matrices[clip : clip + 1], spec, [lens])
        torch.testing.assert_close(both.dirs_cam[clip], alone.dirs_cam[0], rtol=0, atol=0)
        assert alone.lens is not None
    # What needs the one lens of all clips is told that there is none.
    assert both.lens is None
    same = latent_rays(matrices, spec, [wide, CameraModel.from_dict(wide.to_dict())])
    assert same.lens is not None


def test_a_lens_is_needed_one_per_clip_and_for_these_frames():
    spec = replace(tiny_spec(), camera=None)
    matrices = latent_matrices(paths(), spec)
    lens = Pinhole.from_fov(fov_x_deg=90.0, height=24, width=32)
    with pytest.raises(ValueError, match="give one lens per clip"):
        latent_rays(matrices, spec)
    with pytest.raises(ValueError, match="one lens per clip, 2; got 1"):
        latent_rays(matrices, spec, [lens])
    with pytest.raises(ValueError, match="lens for 48 x 64 frames"):
        latent_rays(matrices, spec, [lens, lens.resize(height=48, width=64)])
