"""Estimators that need no pixels, and the filling rule they share with those that do."""

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.data import write_poses
from merope.evaluation import PoseEstimator, Recovered, RecoveryFailed, evaluate_clip
from merope.evaluation.estimators.base import fill_unregistered
from merope.evaluation.estimators.files import PoseFileEstimator
from tests.evaluation.trajectories import straight, turning

CAMERA = Pinhole.from_fov(fov_x_deg=70, height=6, width=10)


def frames(num):
    return np.zeros((num, 6, 10, 3), dtype=np.uint8)


def test_a_file_of_poses_is_an_estimator(tmp_path):
    write_poses(tmp_path / "poses.txt", turning(7), format="kitti")
    estimator = PoseFileEstimator(path=tmp_path / "poses.txt", format="kitti")
    assert isinstance(estimator, PoseEstimator)
    recovered = estimator.estimate(frames(7), CAMERA, fps=10.0)
    assert bool(recovered.registered.all())
    assert evaluate_clip(turning(7), recovered).cammc == pytest.approx(0, abs=1e-9)


def test_missing_rows_are_filled_and_marked(tmp_path):
    rows = straight(6).T_world_cam[:, :3].flatten(1).tolist()
    text = "".join(f"{frame} " + " ".join(map(repr, rows[frame])) + "\n" for frame in (1, 2, 4))
    (tmp_path / "poses.txt").write_text(text)
    recovered = PoseFileEstimator(path=tmp_path / "poses.txt", format="kitti").estimate(
        frames(6), CAMERA, fps=1.0
    )
    assert recovered.registered.tolist() == [False, True, True, False, True, False]
    assert recovered.poses.center_world[:, 2].tolist() == [1, 1, 2, 3, 4, 4]
    assert "interpolated" in recovered.fill
    assert "3 of 6 frames registered" in evaluate_clip(straight(6), recovered).flags["partial_registration"]


def test_a_file_of_another_length_fails_with_both_numbers(tmp_path):
    write_poses(tmp_path / "poses.txt", turning(7), format="kitti")
    with pytest.raises(RecoveryFailed, match="7 poses for 8 frames"):
        PoseFileEstimator(path=tmp_path / "poses.txt", format="kitti").estimate(frames(8), CAMERA, fps=1.0)


def test_filling_turns_at_constant_speed_and_never_extrapolates():
    poses = turning(3, turn_deg=40)
    filled = fill_unregistered(poses[[0, 2]], [1, 3], 6)
    assert torch.allclose(filled.R_world_cam[2], poses.R_world_cam[1], atol=1e-12)
    assert torch.equal(filled.center_world[0], filled.center_world[1])
    assert torch.allclose(filled.center_world[5], poses.center_world[2])
    assert len(fill_unregistered(poses[[1]], [4], 6)) == 6


@pytest.mark.parametrize("ids", [[3, 1], [1, 1], [1, 6], [-1, 2]])
def test_frame_numbers_that_do_not_increase_within_the_clip_are_refused(ids):
    with pytest.raises(ValueError, match=r"increase within \[0, 6\)"):
        fill_unregistered(turning(2), ids, 6)


def test_a_file_that_is_gone_has_no_identity(tmp_path):
    with pytest.raises(ValueError, match=r"nothing at .*gone\.txt"):
        PoseFileEstimator(path=tmp_path / "gone.txt", format="kitti").identity()


def test_a_recovery_without_any_registered_frame_is_refused():
    with pytest.raises(ValueError, match="RecoveryFailed"):
        Recovered(poses=straight(3), registered=torch.zeros(3, dtype=torch.bool), scale="metric")
    with pytest.raises(ValueError, match="one entry per pose"):
        Recovered(poses=straight(3), registered=torch.ones(2, dtype=torch.bool), scale="metric")
