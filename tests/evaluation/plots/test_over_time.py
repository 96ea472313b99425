"""Errors over time."""

import pytest

from merope.evaluation.plots.over_time import draw_errors
from tests.evaluation.trajectories import perturbed, turning

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def test_error_plot_shades_given_frames():
    figure = draw_errors(turning(20), {"a": perturbed(turning(20), 1)}, first_generated=9)
    assert len(figure.axes) == 2
    assert len(figure.axes[0].patches) == 1
    assert len(figure.axes[0].lines[0].get_xdata()) == 20
