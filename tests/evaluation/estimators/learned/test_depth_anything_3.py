"""Depth Anything 3: refused names, and the real package with random weights where it is installed."""

import json
import math
import sys

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.errors import CheckpointMismatch, MissingDependency
from merope.evaluation import PoseEstimator
from merope.evaluation.estimators.learned.depth_anything_3 import DepthAnything3Estimator

LENS = Pinhole.from_fov(fov_x_deg=70, height=40, width=72)


def noise(num: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, size=(num, 40, 72, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "da3mono-large"}, "depth of single images and no poses"),
        ({"resolution": 500}, "multiple of the model's patch of 14"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DepthAnything3Estimator(**options)


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "depth_anything_3", None)
    monkeypatch.delitem(sys.modules, "depth_anything_3.api", raising=False)
    estimator = DepthAnything3Estimator(weights=tmp_path)
    assert isinstance(estimator, PoseEstimator)
    with pytest.raises(MissingDependency, match="pip install depth-anything-3"):
        estimator.estimate(noise(2), LENS, fps=10.0)


def test_without_weights_the_error_names_the_argument_and_what_to_download():
    with pytest.raises(ValueError, match=r"--weights PATH.*model\.safetensors and config\.json"):
        DepthAnything3Estimator().estimate(noise(2), LENS, fps=10.0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The smallest of the package's models with random weights, as its own saving lays it out."""
    pytest.importorskip("torchvision", exc_type=ImportError, reason="depth-anything-3 needs torchvision")
    api = pytest.importorskip(
        "depth_anything_3.api", exc_type=ImportError, reason="depth-anything-3 is not installed"
    )
    from safetensors.torch import save_model

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("da3-small")
    save_model(api.DepthAnything3(model_name="da3-small"), str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({"model_name": "da3-small"}))
    return folder


@pytest.mark.slow
def test_the_package_gives_the_cameras_of_its_own_call(checkpoint):
    from depth_anything_3.api import DepthAnything3

    from merope.evaluation.estimators.learned.frames import prepare_frames

    estimator = DepthAnything3Estimator(weights=checkpoint, resolution=126)
    recovered = estimator.estimate(noise(3), LENS, fps=10.0)
    shown = prepare_frames(noise(3), LENS, estimator._plan())
    theirs = DepthAnything3.from_pretrained(str(checkpoint)).inference(list(shown.frames), process_res=126)
    world_to_cam = torch.from_numpy(theirs.extrinsics).double()
    centers = -(world_to_cam[:, :3, :3].mT @ world_to_cam[:, :3, 3:]).squeeze(-1)
    # Theirs is in half precision. measured: 9e-5 of centres 0.2 from the origin
    torch.testing.assert_close(recovered.poses.center_world, centers, atol=2e-3, rtol=0)
    assert recovered.scale == "up_to_scale"
    assert all(math.isfinite(value) for value in recovered.poses.center_world.flatten().tolist())


@pytest.mark.slow
def test_a_bare_file_needs_the_name_of_its_model_and_a_wrong_one_is_a_mismatch(checkpoint):
    file = checkpoint / "model.safetensors"
    with pytest.raises(ValueError, match="--set checkpoint="):
        DepthAnything3Estimator(weights=file).estimate(noise(2), LENS, fps=10.0)
    with pytest.raises(CheckpointMismatch, match="weights of another model"):
        DepthAnything3Estimator(weights=file, checkpoint="da3-base").estimate(noise(2), LENS, fps=10.0)
