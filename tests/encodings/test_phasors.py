"""Expected phasors against quadrature, and their limits."""

import itertools

import numpy as np
import pytest
import torch

from merope.encodings.phasors import expected_phasor, log_frequencies, path_phasor

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def averaged(start, end):
    """Mean of e^{i theta} from start to end by 64 points of Gauss and Legendre."""
    phases = (start + end) / 2 + (end - start) / 2 * NODES
    return (WEIGHTS * np.exp(1j * phases)).sum() / 2


@pytest.mark.parametrize("spread", [0.0, 1e-13, 1e-6, 0.05, 0.1999, 0.2, 0.2001, 1.0, 3.0, 20.0, 60.0])
@pytest.mark.parametrize("start", [-40.0, 0.0, 1.3])
def test_the_expected_phasor_is_the_mean_over_the_phases(start, spread):
    for end in (start + spread, start - spread):
        cos, sin = expected_phasor(*torch.tensor([start, end], dtype=torch.float64))
        assert complex(cos, sin) == pytest.approx(averaged(start, end), abs=1e-14)


def test_it_is_the_quotient_of_differences_where_that_is_defined():
    start, end = torch.tensor([0.3, -2.0, 5.0]).double(), torch.tensor([0.9, 4.0, 4.5]).double()
    cos, sin = expected_phasor(start, end)
    torch.testing.assert_close(cos, (end.sin() - start.sin()) / (end - start))
    torch.testing.assert_close(sin, (start.cos() - end.cos()) / (end - start))


def test_no_phasor_is_longer_than_one_and_only_a_sharp_phase_reaches_it():
    starts, ends = 50 * torch.randn(2, 10_000, dtype=torch.float64)
    cos, sin = expected_phasor(starts, ends)
    assert torch.hypot(cos, sin).max() < 1
    cos, sin = expected_phasor(starts, starts)
    torch.testing.assert_close(torch.hypot(cos, sin), torch.ones_like(cos), rtol=0, atol=1e-15)
    knots = 5 * torch.randn(1000, 8, 3, dtype=torch.float64)
    cos, sin = path_phasor(knots)
    assert torch.hypot(cos, sin).max() < 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_keep_their_digits_where_the_ends_meet(dtype):
    # d/dh sin(h)/h = -h/3 + h^3/30 - ...: with the middle at phase zero it is all that the cosine has.
    for half in (0.0, 1e-12, 1e-5, 1e-3, 0.03, 0.0999, 0.1001):
        spread = torch.tensor(half, dtype=dtype, requires_grad=True)
        cos, sin = expected_phasor(-spread, spread)
        (slope,) = torch.autograd.grad(cos, spread)
        exact = -half / 3 + half**3 / 30 - half**5 / 840 + half**7 / 45360 - half**9 / 3991680
        tolerance = 1e-11 if dtype == torch.float64 else 2e-3
        assert slope.item() == pytest.approx(exact, rel=tolerance, abs=1e-300)
        assert sin == 0


def test_first_and_second_gradients_are_those_of_the_values():
    start = torch.tensor([0.0, 1.0, -2.0, 0.4, 3.0], dtype=torch.float64, requires_grad=True)
    end = torch.tensor([0.0, 1.0, 7.0, 0.5, 3.0 + 1e-9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(expected_phasor, (start, end))
    assert torch.autograd.gradgradcheck(expected_phasor, (start, end))
    knots = torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(path_phasor, (knots,))


def test_a_path_is_the_mean_of_its_pieces():
    knots = 4 * torch.randn(6, 5, dtype=torch.float64)
    cos, sin = path_phasor(knots)
    for pair in range(5):
        phases = knots[:, pair].tolist()
        pieces = [averaged(a, b) for a, b in itertools.pairwise(phases)]
        assert complex(cos[pair], sin[pair]) == pytest.approx(sum(pieces) / 5, abs=1e-14)


def test_two_knots_are_the_two_ends_and_knots_on_a_straight_path_change_nothing():
    ends = 6 * torch.randn(2, 7, dtype=torch.float64)
    torch.testing.assert_close(path_phasor(ends), expected_phasor(*ends), rtol=0, atol=0)
    share = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    straight = ends[0] + share * (ends[1] - ends[0])
    torch.testing.assert_close(path_phasor(straight), expected_phasor(*ends), rtol=0, atol=1e-14)


def test_frequencies_are_log_spaced_from_the_longest_period_down():
    omega = log_frequencies(4.0, 4.0 / 3**4, 5)
    torch.testing.assert_close(
        2 * torch.pi / omega, torch.tensor([4, 4 / 3, 4 / 9, 4 / 27, 4 / 81], dtype=torch.float64)
    )
    torch.testing.assert_close(log_frequencies(8.0, 8.0, 1), torch.tensor([2 * torch.pi / 8]).double())
