"""Film strips: which frames, how small, and that frames are read once."""

from dataclasses import replace

import numpy as np
import pytest

from merope.evaluation.plots.strips import (
    draw_film_strips,
    draw_strip_on,
    made_small,
    read_strip,
    shown_frames,
)
from merope.evaluation.runs.run import RunClip
from tests.evaluation.report.synthetic import command, pictures, run

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def test_frames_are_those_of_the_paper_and_spread_evenly_otherwise():
    assert shown_frames(49) == [0, 16, 32, 48]
    assert shown_frames(25, 5) == [0, 6, 12, 18, 24]
    assert shown_frames(3, 4) == [0, 1, 2]
    with pytest.raises(ValueError, match="at least 1"):
        shown_frames(0)


def test_large_pictures_are_averaged_over_areas_and_small_ones_kept():
    large = np.zeros((4, 8, 3), dtype=np.uint8)
    large[:, ::2] = 200
    assert np.array_equal(made_small(large, 4), np.full((2, 4, 3), 100, dtype=np.uint8))
    assert made_small(large, 8) is large


def test_a_strip_reads_its_clip_once_and_keeps_small_copies():
    read = []

    def frames():
        read.append(1)
        return pictures(1, height=360, width=640)

    strip = read_strip(RunClip(clip_id="a", commanded=command(0), recovered=None, frames=frames), 3)
    assert len(read) == 1
    assert list(strip) == [0, 8, 16]
    assert {picture.shape for picture in strip.values()} == {(180, 320, 3)}
    assert read_strip(RunClip(clip_id="a", commanded=command(0), recovered=None)) == {}


def test_every_run_has_a_row_of_its_own_pixels_with_given_frames_named():
    runs = [run("a", num_clips=2), run("b", num_clips=2), run("no frames", num_clips=2, with_frames=False)]
    figure = draw_film_strips(runs, "scene-0/left")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["t = 0, given", "t = 5", "t = 11", "t = 16"]
    shown = np.asarray(figure.axes[0].images[0].get_array())
    assert np.array_equal(shown[:, :32], pictures(1)[0])
    assert np.array_equal(shown[:, -32:], pictures(1)[16])
    with pytest.raises(ValueError, match="no run has frames of clip 'scene-9'"):
        draw_film_strips(runs, "scene-9")


def test_a_clip_without_frames_leaves_its_place_empty():
    from merope.evaluation.plots.canvas import new_figure

    axes = new_figure(2, 2).add_subplot()
    draw_strip_on(axes, {}, RunClip(clip_id="a", commanded=command(0), recovered=None))
    assert not axes.images
    assert not list(axes.get_xticks())


def test_frames_that_are_gone_leave_words_in_their_row():
    one = run("a", num_clips=1)
    empty = replace(one.clips[0], frames=lambda: np.empty((0, 1, 1, 3), dtype=np.uint8))
    assert read_strip(empty) == {}
    figure = draw_film_strips([replace(one, clips=(empty,))], empty.clip_id)
    assert [text.get_text() for text in figure.axes[0].texts] == ["frames could not be read"]
    assert figure.get_figheight() < 3
