"""Fine-tuning in one process: what trains, what is logged, what is left for use, what is refused."""

import json
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file
from torch import nn

from merope.adapters import load_adapter, read_adapter_config
from merope.adapters.signals import tensors_in
from merope.adapters.spec import VideoSpec
from merope.data.caches.latent_cache import LatentCache
from merope.encodings.registry import default_encoding, encoding_to_config
from merope.errors import CheckpointMismatch, MeropeError, MissingDependency
from merope.training import log_sinks
from merope.training.clip_batches import MicroBatch
from merope.training.export import export_base
from merope.training.finetune import count_parameters
from merope.training.finetune_config import ParallelConfig
from merope.training.log_sinks import LogSinks
from merope.training.parallel import Processes, joined_processes
from merope.training.pretrained import add_cameras, load_base
from merope.training.run_log import read_entries
from merope.training.trainable import choose_trainable
from tests.support.finetune_run import (
    finetune_config,
    finetune_spec,
    finetune_trainer,
    write_base,
    write_cache,
)

REPLICATE = ParallelConfig(mode="replicate")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return LatentCache(write_cache(tmp_path_factory.mktemp("cache") / "cache"))


@pytest.fixture(scope="module")
def processes():
    with joined_processes() as joined:
        yield joined


@pytest.fixture
def trainer_in(base, cache, processes):
    """A trainer in a folder, of one process and without sharding, which costs time."""

    def make(folder, **changes):
        return finetune_trainer(folder, base, cache, processes, **{"parallel": REPLICATE, **changes})

    return make


@pytest.fixture(scope="module")
def finished(base, cache, processes, tmp_path_factory):
    """A run of four steps that probes, with averaged weights."""
    folder = tmp_path_factory.mktemp("finished")
    trainer = finetune_trainer(
        folder, base, cache, processes, parallel=REPLICATE, probe_every=2, ema_decay=0.9
    )
    trainer.run(progress=False)
    return trainer


def curve(trainer):
    return [entry["loss"] for entry in read_entries(trainer.folder / "log.jsonl") if "loss" in entry]


def test_log_says_what_is_learned_and_by_which_blocks(finished):
    first, *entries = read_entries(finished.folder / "log.jsonl")
    assert first["step"] == 0 and first["control"] == 0.0
    assert [entry["step"] for entry in entries] == [1, 2, 3, 4]
    for entry in entries:
        assert {
            "loss",
            "gradient_norm",
            "output_gradient_norm",
            "learning_rate",
            "clips_per_second",
            "residual_ratio",
            "residual_ratio_block_01",
        } <= entry.keys()
        assert any(name.startswith("loss_sigma_") for name in entry)
    # The output projection is zero in the first forward pass, and then no more.
    assert [entry["residual_ratio_block_01"] > 0 for entry in entries] == [False, True, True, True]
    assert all(entry["output_gradient_norm"] > 0 for entry in entries)
    assert [("control" in entry) for entry in entries] == [False, True, False, True]
    assert entries[1]["control"] != 0


def test_the_adapter_is_the_average_with_all_that_it_takes_to_use_it(finished, base):
    path = finished.folder / "model" / "adapter.safetensors"
    stored = load_file(path)
    average = finished.average.values
    assert len(stored) == len(average) > 0
    for name, value in stored.items():
        block, _, rest = name.partition(".")
        assert torch.equal(value, average[f"blocks.{block}.camera_branch.{rest}"])
        assert not torch.equal(value, finished.parameters[f"blocks.{block}.camera_branch.{rest}"])
    described = read_adapter_config(path)
    assert VideoSpec.from_dict(described["spec"]) == finetune_spec()
    assert described["summary"] | {"seconds": 0} == {
        "recipe": "tiny",
        "trains": "branch",
        "steps": 4,
        "finished": True,
        "global_batch": 4,
        "learning_rate": 1e-3,
        "clips": 7,
        "pose_unit": "m",
        "seconds": 0,
    }
    assert not (finished.folder / "model" / "transformer").exists()
    transformer = WanTransformer3DModel.from_pretrained(base, subfolder="transformer")
    assert not load_adapter(path, transformer).is_zero


def test_a_finished_run_has_nothing_left_to_do_and_more_steps_go_on(finished, trainer_in, tmp_path):
    folder = shutil.copytree(finished.folder, tmp_path / "copied")
    again = trainer_in(folder, probe_every=2, ema_decay=0.9)
    entry = again.run(progress=False)
    assert again.step == 4 and entry["step"] == 4
    # The rate is constant: the number of steps decides no loss.
    longer = trainer_in(folder, probe_every=2, ema_decay=0.9, steps=5)
    longer.run(progress=False)
    unbroken = trainer_in(tmp_path / "unbroken", probe_every=2, ema_decay=0.9, steps=5)
    unbroken.run(progress=False)
    assert curve(longer) == curve(unbroken)


def test_tensorboard_gets_the_same_numbers(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished.folder / "tensorboard"))
    events.Reload()
    seen = {event.step: event.value for event in events.Scalars("loss")}
    entries = read_entries(finished.folder / "log.jsonl")
    expected = {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}
    assert seen.keys() == expected.keys()
    assert all(abs(seen[step] - expected[step]) < 1e-6 for step in seen)


@pytest.mark.parametrize(
    "changes",
    [{"micro_batch": 2}, {"micro_batch": 4}, {"gradient_checkpointing": False}],
    ids=["two at a time", "four at a time", "without checkpointing"],
)
def test_how_a_step_is_computed_changes_no_loss(trainer_in, tmp_path, changes):
    one, other = trainer_in(tmp_path / "one"), trainer_in(tmp_path / "other", **changes)
    for trainer in (one, other):
        trainer.run(progress=False)
    torch.testing.assert_close(torch.tensor(curve(one)), torch.tensor(curve(other)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("trains", ["branch", "branch+attention", "all"])
def test_what_trains_moves_and_nothing_else_does(trainer_in, tmp_path, base, trains):
    trainer = trainer_in(tmp_path, trains=trains, steps=2)
    before = {name: value.clone() for name, value in trainer.transformer.state_dict().items()}
    trainer.run(progress=False)
    moved = {n for n, v in trainer.transformer.state_dict().items() if not torch.equal(v, before[n])}
    attention = {name for name in before if name.startswith("blocks.1.attn1.")}
    branch = {name for name in before if ".camera_branch." in name}
    # A key's bias adds the same to every logit of a query; under a camera operator that is no longer so.
    silent = {name for name in attention if name.endswith("to_k.bias")}
    if trains == "branch":
        assert moved == branch
    elif trains == "branch+attention":
        assert branch | attention - silent <= moved <= branch | attention
    else:
        assert len(moved) > 0.9 * len(before)
    count, everything = count_parameters(trainer.transformer)
    assert count == sum(parameter.numel() for parameter in trainer.parameters.values()) <= everything


def test_a_base_that_trains_is_left_in_several_files_that_load(trainer_in, tmp_path, processes):
    trainer = trainer_in(tmp_path, trains="all", steps=1)
    trainer.run(progress=False)
    folder = tmp_path / "again"
    for limit in (10**9, 2**20):
        export_base(
            folder,
            trainer.transformer,
            {},
            config=json.loads((tmp_path / "model" / "transformer" / "config.json").read_text()),
            dtype=torch.float32,
            processes=processes,
            file_bytes=limit,
        )
    assert len(list(folder.glob("*-of-*.safetensors"))) > 2
    assert not (folder / "diffusion_pytorch_model.safetensors").exists()
    for place in (folder, tmp_path / "model" / "transformer"):
        loaded = WanTransformer3DModel.from_pretrained(place)
        for name, value in loaded.state_dict().items():
            assert torch.equal(value, trainer.transformer.state_dict()[name])
    # It can be trained on: the layout is a pipeline's.
    config = finetune_config()
    assert isinstance(load_base(tmp_path / "model", config), WanTransformer3DModel)


def test_an_adapter_goes_on_where_it_was(trainer_in, finished, base, cache, processes, tmp_path):
    start = finished.folder / "model"
    trainer = finetune_trainer(tmp_path, base, cache, processes, start=start, parallel=REPLICATE, steps=1)
    trainer.run(progress=False)
    assert read_entries(tmp_path / "log.jsonl")[0]["residual_ratio"] > 0
    with pytest.raises(CheckpointMismatch, match="compression is 4, this run has 2"):
        finetune_trainer(tmp_path, base, cache, processes, start=start, compression=2)


def test_the_base_without_cameras_trains_too(trainer_in, tmp_path):
    encoding = encoding_to_config(default_encoding("none", head_dim=64, num_heads=1))
    trainer = trainer_in(tmp_path, encoding=encoding, trains="all", steps=1)
    entry = trainer.run(progress=False)
    assert "residual_ratio" not in entry and entry["loss"] > 0
    with pytest.raises(ValueError, match="leaves nothing to train"):
        trainer_in(tmp_path, encoding=encoding, trains="branch")


def test_parameters_that_no_gradient_reaches_stop_the_first_step(trainer_in, tmp_path, base):
    config = finetune_config()
    transformer = load_base(base, config)
    adapter = add_cameras(transformer, config)
    adapter.branches[1].forgotten = nn.Linear(2, 2)
    trainer = trainer_in(tmp_path)
    trainer.transformer, trainer.adapter = transformer, adapter
    trainer.parameters = choose_trainable(transformer, adapter, "branch")
    with pytest.raises(
        RuntimeError, match=r"2 trainable parameters got no gradient: blocks.1.camera_branch.forgotten"
    ):
        trainer.run(progress=False)


def test_a_gradient_that_is_not_finite_moves_nothing(trainer_in, tmp_path):
    trainer = trainer_in(tmp_path)
    compute = trainer.losses

    def broken(batch, signals):
        losses = compute(batch, signals)
        # Finite itself, with an infinite derivative.
        return losses + (losses - losses.detach()).abs().sqrt()

    trainer.losses = broken
    before = {name: value.detach().clone() for name, value in trainer.parameters.items()}
    with pytest.raises(MeropeError, match="the gradient is not finite at step 0"):
        trainer.run(progress=False)
    assert all(torch.equal(value, before[name]) for name, value in trainer.parameters.items())


def test_an_error_while_data_is_read_comes_out(trainer_in, tmp_path):
    trainer = trainer_in(tmp_path)
    load = trainer.batches.load

    def missing(step, chosen):
        if step == 1:
            raise MeropeError("a shard is gone")
        return load(step, chosen)

    trainer.batches.load = missing
    with pytest.raises(MeropeError, match="a shard is gone"):
        trainer.run(progress=False)
    assert trainer.step == 1


def test_a_folder_without_a_transformer_and_a_name_that_nobody_has(tmp_path):
    with pytest.raises(
        MeropeError, match=r"no pipeline in diffusers' layout: it has no transformer/config.json"
    ):
        load_base(tmp_path, finetune_config())
    with pytest.raises(MeropeError, match="no transformer could be loaded from nobody/nothing"):
        load_base("nobody/nothing", finetune_config())


def test_batches_that_processes_do_not_divide_are_refused_before_anything_moves(trainer_in, tmp_path):
    with pytest.raises(ValueError, match=r"1 x 3 = 3 does not divide it"):
        trainer_in(tmp_path, micro_batch=3)


def test_weights_and_biases_is_asked_for_by_name_and_missed_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(log_sinks, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'merope\[wandb\]'"):
        LogSinks(tmp_path, name="tiny", config={}, wandb="cameras")


def test_weights_and_biases_gets_entries_and_one_run_per_folder(tmp_path, monkeypatch):
    # The package is an extra that is not installed here; what it is told is all that is ours.
    begun, logged = [], []
    run = SimpleNamespace(log=lambda values, step: logged.append((step, values)), finish=lambda: None)
    module = SimpleNamespace(init=lambda **options: begun.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(log_sinks, "find_spec", lambda name: None if name == "tensorboard" else object())
    for _ in range(2):
        sinks = LogSinks(tmp_path, name="tiny", config={"seed": 0}, wandb="cameras")
        sinks.open(0)
        sinks.write({"step": 3, "loss": 0.5})
        sinks.close()
    assert logged == [(3, {"loss": 0.5})] * 2
    assert begun[0]["project"] == "cameras" and begun[0]["resume"] == "allow"
    assert begun[0]["id"] == begun[1]["id"]


def test_cameras_are_made_before_anything_is_copied_to_the_device(trainer_in, tmp_path, monkeypatch):
    trainer = trainer_in(tmp_path)
    # Stands for a GPU: another device than the one that geometry is done on.
    trainer.processes = Processes(rank=0, size=1, device=torch.device("meta"))
    order = []
    make, move = trainer.adapter.signals, MicroBatch.to

    def making(rays, *, device):
        order.append(f"made on {device}")
        return make(rays, device=device)

    def moving(batch, device):
        order.append("moved")
        return move(batch, device)

    monkeypatch.setattr(trainer.adapter, "signals", making)
    monkeypatch.setattr(MicroBatch, "to", moving)
    batch, signals = trainer._prepare(0, [(0, 0)])
    assert order == ["made on cpu", "moved"]
    assert {x.device.type for x in (batch.latents, batch.noise, batch.sigma, batch.text)} == {"meta"}
    assert {x.device.type for x in tensors_in(signals)} == {"meta"}


def test_a_run_that_stops_saves_its_state_first_and_one_that_ends_its_model(
    trainer_in, tmp_path, monkeypatch
):
    trainer = trainer_in(tmp_path, steps=4, checkpoint_every=2)
    order = []
    export, save = trainer._export, trainer.checkpoints.save
    monkeypatch.setattr(trainer, "_export", lambda **options: (order.append("model"), export(**options)))
    monkeypatch.setattr(trainer.checkpoints, "save", lambda *given: (order.append("state"), save(*given)))
    trainer.run(progress=False)
    assert order == ["state", "model", "model", "state"]


def test_a_run_that_died_before_its_first_checkpoint_begins_anew_in_its_log_too(trainer_in, tmp_path):
    trainer = trainer_in(tmp_path, probe_every=4)

    def dying(*_, **__):
        raise KeyboardInterrupt

    trainer._update = dying
    with pytest.raises(KeyboardInterrupt):
        trainer.run(progress=False)
    trainer_in(tmp_path, probe_every=4).run(progress=False)
    assert [entry["step"] for entry in read_entries(tmp_path / "log.jsonl")] == [0, 1, 2, 3, 4]


def test_a_folder_takes_one_run_at_a_time(trainer_in, tmp_path):
    one, other = trainer_in(tmp_path, steps=1), trainer_in(tmp_path, steps=1)
    update = one._update

    def meanwhile(*given, **options):
        with pytest.raises(MeropeError, match=r"another process is running in .*choose another folder"):
            other.run(progress=False)
        return update(*given, **options)

    one._update = meanwhile
    assert one.run(progress=False)["step"] == 1
    assert other.run(progress=False)["step"] == 1
