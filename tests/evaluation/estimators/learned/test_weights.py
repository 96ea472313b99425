"""Weights from files: what is read, what a shared weight may lack, and what is no weights."""

import pytest
import torch
from safetensors.torch import save_model
from torch import nn

from merope.errors import CheckpointMismatch
from merope.evaluation.estimators.learned.weights import load_into, read_state


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


def test_a_file_that_would_run_code_is_not_loaded(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"weight": nn.Linear(2, 2)}, path)
    with pytest.raises(CheckpointMismatch, match="damaged or holds no weights"):
        read_state(path)


def test_numbers_that_are_no_weights_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save([1, 2, 3], path)
    with pytest.raises(CheckpointMismatch, match="expected tensors by name, got list"):
        read_state(path)
