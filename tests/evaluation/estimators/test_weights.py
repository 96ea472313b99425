"""Weights from files: what is read, what a shared weight may lack, and what is no weights."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_model
from torch import nn

from merope.errors import CheckpointMismatch
from merope.evaluation.estimators.weights import load_into, read_state


class Shared(nn.Module):
    """Two names for one weight, as the heads of Depth Anything 3 have."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.second = self.first
        self.third = nn.Linear(2, 2)


def test_a_weight_under_two_names_loads_from_a_file_that_has_one(tmp_path):
    model, path = Shared(), tmp_path / "model.safetensors"
    save_model(model, str(path))
    state = read_state(path)
    assert len(state) == 4 < len(model.state_dict())
    fresh = Shared()
    load_into(fresh, state, path)
    assert torch.equal(fresh.first.weight, model.first.weight)
    assert torch.equal(fresh.second.weight, model.first.weight)


def test_a_weight_that_is_truly_missing_is_a_mismatch(tmp_path):
    state = Shared().state_dict()
    del state["third.bias"]
    with pytest.raises(CheckpointMismatch, match=r"third\.bias"):
        load_into(Shared(), state, tmp_path / "model.pt")


@pytest.mark.parametrize("wrap", ["model", "state_dict"])
def test_wrapped_weights_are_unwrapped(tmp_path, wrap):
    path = tmp_path / "model.pt"
    torch.save({wrap: {"weight": torch.ones(2)}, "epoch": 3}, path)
    assert list(read_state(path)) == ["weight"]


class RunsCode:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_file_that_would_run_code_is_not_loaded_and_does_not_run_it(tmp_path):
    path, trace = tmp_path / "model.pt", tmp_path / "it-ran"
    torch.save({"weight": RunsCode(trace)}, path)
    with pytest.raises(CheckpointMismatch, match="damaged or holds no weights") as caught:
        read_state(path)
    assert not trace.exists()
    # torch's own words go on with how to load it all the same.
    assert "weights_only" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
def test_damage_anywhere_in_a_file_is_a_mismatch_and_nothing_else(tmp_path, zipped):
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.ones(3)}, path, _use_new_zipfile_serialization=zipped)
    whole, draw = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for place in draw.integers(0, len(whole), 3):
            damaged[place] = draw.integers(0, 256)
        path.write_bytes(damaged[: draw.integers(1, len(whole) + 1)] if draw.random() < 0.2 else damaged)
        try:
            read_state(path)
        except CheckpointMismatch:
            refused += 1
    assert refused > 20


def test_numbers_that_are_no_weights_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    for content, kind in (([1, 2, 3], "list"), ({1: torch.ones(2)}, "dict"), ({}, "dict")):
        torch.save(content, path)
        with pytest.raises(CheckpointMismatch, match=f"expected tensors by name, got {kind}"):
            read_state(path)
