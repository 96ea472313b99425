"""The level world of a first camera: where its axes point, by hand, and that the clip's own world does not matter."""

import math

import pytest
import torch

from merope.geometry.gravity import rebase_to_level, unit_up
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix

# The axes in which this module's cameras are written: x right, y down, z ahead.
UP = (0.0, -1.0, 0.0)


def turn(*rotvec_deg):
    return rotvec_to_matrix(torch.deg2rad(torch.tensor(rotvec_deg, dtype=torch.float64)))


def clip(R_first):
    """Three cameras that go 2 m along the world's z per frame and turn on the way."""
    rotations = torch.stack([R_first, turn(0, 10, 0) @ R_first, turn(5, 20, 3) @ R_first])
    centers = torch.tensor([[5.0, 1.0, 7.0], [5.0, 1.0, 9.0], [5.0, 0.5, 11.0]], dtype=torch.float64)
    return Poses(R_world_cam=rotations, center_world=centers)


def close(one, other, atol=1e-12):
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize("yaw", [0, 70, -160])
def test_yaw_goes_and_pitch_and_roll_stay(yaw):
    tilt = turn(-35, 0, 0) @ turn(0, 0, 20)
    level = rebase_to_level(clip(turn(0, yaw, 0) @ tilt), UP)
    close(level.R_world_cam[0], tilt)
    assert level.center_world[0].tolist() == [0, 0, 0]
    # The path went 2 m along the world's z, which lies at -yaw from the new z; the third frame also 0.5 m up.
    angle = math.radians(-yaw)
    close(
        level.center_world[1],
        torch.tensor([2 * math.sin(angle), 0, 2 * math.cos(angle)], dtype=torch.float64),
    )
    close(level.center_world[2, 1], torch.tensor(-0.5).double())


def test_a_level_first_camera_is_the_world():
    poses = clip(turn(0, 70, 0))
    close(rebase_to_level(poses, UP).T_world_cam, poses.rebase_to_first().T_world_cam)


@pytest.mark.parametrize(
    "R_first", [turn(-35, 0, 0) @ turn(0, 0, 20), turn(0, 0, 180), turn(-90, 0, 0), turn(90, 0, 0)]
)
def test_the_clip_s_own_world_does_not_matter(R_first):
    R_other = turn(100, -40, 65)
    offset = torch.tensor([6.4e6, -3e5, 12.0], dtype=torch.float64)
    moved = clip(R_first).transformed(R_other, offset)
    up = 3 * R_other @ torch.tensor(UP, dtype=torch.float64)
    wanted = rebase_to_level(clip(R_first), UP)
    # A double near 6.4e6 m is good to 1e-9 m.
    close(rebase_to_level(moved, up.tolist()).T_world_cam, wanted.T_world_cam, atol=2e-8)


@pytest.mark.parametrize("pitch", [90, -90])
def test_a_vertical_camera_is_the_limit_of_one_that_pitches_there(pitch):
    vertical = rebase_to_level(clip(turn(0, 50, 0) @ turn(pitch, 0, 0)), UP)
    nearly = rebase_to_level(clip(turn(0, 50, 0) @ turn(pitch * (1 - 1e-5), 0, 0)), UP)
    close(vertical.T_world_cam, nearly.T_world_cam, atol=1e-3)
    close(vertical.R_world_cam[0], turn(pitch, 0, 0))
    # Looking down, what is at the top of the image is ahead; looking up, behind.
    top_of_image = -vertical.R_world_cam[0][:, 1]
    close(top_of_image, torch.tensor([0, 0, -math.copysign(1, pitch)]).double())


@pytest.mark.parametrize("up", [(0, 0, 0), (0, 1), (0, math.nan, 1), (0, math.inf, 1), (0, 0, 0, 1)])
def test_what_is_no_direction_is_refused(up):
    with pytest.raises(ValueError, match="up_world must be the direction against gravity"):
        unit_up(up)
    assert unit_up((0, 0, 9.81)) == (0, 0, 1)
