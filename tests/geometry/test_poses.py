"""Poses: what is refused and how it is said, what is exact, and what never happens (extrapolation)."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

from merope.geometry.pose_checks import determinant
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotation_angle, rotvec_to_matrix


def some_rotations(num=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return rotvec_to_matrix(torch.randn(num, 3, generator=draw, dtype=torch.float64))


def some_poses(num=5, *, seed=0, times=True, origin=0.0, unit="m"):
    draw = torch.Generator().manual_seed(seed + 100)
    centers = 10 * torch.randn(num, 3, generator=draw, dtype=torch.float64) + origin
    clock = torch.cumsum(0.1 + torch.rand(num, generator=draw, dtype=torch.float64), 0) if times else None
    return Poses(R_world_cam=some_rotations(num, seed), center_world=centers, times=clock, unit=unit)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


# What is refused


def test_a_left_handed_matrix_is_named_with_its_determinant():
    rotations = some_rotations()
    rotations[3, :, 0] *= -1
    with pytest.raises(ValueError, match=r"right-handed; the determinant of entry 3 is -1\.0"):
        Poses(R_world_cam=rotations, center_world=torch.zeros(5, 3))


def test_a_matrix_off_by_more_than_rounding_says_by_how_much_and_where_to_go():
    rotations = some_rotations()
    rotations[2] *= 1 + 1e-6
    with pytest.raises(ValueError, match=r"entry 2 is off by 2e-06 .* Use Poses.from_matrices"):
        Poses(R_world_cam=rotations, center_world=torch.zeros(5, 3))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["R_world_cam", "center_world", "times"])
def test_numbers_that_are_not_finite_are_named(bad, field):
    values = {
        "R_world_cam": some_rotations(),
        "center_world": torch.zeros(5, 3, dtype=torch.float64),
        "times": torch.arange(5, dtype=torch.float64),
    }
    values[field][4] = bad
    with pytest.raises(ValueError, match=r"must be finite; entry 4 holds"):
        Poses(**values)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [(1, 2, 2), (1, 0, 3), (1, 3, 3)])
def test_matrices_that_are_not_finite_are_named(bad, place):
    matrices = some_poses().T_world_cam
    matrices[place] = bad
    with pytest.raises(ValueError, match=r"T_world_cam must be finite; entry 1"):
        Poses.from_matrices(matrices)


def test_transposed_matrices_are_recognised_by_their_last_row_even_after_an_identity():
    matrices = some_poses().rebase_to_first().T_world_cam.mT
    matrices[0] = torch.eye(4)
    with pytest.raises(ValueError, match=r"entry \d ends in \[[^0].*transposed: pass T.mT"):
        Poses.from_matrices(matrices)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"R_world_cam": torch.eye(3)}, r"R_world_cam must have shape \[T, 3, 3\]; got \[3, 3\]"),
        ({"center_world": torch.zeros(4, 3)}, r"center_world must have shape \[5, 3\].*got \[4, 3\]"),
        ({"times": torch.arange(4.0)}, r"times must have shape \[5\]; got \[4\]"),
        ({"times": torch.tensor([0.0, 1.0, 1.0, 2.0, 3.0])}, r"times\[2\] = 1\.0+ s follows 1\.0+ s"),
        ({"times": torch.tensor([0.0, 2.0, 1.0, 4.0, 3.0])}, r"times must increase; times\[2\]"),
    ],
)
def test_wrong_shapes_and_clocks_name_the_argument(values, message):
    given = {"R_world_cam": some_rotations(), "center_world": torch.zeros(5, 3), **values}
    with pytest.raises(ValueError, match=message):
        Poses(**given)


def test_no_cameras_at_all_are_refused():
    with pytest.raises(ValueError, match="at least one camera"):
        Poses(R_world_cam=torch.zeros(0, 3, 3), center_world=torch.zeros(0, 3))
    with pytest.raises(ValueError, match="at least one matrix"):
        Poses.from_matrices(torch.zeros(0, 4, 4))
    with pytest.raises(ValueError, match="at least one camera"):
        some_poses()[5:]


def test_matrices_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"T_cam_world must have shape \[T, 4, 4\] or \[T, 3, 4\]"):
        Poses.from_world_to_camera(torch.zeros(2, 5, 4))


def test_numbers_without_a_finite_square_are_no_rotation():
    matrices = torch.zeros(1, 3, 4, dtype=torch.float64)
    matrices[0, :, :3] = torch.tensor([1e200, -1e200, 1e200], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"orthonormal to 0\.001; entry 0"):
        Poses.from_matrices(matrices)


@pytest.mark.parametrize("factor", [1.01, 0.5])
def test_a_scale_in_the_rotation_is_refused_with_the_tolerance(factor):
    matrices = some_poses().T_world_cam
    matrices[:, :3, :3] *= factor
    with pytest.raises(ValueError, match=r"orthonormal to 0\.001.*Raise tolerance \(now 0\.001\)"):
        Poses.from_matrices(matrices)


# Reading matrices


@pytest.mark.parametrize("rows", [3, 4])
def test_matrices_go_in_and_come_out(rows):
    poses = some_poses()
    again = Poses.from_matrices(poses.T_world_cam[:, :rows], times=poses.times)
    close(again.T_world_cam, poses.T_world_cam, atol=1e-15)
    assert again.projection_error < 1e-14


@pytest.mark.parametrize("digits", [6, 5, 4])
def test_a_file_s_rounding_is_projected_away_and_reported(digits):
    exact = some_poses(20)
    rounded = Poses.from_matrices(torch.from_numpy(exact.T_world_cam.numpy().round(digits)))
    identity = torch.eye(3, dtype=torch.float64)
    assert (rounded.R_world_cam.mT @ rounded.R_world_cam - identity).abs().max() < 1e-14
    assert 0.1 * 10**-digits < rounded.projection_error < 5 * 10**-digits
    assert rotation_angle(rounded.R_world_cam, exact.R_world_cam).max() < 2 * 10**-digits


def test_float32_matrices_become_float64_rotations():
    poses = Poses.from_matrices(some_poses().T_world_cam.float())
    assert poses.R_world_cam.dtype == poses.center_world.dtype == torch.float64
    assert 1e-9 < poses.projection_error < 1e-6


@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.float64, torch.int64])
def test_numbers_are_float64_whatever_comes_in(source):
    eye = torch.eye(3).expand(2, 3, 3).to(source)
    poses = Poses(R_world_cam=eye, center_world=torch.zeros(2, 3).to(source), times=torch.tensor([0, 1]))
    assert {poses.R_world_cam.dtype, poses.center_world.dtype, poses.times.dtype} == {torch.float64}


@pytest.mark.parametrize("origin", [0.0, 5e6])
def test_world_to_camera_is_inverted_in_closed_form(origin):
    poses = some_poses(origin=origin)
    again = Poses.from_world_to_camera(poses.T_cam_world)
    # float64 itself resolves 1e-9 m at five million metres.
    close(again.center_world, poses.center_world, atol=1e-13 if origin == 0 else 8e-9)
    close(again.R_world_cam, poses.R_world_cam, atol=1e-15)
    identity = torch.eye(4, dtype=torch.float64).expand(5, 4, 4)
    close(poses.T_cam_world @ poses.T_world_cam, identity, atol=1e-13 if origin == 0 else 8e-9)


# Values that cannot change


def test_fields_cannot_be_set():
    poses = some_poses()
    with pytest.raises(AttributeError, match=r"cannot be changed.*'unit'"):
        poses.unit = "unknown"
    with pytest.raises(AttributeError):
        poses.speed = 3


def test_what_happens_to_the_source_later_does_not_reach_the_poses():
    rotations, centers = some_rotations(), torch.zeros(5, 3, dtype=torch.float64)
    times, matrices = np.arange(5.0), some_poses().T_world_cam
    poses = Poses(R_world_cam=rotations, center_world=centers, times=torch.from_numpy(times))
    read = Poses.from_matrices(matrices)
    before = read.T_world_cam.clone()
    rotations.zero_(), centers.fill_(9), times.fill(3), matrices.zero_()
    assert poses.center_world.abs().max() == 0
    assert poses.times.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(read.T_world_cam, before)
    assert torch.equal(torch.linalg.det(poses.R_world_cam).round(), torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
@pytest.mark.parametrize("times", [True, False])
def test_poses_survive_copies_and_pickles(again, times):
    poses = Poses.from_matrices(some_poses().T_world_cam.float(), unit="normalized", times=None)
    if times:
        poses = some_poses(unit="unknown")
    other = again(poses)
    assert torch.equal(other.R_world_cam, poses.R_world_cam)
    assert torch.equal(other.center_world, poses.center_world)
    assert other.unit == poses.unit
    assert other.projection_error == poses.projection_error
    assert (other.times is None) == (poses.times is None)


def test_gradients_do_not_leak_into_poses():
    center = torch.zeros(1, 3, requires_grad=True)
    assert not Poses(R_world_cam=torch.eye(3)[None], center_world=center).center_world.requires_grad


# Choosing cameras


def test_cameras_are_chosen_by_number_slice_list_mask_and_tensor():
    poses = some_poses()
    for index, expected in (
        (2, [2]),
        (-1, [4]),
        (torch.tensor(3), [3]),
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, 2), [0, 2, 4]),
        ([0, 3], [0, 3]),
        (torch.tensor([1, 4]), [1, 4]),
        (torch.tensor([True, False, True, False, False]), [0, 2]),
        ([True, False, True, False, False], [0, 2]),
    ):
        chosen = poses[index]
        assert torch.equal(chosen.center_world, poses.center_world[expected])
        assert torch.equal(chosen.times, poses.times[expected])


def test_a_reversed_slice_needs_poses_without_times():
    poses = some_poses(times=False)
    assert torch.equal(poses[::-1].center_world, poses.center_world.flip(0))
    with pytest.raises(ValueError, match="times must increase"):
        some_poses()[::-1]


def test_numbers_outside_the_sequence_raise_and_iteration_ends():
    poses = some_poses(3)
    with pytest.raises(IndexError, match="index 3 is outside a sequence of 3"):
        poses[3]
    assert [len(one) for one in poses] == [1, 1, 1]


# Changing coordinates


@pytest.mark.parametrize("origin", [0.0, 5e6])
def test_rebasing_puts_the_first_camera_at_the_origin_and_keeps_relative_poses(origin):
    poses = some_poses(origin=origin)
    based = poses.rebase_to_first()
    close(based.R_world_cam[0], torch.eye(3, dtype=torch.float64), atol=1e-15)
    assert torch.equal(based.center_world[0], torch.zeros(3, dtype=torch.float64))
    for i, j in ((0, 3), (2, 4), (4, 1), (2, 2)):
        for ours, theirs in zip(based.relative(i, j), poses.relative(i, j), strict=True):
            close(ours, theirs, atol=1e-13)
    assert torch.equal(based.times, poses.times)


def test_relative_is_the_inverse_times_the_other():
    poses = some_poses()
    rotation, offset = poses.relative(1, 3)
    expected = torch.linalg.inv(poses.T_world_cam[1]) @ poses.T_world_cam[3]
    close(rotation, expected[:3, :3])
    close(offset, expected[:3, 3])


def test_moving_the_world_moves_every_camera_and_no_relative_pose():
    poses = some_poses()
    turn, offset = some_rotations(1, seed=9)[0], torch.tensor([1.0, 2.0, -30.0], dtype=torch.float64)
    moved = poses.transformed(turn, offset)
    mover = torch.eye(4, dtype=torch.float64)
    mover[:3, :3], mover[:3, 3] = turn, offset
    close(moved.T_world_cam, mover @ poses.T_world_cam)
    for ours, theirs in zip(moved.relative(0, 4), poses.relative(0, 4), strict=True):
        close(ours, theirs)


def test_a_world_is_moved_by_rotations_only():
    zero = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"Use Poses\.scaled"):
        some_poses().transformed(2 * torch.eye(3, dtype=torch.float64), zero)
    with pytest.raises(ValueError, match="right-handed"):
        some_poses().transformed(torch.diag(torch.tensor([1.0, 1.0, -1.0])), zero)


def test_scaling_touches_centres_alone():
    poses = some_poses()
    twice = poses.scaled(2.0)
    assert torch.equal(twice.center_world, 2 * poses.center_world)
    assert torch.equal(twice.R_world_cam, poses.R_world_cam)
    assert twice.path_length == pytest.approx(2 * poses.path_length)
    assert twice.unit == "m"


def test_lengths_are_those_of_the_path():
    centers = torch.tensor([[0.0, 0, 0], [3, 4, 0], [3, 4, 12]])
    poses = Poses(R_world_cam=torch.eye(3).expand(3, 3, 3), center_world=centers)
    assert poses.step_lengths.tolist() == [5, 12]
    assert poses.path_length == 17
    assert repr(poses) == "Poses(3 cameras, path 17.000 m)"
    assert poses[0].path_length == 0


# In between


def test_interpolation_is_exact_at_the_poses_themselves():
    poses = some_poses()
    again = poses.interpolate(poses.times)
    close(again.center_world, poses.center_world, atol=0)
    close(again.R_world_cam, poses.R_world_cam, atol=1e-14)


def test_between_two_poses_centres_move_straight_and_rotations_the_short_way_at_one_speed():
    turn = torch.stack([torch.zeros(3), torch.tensor([0.0, 3.0, 0.0])]).double()
    poses = Poses(
        R_world_cam=rotvec_to_matrix(turn),
        center_world=torch.tensor([[0.0, 0, 0], [8, 0, 4]]),
        times=torch.tensor([10.0, 14.0]),
    )
    between = poses.interpolate(torch.linspace(10, 14, 9, dtype=torch.float64))
    close(between.step_lengths, torch.full((8,), math.sqrt(80) / 8, dtype=torch.float64))
    steps = rotation_angle(between.R_world_cam[:-1], between.R_world_cam[1:])
    close(steps, torch.full((8,), 3.0 / 8, dtype=torch.float64))


def test_the_short_way_round_is_taken_across_180_degrees():
    degrees = torch.tensor([170.0, -170.0], dtype=torch.float64)
    vectors = torch.zeros(2, 3, dtype=torch.float64)
    vectors[:, 1] = torch.deg2rad(degrees)
    poses = Poses(
        R_world_cam=rotvec_to_matrix(vectors), center_world=torch.zeros(2, 3), times=torch.tensor([0.0, 1.0])
    )
    middle = poses.interpolate(torch.tensor([0.5]))
    half_turn = torch.diag(torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64))
    close(middle.R_world_cam[0], half_turn)


@pytest.mark.parametrize("outside", [-1e-9, 4 + 1e-9, 100.0])
def test_poses_are_never_extrapolated(outside):
    poses = Poses(
        R_world_cam=some_rotations(),
        center_world=torch.zeros(5, 3),
        times=torch.arange(5, dtype=torch.float64),
    )
    with pytest.raises(ValueError, match="never extrapolated"):
        poses.interpolate(torch.tensor([2.0, outside], dtype=torch.float64).sort().values)


def test_interpolation_without_a_clock_is_refused():
    with pytest.raises(ValueError, match="Construct with times="):
        some_poses(times=False).interpolate(torch.tensor([0.5]))


@pytest.mark.parametrize("times", [True, False])
@pytest.mark.parametrize("num", [1, 2, 5, 9, 64])
def test_resampling_keeps_both_ends(num, times):
    poses = some_poses(times=times)
    again = poses.resample(num)
    assert len(again) == num
    assert (again.times is None) == (not times)
    close(again.center_world[0], poses.center_world[0])
    if num > 1:
        close(again.center_world[-1], poses.center_world[-1])
        close(again.R_world_cam[-1], poses.R_world_cam[-1])


def test_resampling_by_whole_factors_keeps_every_pose():
    poses = some_poses(times=False)
    close(poses.resample(9)[::2].T_world_cam, poses.T_world_cam)


def test_resampling_needs_two_poses_to_make_more():
    assert len(some_poses(1).resample(1)) == 1
    with pytest.raises(ValueError, match="no motion between them"):
        some_poses(1, times=False).resample(3)
    with pytest.raises(ValueError, match="num must be at least 1"):
        some_poses().resample(0)


def test_millimetres_survive_at_five_million_metres():
    centers = torch.tensor([5e6, 5e6, 100.0], dtype=torch.float64) + torch.tensor(
        [[0.0, 0, 0], [0.001, 0, 0], [0.002, 0, 0.0]], dtype=torch.float64
    )
    poses = Poses(R_world_cam=some_rotations(3), center_world=centers, times=torch.arange(3))
    close(poses.step_lengths, torch.full((2,), 1e-3, dtype=torch.float64), atol=2e-9)
    middle = poses.interpolate(torch.tensor([0.5], dtype=torch.float64))
    close(middle.center_world[0] - centers[0], torch.tensor([5e-4, 0, 0], dtype=torch.float64), atol=2e-9)


def test_a_mounted_camera_turns_about_its_vehicle():
    """One metre ahead of an axle that turns a quarter to the right, the camera has moved to the right."""
    quarter = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    vehicle = Poses(
        R_world_cam=torch.stack([torch.eye(3, dtype=torch.float64), quarter]),
        center_world=torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 5.0]]),
        times=torch.tensor([0.0, 1.0]),
    )
    camera = vehicle.mounted(torch.eye(3), torch.tensor([0.0, -2.0, 1.0]))
    assert camera.center_world.tolist() == [[0.0, -2.0, 1.0], [1.0, -2.0, 5.0]]
    assert torch.equal(camera.R_world_cam, vehicle.R_world_cam)
    assert camera.times.tolist() == [0.0, 1.0]
    # Mounted back to front, the same place.
    turned = vehicle.mounted(quarter @ quarter, torch.tensor([0.0, -2.0, 1.0]))
    assert torch.equal(turned.center_world, camera.center_world)
    assert torch.equal(turned.R_world_cam[0, :, 2], torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="from camera to body"):
        vehicle.mounted(2 * torch.eye(3), torch.zeros(3))


def test_determinants_are_those_of_the_factorisation():
    matrices = torch.randn(50, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(determinant(matrices), torch.det(matrices), atol=1e-13)
    assert determinant(torch.diag(torch.tensor([1.0, 1.0, -1.0]))) == -1
