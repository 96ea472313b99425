"""Mean and covariance in blocks: as exact as all at once, in bounded memory, whoever computed which block."""

import itertools
import tracemalloc

import numpy as np
import pytest

from merope.evaluation.fidelity.features import FeatureSet
from merope.evaluation.fidelity.moments import Moments, merge_blocks


def features(count, dimension=7, seed=0, *, mean=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, dimension)) @ rng.normal(size=(dimension, dimension)) + mean


def test_blocks_give_what_all_samples_give_at_once():
    x = features(1000, mean=5.0)
    cuts = [0, 1, 17, 400, 999, 1000]
    merged = merge_blocks(Moments.of(x[a:b]) for a, b in itertools.pairwise(cuts))
    assert merged.count == 1000
    np.testing.assert_allclose(merged.mean, x.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(merged.covariance(), np.cov(x, rowvar=False), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        merged.covariance("N"), np.cov(x, rowvar=False, bias=True), rtol=1e-9, atol=1e-9
    )


def test_a_mean_far_from_zero_costs_no_digits():
    # The difference of raw second moments, E[xx] - E[x]E[x], keeps none at a mean of 1e8.
    x = features(500)
    near, far = (merge_blocks(Moments.of(part + mean) for part in np.split(x, 10)) for mean in (0.0, 1e8))
    np.testing.assert_allclose(far.covariance(), near.covariance(), rtol=1e-6, atol=1e-6)
    raw = (x + 1e8).T @ (x + 1e8) / 500 - np.outer((x + 1e8).mean(axis=0), (x + 1e8).mean(axis=0))
    assert not np.allclose(raw, near.covariance("N"), rtol=0.1)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_number_of_workers_changes_no_digit(workers):
    x = features(100, seed=3)
    blocks = np.split(x, 20)
    done = {}
    for worker in range(workers):
        for number in range(worker, 20, workers):
            done[number] = Moments.of(blocks[number])
    merged = merge_blocks(done[number] for number in sorted(done))
    alone = merge_blocks(map(Moments.of, blocks))
    assert (merged.mean == alone.mean).all() and (merged.scatter == alone.scatter).all()


def test_memory_does_not_grow_with_the_number_of_blocks(tmp_path):
    def peak(count):
        paths = []
        for number in range(count):
            paths.append(tmp_path / f"{number}.npy")
            np.save(paths[-1], features(200, 32, number).astype(np.float32))
        tracemalloc.start()
        FeatureSet.in_files(paths).moments()
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(2)
    few, many = peak(12), peak(60)
    # 60 blocks of 200 x 32 numbers are 1.5 MB in float32 and 3 MB in float64.
    assert many < few + 100_000


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.empty((0, 3)), "at least one row"),
        (np.array([[1.0, 2.0], [np.nan, 0.0]]), "sample 1"),
        (np.array([[np.inf, 2.0]]), "finite"),
    ],
)
def test_what_has_no_moments_is_refused(bad, words):
    with pytest.raises(ValueError, match=words):
        Moments.of(bad)


def test_a_covariance_needs_two_samples_and_a_known_divisor():
    with pytest.raises(ValueError, match="at least 2"):
        Moments.of(np.ones((1, 2))).covariance()
    with pytest.raises(ValueError, match="divisor"):
        Moments.of(np.ones((3, 2))).covariance("N + 1")
    with pytest.raises(ValueError, match="at least one block"):
        merge_blocks([])
