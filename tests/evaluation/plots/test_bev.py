"""Paths from above: equal metres on both axes, the right line styles."""

import builtins

import numpy as np
import pytest
from PIL import Image

from merope.errors import MissingDependency
from merope.evaluation.plots.bev import draw_bev, draw_bevs, draw_paths_on, plot_bev
from merope.evaluation.plots.canvas import new_figure
from tests.evaluation.report.synthetic import run
from tests.evaluation.trajectories import perturbed, straight, turning, wandering

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def pixels_per_metre(axes):
    axes.figure.canvas.draw()
    origin, right, up = (axes.transData.transform(point) for point in ((0, 0), (1, 0), (0, 1)))
    return right[0] - origin[0], up[1] - origin[1]


@pytest.mark.parametrize(
    "commanded", [straight(49, step=4.0), turning(49, turn_deg=160), straight(5, step=0.0)]
)
def test_a_metre_is_as_long_across_as_along(commanded):
    axes = draw_bev(commanded, {"noisy": perturbed(commanded, 1)}).axes[0]
    across, along = pixels_per_metre(axes)
    assert across == pytest.approx(along, rel=0.01)


def test_commanded_is_solid_and_recovered_is_dashed_and_both_start_at_the_first_camera():
    axes = draw_bev(turning(20), {"a": perturbed(turning(20), 1), "b": perturbed(turning(20), 2)}).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["commanded"].get_linestyle() == "-"
    assert {lines["a"].get_linestyle(), lines["b"].get_linestyle()} == {"--"}
    assert lines["a"].get_color() != lines["b"].get_color()
    for label in ("commanded", "a", "b"):
        assert (lines[label].get_xdata()[0], lines[label].get_ydata()[0]) == (0, 0)
    assert "(m)" in axes.get_xlabel()
    assert "(m)" in axes.get_ylabel()
    # A right turn ends to the right, ahead.
    assert lines["commanded"].get_xdata()[-1] > 0
    assert lines["commanded"].get_ydata()[-1] > 0


def test_scale_alignment_is_stated_in_the_legend():
    commanded = turning(20)
    axes = draw_bev(commanded, {"half": commanded.scaled(0.5)}, align_scale=True).axes[0]
    half = axes.lines[1]
    assert half.get_label() == "half (× s* = 2)"
    np.testing.assert_allclose(half.get_ydata(), axes.lines[0].get_ydata(), atol=1e-9)


def test_plot_bev_writes_a_picture(tmp_path):
    plot_bev(tmp_path / "new" / "bev.png", turning(), {"a": perturbed(turning(), 1)}, title="A turn")
    assert min(Image.open(tmp_path / "new" / "bev.png").size) > 400
    plot_bev(tmp_path / "bev.svg", turning(), {"a": turning()})
    assert "<svg" in (tmp_path / "bev.svg").read_text()


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependency, match=r"merope\[plot\]"):
        plot_bev(tmp_path / "bev.png", turning(), {})
    assert not list(tmp_path.iterdir())


def test_several_clips_are_drawn_with_every_run_that_recovered_them():
    runs = [
        run("metric", num_clips=4, with_frames=False),
        run("other", num_clips=4, failed_clip=1, factor=0.3, scale="up_to_scale", with_frames=False),
    ]
    ids = [clip.clip_id for clip in runs[0].clips]
    figure = draw_bevs(runs, ids, {"metric": "#0072B2", "other": "#D55E00"}, columns=2)
    shown = {axes.get_title(): axes for axes in figure.axes}
    assert set(shown) == set(ids)
    labels = {name: axes.get_legend_handles_labels()[1] for name, axes in shown.items()}
    assert labels["scene-0/left"] == ["commanded", "metric"]
    assert labels["scene-0/right"] == ["commanded", "metric", "other (after s*)"]
    for axes in shown.values():
        across, along = pixels_per_metre(axes)
        assert across == pytest.approx(along, rel=0.01)
    with pytest.raises(ValueError, match="no run holds clip 'scene-9'"):
        draw_bevs(runs, ["scene-9"], {})


def test_what_is_drawn_are_the_centres_in_the_first_cameras_frame():
    commanded, estimate = wandering(9, 1), wandering(9, 2)
    axes = draw_bev(commanded, {"a": estimate}).axes[0]
    for line, poses in zip(axes.lines[:2], (commanded, estimate), strict=True):
        T = poses.T_world_cam.numpy()
        # x to the right and z ahead, of inv(T_0) T_t: by linear algebra, not by the library's rebasing.
        centers = np.stack([np.linalg.solve(T[0], pose)[:3, 3] for pose in T])
        np.testing.assert_allclose(line.get_xydata(), centers[:, [0, 2]], atol=1e-9)


def test_a_run_may_be_called_anything(tmp_path):
    clip = run("a", num_clips=1, with_frames=False).clips[0]
    labels = ["_hidden", "cost $x_1$ and $\\broken{$", "two\nlines", "very " * 40 + "long"]
    runs = [run(label, num_clips=1, with_frames=False) for label in labels]
    figure = draw_bevs(runs, [clip.clip_id], dict.fromkeys(labels, "#0072B2"))
    figure.canvas.draw()
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[:4] == ["commanded", " _hidden", r"cost \$x_1\$ and \$\broken{\$", "two lines"]
    assert len(texts[4]) == 44
    box, whole = legend.get_window_extent(), figure.bbox
    assert box.x0 >= whole.x0
    assert box.x1 <= whole.x1


def test_a_failed_clip_shows_its_command_alone():
    axes = new_figure(2, 2).add_subplot()
    draw_paths_on(axes, turning(5), {}, [])
    assert {line.get_linestyle() for line in axes.lines} == {"-", "None"}


def test_a_path_has_the_colour_that_is_asked_for():
    commanded = turning(5)
    axes = draw_bev(
        commanded, {"b": commanded, "a": commanded}, colors={"a": "#111111", "b": "#eeeeee"}
    ).axes[0]
    lines = {line.get_label(): line.get_color() for line in axes.lines}
    assert (lines["a"], lines["b"]) == ("#111111", "#eeeeee")
