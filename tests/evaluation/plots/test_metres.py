"""Metres: the right lines through the right points."""

import numpy as np
import pytest

from merope.evaluation.plots.metres import draw_metres, fit_line, metres_of, plot_metres
from tests.evaluation.report.synthetic import run

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def test_a_line_is_fitted_as_by_hand():
    line = fit_line(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 6.0]))
    # Means 1 and 3; slope (2 + 3) / 2; residuals 0.5, -1, 0.5 against a total of 14.
    assert (line.slope, line.intercept) == (pytest.approx(2.5), pytest.approx(0.5))
    assert line.r_squared == pytest.approx(1 - 1.5 / 14)


def test_a_line_needs_two_different_points():
    with pytest.raises(ValueError, match="all the same"):
        fit_line(np.array([1.0, 1.0]), np.array([0.0, 2.0]))
    with pytest.raises(ValueError, match="equal length >= 2"):
        fit_line(np.array([1.0]), np.array([0.0]))


def test_metres_plot_returns_the_lines_it_drew(tmp_path):
    commanded = {"with": [1.0, 2.0, 4.0], "without": [1.0, 2.0, 4.0]}
    recovered = {"with": [1.1, 2.1, 4.1], "without": [3.0, 3.0, 3.0]}
    lines = plot_metres(tmp_path / "metres.png", commanded, recovered)
    assert lines["with"].slope == pytest.approx(1)
    assert lines["with"].r_squared == pytest.approx(1)
    assert (lines["without"].slope, lines["without"].r_squared) == (pytest.approx(0), 0.0)
    assert (tmp_path / "metres.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="labels must agree"):
        plot_metres(tmp_path / "x.png", commanded, {"with": [1.0, 2.0, 3.0]})


def test_only_metric_estimates_of_metric_commands_are_shown_as_metres():
    metric = run("a", num_clips=3, factor=2.0, shift=0.0, failed_clip=1, with_frames=False)
    commanded, recovered = metres_of(metric)
    assert len(commanded) == 2
    assert recovered == pytest.approx([2 * length for length in commanded])
    assert metres_of(run("b", num_clips=2, scale="up_to_scale", with_frames=False)) == ([], [])


def test_no_line_is_drawn_through_commands_of_nearly_one_length():
    figure = draw_metres({"a": [10.0, 10.1, 10.2]}, {"a": [9.0, 11.0, 10.0]}, {"a": "#0072B2"})
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-"]
    assert figure.axes[0].collections[0].get_label() == "a"


def test_the_line_that_is_drawn_is_that_of_polyfit():
    rng = np.random.default_rng(3)
    commanded = rng.uniform(5, 60, 40)
    recovered = 0.8 * commanded + rng.normal(size=40)
    figure = draw_metres({"a": commanded.tolist()}, {"a": recovered.tolist()}, {"a": "#0072B2"})
    slope, intercept = np.polyfit(commanded, recovered, 1)
    x, y = figure.axes[0].lines[1].get_data()
    np.testing.assert_allclose(y, slope * np.asarray(x) + intercept)
    r_squared = np.corrcoef(commanded, recovered)[0, 1] ** 2
    assert figure.legends[0].get_texts()[1].get_text() == f"a: slope {slope:.3f}, R² {r_squared:.3f}"
