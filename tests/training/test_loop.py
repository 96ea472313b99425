"""The training loop: it learns, says what the cameras are worth, and goes on after any end as if there were none."""

import json
import os
import shutil
import signal
import threading

import pytest
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file

from merope.adapters.branch import CameraBranch
from merope.errors import CheckpointMismatch, MeropeError
from merope.generation import load_video_model
from merope.training.config import OptimizerConfig
from merope.training.optimizers import learning_rate
from tests.support.fresh_python import run_python
from tests.support.tiny_run import tiny_clips, tiny_codec, tiny_config, tiny_trainer


class Killed(Exception):
    """Stands for the end of the process."""


def log_of(folder):
    """Log entries without the wall clock."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in entries]


def state_of(folder):
    state = torch.load(folder / "state.pt", weights_only=True)
    return {**state["parameters"], **{f"average.{name}": value for name, value in state["average"].items()}}


def assert_same_run(folder, unbroken):
    assert log_of(folder) == log_of(unbroken)
    one, other = state_of(folder), state_of(unbroken)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
    for name in ("transformer", "adapter"):
        one, other = (load_file(run / "model" / f"{name}.safetensors") for run in (folder, unbroken))
        assert one.keys() == other.keys()
        assert all(torch.equal(value, other[key]) for key, value in one.items())


def die_at(trainer, step):
    """Make a trainer die when it asks for the batch of a step."""
    training = trainer.source.training

    def dying(asked):
        if asked == step:
            raise Killed
        return training(asked)

    trainer.source.training = dying


def signal_at(trainer, step, number):
    """Make a trainer's own process receive a signal while it computes a step."""
    training = trainer.source.training

    def signalled(asked):
        if asked == step:
            os.kill(os.getpid(), number)
        return training(asked)

    trainer.source.training = signalled


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Eight steps without interruption."""
    folder = tmp_path_factory.mktemp("unbroken")
    tiny_trainer(folder).run(progress=False)
    return folder


def test_what_trains_is_the_real_transformer_with_real_branches(tmp_path):
    trainer = tiny_trainer(tmp_path)
    assert type(trainer.transformer) is WanTransformer3DModel
    assert [type(branch) for branch in trainer.adapter.branches.values()] == [CameraBranch, CameraBranch]
    assert len(trainer.parameters) == len(list(trainer.transformer.parameters()))


def test_loss_falls(tmp_path):
    config = {"steps": 45, "batch_size": 3, "log_every": 15, "probe_every": 45, "checkpoint_every": 45}
    options = OptimizerConfig(learning_rate=3e-3, warmup_steps=5, beta2=0.98)
    last = tiny_trainer(tmp_path, optimizer=options, **config).run(progress=False)
    losses = [entry["loss"] for entry in log_of(tmp_path)]
    assert len(losses) == 3
    assert losses[2] < losses[1] < losses[0]
    assert losses[2] < 0.8 * losses[0]
    # The cameras are in use: the branch adds something, and other cameras change the loss.
    assert last["residual_ratio"] > 1e-3
    assert last["control"] != 0


def test_log_has_the_loss_by_level_and_the_probe(unbroken):
    entries = log_of(unbroken)
    assert [entry["step"] for entry in entries] == [2, 4, 6, 8]
    levels = {f"loss_sigma_{low / 5:.1f}_{(low + 1) / 5:.1f}" for low in range(5)}
    seen = set()
    for entry in entries:
        assert {"loss", "gradient_norm", "learning_rate"} <= entry.keys()
        found = {name for name in entry if name.startswith("loss_sigma")}
        assert found
        assert found <= levels
        seen |= found
        assert ({"held_out", "control", "residual_ratio"} <= entry.keys()) == (entry["step"] % 4 == 0)
    assert len(seen) > 2


def test_finished_folder_holds_whole_files_alone(unbroken):
    assert {entry.name for entry in unbroken.iterdir()} == {"config.json", "log.jsonl", "state.pt", "model"}
    described = json.loads((unbroken / "model" / "config.json").read_text())
    assert described["summary"]["steps"] == 8
    assert described["summary"]["finished"] is True
    assert described["training"] == json.loads((unbroken / "config.json").read_text())


def test_saved_model_is_the_average_and_not_the_last_weights(unbroken):
    model = load_video_model(unbroken / "model")
    state = torch.load(unbroken / "state.pt", weights_only=True)
    loaded = dict(model.transformer.named_parameters())
    moved = 0.0
    for name, value in state["average"].items():
        assert torch.equal(loaded[name], value.half().float()), name
        moved = max(moved, float((value - state["parameters"][name]).abs().max()))
    assert moved > 1e-4


def test_run_killed_between_checkpoints_goes_on_as_if_unbroken(unbroken, tmp_path):
    trainer = tiny_trainer(tmp_path)
    die_at(trainer, 7)
    with pytest.raises(Killed):
        trainer.run(progress=False)
    assert [entry["step"] for entry in log_of(tmp_path)] == [2, 4, 6]
    torch.manual_seed(1234)
    resumed = tiny_trainer(tmp_path)
    last = resumed.run(progress=False)
    assert last["step"] == 8
    assert_same_run(tmp_path, unbroken)


def test_run_killed_before_its_first_checkpoint_starts_again(unbroken, tmp_path):
    trainer = tiny_trainer(tmp_path)
    die_at(trainer, 3)
    with pytest.raises(Killed):
        trainer.run(progress=False)
    tiny_trainer(tmp_path).run(progress=False)
    assert_same_run(tmp_path, unbroken)


KILLED_WHILE_SAVING = """
import os, signal, sys
from pathlib import Path
import torch
from merope.data.caches.latents import LinearCodec
from merope.training.loop import Trainer
from merope.training.street_clips import StreetClips
from tests.support.tiny_run import tiny_config

folder, clips, codec = map(Path, sys.argv[1:])
trainer = Trainer(folder, tiny_config(), clips=StreetClips(clips), codec=LinearCodec.load(codec))
save = torch.save

def half_save(state, path):
    save(state, path)
    if state["step"] == 8:
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)

torch.save = half_save
trainer.run(progress=False)
"""


def test_process_killed_by_sigkill_while_it_saves_goes_on_as_if_unbroken(unbroken, tmp_path):
    codec = tmp_path / "codec.safetensors"
    tiny_codec().save(codec)
    folder = tmp_path / "run"
    child = run_python(KILLED_WHILE_SAVING, arguments=[str(folder), str(tiny_clips().folder), str(codec)])
    assert child.returncode == -signal.SIGKILL, child.stderr
    left = [entry.name for entry in folder.iterdir() if entry.name.startswith(".")]
    assert left, "the kill came too late to leave a temporary file"
    assert torch.load(folder / "state.pt", weights_only=True)["step"] == 4
    tiny_trainer(folder).run(progress=False)
    assert_same_run(folder, unbroken)
    assert {entry.name for entry in folder.iterdir()} == {"config.json", "log.jsonl", "state.pt", "model"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_a_usable_model_stops_and_lets_the_run_go_on(unbroken, tmp_path, number):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread alone")
    before = signal.getsignal(number)
    trainer = tiny_trainer(tmp_path)
    # Between two log entries: their clips must not be lost.
    signal_at(trainer, 4, number)
    trainer.run(progress=False)
    assert trainer.step == 5
    assert signal.getsignal(number) is before
    model = load_video_model(tmp_path / "model")
    assert not model.adapter.is_zero
    described = json.loads((tmp_path / "model" / "config.json").read_text())
    assert described["summary"]["steps"] == 5
    assert described["summary"]["finished"] is False
    tiny_trainer(tmp_path).run(progress=False)
    assert_same_run(tmp_path, unbroken)


def test_second_signal_does_not_wait(tmp_path):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread alone")
    trainer = tiny_trainer(tmp_path)
    signal_at(trainer, 1, signal.SIGINT)
    losses = trainer.losses

    def interrupted(batch):
        if trainer.step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return losses(batch)

    trainer.losses = interrupted
    # A shell starts background jobs with SIGINT ignored; this is about a foreground one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer.run(progress=False)
    finally:
        signal.signal(signal.SIGINT, before)


def test_run_with_muon_goes_on_as_if_unbroken(tmp_path):
    options = OptimizerConfig(kind="muon", learning_rate=2e-3, warmup_steps=2, decay="cosine")
    tiny_trainer(tmp_path / "whole", optimizer=options).run(progress=False)
    broken = tiny_trainer(tmp_path / "broken", optimizer=options)
    die_at(broken, 6)
    with pytest.raises(Killed):
        broken.run(progress=False)
    resumed = tiny_trainer(tmp_path / "broken", optimizer=options)
    resumed.run(progress=False)
    assert_same_run(tmp_path / "broken", tmp_path / "whole")
    assert {group["lr"] for optimizer in resumed.optimizers for group in optimizer.param_groups} == {
        learning_rate(7, resumed.config)
    }


def test_finished_run_has_nothing_to_do_and_returns_its_last_entry(unbroken, tmp_path):
    shutil.copytree(unbroken, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "model").iterdir()}
    trainer = tiny_trainer(tmp_path / "run")
    die_at(trainer, 8)
    last = trainer.run(progress=False)
    assert last["step"] == 8
    assert "held_out" in last
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "model").iterdir()} == before


def test_folder_of_another_run_is_refused_and_left_alone(unbroken):
    before = (unbroken / "config.json").read_text()
    other = tiny_trainer(unbroken, seed=2, optimizer=OptimizerConfig(learning_rate=1e-3))
    with pytest.raises(CheckpointMismatch) as refused:
        other.run(progress=False)
    text = str(refused.value)
    assert "seed is 0, this run has 2" in text
    assert "optimizer.learning_rate is 0.002, this run has 0.001" in text
    assert "--output" in text
    assert (unbroken / "config.json").read_text() == before
    assert len(log_of(unbroken)) == 4


def test_log_line_cut_off_by_a_crash_is_passed_over(unbroken, tmp_path):
    trainer = tiny_trainer(tmp_path)
    die_at(trainer, 5)
    with pytest.raises(Killed):
        trainer.run(progress=False)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    tiny_trainer(tmp_path).run(progress=False)
    assert_same_run(tmp_path, unbroken)


def test_loss_that_is_not_finite_ends_the_run_and_keeps_the_checkpoint(tmp_path):
    trainer = tiny_trainer(tmp_path)
    losses = trainer.losses
    trainer.losses = lambda batch, **cameras: (
        losses(batch, **cameras) * (float("nan") if trainer.step == 6 else 1.0)
    )
    with pytest.raises(MeropeError, match=r"the loss is nan at step 6.*lower learning rate"):
        trainer.run(progress=False)
    assert torch.load(tmp_path / "state.pt", weights_only=True)["step"] == 4
    load_video_model(tmp_path / "model")


def test_probe_is_zero_before_training_and_moves_no_weight(tmp_path):
    trainer = tiny_trainer(tmp_path)
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    probe = trainer.probe()
    assert probe["control"] == 0
    assert probe["residual_ratio"] == 0
    assert probe["held_out"] > 0
    assert all(torch.equal(p, before[name]) for name, p in trainer.parameters.items())


def test_cameras_matter_as_soon_as_the_branch_does(tmp_path):
    trainer = tiny_trainer(tmp_path)
    with torch.no_grad():
        for branch in trainer.adapter.branches.values():
            branch.to_out.weight.normal_(std=0.2)
    trainer.average.values = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    batch = trainer.source.probe(0)
    own, other = trainer.losses(batch), trainer.losses(batch, T_world_cam=batch.T_world_cam.roll(1, 0))
    assert (own != other).all()
    assert trainer.probe()["residual_ratio"] > 0.01


def test_training_the_branch_alone_leaves_the_base_bit_exact(tmp_path):
    trainer = tiny_trainer(tmp_path, trains="branch")
    before = {name: value.clone() for name, value in trainer.transformer.state_dict().items()}
    trainer.run(progress=False)
    moved = 0
    for name, value in trainer.transformer.state_dict().items():
        if ".camera_branch." in name:
            moved += not torch.equal(value, before[name])
        else:
            assert torch.equal(value, before[name]), name
    assert moved == len(trainer.parameters)
    assert all(
        p.grad is None for name, p in trainer.transformer.named_parameters() if "camera_branch" not in name
    )


def test_weights_and_optimizer_stay_float32_under_autocast(tmp_path):
    trainer = tiny_trainer(tmp_path, autocast=True, steps=2)
    trainer.run(progress=False)
    assert {p.dtype for p in trainer.parameters.values()} == {torch.float32}
    states = [state for optimizer in trainer.optimizers for state in optimizer.state.values()]
    moments = {value.dtype for state in states for value in state.values() if value.ndim}
    assert moments == {torch.float32}
    exact = tiny_trainer(tmp_path / "exact", steps=2)
    batch = exact.source.training(0)
    low = tiny_trainer(tmp_path / "low", steps=2, autocast=True).losses(batch)
    full = exact.losses(batch)
    assert not torch.equal(low, full)
    torch.testing.assert_close(low, full, rtol=0.02, atol=0)


def test_trainable_weight_without_gradient_is_an_error(tmp_path):
    trainer = tiny_trainer(tmp_path)
    weight = next(iter(trainer.parameters.values()))
    trainer.losses = lambda batch: weight.sum() * 0 + batch.sigma
    with pytest.raises(RuntimeError, match="trainable parameters got no gradient"):
        trainer.run(progress=False)


def test_every_step_takes_the_rate_of_its_schedule(tmp_path):
    trainer = tiny_trainer(tmp_path)
    (optimizer,) = trainer.optimizers
    seen, step = [], optimizer.step
    optimizer.step = lambda: (seen.append(optimizer.param_groups[0]["lr"]), step())
    trainer.run(progress=False)
    assert seen[0] == pytest.approx(1e-3)
    assert seen[1] == seen[2] == pytest.approx(2e-3)
    assert seen[2:] == sorted(seen[2:], reverse=True)
    assert [entry["learning_rate"] for entry in log_of(tmp_path)] == seen[1::2]
    assert tiny_config().steps == len(seen)
