"""Suppression: what is kept is apart, what is not is near the first that is; and all of it as by brute force."""

import numpy as np
import pytest
from benchmarks.prototypes import drives

from merope.data.selection.prototypes.arc_length import resample_paths
from merope.data.selection.prototypes.frechet import frechet_distances
from merope.data.selection.prototypes.suppression import suppress, suppress_plainly


def same(first, second):
    np.testing.assert_array_equal(first.kept, second.kept)
    np.testing.assert_array_equal(first.kept_by, second.kept_by)


@pytest.mark.parametrize("threshold", [0.3, 1.0, 3.0])
def test_drives_are_suppressed_as_by_brute_force(threshold):
    paths = resample_paths(drives(700, seed=1)[0], 25)
    order = np.random.default_rng(0).permutation(len(paths))
    fast = suppress(paths, order, threshold=threshold)
    same(fast, suppress_plainly(paths, order, threshold=threshold))
    assert 10 < len(fast.kept) < 690


def test_five_thousand_drives_are_suppressed_as_by_brute_force():
    # 13 points: brute force takes a minute with 49, which the benchmark does (--check 5000).
    paths = resample_paths(drives(5000, seed=2)[0], 13)
    order = np.random.default_rng(0).permutation(len(paths))
    same(suppress(paths, order), suppress_plainly(paths, order))


def test_ends_on_the_borders_of_cells_and_exactly_at_the_threshold_are_not_missed():
    # A lattice whose neighbours are one threshold apart, in three dimensions, ends and all.
    steps = np.stack(np.meshgrid(*3 * [np.arange(6.0)], indexing="ij"), axis=-1).reshape(-1, 3)
    paths = (steps[:, None] * np.array([0.0, 0.5, 1.0])[:, None]).astype(np.float32)
    order = np.random.default_rng(4).permutation(len(paths))
    fast = suppress(paths, order, threshold=1.0)
    same(fast, suppress_plainly(paths, order, threshold=1.0))
    assert len(fast.kept) < len(paths)
    apart = suppress(paths, order, threshold=np.nextafter(1.0, 0))
    assert len(apart.kept) == len(paths)


def test_kept_paths_are_apart_and_the_others_near_the_first_that_suppresses_them():
    paths = resample_paths(drives(300, seed=5)[0], 25)
    order = np.random.default_rng(1).permutation(len(paths))
    found = suppress(paths, order)
    assert found.kept[0] == order[0]
    kept = paths[found.kept]
    apart = frechet_distances(np.repeat(kept, len(kept), axis=0), np.tile(kept, (len(kept), 1, 1)))
    apart = apart.reshape(len(kept), -1)
    assert (apart[~np.eye(len(kept), dtype=bool)] > 1).all()
    np.testing.assert_array_equal(found.kept_by[found.kept], np.arange(len(kept)))
    place_in_order = np.argsort(order)
    for path, by in enumerate(found.kept_by):
        near = frechet_distances(np.repeat(paths[path : path + 1], len(kept), axis=0), kept) <= 1
        near &= place_in_order[found.kept] <= place_in_order[path]
        assert by == np.argmax(near)


def test_many_that_are_alike_leave_one_and_a_huge_spread_is_no_trouble():
    paths = np.zeros((9000, 3, 3), dtype=np.float32)
    paths[-1, -1] = [8000, -8000, 8000]
    found = suppress(paths, np.arange(9000), threshold=1e-6)
    np.testing.assert_array_equal(found.kept, [0, 8999])
    np.testing.assert_array_equal(found.kept_by, [*[0] * 8999, 1])


def test_nothing_leaves_nothing():
    found = suppress(np.zeros((0, 3, 3), dtype=np.float32), np.zeros(0, dtype=np.int64))
    assert len(found.kept) == len(found.kept_by) == 0


@pytest.mark.parametrize("function", [suppress, suppress_plainly])
@pytest.mark.parametrize(
    ("order", "threshold", "words"),
    [([0, 1], 0.0, "threshold"), ([0, 1], np.nan, "threshold"), ([0, 0], 1.0, "order"), ([0], 1.0, "order")],
)
def test_wrong_arguments_are_named(function, order, threshold, words):
    with pytest.raises(ValueError, match=words):
        function(np.zeros((2, 3, 3), dtype=np.float32), np.array(order), threshold=threshold)
