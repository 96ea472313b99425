"""The kernel distance against a sum over pairs written out, and torchmetrics' own mean and deviation."""

import itertools

import numpy as np
import pytest
import torch
from torchmetrics.image.kid import KernelInceptionDistance

from merope.evaluation.fidelity.features import FeatureSet
from merope.evaluation.fidelity.kernel import kernel_distance, kernel_distance_of_subsets
from tests.evaluation.fidelity.networks import TinyFrames


def clips(sizes, dimension=4, seed=0, *, mean=0.0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(size, dimension)) + mean).astype(np.float32) for size in sizes]


def by_pairs(x, y):
    """The unbiased estimate, pair by pair in Python's own numbers."""
    x, y = ([[float(value) for value in row] for row in each] for each in (x, y))

    def kernel(a, b):
        return (sum(p * q for p, q in zip(a, b, strict=True)) / len(a) + 1) ** 3

    def own(rows):
        return sum(kernel(a, b) for a, b in itertools.permutations(rows, 2)) / (len(rows) * (len(rows) - 1))

    mixed = sum(kernel(a, b) for a in x for b in y) / (len(x) * len(y))
    return own(x) + own(y) - 2 * mixed


def test_the_value_is_the_sum_over_pairs():
    x, y = clips((3, 4, 2), seed=1), clips((5, 3), seed=2, mean=0.5)
    found = kernel_distance(FeatureSet.in_memory(x), FeatureSet.in_memory(y))
    assert found.value == pytest.approx(by_pairs(np.concatenate(x), np.concatenate(y)), rel=1e-10)


def test_four_points_have_the_number_that_paper_and_pencil_give():
    x, y = ([np.array([[value]]) for value in values] for values in ((0.0, 1.0), (2.0, 3.0)))
    # k(0, 1) = 1, k(2, 3) = 7^3; mixed pairs are 1, 1, 3^3 and 4^3.
    found = kernel_distance(FeatureSet.in_memory(x), FeatureSet.in_memory(y))
    assert found.value == 1 + 343 - 2 * (1 + 1 + 27 + 64) / 4 == 297.5
    assert found.uncertainty is None


def test_the_error_is_the_jackknife_over_clips():
    x, y = clips((3, 4, 2), seed=1), clips((5, 3, 4), seed=2, mean=0.5)
    variance = 0.0
    for side in (x, y):
        left_out = []
        for number in range(len(side)):
            rest = np.concatenate(side[:number] + side[number + 1 :])
            other = np.concatenate(y if side is x else x)
            left_out.append(by_pairs(rest, other))
        variance += (len(side) - 1) / len(side) * sum((value - np.mean(left_out)) ** 2 for value in left_out)
    found = kernel_distance(FeatureSet.in_memory(x), FeatureSet.in_memory(y))
    assert found.uncertainty == pytest.approx(variance**0.5, rel=1e-9)


@pytest.mark.parametrize(("mean", "low", "high"), [(1.0, 0.7, 1.4), (0.0, 1.0, 2.5)])
def test_the_error_is_what_repeated_draws_show_and_no_less_where_sets_are_alike(mean, low, high):
    found = [
        kernel_distance(
            FeatureSet.in_memory(clips((1,) * 40, seed=seed)),
            FeatureSet.in_memory(clips((1,) * 40, seed=seed + 1000, mean=mean)),
        )
        for seed in range(40)
    ]
    scatter = np.std([each.value for each in found])
    assert low < np.median([each.uncertainty for each in found]) / scatter < high


def test_alike_sets_have_distance_zero_on_average():
    values = [
        kernel_distance(
            FeatureSet.in_memory(clips((1,) * 20, seed=seed)),
            FeatureSet.in_memory(clips((1,) * 20, seed=seed + 1000)),
        ).value
        for seed in range(40)
    ]
    assert abs(np.mean(values)) < 3 * np.std(values) / 40**0.5
    assert min(values) < 0


def test_sets_larger_than_a_chunk_give_the_same_sum():
    x, y = clips((700, 500), 2, seed=1), clips((600, 500), 2, seed=2, mean=1.0)
    found = kernel_distance(FeatureSet.in_memory(x), FeatureSet.in_memory(y)).value
    a, b = (np.concatenate(each).astype(float) for each in (x, y))
    kernels = [(p @ q.T / 2 + 1) ** 3 for p, q in ((a, a), (b, b), (a, b))]
    own = [(k.sum() - np.trace(k)) / (len(k) * (len(k) - 1)) for k in kernels[:2]]
    assert found == pytest.approx(sum(own) - 2 * kernels[2].mean(), rel=1e-9)


def test_kid_of_torchmetrics_draws_the_same_subsets_to_the_same_numbers():
    network = TinyFrames(dimension=12)
    images = torch.randint(0, 256, (2, 60, 3, 20, 28), dtype=torch.uint8, generator=torch.manual_seed(0))
    images[1] //= 2
    theirs = KernelInceptionDistance(feature=network, subsets=7, subset_size=25)
    with torch.no_grad():
        for number, real in enumerate((True, False)):
            theirs.update(images[number], real=real)
        ours = [FeatureSet.in_memory([network(part).numpy() for part in each.split(20)]) for each in images]
    torch.manual_seed(5)
    mean, deviation = theirs.compute()
    torch.manual_seed(9)
    before = torch.get_rng_state()
    found = kernel_distance_of_subsets(*ours, num_subsets=7, subset_size=25, seed=5)
    assert torch.equal(before, torch.get_rng_state())
    # Theirs is float32, where a kernel near 1 keeps seven digits.
    assert found.value == pytest.approx(float(mean), rel=1e-4, abs=2e-7)
    assert found.uncertainty == pytest.approx(float(deviation), rel=1e-2, abs=2e-7)


def test_another_seed_draws_other_subsets():
    sets = [FeatureSet.in_memory(clips((30,), seed=seed)) for seed in (1, 2)]
    one, same, other = (
        kernel_distance_of_subsets(*sets, num_subsets=3, subset_size=10, seed=seed).value
        for seed in (0, 0, 1)
    )
    assert one == same != other


def test_a_single_clip_has_a_distance_without_an_error():
    found = kernel_distance(FeatureSet.in_memory(clips((6,))), FeatureSet.in_memory(clips((2, 4))))
    assert found.uncertainty is None


@pytest.mark.parametrize(
    ("sizes", "options", "words"),
    [
        ((5, 5), {"subset_size": 11}, "subset_size"),
        ((5, 5), {"num_subsets": 0, "subset_size": 4}, "num_subsets"),
    ],
)
def test_subsets_that_cannot_be_drawn_are_refused(sizes, options, words):
    sets = [FeatureSet.in_memory(clips(sizes, seed=seed)) for seed in (1, 2)]
    with pytest.raises(ValueError, match=words):
        kernel_distance_of_subsets(*sets, **options)


def test_one_sample_or_other_features_are_refused():
    with pytest.raises(ValueError, match="at least 2 samples"):
        kernel_distance(FeatureSet.in_memory(clips((1,))), FeatureSet.in_memory(clips((4,))))
    with pytest.raises(ValueError, match="one network"):
        kernel_distance(FeatureSet.in_memory(clips((3,), 4)), FeatureSet.in_memory(clips((3,), 5)))
