"""Weights that stand in for the shipped ones: written by the real code, of the tiny run's size."""

import functools
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from merope.encodings import Native, encoding_to_config
from merope.evaluation.estimators.motion_network.estimator import NetworkEstimator
from merope.evaluation.estimators.motion_network.network import MotionNetwork
from merope.training.system import build_model, save_model
from tests.support.tiny_run import tiny_codec, tiny_config, tiny_spec, trained_model_folder


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="merope-tests-weights-")


@functools.cache
def standin_weights() -> Path:
    """A folder like the shipped one: merope (trained for eight steps), native, estimator.safetensors."""
    folder = Path(_folder().name)
    shutil.copytree(trained_model_folder(), folder / "merope")
    config = replace(tiny_config(), encoding=encoding_to_config(Native(head_dim=64)))
    transformer, adapter = build_model(config)
    torch.manual_seed(1)
    with torch.no_grad():
        for branch in adapter.branches.values():
            branch.to_out.weight.normal_(std=0.02)
    save_model(folder / "native", transformer, adapter, tiny_codec(), config, summary={"steps": 0})
    spec = tiny_spec()
    network = MotionNetwork(height=spec.height, width=spec.width)
    NetworkEstimator(network, camera=spec.camera, fps=spec.fps, summary={"steps": 0}).save(
        folder / "estimator.safetensors"
    )
    return folder
