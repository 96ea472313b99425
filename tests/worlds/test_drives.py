"""Drives are physically plausible, seeded, and start where they say."""

import numpy as np
import pytest
import torch

from merope.geometry.turns import AXLE_TO_CAMERA
from merope.worlds import DRIVES, drive, random_drive


def axle_motion(poses, fps):
    """Speed, yaw rate, and radius of the rear axle per step."""
    rotation, center = poses.R_world_cam.numpy(), poses.center_world.numpy()
    heading = np.unwrap(np.arctan2(rotation[:, 1, 2], rotation[:, 0, 2]))
    axle = center[:, :2] - AXLE_TO_CAMERA * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    length = np.linalg.norm(np.diff(axle, axis=0), axis=1)
    turn = np.diff(heading)
    moving = length > 0.05
    radius = np.min(length[moving] / np.maximum(np.abs(turn[moving]), 1e-9), initial=np.inf)
    return length * fps, turn * fps, radius


@pytest.mark.parametrize("kind", DRIVES)
def test_every_drive_respects_the_limits_of_a_car(kind):
    fps = 10.0
    for seed in range(25):
        poses = drive(kind, seed=seed, num_frames=33, fps=fps)
        speed, yaw_rate, radius = axle_motion(poses, fps)
        assert speed.max() <= 20.0 + 1e-6
        assert np.abs(speed * yaw_rate).max() <= 4.0
        assert np.abs(np.diff(speed)).max() * fps <= 4.0
        assert radius >= 7.0
        assert poses.unit == "m"
        assert poses.times is not None
        torch.testing.assert_close(poses.times[1] - poses.times[0], torch.tensor(0.1, dtype=torch.float64))


def test_the_axle_never_slides_sideways():
    poses = drive("turn", seed=3, num_frames=97, fps=50.0, vibration=0.0)
    rotation, center = poses.R_world_cam.numpy(), poses.center_world.numpy()
    forward = rotation[:, :2, 2]
    axle = center[:, :2] - AXLE_TO_CAMERA * forward
    step = np.diff(axle, axis=0)
    middle = forward[1:] + forward[:-1]
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    sideways = step[:, 0] * middle[:, 1] - step[:, 1] * middle[:, 0]
    assert np.abs(sideways).max() < 1e-3
    assert (np.sum(step * middle, axis=1) >= 0.0).all()
    # The camera, ahead of the axle, does slide: otherwise this test would see nothing.
    camera_step = np.diff(center[:, :2], axis=0)
    assert np.abs(camera_step[:, 0] * middle[:, 1] - camera_step[:, 1] * middle[:, 0]).max() > 1e-2


def test_first_camera_stands_at_the_origin_and_looks_along_x():
    for kind in DRIVES:
        poses = drive(kind, seed=5, num_frames=4, fps=12.0, camera_height=1.4, vibration=0.0)
        expected = torch.tensor([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]], dtype=torch.float64)
        torch.testing.assert_close(poses.R_world_cam[0], expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(
            poses.center_world[0], torch.tensor([0.0, 0.0, 1.4], dtype=torch.float64), atol=1e-12, rtol=0
        )


def test_some_stops_come_to_rest_and_some_drive_on():
    rest = moved_on = 0
    for seed in range(20):
        speed, _, _ = axle_motion(drive("stop", seed=seed, num_frames=61, fps=10.0, vibration=0.0), 10.0)
        rest += speed.min() < 0.01
        standing = np.flatnonzero(speed < 0.01)
        moved_on += len(standing) > 0 and standing[-1] < len(speed) - 10
    assert rest >= 10
    assert moved_on >= 3


def test_a_lane_change_ends_parallel_to_where_it_began():
    poses = drive("lane_change", seed=2, num_frames=121, fps=10.0, vibration=0.0)
    heading = torch.atan2(poses.R_world_cam[:, 1, 2], poses.R_world_cam[:, 0, 2])
    assert heading.abs().max() > 0.05
    # The clip starts within the manoeuvre or before it, so compare with the steady end.
    torch.testing.assert_close(heading[-1], heading[-20], atol=1e-9, rtol=0)


def test_random_drives_differ_by_seed_and_repeat_by_seed():
    first, again, other = (random_drive(seed, 17, 10.0) for seed in (4, 4, 5))
    assert torch.equal(first.T_world_cam, again.T_world_cam)
    assert not torch.allclose(first.center_world, other.center_world, atol=0.1)
    assert len({float(random_drive(seed, 3, 10.0).path_length) for seed in range(30)}) == 30


def test_random_drives_turn_both_ways_and_reach_low_and_high_speeds():
    ends, speeds = [], []
    for seed in range(120):
        poses = random_drive(seed, 25, 10.0)
        ends.append(float(torch.atan2(poses.R_world_cam[-1, 1, 2], poses.R_world_cam[-1, 0, 2])))
        speeds.append(poses.path_length / 2.4)
    assert np.sum(np.array(ends) > 0.2) >= 15
    assert np.sum(np.array(ends) < -0.2) >= 15
    assert min(speeds) < 2.0
    assert max(speeds) > 15.0


def test_vibration_shakes_by_millimetres_and_fractions_of_a_degree():
    still = drive("straight", seed=1, num_frames=200, fps=10.0, vibration=0.0)
    shaken = drive("straight", seed=1, num_frames=200, fps=10.0)
    heave = shaken.center_world[:, 2].std()
    pitch = torch.asin(shaken.R_world_cam[:, 2, 2]).std()
    assert still.center_world[:, 2].std() < 1e-12
    assert 0.002 < heave < 0.03
    assert 0.0005 < pitch < 0.02


def test_an_unknown_kind_names_the_known_ones():
    with pytest.raises(ValueError, match=r"kind must be one of straight.*'wheelie'"):
        drive("wheelie", seed=0, num_frames=5, fps=10.0)
    with pytest.raises(ValueError, match="must be positive"):
        drive("turn", seed=0, num_frames=0, fps=10.0)
