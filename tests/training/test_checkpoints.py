"""Checkpoints that appear whole, are few, and are refused when they are of something else."""

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import FileSystemWriter

from merope.errors import CheckpointMismatch, MeropeError
from merope.training.checkpoints import Checkpoints, set_optimizer_steps, training_state
from merope.training.parallel import joined_processes


@pytest.fixture
def processes():
    with joined_processes() as joined:
        yield joined


def model(width=3):
    return {"layer.weight": nn.Parameter(torch.arange(2.0 * width).reshape(2, width))}


def stepped(parameters, steps=2):
    optimizer = torch.optim.AdamW(parameters.values(), lr=0.1)
    for step in range(steps):
        parameters["layer.weight"].grad = torch.full_like(parameters["layer.weight"], 1.0 + step)
        optimizer.step()
    return optimizer


def test_a_run_continues_exactly(tmp_path, processes):
    parameters = model()
    optimizer = stepped(parameters)
    store = Checkpoints(tmp_path, keep=2, processes=processes)
    store.save(2, training_state(parameters, optimizer, {"layer.weight": torch.ones(2, 3)}), {"seconds": 1.5})

    fresh = model()
    again = torch.optim.AdamW(fresh.values(), lr=0.1)
    averages = {"layer.weight": torch.zeros(2, 3)}
    path = store.latest()
    assert path is not None
    store.load(path, training_state(fresh, again, averages))
    saved = store.read(path)
    assert saved == {"step": 2, "seconds": 1.5}
    set_optimizer_steps(again, saved["step"])
    assert averages["layer.weight"].eq(1).all()
    for one, other in ((parameters, optimizer), (fresh, again)):
        one["layer.weight"].grad = torch.full((2, 3), -3.0)
        other.step()
    assert torch.equal(parameters["layer.weight"], fresh["layer.weight"])
    assert not torch.equal(fresh["layer.weight"], model()["layer.weight"])


def test_the_last_few_are_kept_and_half_written_ones_are_no_checkpoints(tmp_path, processes):
    parameters = model()
    store = Checkpoints(tmp_path, keep=2, processes=processes)
    assert store.latest() is None
    state = training_state(parameters, stepped(parameters), {})
    for step in (5, 9, 12):
        store.save(step, state, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000009", "step-00000012"]
    # Killed before it was whole, and renamed by hand.
    (tmp_path / ".step-00000015.tmp").mkdir()
    (tmp_path / "step-00000014").mkdir()
    assert store.latest() == tmp_path / "step-00000012"
    # The same step once more takes the older one's place.
    store.save(12, state, {"again": True})
    assert store.read(tmp_path / "step-00000012")["again"]
    assert not (tmp_path / ".step-00000015.tmp").exists()


def test_a_checkpoint_of_another_model_is_refused_by_names(tmp_path, processes):
    parameters = model()
    store = Checkpoints(tmp_path, keep=1, processes=processes)
    store.save(1, training_state(parameters, stepped(parameters), {}), {})
    path = tmp_path / "step-00000001"
    wider = model(4)
    with pytest.raises(CheckpointMismatch, match=r"other shapes: .*layer.weight \[2, 3\] for \[2, 4\]"):
        store.load(path, training_state(wider, stepped(wider), {}))
    more = {**model(), "extra": nn.Parameter(torch.zeros(1))}
    optimizer = torch.optim.AdamW(more.values())
    with pytest.raises(CheckpointMismatch, match=r"lacks model.extra, optimizer.exp_avg.extra"):
        store.load(path, training_state(more, optimizer, {}))
    with_average = training_state(parameters, stepped(parameters), {"layer.weight": torch.zeros(2, 3)})
    store.save(2, with_average, {})
    with pytest.raises(CheckpointMismatch, match=r"also holds average.layer.weight"):
        store.load(tmp_path / "step-00000002", training_state(parameters, stepped(parameters), {}))


def test_damage_is_named_with_a_way_out(tmp_path, processes):
    parameters = model()
    store = Checkpoints(tmp_path, keep=1, processes=processes)
    store.save(1, training_state(parameters, stepped(parameters), {}), {})
    (tmp_path / "step-00000001" / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(
        CheckpointMismatch, match=r"is damaged: .*Delete it to go on from the checkpoint before"
    ):
        store.read(tmp_path / "step-00000001")


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
@pytest.mark.parametrize("left", [None, 40])
def test_a_file_that_is_gone_or_cut_off_is_named_with_a_way_out(tmp_path, processes, name, left):
    parameters = model()
    store = Checkpoints(tmp_path, keep=1, processes=processes)
    state = training_state(parameters, stepped(parameters), {})
    store.save(1, state, {})
    file = tmp_path / "step-00000001" / name
    content = file.read_bytes()
    file.unlink()
    if left is not None:
        file.write_bytes(content[:left])
    with pytest.raises(
        CheckpointMismatch,
        match=r"step-00000001 is damaged: .+\. Delete it to go on from the checkpoint before",
    ):
        store.load(tmp_path / "step-00000001", state)


def test_a_checkpoint_that_cannot_be_written_leaves_those_before_and_nothing_else(
    tmp_path, processes, monkeypatch
):
    parameters = model()
    store = Checkpoints(tmp_path, keep=2, processes=processes)
    state = training_state(parameters, stepped(parameters), {})
    store.save(1, state, {})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSystemWriter, "write_data", full)
    with pytest.raises(
        MeropeError, match=r"step 2 could not be written .*No space left.*the same command goes on"
    ):
        store.save(2, state, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
