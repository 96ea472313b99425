"""Any metric trajectory stands on the ground after place_on_ground, and moves as it did."""

import numpy as np
import pytest
import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
from merope.worlds import build_world, drive, place_on_ground
from tests.support.shared import shared_file
from tests.worlds.test_world import obstacle_gaps

SEQUENCES = ("00", "04", "06", "09")


def kitti(sequence):
    rows = np.loadtxt(shared_file(f"data/kitti_odom/poses/{sequence}.txt")).reshape(-1, 3, 4)
    return Poses.from_matrices(
        torch.from_numpy(rows), times=torch.arange(len(rows), dtype=torch.float64) / 10.0
    )


def test_a_turned_and_shifted_drive_comes_back():
    base = drive("curve", seed=1, num_frames=30, fps=10.0, vibration=0.0)
    turn = rotvec_to_matrix(torch.tensor([0.4, -1.1, 2.0], dtype=torch.float64))
    moved = base.transformed(turn, torch.tensor([5e4, -2e3, 700.0], dtype=torch.float64))
    placed = place_on_ground(moved)
    torch.testing.assert_close(placed.T_world_cam, base.T_world_cam, atol=1e-9, rtol=0)


def test_a_long_path_overrules_a_tilted_camera_and_a_parked_one_cannot():
    tilt = rotvec_to_matrix(torch.tensor([0.15, 0.0, 0.0], dtype=torch.float64))
    base = drive("turn", seed=1, num_frames=60, fps=10.0, vibration=0.0)
    tilted = Poses(R_world_cam=base.R_world_cam @ tilt, center_world=base.center_world)
    height = place_on_ground(tilted).center_world[:, 2]
    assert (height - 1.65).abs().max() < 0.15
    parked = Poses(
        R_world_cam=tilted.R_world_cam[:1].expand(5, 3, 3), center_world=tilted.center_world[:1].expand(5, 3)
    )
    up = place_on_ground(parked).R_world_cam[0, :, 1]
    torch.testing.assert_close(up, torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_kitti_windows_stand_on_the_ground_and_keep_their_motion(sequence):
    whole = kitti(sequence)
    for first in range(0, len(whole) - 25, 97):
        window = whole[first : first + 25]
        placed = place_on_ground(window)
        height = placed.center_world[:, 2]
        assert float(height.mean()) == pytest.approx(1.65)
        assert float((height - 1.65).abs().max()) < 0.25
        # The camera's up axis stays within KITTI's slopes of the world's.
        assert float(-placed.R_world_cam[:, 2, 1].min()) > 0.99
        rotation, offset = placed.relative(0, 24)
        rotation_before, offset_before = window.relative(0, 24)
        torch.testing.assert_close(rotation, rotation_before, atol=1e-9, rtol=0)
        torch.testing.assert_close(offset, offset_before, atol=1e-8, rtol=0)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_worlds_keep_clear_of_kitti_windows(sequence):
    whole = kitti(sequence)
    for seed, first in enumerate(range(5, len(whole) - 25, max(len(whole) // 6, 40))):
        path = place_on_ground(whole[first : first + 25])
        world = build_world(seed, paths=[path])
        assert obstacle_gaps(world, path.center_world[:, :2].numpy()).min() >= 2.0
        assert len(world.solids.shape) > 60


def test_a_climb_is_refused_with_the_way_out():
    base = drive("straight", seed=1, num_frames=40, fps=2.0, vibration=0.0)
    center = base.center_world.clone()
    along = center[:, 0] / center[-1, 0]
    center[:, 2] = 60.0 * along * (1.0 - along)
    with pytest.raises(TrajectoryError, match="shorter windows"):
        place_on_ground(Poses(R_world_cam=base.R_world_cam, center_world=center))


def test_a_unit_that_is_not_metres_is_refused():
    base = drive("straight", seed=1, num_frames=4, fps=10.0)
    with pytest.raises(TrajectoryError, match="unit is 'unknown'"):
        place_on_ground(Poses(R_world_cam=base.R_world_cam, center_world=base.center_world, unit="unknown"))


def test_cameras_without_a_common_up_are_refused():
    turns = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, torch.pi]], dtype=torch.float64)
    with pytest.raises(TrajectoryError, match="no common up direction"):
        place_on_ground(Poses(R_world_cam=rotvec_to_matrix(turns), center_world=torch.zeros(2, 3)))
