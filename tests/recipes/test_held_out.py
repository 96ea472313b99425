"""Held-out commands are fixed: they do not move with the code, the machine or the number of worlds asked for."""

import pytest
import torch

from merope.data.poses.files import read_poses
from merope.evaluation.benchmarks.worlds import KITTI_SEQUENCES, held_out_commands
from merope.generation import check_command
from merope.recipes.held_out import metres_commands, stretched
from merope.recipes.tiny_street import tiny_street_spec
from merope.worlds.drives import drive
from tests.support.shared import shared_file

SPEC = tiny_street_spec()

# Metres, as they were when the shipped weights were trained. A change here moves the goal posts.
DRIVES = [38.0104, 23.3093, 15.4879, 14.9489]
WITH_KITTI = [38.0104, 19.2266, 15.4879, 32.2815, 25.1092, 30.9034, 37.0196, 27.8187]
METRES = [(8.8506, 13.2731, 22.1184), (9.6456, 14.4913, 24.183), (11.4335, 17.1155, 28.48)]


def test_drives_are_those_fixed_before_training():
    commands = held_out_commands(4, SPEC, kitti=None)
    assert [name for name, _, _ in commands] == ["drive-00", "drive-01", "drive-02", "drive-03"]
    assert [seed for _, seed, _ in commands] == [1_000_000, 1_000_001, 1_000_002, 1_000_003]
    assert [poses.path_length for _, _, poses in commands] == pytest.approx(DRIVES, abs=1e-3)


def test_every_second_command_is_a_kitti_window_fixed_before_training():
    kitti = shared_file("data/kitti_odom/poses")
    commands = held_out_commands(8, SPEC, kitti=kitti)
    assert [name.split("-")[0] for name, _, _ in commands] == ["drive", "kitti"] * 4
    assert [poses.path_length for _, _, poses in commands] == pytest.approx(WITH_KITTI, abs=1e-3)
    # Drives do not change because KITTI stands beside them.
    assert commands[2][2].path_length == pytest.approx(DRIVES[2], abs=1e-3)


def test_kitti_windows_are_rigidly_moved_pieces_of_the_files():
    kitti = shared_file("data/kitti_odom/poses")
    _, _, window = held_out_commands(2, SPEC, kitti=kitti)[1]
    relative = window.rebase_to_first().T_world_cam
    for name in KITTI_SEQUENCES:
        whole = read_poses(kitti / f"{name}.txt", format="kitti").T_world_cam
        pieces = torch.linalg.inv(whole[:-24]) @ whole[24:]
        close = (pieces - relative[-1]).abs().amax((1, 2)) < 1e-6
        if close.any():
            start = int(close.nonzero()[0])
            wanted = torch.linalg.inv(whole[start]) @ whole[start : start + 25]
            torch.testing.assert_close(relative, wanted, rtol=0, atol=1e-6)
            return
    pytest.fail("the window is in none of the files")


def test_commands_do_not_depend_on_how_many_are_asked_for():
    few, many = held_out_commands(3, SPEC, kitti=None), held_out_commands(9, SPEC, kitti=None)
    for (name, seed, poses), (other_name, other_seed, other) in zip(few, many, strict=False):
        assert (name, seed) == (other_name, other_seed)
        assert torch.equal(poses.T_world_cam, other.T_world_cam)


def test_every_command_fits_the_model_and_goes_somewhere():
    commands = held_out_commands(64, SPEC, kitti=None)
    for _, _, poses in commands:
        check_command(poses, SPEC)
        assert poses.path_length >= 5
    lengths = [round(poses.path_length, 6) for _, _, poses in commands]
    assert len(set(lengths)) == 64


def test_metres_commands_are_those_fixed_before_training():
    commands = metres_commands(3, SPEC)
    assert [tuple(poses.path_length for poses in paths.values()) for _, _, paths in commands] == [
        pytest.approx(wanted, abs=1e-3) for wanted in METRES
    ]


def test_metres_commands_share_the_given_frames_and_rotations_and_scale_the_rest():
    given = SPEC.prefix_frames
    for _, _, paths in metres_commands(4, SPEC):
        half, one, two = paths["x0.5"], paths["x1"], paths["x2"]
        for other in (half, two):
            assert torch.equal(other.T_world_cam[:given], one.T_world_cam[:given])
            assert torch.equal(other.R_world_cam, one.R_world_cam)
            assert torch.equal(other.center_world[:, 2], one.center_world[:, 2])
            check_command(other, SPEC)
        last = one.center_world[given - 1, :2]
        for factor, other in ((0.5, half), (2.0, two)):
            torch.testing.assert_close(
                other.center_world[given:, :2] - last, factor * (one.center_world[given:, :2] - last)
            )
        # Twice the path stays at the speeds of the training data.
        assert float(two.step_lengths.max()) * SPEC.fps <= 20.5


def test_path_taken_once_is_the_path():
    poses = drive("curve", seed=4, num_frames=25, fps=10.0)
    torch.testing.assert_close(
        stretched(poses, 1.0, SPEC).center_world, poses.center_world, rtol=0, atol=1e-12
    )
