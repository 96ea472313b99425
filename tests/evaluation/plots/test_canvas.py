"""The canvas: pictures of a stated size, the same bytes every time, and colours that are told apart."""

import io

import numpy as np
import pytest
from PIL import Image

from merope.evaluation.plots.canvas import (
    COLORS,
    cycle,
    equal_metres,
    new_figure,
    pdf_bytes,
    plain_text,
    png_bytes,
)

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def drawn():
    figure = new_figure(4, 3)
    figure.add_subplot().plot([0, 1], [0, 2], color=COLORS[0])
    return figure


def test_a_png_has_its_inches_times_dots():
    assert Image.open(io.BytesIO(png_bytes(drawn(), dpi=100))).size == (400, 300)


def test_files_are_the_same_every_time_and_show_the_same():
    first, second = drawn(), drawn()
    assert png_bytes(first) == png_bytes(second)
    content = pdf_bytes(first)
    assert content == pdf_bytes(second)
    assert content.startswith(b"%PDF")
    # 4 x 3 inches of 72 points.
    assert b"/MediaBox [ 0 0 288 216 ]" in content


def test_six_colours_differ_also_in_grey_and_then_come_again():
    grey = [np.dot([int(color[i : i + 2], 16) for i in (1, 3, 5)], [0.299, 0.587, 0.114]) for color in COLORS]
    assert min(np.diff(sorted(grey))) > 3
    assert cycle(8) == [*COLORS, *COLORS[:2]]


@pytest.mark.parametrize("narrowest", [0.2, 0.6])
def test_a_straight_road_is_as_wide_as_asked(narrowest):
    axes = new_figure(4, 3).add_subplot()
    axes.plot([0, 0], [0, 100])
    equal_metres(axes, narrowest=narrowest)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    assert right - left == pytest.approx(narrowest * (high - low))


def test_letters_in_a_pdf_are_outlines_that_publishers_take():
    figure = drawn()
    figure.axes[0].set_title("title")
    png_bytes(figure)
    content = pdf_bytes(figure)
    assert b"/Subtype /Type0" in content
    assert b"/Type3" not in content


def test_letters_that_the_font_lacks_are_no_warnings(recwarn):
    figure = drawn()
    figure.axes[0].set_title("\u6a21\u578b")
    png_bytes(figure)
    pdf_bytes(figure)
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_a_name_is_one_line_of_bounded_length_without_mathematics():
    assert plain_text("two\n lines") == "two lines"
    assert plain_text("$5") == r"\$5"
    short = plain_text("run-" + "x" * 100 + "-left", 20)
    assert len(short) == 20
    assert short.startswith("run-xx")
    assert short.endswith("-left")
