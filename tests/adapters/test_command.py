"""Commanded cameras as rays of latent tokens."""

import math
from dataclasses import replace

import pytest
import torch

from merope.adapters.command import latent_matrices, latent_rays
from merope.cameras import CameraModel, Pinhole
from merope.encodings import LatitudeUpMap
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
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


def tilted(pitch_deg, roll_deg, R_own=None):
    """A clip whose first camera looks up by the pitch and is rolled, and up in its world, which has z up at first."""
    axes = torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]], dtype=torch.float64)
    turns = torch.tensor([[pitch_deg, 0, 0], [0, 0, roll_deg], [0, 33, 0]], dtype=torch.float64)
    pitch, roll, yaw = rotvec_to_matrix(torch.deg2rad(turns))
    steps = torch.arange(13, dtype=torch.float64)
    poses = Poses(
        R_world_cam=(axes @ yaw @ pitch @ roll).expand(13, 3, 3),
        center_world=torch.stack([steps, 0.3 * steps, 0.05 * steps], 1),
    )
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    if R_own is not None:
        poses, up = poses.transformed(R_own, torch.tensor([40.0, -9.0, 3.0])), R_own @ up
    return poses, tuple(up.tolist())


def latitudes(poses, up):
    """Of the clip's first latent frame, rows of tokens by columns, degrees."""
    spec = tiny_spec()
    rays = latent_rays(latent_matrices([poses], spec, up_world=None if up is None else [up]), spec)
    features = LatitudeUpMap().features(rays, dtype=torch.float64)
    return torch.rad2deg(features[0, :12, 2].unflatten(0, (3, 4))), features


def test_the_latitude_of_a_tilted_first_camera_is_that_of_gravity():
    # The middle row of 3 lies on the axis; patches 1 and 2 are a quarter of the focal length off it to either side.
    poses, up = tilted(25.0, 0.0)
    seen, _ = latitudes(poses, up)
    wanted = math.degrees(math.asin(math.sin(math.radians(25)) / math.hypot(1, 0.25)))
    torch.testing.assert_close(
        seen[1, 1:3], torch.tensor([wanted, wanted], dtype=torch.float64), rtol=0, atol=1e-9
    )
    # Without gravity the camera is taken as level, which it is not.
    wrong, _ = latitudes(poses, None)
    assert wrong[1, 1:3].abs().max() < 1e-9


def test_a_turned_world_is_the_same_command_and_the_same_map():
    R_own = rotvec_to_matrix(torch.tensor([1.1, -0.4, 2.0], dtype=torch.float64))
    spec = tiny_spec()
    (poses, up), (moved, moved_up) = tilted(-20.0, 15.0), tilted(-20.0, 15.0, R_own)
    both = [latent_matrices([clip], spec, up_world=[way]) for clip, way in ((poses, up), (moved, moved_up))]
    torch.testing.assert_close(both[0], both[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(latitudes(poses, up)[1], latitudes(moved, moved_up)[1], rtol=0, atol=1e-9)
    # The world turned and up left as it was: another map.
    assert (latitudes(poses, up)[0] - latitudes(moved, up)[0]).abs().max() > 10


def test_up_is_one_direction_per_clip():
    with pytest.raises(ValueError, match="one direction per clip, 2; got 1"):
        latent_matrices(paths(), tiny_spec(), up_world=[(0.0, 0.0, 1.0)])
