"""What trajectories measure: lengths, turns, times, and what is odd about them."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.data.poses.facts import is_standing, pose_facts, step_outliers, time_facts, up_axis
from tests.support.drives import drive


def facts(poses, **options):
    return pose_facts(poses.R_world_cam, poses.center_world, **{"metric": True, **options})


def test_a_quarter_turn_measures_what_it_is():
    found = facts(drive(41, length=20.0, turn_deg=90.0))
    assert found.num_poses == 41
    assert found.path_length == pytest.approx(20.0, rel=1e-3)
    assert found.mean_step == pytest.approx(0.5, rel=1e-3)
    assert found.summed_rotation_deg == pytest.approx(90.0)
    assert found.max_rotation_step_deg == pytest.approx(90.0 / 40)
    assert found.turn_deg == pytest.approx(90.0)
    assert found.turn_range_deg == pytest.approx(90.0)
    radius = 20 / (np.pi / 2)
    assert found.extent == pytest.approx((radius, 0, radius), abs=0.01)
    assert found.up == pytest.approx((0, -1, 0))
    assert (found.duplicates, found.step_jumps, found.rotation_jumps) == ((), (), ())
    assert found.moves
    assert not found.static


def test_turns_to_the_right_are_negative_and_add_up_beyond_a_circle():
    assert facts(drive(41, turn_deg=-90.0)).turn_deg == pytest.approx(-90.0)
    assert facts(drive(200, turn_deg=600.0)).turn_deg == pytest.approx(600.0)


def test_a_turn_is_about_the_cameras_up_in_any_world():
    poses = drive(41, turn_deg=70.0)
    tilted = poses.transformed(
        torch.from_numpy(Rotation.from_euler("xyz", [40, 20, 35], degrees=True).as_matrix()), torch.zeros(3)
    )
    assert up_axis(tilted.R_world_cam) is None
    assert facts(tilted).turn_deg == pytest.approx(70.0, abs=0.5)


def test_repeated_poses_and_jumps_are_found_where_they_are():
    poses = drive(60, length=30.0)
    centers, rotations = poses.center_world.clone(), poses.R_world_cam.clone()
    centers[20:] += torch.tensor([0.0, 0.0, 5.0])
    centers[41], rotations[41] = centers[40], rotations[40]
    rotations[50:] = rotations[50:] @ torch.from_numpy(Rotation.from_rotvec([0, 0.4, 0]).as_matrix())
    found = pose_facts(rotations, centers, metric=True)
    assert found.duplicates == (41,)
    # The step after a repeated pose makes up for it.
    assert found.step_jumps == (20, 42)
    assert found.rotation_jumps == (50,)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([1.0] * 20, []),
        ([1.0] * 10 + [1.4] + [1.0] * 10, []),
        ([1.0] * 10 + [1.6] + [1.0] * 10, [10]),
        ([0.0] * 30 + [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], []),
        ([1.0, 2.0], []),
        ([], []),
        ([0.0] * 5, []),
    ],
)
def test_a_jump_is_an_outlier_and_not_a_start(steps, expected):
    found = step_outliers(torch.tensor(steps, dtype=torch.float64))
    assert found.nonzero().flatten().tolist() == expected


def test_a_standing_camera_may_tremble_but_not_drift():
    rng = np.random.default_rng(0)
    centers = torch.from_numpy(rng.normal(scale=0.005, size=(500, 3))) + 1000.0
    turned = torch.eye(3, dtype=torch.float64).repeat(500, 1, 1)
    found = pose_facts(turned, centers, metric=True)
    # The path of the noise is metres long; the camera stands all the same.
    assert found.path_length > 3
    assert found.static
    assert is_standing(turned, centers, metric=False)
    assert not is_standing(turned, centers - 1000, metric=False)
    assert is_standing(turned, centers[:1].expand(500, 3), metric=False)
    pan = torch.from_numpy(Rotation.from_rotvec(np.linspace(0, 0.05, 500)[:, None] * [0, 1, 0]).as_matrix())
    assert not is_standing(pan, centers, metric=True)
    drift = centers + torch.linspace(0, 0.1, 500, dtype=torch.float64)[:, None]
    assert not is_standing(turned, drift, metric=True)


def test_times_have_a_rate_and_gaps():
    times = torch.arange(50, dtype=torch.float64) * 0.1 + 1e9
    times[30:] += 0.5
    found = time_facts(times)
    assert (found.count, found.gaps) == (50, (30,))
    assert found.fps == pytest.approx(10)
    assert found.span == pytest.approx(5.4)
    assert (found.min_spacing, found.max_spacing) == pytest.approx((0.1, 0.6))
    assert time_facts(times[:1]).fps is None


def test_speed_is_step_by_time():
    poses = drive(21, length=20.0)
    times = torch.arange(21, dtype=torch.float64) * 0.2
    assert facts(poses, times=times).speed == pytest.approx((5.0, 5.0, 5.0))
    assert facts(poses).speed is None


def test_the_cost_of_float32_is_measured():
    poses = drive(50, length=40.0).transformed(
        torch.eye(3, dtype=torch.float64), torch.tensor([-2.7e6, -4.2e6, 3.8e6], dtype=torch.float64)
    )
    found = facts(poses)
    assert 0.05 < found.float32_position_error < 0.5
    assert found.float32_step_error > 0.05
    assert found.path_length == pytest.approx(40.0, rel=1e-6)
    assert facts(drive(50)).float32_position_error < 1e-5


def test_one_pose_has_no_steps():
    found = facts(drive(41)[0])
    assert (found.num_poses, found.path_length, found.max_step, found.summed_rotation_deg) == (1, 0, 0, 0)
    assert found.static
