"""Bootstrap intervals: the same digits as a loop by hand, for any order, any block, and for A and B exchanged."""

import random

import numpy as np
import pytest

from merope.evaluation import bootstrap
from merope.evaluation.bootstrap import (
    mean_interval,
    paired_auc_interval,
    paired_mean_interval,
    pooled_auc_interval,
)
from tests.evaluation.scored import pairs

NUM = 37
VALUES = np.random.default_rng(3).gamma(2.0, size=NUM).tolist()
COUNTS = [
    pairs((low, low + 5, low + 9, low + 20), num=60 + low)
    for low in np.random.default_rng(4).integers(0, 30, NUM).tolist()
]
OTHERS = [
    pairs((low, low + 2, low + 30), num=90) for low in np.random.default_rng(5).integers(0, 30, NUM).tolist()
]


def by_hand(figure, *, seed, num_resamples, num=NUM):
    """The percentile bootstrap as a loop: draw places, compute the figure of the drawn, read off two percentiles."""
    draws = np.random.default_rng(seed).integers(0, num, size=(num_resamples, num)).tolist()
    found = sorted(figure(row) for row in draws)
    return tuple(float(np.percentile(found, share)) for share in (2.5, 97.5))


def pooled(counts, drawn, threshold):
    total = sum((counts[place] for place in drawn[1:]), start=counts[drawn[0]])
    return total.auc_percent(threshold)


def test_a_mean_interval_is_that_of_a_loop():
    ordered = sorted(VALUES)
    expected = by_hand(lambda row: sum(ordered[place] for place in row) / NUM, seed=7, num_resamples=200)
    found = mean_interval(VALUES, seed=7, num_resamples=200)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)


def test_a_pooled_auc_interval_is_that_of_a_loop():
    # The draws go by place among clips in order of their counts.
    ordered = sorted(COUNTS, key=lambda count: (sum(count.below[:3]), count.num_pairs))
    expected = by_hand(lambda row: pooled(ordered, row, 3), seed=7, num_resamples=200)
    found = pooled_auc_interval(COUNTS, 3, oriented=False, seed=7, num_resamples=200)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)


def test_a_paired_auc_interval_draws_the_same_clips_for_both():
    expected = by_hand(
        lambda row: pooled(OTHERS, row, 10) - pooled(COUNTS, row, 10), seed=1, num_resamples=200
    )
    found = paired_auc_interval(COUNTS, OTHERS, 10, oriented=False, seed=1, num_resamples=200)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)


def test_a_mean_interval_is_as_wide_as_the_normal_distribution_says():
    values = np.random.default_rng(0).normal(size=400).tolist()
    found = mean_interval(values, num_resamples=4000)
    # 4000 resamples know a percentile of this kind to about 2 %.
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.std(values) / 20, rel=0.06)
    assert (found.low + found.high) / 2 == pytest.approx(np.mean(values), abs=0.01)


def test_the_order_of_clips_changes_no_digit():
    order = list(range(NUM))
    random.Random(0).shuffle(order)
    assert mean_interval([VALUES[place] for place in order]) == mean_interval(VALUES)
    shuffled = [COUNTS[place] for place in order]
    for oriented in (False, True):
        assert pooled_auc_interval(shuffled, 3, oriented=oriented) == pooled_auc_interval(
            COUNTS, 3, oriented=oriented
        )


def test_looking_up_draws_in_blocks_changes_no_digit(monkeypatch):
    whole = mean_interval(VALUES), pooled_auc_interval(COUNTS, 10, oriented=True)
    monkeypatch.setattr(bootstrap, "_BLOCK_ENTRIES", 3 * NUM + 1)
    assert (mean_interval(VALUES), pooled_auc_interval(COUNTS, 10, oriented=True)) == whole


def test_metrics_of_a_run_share_their_draws():
    bootstrap._draws.cache_clear()
    for seed in range(20):
        mean_interval(np.random.default_rng(seed).normal(size=23).tolist(), num_resamples=50)
    assert bootstrap._draws.cache_info().misses == 1


def test_exchanging_the_runs_turns_the_sign_of_a_paired_interval():
    there = paired_mean_interval(VALUES)
    back = paired_mean_interval([-value for value in VALUES])
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), rel=1e-12)
    there = paired_auc_interval(COUNTS, OTHERS, 3, oriented=False)
    back = paired_auc_interval(OTHERS, COUNTS, 3, oriented=False)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), rel=1e-9)


def test_a_pair_is_more_certain_than_two_runs_alone():
    # B is A and a hundredth: clips differ much, the difference hardly.
    rng = np.random.default_rng(1)
    gaps = [0.01 + float(rng.normal(scale=1e-3)) for _ in VALUES]
    alone, paired = mean_interval(VALUES), paired_mean_interval(gaps)
    assert paired.high - paired.low < 0.01 * (alone.high - alone.low)
    assert paired.excludes_zero


@pytest.mark.parametrize("num", [0, 1])
def test_below_two_clips_there_is_no_interval(num):
    assert mean_interval(VALUES[:num]) is None
    assert paired_mean_interval(VALUES[:num]) is None
    assert pooled_auc_interval(COUNTS[:num], 3, oriented=False) is None
    assert paired_auc_interval(COUNTS[:num], OTHERS[:num], 3, oriented=False) is None


def test_clips_without_pairs_give_no_interval_rather_than_nan():
    assert pooled_auc_interval([pairs(num=0), pairs(num=0)], 3, oriented=False) is None
    assert paired_auc_interval([pairs(num=0)] * 2, [pairs()] * 2, 3, oriented=False) is None


def test_an_interval_that_touches_zero_does_not_exclude_it():
    assert not bootstrap.Interval(0.0, 1.0).excludes_zero
    assert not bootstrap.Interval(-1.0, 0.0).excludes_zero
    assert bootstrap.Interval(-2.0, -1.0).excludes_zero
