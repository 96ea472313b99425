"""Errors over time: median and quartiles over clips, frame by frame."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.evaluation.metrics.paper import Aligned, center_errors
from merope.evaluation.plots.over_time import draw_errors_over_time, quartiles_over_clips
from tests.evaluation.report.synthetic import GIVEN, NUM_FRAMES, run
from tests.evaluation.trajectories import perturbed, turning

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def test_quartiles_are_over_the_clips_that_have_a_frame():
    lengths = (6, 6, 4, 9)
    clips = [
        Aligned.from_poses(turning(num), perturbed(turning(num), seed)) for seed, num in enumerate(lengths)
    ]
    low, middle, high = quartiles_over_clips(clips, center_errors)
    assert len(middle) == 9
    for frame in range(9):
        own = [
            float(center_errors(clip)[frame]) for clip, num in zip(clips, lengths, strict=True) if frame < num
        ]
        assert middle[frame] == pytest.approx(np.median(own))
        assert (low[frame], high[frame]) == pytest.approx(np.percentile(own, [25, 75]))


def test_every_run_is_a_line_in_a_band_and_given_frames_are_shaded():
    runs = [run("a", with_frames=False), run("b", turn_deg=4.0, failed_clip=2, with_frames=False)]
    figure = draw_errors_over_time(runs, {"a": "#0072B2", "b": "#D55E00"})
    for axes in figure.axes:
        assert [line.get_label() for line in axes.lines] == ["a", "b"]
        assert [line.get_color() for line in axes.lines] == ["#0072B2", "#D55E00"]
        assert all(len(line.get_xdata()) == NUM_FRAMES for line in axes.lines)
        assert len(axes.collections) == 2
        shade = axes.patches[0]
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (0, GIVEN - 0.5)
    assert "(deg)" in figure.axes[0].get_ylabel()
    assert "(m)" in figure.axes[1].get_ylabel()


def test_the_rotation_line_is_the_error_that_was_put_in():
    one = run("a", num_clips=5, turn_deg=0.0, shift=0.0, with_frames=False)
    figure = draw_errors_over_time([one], {"a": "#0072B2"})
    torch.testing.assert_close(
        torch.as_tensor(np.asarray(figure.axes[0].lines[0].get_ydata())),
        torch.zeros(NUM_FRAMES, dtype=torch.float64),
        rtol=0,
        atol=1e-6,
    )


def test_lines_are_medians_over_clips_counted_by_hand():
    one = run("a", num_clips=4, turn_deg=3.0, with_frames=False)
    figure = draw_errors_over_time([one], {"a": "#0072B2"})
    rows = []
    for clip in one.clips:
        first, first_hat = (
            poses.T_world_cam[0].inverse() for poses in (clip.commanded, clip.recovered.poses)
        )
        rows.append(
            [
                Rotation.from_matrix(((first @ a)[:3, :3].T @ (first_hat @ b)[:3, :3]).numpy()).magnitude()
                for a, b in zip(clip.commanded.T_world_cam, clip.recovered.poses.T_world_cam, strict=True)
            ]
        )
    wanted = np.sort(np.degrees(rows), axis=0)
    # Of four the median is the mean of the two in the middle.
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), (wanted[1] + wanted[2]) / 2, atol=1e-6)
