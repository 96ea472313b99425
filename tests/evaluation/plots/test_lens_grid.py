"""The grid over lenses: one clip for each, narrow to wide, named by field of view and distortion."""

from dataclasses import replace

import pytest

from merope.cameras import KannalaBrandt, Pinhole, UnifiedCamera
from merope.evaluation.plots.lens_grid import clips_by_lens, draw_lens_grid, lens_words
from tests.evaluation.report.synthetic import run

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")

FISHEYE = UnifiedCamera.from_fov(fov_x_deg=170.0, xi=0.9, height=18, width=32)


def with_fields(*fields_deg):
    clips = run("a", num_clips=len(fields_deg)).clips
    return [
        replace(clip, lens=Pinhole.from_fov(fov_x_deg=field, height=18, width=32))
        for clip, field in zip(clips, fields_deg, strict=True)
    ]


def test_a_lens_is_named_by_its_field_of_view_and_distortion():
    # tan(45 deg) over 32 pixels is 9 / 16 of it over 18: 2 atan(0.5625) = 58.7 degrees.
    assert lens_words(Pinhole.from_fov(fov_x_deg=90.0, height=18, width=32)) == "90° × 59°\npinhole"
    equidistant = KannalaBrandt.from_fov(fov_x_deg=180.0, height=18, width=32)
    # Coefficients that are zero bend nothing, and where a lens ends is no distortion.
    assert lens_words(equidistant).endswith("\nKannala-Brandt")
    assert lens_words(FISHEYE).startswith("170° × ")
    assert lens_words(FISHEYE).endswith("unified (UCM)\nξ = 0.9")


def test_each_lens_comes_once_from_narrow_to_wide():
    clips = [*with_fields(100.0, 40.0, 100.0, 70.0)]
    clips[3] = replace(clips[3], lens=FISHEYE)
    fields = [lens_words(clip.lens).split("°")[0] for clip in clips_by_lens(clips)]
    assert fields == ["40", "100", "170"]


def test_of_many_lenses_the_narrowest_and_the_widest_are_among_those_shown():
    clips = with_fields(*[30.0 + 10 * step for step in range(9)])
    fields = [lens_words(clip.lens).split("°")[0] for clip in clips_by_lens(clips, most=3)]
    assert fields == ["30", "70", "110"]


def test_clips_without_lens_or_frames_are_left_out():
    clips = with_fields(50.0, 60.0)
    assert clips_by_lens([replace(clips[0], frames=None), replace(clips[1], lens=None)]) == []
    with pytest.raises(ValueError, match="a lens and frames"):
        draw_lens_grid([replace(clips[0], frames=None)])


def test_each_row_is_named_at_its_left():
    clips = clips_by_lens(with_fields(50.0, 90.0))
    figure = draw_lens_grid(clips, title="a")
    assert [axes.get_ylabel() for axes in figure.axes] == [lens_words(clip.lens) for clip in clips]
    assert all(len(axes.images) == 1 for axes in figure.axes)
