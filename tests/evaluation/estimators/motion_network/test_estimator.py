"""The saved motion network: what a file lacks is said as a mismatch; other clips are sent to an estimator that exists."""

import importlib
import json
import re

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from merope.cameras import Pinhole
from merope.errors import CheckpointMismatch
from merope.evaluation import RecoveryFailed
from merope.evaluation.estimators.motion_network.estimator import _FORMAT, NetworkEstimator
from merope.evaluation.estimators.motion_network.network import MotionNetwork

CAMERA = Pinhole.from_fov(fov_x_deg=70, height=24, width=32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved estimator, and the description that stands in it."""
    path = tmp_path_factory.mktemp("network") / "estimator.safetensors"
    network = MotionNetwork(height=24, width=32)
    NetworkEstimator(network, camera=CAMERA.to_dict(), fps=10.0, summary={"steps": 0}).save(path)
    config = {"camera": CAMERA.to_dict(), "fps": 10.0, "height": 24, "width": 32, "summary": {"steps": 0}}
    return path, config


def described(saved, tmp_path, config):
    path = tmp_path / "other.safetensors"
    metadata = {"format": _FORMAT} | ({} if config is None else {"config": config})
    save_file(load_file(saved[0]), str(path), metadata=metadata)
    return path


def test_the_whole_description_loads(saved, tmp_path):
    assert NetworkEstimator.load(described(saved, tmp_path, json.dumps(saved[1]))).fps == 10.0


@pytest.mark.parametrize("missing", ["camera", "fps", "height", "width", "summary"])
def test_a_description_that_lacks_an_entry_names_it(saved, tmp_path, missing):
    config = {key: value for key, value in saved[1].items() if key != missing}
    with pytest.raises(CheckpointMismatch, match=rf"KeyError: '{missing}'.*NetworkEstimator\.save"):
        NetworkEstimator.load(described(saved, tmp_path, json.dumps(config)))


@pytest.mark.parametrize("config", [None, "not JSON", "[1, 2]", '{"height": "tall"}'])
def test_a_description_of_another_kind_is_a_mismatch(saved, tmp_path, config):
    with pytest.raises(CheckpointMismatch, match="trained for"):
        NetworkEstimator.load(described(saved, tmp_path, config))


def test_a_clip_of_another_lens_is_sent_to_an_estimator_that_can_be_imported(saved):
    other = Pinhole.from_fov(fov_x_deg=50, height=24, width=32)
    frames = np.zeros((3, 24, 32, 3), dtype=np.uint8)
    with pytest.raises(RecoveryFailed) as failure:
        NetworkEstimator.load(saved[0]).estimate(frames, other, fps=10.0)
    module, _, name = re.search(r"merope(\.\w+)+", str(failure.value))[0].rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))
