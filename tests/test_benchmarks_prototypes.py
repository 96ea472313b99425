"""The benchmark of prototypes: its drives are what it says, its check can fail, its table has its numbers."""

import numpy as np
from benchmarks import prototypes


def test_drives_start_at_zero_and_are_a_mixture():
    centers, real = prototypes.drives(2000, seed=0)
    assert centers.dtype == np.float64
    assert (centers[:, 0] == 0).all()
    assert 0.25 < real.mean() < 0.35
    np.testing.assert_array_equal(centers, prototypes.drives(2000, seed=0)[0])
    speed = np.linalg.norm(np.diff(centers, axis=1), axis=-1) * prototypes.FPS
    assert speed.max() < 35
    assert 0.02 < (speed.max(axis=1) < 0.2).mean() < 0.1
    sideways = np.abs(centers[:, :, 0]).max(axis=1) > 3.5
    assert sideways[real].mean() < 0.25 < sideways[~real].mean()


def test_the_check_compares_with_brute_force(monkeypatch):
    assert prototypes.check(200)["equal"]
    from merope.data.selection.prototypes import suppression

    monkeypatch.setattr(
        suppression, "suppress_plainly", lambda paths, order: suppression.suppress(paths, order, threshold=2)
    )
    assert not prototypes.check(200)["equal"]


def test_a_size_is_measured_and_stands_in_the_table():
    result = prototypes.measure(400)
    assert result["trajectories"] == 400
    assert 128 <= result["prototypes"] <= 400 - result["static"]
    table = prototypes.markdown([result], "a machine").splitlines()
    assert table[2].startswith(f"| 400 | {result['static']} | {result['prototypes']} | ")
    assert table[0].count("|") == table[1].count("|") == table[2].count("|")
