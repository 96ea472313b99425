"""The plot of growth: what grows is in colour, and every line has its name at the edge."""

from itertools import pairwise

import pytest

from merope.evaluation.encodings.claims import claims_table
from merope.evaluation.encodings.growth_plot import _spread, draw_growth, plot_growth

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")

NAMES = ("gta", "merope", "viewrope", "native", "none", "scope")
GREY = "#999999"


@pytest.fixture(scope="module")
def table():
    """One that grows, and five that end close together or do not."""
    return claims_table(NAMES)


@pytest.fixture(scope="module")
def figure(table):
    """Drawn, so that texts have their places."""
    figure = draw_growth(table)
    figure.canvas.draw()
    return figure


def test_what_grows_is_in_colour_and_what_is_bounded_in_grey(figure):
    for axes in figure.axes:
        colors = {line.get_label(): line.get_color() for line in axes.lines}
        assert list(colors) == list(NAMES)
        assert [name for name, color in colors.items() if color != GREY] == ["gta", "merope"]


def test_every_line_has_its_name_and_no_two_names_meet(figure):
    assert [axes.get_ylabel() for axes in figure.axes] == ["largest logit", "largest |U x| / |x|"]
    for axes in figure.axes:
        assert sorted(text.get_text() for text in axes.texts) == sorted(NAMES)
        heights = sorted(text.xyann[1] for text in axes.texts)
        text_height = 9 / 72 * figure.dpi
        apart = min(b - a for a, b in pairwise(heights))
        assert apart * axes.get_window_extent().height > text_height


def test_names_keep_their_order_and_stay_by_their_lines_where_there_is_room():
    ends = {"low": 0.0, "alone": 0.5, "a": 0.8, "b": 0.81, "top": 1.0}
    heights = _spread(ends)
    assert sorted(heights, key=lambda name: heights[name]) == list(ends)
    assert [heights[name] for name in ("low", "alone", "top")] == [0.0, 0.5, 1.0]
    assert heights["a"] + heights["b"] == pytest.approx(0.8 + 0.81)
    crowd = _spread({str(k): 1.0 for k in range(20)})
    assert max(crowd.values()) == pytest.approx(1) and min(crowd.values()) > 0
    assert len({round(height, 6) for height in crowd.values()}) == 20


def test_growth_is_a_file(table, tmp_path):
    plot_growth(tmp_path / "new" / "growth.svg", table)
    assert "<svg" in (tmp_path / "new" / "growth.svg").read_text()
