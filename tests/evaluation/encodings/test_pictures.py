"""Pictures: equal metres, every band named, |U| where it belongs."""

import numpy as np
import pytest
import torch
from PIL import Image

from merope.encodings import MeRoPE
from merope.encodings.registry import ENCODINGS
from merope.evaluation.encodings.pair_geometry import pair_geometry, two_cameras
from merope.evaluation.encodings.pictures import (
    described,
    draw_geometry,
    draw_matrix,
    draw_ray_frames,
    plot_geometry,
    plot_matrix,
    plot_ray_frames,
)

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")

TOKENS = {"query_token": 1, "key_token": 7}


@pytest.fixture
def view_rays():
    return two_cameras((1.6, -0.4, 2.4), -55.0)


def test_the_matrix_is_the_pair_s_and_its_bands_are_named(view_rays):
    figure = draw_matrix("merope", MeRoPE(), view_rays, **TOKENS)
    axes = figure.axes[0]
    pair = MeRoPE().operator(view_rays, dtype=torch.float64).pair(1, 15 + 7)[0]
    np.testing.assert_allclose(axes.images[0].get_array(), pair.abs(), atol=1e-12)
    labels = [label.get_text().split("\n") for label in axes.get_yticklabels()]
    assert labels == [
        ["disp", "36", "per query view"],
        ["rot", "36"],
        ["trans", "24", "per query view"],
        ["native", "32"],
    ]
    assert list(axes.get_yticks()) == [17.5, 53.5, 83.5, 111.5]
    assert "baseline 2.91 m" in axes.get_title()


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_has_a_picture(name, view_rays):
    encoding = ENCODINGS[name]()
    axes = draw_matrix(name, encoding, view_rays, **TOKENS).axes[0]
    assert axes.images[0].get_array().shape == (encoding.head_dim, encoding.head_dim)
    # No entry lies outside the colours, however long the baseline.
    assert axes.images[0].norm.vmax >= axes.images[0].get_array().max()


def test_heads_that_differ_and_added_features_are_said(view_rays):
    assert "of 6 heads" in draw_matrix("urope", ENCODINGS["urope"](), view_rays, **TOKENS).axes[0].get_title()
    title = draw_matrix("scope", ENCODINGS["scope"](), view_rays, **TOKENS).axes[0].get_title()
    assert "7 features are added" in title


def test_a_description_has_the_bands_in_order_without_gaps(view_rays):
    found = described(MeRoPE(), view_rays, **TOKENS)
    assert [(band["name"], band["first"], band["last"]) for band in found["bands"]] == [
        ("disp", 0, 35),
        ("rot", 36, 71),
        ("trans", 72, 95),
        ("native", 96, 127),
    ]
    assert found["norm_ratio_max"] == pytest.approx(1, abs=1e-12)
    gta = described(ENCODINGS["gta"](), view_rays, **TOKENS)
    # The singular values of [R, t; 0, 1] are a number and its inverse, and ones.
    assert gta["norm_ratio_max"] * gta["norm_ratio_min"] == pytest.approx(1, abs=1e-9)


def test_a_metre_is_as_long_in_every_direction(view_rays):
    figure = draw_geometry(pair_geometry(view_rays, 1, 7, MeRoPE().fractions))
    space, above = figure.axes
    figure.canvas.draw()
    origin, right, up = (above.transData.transform(point) for point in ((0, 0), (1, 0), (0, 1)))
    assert right[0] - origin[0] == pytest.approx(up[1] - origin[1], rel=0.01)
    spans = [high - low for low, high in (space.get_xlim(), space.get_ylim(), space.get_zlim())]
    box = space.get_box_aspect() if hasattr(space, "get_box_aspect") else None
    aspect = np.asarray(space._box_aspect) if box is None else np.asarray(box)
    np.testing.assert_allclose(np.asarray(spans) / spans[0], aspect / aspect[0], rtol=1e-6)
    assert "(m)" in above.get_xlabel() and "(m)" in space.get_zlabel()


def test_the_key_camera_is_drawn_where_it_is(view_rays):
    above = draw_geometry(pair_geometry(view_rays, 1, 7, MeRoPE().fractions)).axes[1]
    (displacement,) = [line for line in above.lines if line.get_label().startswith("displacement")]
    np.testing.assert_allclose(displacement.get_xydata(), [[0, 0], [1.6, 2.4]], atol=1e-12)


def test_everything_drawn_of_a_pair_is_in_the_legend_and_rays_are_no_frames(view_rays):
    figure = draw_geometry(pair_geometry(view_rays, 1, 7, MeRoPE().fractions))
    space, above = figure.axes
    (legend,) = figure.legends
    named = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in legend.get_lines()}
    drawn = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in above.lines}
    # The two cameras have their names beside them.
    drawn = {
        (color, "None" if mark != "None" else ls, mark) for color, ls, mark in drawn if color != "#111111"
    }
    assert drawn == named
    colors = {line.get_label(): line.get_color() for line in above.lines}
    assert len({colors["query ray"], colors["key ray"], colors["ray frames A"]}) == 3
    assert space.zaxis.label.get_rotation() == 90


def test_numbers_of_anchors_do_not_lie_on_each_other(view_rays):
    figure = draw_geometry(pair_geometry(view_rays, 1, 7, MeRoPE().fractions))
    figure.canvas.draw()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        for k, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[k + 1 :])


def test_ray_frames_have_three_panels_of_three_constructions():
    figure = draw_ray_frames()
    assert len(figure.axes) == 3
    for axes in figure.axes:
        assert [line.get_label() for line in axes.lines] == [
            "UCPE, as released",
            "UCPE, orthonormal",
            "minimum rotation",
        ]
        # The vertical is on the right.
        low, high = axes.get_xlim()
        assert low > high


def test_pictures_are_files(view_rays, tmp_path):
    plot_matrix(tmp_path / "new" / "a.png", "gta", ENCODINGS["gta"](), view_rays, **TOKENS)
    plot_geometry(tmp_path / "new" / "b.png", pair_geometry(view_rays, 1, 7, (0.0, 1.0)))
    plot_ray_frames(tmp_path / "new" / "c.png")
    for name in "abc":
        assert min(Image.open(tmp_path / "new" / f"{name}.png").size) > 400
