"""Pairing poses by frame number, by time, or one to one; and the messages where that fails."""

import pytest
import torch

from merope.data.poses.files import NanRow
from merope.errors import TrajectoryError
from merope.evaluation.matching import match_poses
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import straight


def timed(times, start=0.0) -> Poses:
    """A pose at each time, whose z tells the time."""
    centers = torch.zeros(len(times), 3, dtype=torch.float64)
    centers[:, 2] = torch.tensor(times, dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64).expand(len(times), 3, 3)
    return Poses(R_world_cam=eye, center_world=centers, times=centers[:, 2] + start)


def test_equal_lengths_match_one_to_one():
    matched = match_poses(straight(5), straight(5))
    assert len(matched.commanded) == len(matched.estimated) == 5
    assert matched.rule == "matched one to one: 5 of 5 commanded poses"


def test_frame_numbers_leave_out_what_has_no_estimate():
    matched = match_poses(straight(6), straight(3, step=10.0), estimated_ids=(2, 3, 5))
    assert matched.commanded.center_world[:, 2].tolist() == [2, 3, 5]
    assert matched.estimated.center_world[:, 2].tolist() == [0, 10, 20]
    assert "3 of 6 commanded poses; the 3 without an estimate are left out" in matched.rule


@pytest.mark.parametrize("swap", [False, True])
def test_times_match_to_the_nearest_within_the_limit(swap):
    dense, sparse = timed([0.00, 0.01, 0.02, 0.03, 0.50, 0.51]), timed([0.012, 0.30, 0.505 - 1e-6])
    left, right = (sparse, dense) if swap else (dense, sparse)
    matched = match_poses(left, right)
    found = (matched.estimated if swap else matched.commanded).center_world[:, 2].tolist()
    assert found == [0.01, 0.50]


def test_a_pose_is_used_once():
    matched = match_poses(timed([0.0, 1.0, 2.0]), timed([0.001, 0.005, 1.0]))
    assert matched.estimated.center_world[:, 2].tolist() == [0.001, 1.0]


def test_unequal_lengths_without_a_key_name_both_and_the_flags():
    with pytest.raises(
        TrajectoryError, match=r"commanded has 5 poses, estimated 4.*--index-column.*--format tum"
    ):
        match_poses(straight(5), straight(4))


def test_frame_numbers_without_overlap_show_both_ranges():
    with pytest.raises(TrajectoryError, match="commanded 0 to 4, estimated 100 to 104"):
        match_poses(straight(5), straight(5), estimated_ids=range(100, 105))


def test_clocks_that_differ_by_an_offset_say_so():
    with pytest.raises(
        TrajectoryError, match=r"0.000000 to 2.000000 s, estimated 100.000000.*offset of 100.000 s"
    ):
        match_poses(timed([0.0, 1.0, 2.0]), timed([0.0, 1.0, 2.0], start=100.0))


def test_clocks_in_other_units_name_the_unit():
    seconds = timed([1000.0, 1001.0, 1002.0])
    with pytest.raises(TrajectoryError, match=r"estimated file in ns.*--time-unit ns"):
        match_poses(seconds, timed([1000e9, 1001e9, 1002e9]))
    with pytest.raises(TrajectoryError, match="commanded file in ms"):
        match_poses(timed([1000e3, 1001e3, 1002e3]), seconds)


def test_missing_frames_can_be_filled_and_are_then_not_registered():
    matched = match_poses(straight(6), straight(3, step=10.0), estimated_ids=(1, 2, 4), missing="interpolate")
    assert len(matched.commanded) == 6
    assert matched.registered.tolist() == [False, True, True, False, True, False]
    assert matched.estimated.center_world[:, 2].tolist() == [0, 0, 10, 15, 20, 20]
    assert matched.frames == (0, 1, 2, 3, 4, 5)
    assert "the 3 without an estimate are interpolated between estimated neighbours" in matched.rule


def test_rows_of_nan_keep_their_frames_by_position_number_and_time():
    lost = (NanRow(row=2),)
    by_position = match_poses(straight(5), straight(4), nan_rows=lost)
    assert (
        by_position.registered.tolist()
        == by_position.nan.logical_not().tolist()
        == [True, True, False, True, True]
    )
    assert by_position.num_estimated == 5
    by_number = match_poses(
        straight(9), straight(3), estimated_ids=(4, 5, 8), nan_rows=(NanRow(row=2, frame_id=6),)
    )
    assert by_number.frames == (4, 5, 6, 8)
    assert by_number.nan.tolist() == [False, False, True, False]
    by_time = match_poses(
        timed([0.0, 1.0, 2.0, 3.0]), timed([0.0, 1.0, 3.0]), nan_rows=(NanRow(row=2, time=2.001),)
    )
    assert by_time.nan.tolist() == [False, False, True, False]
    assert by_time.estimated.center_world[2, 2] == 2.0
    assert "1 have NaN for an estimate" in by_time.rule


def test_two_poses_have_to_be_left():
    with pytest.raises(TrajectoryError, match="only 1 of the 3 estimated rows"):
        match_poses(straight(3), straight(1), nan_rows=(NanRow(row=1), NanRow(row=2)))


def test_frames_have_the_numbers_of_the_command():
    matched = match_poses(
        straight(4), straight(4), commanded_ids=(10, 11, 12, 13), estimated_ids=(9, 11, 12, 13)
    )
    assert matched.frames == (11, 12, 13)
    assert "1 estimated poses belong to no commanded one" in matched.rule
