"""Frames without a pose of their own: which, how many, and how they were filled."""

import torch

from merope.evaluation import Recovered, evaluate_clip
from merope.evaluation.flags.registration import missing_poses
from tests.evaluation.trajectories import turning


def recovered_but(*lost, num=12):
    registered = torch.ones(num, dtype=torch.bool)
    registered[list(lost)] = False
    return Recovered(poses=turning(num), registered=registered, scale="metric", fill="nearest pose held")


def test_rows_that_are_not_finite_are_named_and_are_not_called_unregistered():
    flags = evaluate_clip(turning(12), recovered_but(3, 4, 9), nan_rows=(3, 4, 9)).flags
    assert set(flags) == {"nan_rows"}
    assert "3 of 12 rows" in flags["nan_rows"]
    assert "frames 3 to 4, 9" in flags["nan_rows"]
    assert "nearest pose held" in flags["nan_rows"]


def test_frames_lost_for_another_reason_are_counted_beside_them():
    flags = missing_poses(recovered_but(3, 8), (3,))
    assert set(flags) == {"nan_rows", "partial_registration"}
    assert "frame 3)" in flags["nan_rows"]
    assert "10 of 12 frames registered" in flags["partial_registration"]


def test_a_whole_trajectory_says_nothing():
    assert missing_poses(recovered_but()) == {}
    assert missing_poses(None) == {}


def test_many_stretches_are_cut_short():
    assert ", ...)" in missing_poses(recovered_but(0, 2, 4, 6, 8), (0, 2, 4, 6, 8))["nan_rows"]
