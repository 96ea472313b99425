"""Rows of clips: scenes in the paper's order, paths beside frames, clips without a camera."""

import pytest

from merope.evaluation.plots.clip_rows import ClipRow, by_scene, draw_clip_rows, scene_and_trajectory
from tests.evaluation.report.synthetic import run

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


@pytest.mark.parametrize(
    ("clip_id", "parts"),
    [
        ("scene-0061/left", ("scene-0061", "left")),
        ("kitti/09/original", ("kitti/09", "original")),
        ("command-right", ("command", "right")),
        ("scene-0061", ("scene-0061", "")),
        ("clip", ("clip", "")),
    ],
)
def test_an_id_is_a_scene_and_a_trajectory(clip_id, parts):
    assert scene_and_trajectory(clip_id) == parts


def test_a_scene_has_original_left_right_first_whatever_the_order_of_the_clips():
    clips = run("a", num_clips=6, with_frames=False).clips
    scenes = by_scene(sorted(clips, key=lambda clip: clip.clip_id[::-1]))
    assert set(scenes) == {"scene-0", "scene-1"}
    for scene, own in scenes.items():
        assert [clip.clip_id for clip in own] == [f"{scene}/{name}" for name in ("original", "left", "right")]


def rows_of(one):
    return [ClipRow(clip=clip, title=clip.clip_id, color="#0072B2", words="CamMC 1") for clip in one.clips]


def styles(axes):
    return [line.get_linestyle() for line in axes.lines if len(line.get_xdata()) > 1]


def test_paths_stand_left_of_frames_commanded_solid_recovered_dashed_at_equal_metres():
    figure = draw_clip_rows(rows_of(run("a", num_clips=3)), title="a")
    figure.canvas.draw()
    paths, frames = figure.axes[::2], figure.axes[1::2]
    assert len(paths) == len(frames) == 3
    for left, right in zip(paths, frames, strict=True):
        assert styles(left) == ["-", "--"]
        assert left.get_position().x1 <= right.get_position().x0
        origin, across, along = (left.transData.transform(point) for point in ((0, 0), (1, 0), (0, 1)))
        assert across[0] - origin[0] == pytest.approx(along[1] - origin[1], rel=0.01)
        assert "(m)" in left.get_xlabel()
        assert len(right.get_xticklabels()) == 4
        assert "CamMC 1" in right.get_title(loc="left")


def test_a_clip_without_a_camera_shows_its_command_alone():
    figure = draw_clip_rows(rows_of(run("a", num_clips=2, failed_clip=0)))
    drawn = [styles(axes) for axes in figure.axes[::2]]
    assert sorted(drawn) == [["-"], ["-", "--"]]


def test_paths_without_metric_scale_are_drawn_after_their_scale():
    one = run("a", num_clips=1, shift=0.0, turn_deg=0.0, factor=0.25, scale="up_to_scale", with_frames=False)
    commanded, recovered = [
        line for line in draw_clip_rows(rows_of(one)).axes[0].lines if len(line.get_xdata()) > 1
    ]
    assert recovered.get_label() == "recovered (after s*)"
    assert recovered.get_ydata()[-1] == pytest.approx(float(commanded.get_ydata()[-1]))


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        draw_clip_rows([])
