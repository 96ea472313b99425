"""The Fréchet distance against closed forms, scipy's matrix root and torchmetrics' own number."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torchmetrics.image.fid import FrechetInceptionDistance

from merope.evaluation.fidelity.frechet import frechet_distance, gaussian_distance
from merope.evaluation.fidelity.moments import Moments
from tests.evaluation.fidelity.networks import TinyFrames


def samples(count, dimension, seed, *, mean=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, dimension)) @ rng.normal(size=(dimension, dimension)) + mean


def test_diagonal_gaussians_have_the_closed_form():
    first, second = np.array([1.0, 4.0, 0.25]), np.array([9.0, 4.0, 1.0])
    step = np.array([1.0, -2.0, 0.5])
    # sum (m1 - m2)^2 + sum (s1 - s2)^2 for standard deviations s
    expected = 1 + 4 + 0.25 + (1 - 3) ** 2 + 0 + (0.5 - 1) ** 2
    found = gaussian_distance(np.zeros(3), np.diag(first), step, np.diag(second))
    assert found == pytest.approx(expected, rel=1e-12)


def test_covariances_that_do_not_commute_have_the_closed_form_of_two_dimensions():
    first, second = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 4.0])
    # For 2 x 2 matrices tr root(M) = root(tr M + 2 root(det M)); tr(S1 S2) = 10 and det = 3 * 4.
    expected = 3**2 + 4**2 + (2 + 2) + (1 + 4) - 2 * (10 + 2 * 12**0.5) ** 0.5
    found = gaussian_distance(np.zeros(2), first, np.array([3.0, -4.0]), second)
    assert found == pytest.approx(expected, rel=1e-12)


def test_constant_features_are_points():
    a, b = (Moments.of(np.full((5, 3), value)) for value in (1.0, 3.0))
    assert frechet_distance(a, b) == 12.0
    # Against a set that does spread, its variance is added.
    wide = Moments.of(np.array([[3.0, 3, 1], [3, 3, 5]]))
    assert frechet_distance(a, wide) == pytest.approx(4 + 4 + 4 + 8)


def test_the_distance_does_not_depend_on_the_axes():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    x, y = samples(50, 4, 1), samples(60, 4, 2, mean=1.0)
    plain = frechet_distance(Moments.of(x), Moments.of(y))
    assert frechet_distance(Moments.of(x @ turn), Moments.of(y @ turn)) == pytest.approx(plain, rel=1e-9)
    assert frechet_distance(Moments.of(y), Moments.of(x)) == pytest.approx(plain, rel=1e-9)


def test_with_many_samples_it_is_what_the_matrix_root_gives():
    x, y = samples(4000, 24, 1), samples(4000, 24, 2, mean=0.3)
    a, b = Moments.of(x), Moments.of(y)
    root = sqrtm(a.covariance() @ b.covariance()).real
    expected = ((a.mean - b.mean) ** 2).sum() + np.trace(a.covariance() + b.covariance() - 2 * root)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-3)


def test_fewer_samples_than_features_give_a_real_and_finite_number():
    x, y = samples(100, 1024, 1), samples(100, 1024, 2)
    value = frechet_distance(Moments.of(x), Moments.of(y))
    assert np.isfinite(value) and value > 0
    assert isinstance(value, float)


@pytest.mark.parametrize(("count", "dimension"), [(500, 20), (30, 100)])
def test_a_set_has_distance_zero_from_itself(count, dimension):
    moments = Moments.of(samples(count, dimension, 1, mean=3.0))
    assert 0 <= frechet_distance(moments, moments) < 1e-3


def test_the_divisor_is_the_librarys():
    x, y = samples(5, 2, 1), samples(5, 2, 2)
    a, b = Moments.of(x), Moments.of(y)
    step = ((a.mean - b.mean) ** 2).sum()
    by_all, by_one_less = (frechet_distance(a, b, divisor=divisor) - step for divisor in ("N", "N - 1"))
    # The rest is linear in the covariances.
    assert by_one_less == pytest.approx(by_all * 5 / 4, rel=1e-9)


def test_fid_of_torchmetrics_is_the_same_number():
    network = TinyFrames(dimension=12)
    images = torch.randint(0, 256, (2, 80, 3, 20, 28), dtype=torch.uint8, generator=torch.manual_seed(0))
    images[1] //= 2
    theirs = FrechetInceptionDistance(feature=network)
    for number, real in enumerate((True, False)):
        for batch in images[number].split(16):
            theirs.update(batch, real=real)
    with torch.no_grad():
        ours = [Moments.of(network(each).numpy()) for each in images]
    assert frechet_distance(*ours) == pytest.approx(float(theirs.compute()), rel=1e-4)


def test_features_of_two_networks_are_refused():
    with pytest.raises(ValueError, match="one network"):
        frechet_distance(Moments.of(np.eye(3)), Moments.of(np.eye(4)))
