"""VGGT's cameras as our poses: conventions, crops, pieces, and what is said when something is missing."""

import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole, UnifiedCamera
from merope.errors import CheckpointMismatch, MissingDependency
from merope.evaluation import PoseEstimator, RecoveryFailed
from merope.evaluation.estimators.learned import encoders
from merope.evaluation.estimators.learned.vggt import VGGTEstimator
from merope.evaluation.estimators.weights import read_state
from merope.geometry.poses import Poses
from tests.support import model_standins
from tests.support.drives import drive
from tests.support.model_standins import VGGT, grey_frames, write_weights

LENS = Pinhole.from_fov(fov_x_deg=70, height=60, width=112)
TAN_X = math.tan(math.radians(35))
# What is left of the height once 518 pixels are as wide as the lens: 277.5, rounded to a multiple of 14.
TAN_Y = TAN_X * 60 / 112


def curved(num: int) -> Poses:
    """A turn with a roll, so that no axis and no order of a quaternion can stand in for another."""
    flat = drive(num, length=9.0, turn_deg=50)
    tilt = torch.tensor([[1.0, 0, 0], [0, math.cos(0.3), -math.sin(0.3)], [0, math.sin(0.3), math.cos(0.3)]])
    return flat.mounted(tilt.double(), torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64))


@pytest.fixture(autouse=True)
def _standins(monkeypatch):
    model_standins.install(monkeypatch)


def weights(folder, poses, *, tan_x=TAN_X, tan_y=TAN_Y):
    return write_weights(folder / "model.pt", VGGT, poses, tan_x=tan_x, tan_y=tan_y)


def up_to_scale(found: Poses, true: Poses) -> tuple[float, float]:
    """Largest errors of rotation entries and of centres after the one scale, both from the first frame."""
    a, b = found.rebase_to_first(), true.rebase_to_first()
    scale = float((a.center_world * b.center_world).sum() / a.center_world.square().sum())
    assert scale > 0
    return (
        float((a.R_world_cam - b.R_world_cam).abs().max()),
        float((scale * a.center_world - b.center_world).abs().max()),
    )


def test_official_encodings_become_the_poses_they_encode(tmp_path):
    poses = curved(7)
    estimator = VGGTEstimator(weights=weights(tmp_path, poses))
    recovered = estimator.estimate(grey_frames(7, height=60, width=112), LENS, fps=10.0)
    rotation, center = up_to_scale(recovered.poses, poses)
    # float32 encodings: 1e-7 of rotations, 1e-6 m of a nine metre path
    assert rotation < 1e-6 and center < 1e-5
    assert recovered.scale == "up_to_scale" and bool(recovered.registered.all())
    assert isinstance(estimator, PoseEstimator)


def test_a_long_clip_is_joined_from_pieces_that_each_have_a_scale_of_their_own(tmp_path):
    poses = curved(23)
    estimator = VGGTEstimator(weights=weights(tmp_path, poses), max_frames=8, overlap=3)
    recovered = estimator.estimate(grey_frames(23, height=60, width=112), LENS, fps=10.0)
    rotation, center = up_to_scale(recovered.poses, poses)
    assert rotation < 1e-5 and center < 1e-4
    assert any("4 pieces of 8 frames" in note for note in recovered.notes)


def test_another_field_of_view_than_the_lens_has_is_said_with_both(tmp_path):
    poses = curved(3)
    wide = weights(tmp_path, poses, tan_x=math.tan(math.radians(42)), tan_y=TAN_Y)
    notes = VGGTEstimator(weights=wide).estimate(grey_frames(3, height=60, width=112), LENS, fps=10.0).notes
    assert any("84.0 degrees (median), the lens has 70.0: 20% too wide" in note for note in notes)
    agreed = VGGTEstimator(weights=weights(tmp_path, poses)).estimate(
        grey_frames(3, height=60, width=112), LENS, fps=10.0
    )
    assert not any("field of view" in note for note in agreed.notes)


def test_frames_of_a_wide_lens_are_resampled_and_the_reader_is_told(tmp_path):
    lens = UnifiedCamera.from_fov(fov_x_deg=120, xi=0.8, height=60, width=112)
    estimator = VGGTEstimator(weights=weights(tmp_path, curved(2)))
    # Black, so that what the lens does not cover changes no mean.
    notes = estimator.estimate(np.zeros((2, 60, 112, 3), dtype=np.uint8), lens, fps=10.0).notes
    assert any("UnifiedCamera frames resampled into a pinhole of 110.0 degrees" in note for note in notes)


def test_one_frame_and_missing_weights_are_refused_with_the_way_out(tmp_path):
    path = weights(tmp_path, curved(2))
    with pytest.raises(RecoveryFailed, match="1 frames hold no motion"):
        VGGTEstimator(weights=path).estimate(grey_frames(1, height=60, width=112), LENS, fps=10.0)
    with pytest.raises(ValueError, match="--weights PATH"):
        VGGTEstimator().estimate(grey_frames(2, height=60, width=112), LENS, fps=10.0)
    with pytest.raises(ValueError, match="names of a model hub are not taken"):
        VGGTEstimator(weights=Path("facebook/VGGT-1B")).identity()


def test_weights_of_another_model_are_a_mismatch_and_unneeded_heads_are_not(tmp_path):
    other = tmp_path / "other.pt"
    torch.save({"encoder.weight": torch.zeros(3)}, other)
    with pytest.raises(CheckpointMismatch, match="weights of another model than VGGT"):
        VGGTEstimator(weights=other).estimate(grey_frames(2, height=60, width=112), LENS, fps=10.0)
    other.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointMismatch, match="damaged or holds no weights"):
        VGGTEstimator(weights=other).estimate(grey_frames(2, height=60, width=112), LENS, fps=10.0)


def test_weights_are_read_once_for_many_clips_and_again_once_they_are_others(tmp_path, monkeypatch):
    read = []

    def counted(path):
        read.append(path)
        return read_state(path)

    monkeypatch.setattr(encoders, "read_state", counted)
    estimator = VGGTEstimator(weights=weights(tmp_path, curved(5)))
    for _ in range(3):
        estimator.estimate(grey_frames(5, height=60, width=112), LENS, fps=10.0)
    assert len(read) == 1
    other = curved(5).rebase_to_first()[[4, 3, 2, 1, 0]]
    weights(tmp_path, other)
    os.utime(tmp_path / "model.pt", ns=(0, 1))
    recovered = estimator.estimate(grey_frames(5, height=60, width=112), LENS, fps=10.0)
    assert len(read) == 2
    assert up_to_scale(recovered.poses, other)[1] < 1e-5


def test_numbers_that_are_not_finite_are_a_failure(tmp_path):
    poses = curved(2)
    path = write_weights(tmp_path / "nan.pt", VGGT, poses, tan_x=TAN_X, tan_y=TAN_Y)
    state = torch.load(path, weights_only=True)
    state["aggregator.scale"] = torch.tensor(math.nan)
    torch.save(state, path)
    with pytest.raises(RecoveryFailed, match="not finite"):
        VGGTEstimator(weights=path).estimate(grey_frames(2, height=60, width=112), LENS, fps=10.0)


def test_identity_changes_with_an_option_and_with_the_weights(tmp_path):
    first = weights(tmp_path, curved(2))
    before = VGGTEstimator(weights=first).identity()
    assert before["name"] == "vggt" and len(before["weights_sha256"]) == 64
    assert VGGTEstimator(weights=first, resolution=504).identity() != before
    weights(tmp_path, curved(3))
    assert VGGTEstimator(weights=first).identity()["weights_sha256"] != before["weights_sha256"]


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "vggt", None)
    monkeypatch.delitem(sys.modules, "vggt.models.vggt")
    with pytest.raises(MissingDependency, match=r"'vggt', which is not installed.*checkout"):
        VGGTEstimator(weights=weights(tmp_path, curved(2))).estimate(
            np.zeros((2, 60, 112, 3), dtype=np.uint8), LENS, fps=10.0
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolution": 500}, "multiple of the model's patch of 14"),
        ({"overlap": 100}, "less than max_frames"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        VGGTEstimator(**options)
