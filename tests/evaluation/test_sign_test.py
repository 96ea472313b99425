"""The sign test against SciPy's binomial test, and where the answer is known."""

import pytest

from merope.evaluation.sign_test import sign_test_p


def test_every_split_of_up_to_thirty_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed: pip install 'merope[data]'")
    for total in range(1, 31):
        for lower in range(total + 1):
            expected = stats.binomtest(lower, total).pvalue
            assert sign_test_p(lower, total - lower) == pytest.approx(expected, rel=1e-12), (lower, total)


@pytest.mark.parametrize(("lower", "higher"), [(150, 234), (192, 192), (0, 384), (2400, 2600), (1, 4999)])
def test_as_many_clips_as_benchmarks_have_agree_with_scipy(lower, higher):
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed: pip install 'merope[data]'")
    # SciPy's own tail is good to about 1e-10 there.
    assert sign_test_p(lower, higher) == pytest.approx(
        stats.binomtest(lower, lower + higher).pvalue, rel=1e-9
    )


def test_all_of_five_is_one_in_sixteen():
    assert sign_test_p(0, 5) == 2 / 32


def test_an_even_split_and_no_difference_at_all_say_nothing():
    assert sign_test_p(3, 3) == 1.0
    assert sign_test_p(0, 0) == 1.0


def test_both_directions_count_alike():
    assert sign_test_p(2, 9) == sign_test_p(9, 2)


def test_a_negative_count_is_refused():
    with pytest.raises(ValueError, match="must be counts, got -1 and 3"):
        sign_test_p(-1, 3)
