"""Configurations of fine-tuning: B.1's constants, the arithmetic of the batch, what is refused."""

import json

import pytest

from merope.training.config import OptimizerConfig
from tests.support.finetune_run import finetune_config, finetune_spec


def test_defaults_are_the_paper_s():
    assert finetune_config().to_dict()["optimizer"]["warmup_steps"] == 0
    config = finetune_config(optimizer=OptimizerConfig())
    assert config.optimizer.learning_rate == 1e-5
    assert config.optimizer.decay == "constant"


def test_config_is_plain_json():
    config = finetune_config(schedule=(0, 1))
    assert json.loads(json.dumps(config.to_dict()))["parallel"] == {"mode": "fsdp", "shard_size": None}


def test_global_batch_is_processes_times_micro_batch_times_accumulation():
    config = finetune_config(global_batch=64)
    assert [config.accumulation(size) for size in (1, 2, 64)] == [64, 32, 1]
    assert finetune_config(global_batch=64, micro_batch=4).accumulation(8) == 2


def test_a_batch_that_does_not_divide_shows_the_arithmetic():
    with pytest.raises(
        ValueError, match=r"3 x 2 = 6 does not divide it \(64 / 6 = 10.7\). Use a multiple of 6"
    ):
        finetune_config(global_batch=64, micro_batch=2).accumulation(3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be >= 1"),
        ({"global_batch": 0}, "global_batch must be >= 1"),
        ({"micro_batch": -1}, "micro_batch must be >= 1"),
        ({"probe_every": 0}, "probe_every must be >= 1"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be >= 1"),
        ({"text_dropout": 1.5}, "text_dropout must be in"),
        ({"ema_decay": 1.0}, "ema_decay must be in"),
        ({"optimizer": OptimizerConfig(kind="muon")}, "'muon' needs whole matrices, and sharding cuts them"),
        ({"global_batch": 1, "probe_every": 2}, "needs global_batch >= 2"),
        ({"spec": finetune_spec(prediction="clean")}, "spec.prediction must be 'velocity'"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        finetune_config(**changes)
