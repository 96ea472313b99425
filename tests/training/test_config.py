"""Configurations of runs: the paper's optimizer, and what is refused."""

import itertools
import json

import pytest

from merope.training.config import OptimizerConfig
from merope.training.optimizers import learning_rate
from tests.support.tiny_run import tiny_config


def test_optimizer_defaults_are_the_paper_constants():
    options = OptimizerConfig()
    assert (options.learning_rate, options.beta1, options.beta2) == (1e-5, 0.9, 0.999)
    assert (options.epsilon, options.weight_decay, options.warmup_steps) == (1e-8, 0.01, 0)
    assert options.decay == "constant"


def test_config_is_plain_json():
    config = tiny_config(schedule=(0, 1))
    assert json.loads(json.dumps(config.to_dict()))["optimizer"]["decay"] == "cosine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be >= 1"),
        ({"batch_size": 0}, "batch_size must be >= 1"),
        ({"log_every": 0}, "log_every must be >= 1"),
        ({"sigma_bins": 0}, "sigma_bins must be >= 1"),
        ({"num_probe_clips": 1}, "num_probe_clips must be >= 2"),
        ({"ema_decay": 1.0}, "ema_decay must be in"),
        ({"clip_frames": 12}, "clip_frames 12 is shorter than the model's 13 frames"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**changes)


def rates(**changes):
    config = tiny_config(steps=100, optimizer=OptimizerConfig(**changes))
    return [learning_rate(step, config) for step in range(101)]


def test_constant_rate_is_constant():
    assert set(rates(learning_rate=3e-4)) == {3e-4}


def test_warmup_rises_linearly_from_the_first_step_and_meets_the_peak():
    out = rates(learning_rate=1e-3, warmup_steps=10)
    assert out[0] == pytest.approx(1e-4)
    assert out[4] == pytest.approx(5e-4)
    assert out[9] == out[10] == out[60] == pytest.approx(1e-3)


def test_cosine_falls_from_the_peak_to_a_fiftieth():
    out = rates(learning_rate=1e-3, warmup_steps=20, decay="cosine")
    assert out[20] == pytest.approx(1e-3)
    assert out[60] == pytest.approx(0.51e-3)
    assert out[100] == pytest.approx(2e-5)
    assert all(one > other for one, other in itertools.pairwise(out[20:]))


def test_warmup_longer_than_the_run_does_not_divide_by_zero():
    config = tiny_config(steps=5, optimizer=OptimizerConfig(warmup_steps=5, decay="cosine"))
    assert all(0 < learning_rate(step, config) <= 1e-5 for step in range(7))
