"""VGGT-Omega: the same conventions behind another loader."""

import math

import pytest
import torch

from merope.cameras import Pinhole
from merope.errors import CheckpointMismatch
from merope.evaluation import PoseEstimator
from merope.evaluation.estimators.learned.vggt_omega import VGGTOmegaEstimator
from tests.evaluation.estimators.learned.test_vggt import curved, up_to_scale
from tests.support import model_standins
from tests.support.model_standins import VGGTOmega, grey_frames, write_weights

LENS = Pinhole.from_fov(fov_x_deg=70, height=60, width=80)
TAN_X = math.tan(math.radians(35))


@pytest.fixture(autouse=True)
def _standins(monkeypatch):
    model_standins.install(monkeypatch)


def test_official_encodings_become_the_poses_they_encode(tmp_path):
    poses = curved(6)
    path = write_weights(tmp_path / "omega.pt", VGGTOmega, poses, tan_x=TAN_X, tan_y=0.75 * TAN_X)
    estimator = VGGTOmegaEstimator(weights=path)
    recovered = estimator.estimate(grey_frames(6, height=60, width=80), LENS, fps=10.0)
    rotation, center = up_to_scale(recovered.poses, poses)
    assert rotation < 1e-6 and center < 1e-5
    # What the official loader makes of 640 x 480 at 512: 592 x 448.
    assert any("60 x 80 frames shown to the model as 448 x 592" in note for note in recovered.notes)
    assert isinstance(estimator, PoseEstimator)


def test_oblong_frames_are_cut_to_twice_as_wide_as_high_and_the_field_of_view_with_them(tmp_path):
    lens = Pinhole.from_fov(fov_x_deg=100, height=60, width=240)
    # The middle 120 of 240 columns: half the tangent.
    tan_x = math.tan(math.radians(50)) / 2
    path = write_weights(tmp_path / "omega.pt", VGGTOmega, curved(3), tan_x=tan_x, tan_y=tan_x / 2)
    notes = (
        VGGTOmegaEstimator(weights=path).estimate(grey_frames(3, height=60, width=240), lens, fps=10.0).notes
    )
    assert any("cut to the middle 60 x 120" in note for note in notes)
    assert not any("field of view" in note for note in notes)


def test_a_text_aligned_checkpoint_loads_without_its_other_heads(tmp_path):
    path = write_weights(tmp_path / "omega.pt", VGGTOmega, curved(2), tan_x=TAN_X, tan_y=0.75 * TAN_X)
    state = torch.load(path, weights_only=True)
    torch.save({"model": {**state, "alignment_head.student.weight": torch.zeros(2)}}, path)
    VGGTOmegaEstimator(weights=path).estimate(grey_frames(2, height=60, width=80), LENS, fps=10.0)
    torch.save({**state, "aggregator.more": torch.zeros(2)}, path)
    with pytest.raises(CheckpointMismatch, match=r"aggregator\.more"):
        VGGTOmegaEstimator(weights=path).estimate(grey_frames(2, height=60, width=80), LENS, fps=10.0)
