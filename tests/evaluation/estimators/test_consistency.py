"""Two passes of one estimator: what agrees, what is marked, and that a mark drops nothing."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.evaluation import PoseEstimator, Recovered, RecoveryFailed
from merope.evaluation.estimators.consistency import check_consistency
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
from tests.evaluation.trajectories import turning

CAMERA = Pinhole.from_fov(fov_x_deg=70, height=6, width=10)
TRUTH = turning(9, turn_deg=40)
# Every frame's number is the value of its pixels.
FRAMES = np.arange(9, dtype=np.uint8)[:, None, None, None] * np.ones((1, 6, 10, 3), dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads frame numbers off the pixels and answers with the true pose, in a world and scale of its own each time.

    ``drift`` turns each answer by that many degrees for every frame that came before it, so that order matters.
    """

    drift_deg: float = 0.0
    missing: tuple[int, ...] = ()
    fails_below: int = 0
    least_step: int = -10
    name: str = "reader"

    def estimate(self, frames, camera, *, fps):
        ids = frames[:, 0, 0, 0].astype(int).tolist()
        if len(ids) < self.fails_below or ids[1] - ids[0] < self.least_step:
            raise RecoveryFailed("too little to see")
        angle = torch.deg2rad(self.drift_deg * torch.arange(len(ids), dtype=torch.float64))
        drift = rotvec_to_matrix(torch.stack([0 * angle, angle, 0 * angle], dim=-1))
        world = rotvec_to_matrix(torch.tensor([0.3, -0.2, len(ids) / 10], dtype=torch.float64))
        poses = Poses(
            R_world_cam=world @ TRUTH.R_world_cam[ids] @ drift,
            center_world=TRUTH.center_world[ids] @ world.mT * (1 + len(ids)) + 5,
            unit="unknown",
        )
        registered = torch.tensor([number not in self.missing for number in ids])
        return Recovered(poses=poses, registered=registered, scale="up_to_scale")

    def identity(self):
        return {"name": self.name}


@pytest.mark.parametrize("second_pass", ["reversed", "every_second"])
def test_an_estimator_that_does_not_care_for_order_agrees_with_itself(second_pass):
    assert isinstance(Reader(), PoseEstimator)
    found = check_consistency(Reader(), FRAMES, CAMERA, fps=10.0, second_pass=second_pass)
    assert not found.unreliable
    assert found.rot_deg == pytest.approx(0, abs=1e-9)
    assert found.center_percent == pytest.approx(0, abs=1e-9)
    assert found.num_compared == (9 if second_pass == "reversed" else 5)
    # The second pass has lengths of 1 + its number of frames, the first of 10.
    assert found.scale == pytest.approx(1 if second_pass == "reversed" else 10 / 6)
    assert found.reason == f"both passes agree on {found.num_compared} frames"


def test_drift_shows_in_the_reversed_pass_and_marks_the_clip():
    found = check_consistency(Reader(drift_deg=1.0), FRAMES, CAMERA, fps=10.0)
    # Forward the drift is t degrees against frame 0, in reverse 8 - t against 8: they part by 2 t, for t = 1 to 8.
    assert found.rot_deg == pytest.approx(np.mean([2 * t for t in range(1, 9)]), rel=1e-6)
    assert found.unreliable
    assert found.reason.startswith("rotations differ by 9.00 deg (limit 2)")
    assert bool(found.first.registered.all())
    assert not check_consistency(
        Reader(drift_deg=1.0), FRAMES, CAMERA, fps=10.0, rot_limit_deg=20, center_limit_percent=50
    ).unreliable


def test_a_second_pass_that_fails_is_a_mark_and_a_first_one_an_error():
    found = check_consistency(Reader(fails_below=6), FRAMES, CAMERA, fps=10.0, second_pass="every_second")
    assert found.unreliable
    assert found.rot_deg is None
    assert found.reason == "the second pass (every_second) failed: too little to see"
    with pytest.raises(RecoveryFailed, match="too little to see"):
        check_consistency(Reader(fails_below=10), FRAMES, CAMERA, fps=10.0)
    backwards = check_consistency(Reader(least_step=0), FRAMES, CAMERA, fps=10.0)
    assert backwards.unreliable


def test_frames_without_a_pose_are_not_compared():
    found = check_consistency(Reader(missing=(0, 4)), FRAMES, CAMERA, fps=10.0)
    assert found.num_compared == 7
    assert not found.unreliable
    few = check_consistency(Reader(missing=(0, 1, 2, 3, 4, 5, 6)), FRAMES, CAMERA, fps=10.0)
    assert few.unreliable
    assert few.reason == "only 2 frames have a pose in both passes"


def test_too_few_frames_for_two_passes_are_refused():
    with pytest.raises(ValueError, match="'every_second' needs at least 5 frames, got 4"):
        check_consistency(Reader(), FRAMES[:4], CAMERA, fps=10.0, second_pass="every_second")
