"""The logic of ``benchmarks/history.py``: its city, its comparison with one by one, its table. No wall time."""

import numpy as np
from benchmarks import history


def test_the_city_is_the_same_each_time_and_far_from_the_origin():
    first, again = (list(history.city(1500, seed=3)) for _ in range(2))
    assert len(first) == 6 and sum(len(clip.frame) for clip in first) == 6 * history.FRAMES
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.center_world, other.center_world)
        assert one.center_world.min() > 6.39e6


def test_searches_equal_those_one_by_one():
    result = history.check(3600, num_paths=1)
    assert result["wanted"] > 0 and result["recall"] == 1


def test_the_table_has_a_row_for_each_size():
    result = {
        "frames": 350_000,
        "size_mb": 25.3,
        "seconds": {"write": 0.2, "open": 0.0015, "first use": 0.2, "donors of a path": 0.02},
        "frames_within_10_m": 110.6,
        "poses_per_second": {"4 frames": 2712},
        "peak_gib": 0.37,
    }
    lines = history.markdown([result, result], "a machine").splitlines()
    assert len(lines) == 6 and lines[2].startswith(
        "| 350,000 | 25 | 0.20 | 1.5 | 0.20 | 111 | 2,712 | 20 | 0.37 |"
    )
