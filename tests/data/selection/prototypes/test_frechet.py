"""The discrete Frechet distance against its definition, and bounds and decisions against the distance."""

import numpy as np
import pytest
from benchmarks.prototypes import drives

from merope.data.selection.prototypes.arc_length import resample_paths
from merope.data.selection.prototypes.frechet import frechet_distances, frechet_lower_bounds, frechet_within


def by_definition(p: np.ndarray, q: np.ndarray) -> float:
    """The least, over all couplings, of the longest distance: every one of them is walked."""

    def least(i: int, j: int, longest: float) -> float:
        longest = max(longest, float(np.linalg.norm(p[i] - q[j])))
        ways = [(i + 1, j), (i, j + 1), (i + 1, j + 1)]
        ahead = [way for way in ways if way[0] < len(p) and way[1] < len(q)]
        return min((least(*way, longest) for way in ahead), default=longest)

    return least(0, 0, 0.0)


def walks(count: int, points: int, seed: int, step: float = 0.6) -> np.ndarray:
    """Random walks that start together and stay near each other, so that every decision comes up."""
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.normal(0.0, step, (count, points, 3)), axis=1).astype(np.float32)


@pytest.mark.parametrize(("first_points", "second_points"), [(1, 1), (1, 4), (5, 5), (6, 4)])
def test_it_is_the_least_over_all_couplings(first_points, second_points):
    first, second = walks(20, first_points, 0), walks(20, second_points, 1)
    expected = [by_definition(p, q) for p, q in zip(first.astype(float), second.astype(float), strict=True)]
    np.testing.assert_allclose(frechet_distances(first, second), expected, rtol=1e-12)


def test_distances_of_a_line_to_its_shifted_and_reversed_copies_are_those_by_hand():
    line = np.stack([np.zeros(9), np.zeros(9), np.arange(9)], axis=-1).astype(np.float32)
    beside, above = line + np.float32([3, 0, 0]), line - np.float32([0, 2, 0])
    back = line[::-1].copy()
    pairs = np.stack([line] * 4), np.stack([line, beside, above, back])
    np.testing.assert_array_equal(frechet_distances(*pairs), [0, 3, 2, 8])


def test_it_is_symmetric_and_reversible():
    first, second = walks(50, 13, 2), walks(50, 17, 3)
    forward = frechet_distances(first, second)
    np.testing.assert_array_equal(forward, frechet_distances(second, first))
    np.testing.assert_array_equal(forward, frechet_distances(first[:, ::-1].copy(), second[:, ::-1].copy()))


def test_bounds_are_below_the_distance_and_worth_having():
    first, second = walks(2000, 13, 4), walks(2000, 13, 5)
    distances, bounds = frechet_distances(first, second), frechet_lower_bounds(first, second)
    assert (bounds <= distances[:, None]).all()
    # Each is the best of the three somewhere.
    assert set(bounds.argmax(axis=1)) == {0, 1, 2}
    assert np.median(bounds.max(axis=1) / distances) > 0.7


@pytest.mark.parametrize("seed", range(3))
def test_the_decision_is_that_of_the_distance_also_at_the_distance_itself(seed):
    first, second = walks(1500, 13, 10 + seed), walks(1500, 13 + seed, 20 + seed)
    distances = frechet_distances(first, second)
    for threshold in np.quantile(distances, [0.02, 0.3, 0.7]):
        np.testing.assert_array_equal(frechet_within(first, second, threshold), distances <= threshold)
    exact = np.float64([0.5, 1.0, 2.0])
    line = np.zeros((3, 5, 3), dtype=np.float32)
    line[:, :, 2] = np.arange(5)
    aside = line + np.float32([[[0.5, 0, 0]], [[1, 0, 0]], [[2, 0, 0]]])
    for number, distance in enumerate(exact):
        pair = line[number : number + 1], aside[number : number + 1]
        assert frechet_within(*pair, distance)[0]
        assert not frechet_within(*pair, np.nextafter(distance, 0))[0]


def test_the_decision_on_drives_where_most_couplings_are_narrow():
    paths = resample_paths(drives(400, seed=3)[0], 25)
    first, second = np.repeat(paths[:200], 20, axis=0), np.tile(paths[200:220], (200, 1, 1))
    distances = frechet_distances(first, second)
    for threshold in (0.3, 1.0, 4.0):
        np.testing.assert_array_equal(frechet_within(first, second, threshold), distances <= threshold)


def test_it_compares_points_and_is_never_below_the_curves():
    # The same segment: the curves are equal, the points half a step apart.
    coarse = np.zeros((1, 3, 3), dtype=np.float32)
    coarse[0, :, 2] = [0, 2, 4]
    fine = np.zeros((1, 5, 3), dtype=np.float32)
    fine[0, :, 2] = [0, 1, 2, 3, 4]
    assert frechet_distances(coarse, fine)[0] == 1.0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros((2, 3, 3)), np.zeros((3, 3, 3))),
        (np.zeros((2, 0, 3)), np.zeros((2, 3, 3))),
        (np.full((2, 3, 3), np.nan), np.zeros((2, 3, 3))),
    ],
)
def test_what_are_no_pairs_of_paths_is_refused(first, second):
    for function in (frechet_distances, frechet_lower_bounds):
        with pytest.raises(ValueError, match="paths must"):
            function(first.astype(np.float32), second.astype(np.float32))


@pytest.mark.parametrize("threshold", [-1.0, np.nan, np.inf])
def test_a_threshold_is_a_length(threshold):
    with pytest.raises(ValueError, match="threshold"):
        frechet_within(walks(1, 3, 0), walks(1, 3, 1), threshold)
