"""Errors against distance: the pairs, their errors counted a second way, and the bins."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from merope.evaluation.estimators.base import Recovered
from merope.evaluation.metrics.paper import Aligned
from merope.evaluation.plots.baseline import (
    draw_errors_by_baseline,
    log_bins,
    pair_errors_by_distance,
    quartiles_by_bin,
)
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.scored import score_run
from tests.evaluation.report.synthetic import run
from tests.evaluation.trajectories import perturbed, straight, turning, wandering

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def by_hand(commanded, estimated):
    """Distance, rotation, direction and length error of every pair, in a loop over 4 x 4 matrices."""
    T, T_hat = commanded.T_world_cam.numpy(), estimated.T_world_cam.numpy()
    start, start_hat = np.linalg.inv(T[0]), np.linalg.inv(T_hat[0])
    centers = np.stack([(start @ pose)[:3, 3] for pose in T])
    centers_hat = np.stack([(start_hat @ pose)[:3, 3] for pose in T_hat])
    scale = abs((centers * centers_hat).sum() / (centers_hat**2).sum())
    rows = []
    for i in range(len(T)):
        for j in range(i + 1, len(T)):
            step, step_hat = np.linalg.inv(T[i]) @ T[j], np.linalg.inv(T_hat[i]) @ T_hat[j]
            rotation = Rotation.from_matrix(step[:3, :3].T @ step_hat[:3, :3]).magnitude()
            length, length_hat = np.linalg.norm(step[:3, 3]), np.linalg.norm(step_hat[:3, 3])
            cosine = step[:3, 3] @ step_hat[:3, 3] / (length * length_hat)
            rows.append(
                [
                    length,
                    np.degrees(rotation),
                    np.degrees(np.arccos(np.clip(cosine, -1, 1))),
                    100 * (scale * length_hat / length - 1),
                ]
            )
    return np.array(rows)


def test_errors_of_pairs_are_those_of_a_loop_over_matrices():
    commanded = wandering(9, 1)
    estimated = perturbed(commanded, 2, turn_deg=5.0, scale=0.4)
    found = pair_errors_by_distance([Aligned.from_poses(commanded, estimated)])
    columns = np.stack(
        [found.distance, found.rotation_deg, found.direction_deg, found.length_percent], axis=1
    )
    # Kept in float32; near a right angle or the same direction arccos has half the digits.
    np.testing.assert_allclose(columns, by_hand(commanded, estimated), rtol=1e-4, atol=1e-3)


def test_a_path_driven_backwards_is_180_degrees_off():
    commanded = straight(6)
    backwards = commanded[[5, 4, 3, 2, 1, 0]]
    found = pair_errors_by_distance([Aligned.from_poses(commanded, backwards)])
    np.testing.assert_allclose(found.direction_deg, 180.0)
    np.testing.assert_allclose(found.length_percent, 0.0, atol=1e-4)


def test_pairs_that_do_not_move_are_left_out():
    still = straight(5, step=0.0)
    assert len(pair_errors_by_distance([Aligned.from_poses(still, straight(5))]).distance) == 0
    assert len(pair_errors_by_distance([Aligned.from_poses(straight(5), still)]).distance) == 0
    assert len(pair_errors_by_distance([]).distance) == 0


@pytest.mark.parametrize(("num", "most"), [(49, 49 * 48 // 2), (121, 121 * 120 // 2), (2000, 60 * 120)])
def test_long_clips_give_a_bounded_number_of_pairs(num, most):
    found = pair_errors_by_distance([Aligned.from_poses(straight(num), straight(num))])
    assert len(found.distance) <= most
    if num <= 121:
        assert len(found.distance) == most
    # The shortest and the longest distance are among them.
    assert (found.distance.min(), found.distance.max()) == pytest.approx((1, num - 1))


def test_bins_are_of_one_width_on_a_logarithmic_scale_and_hold_the_largest():
    distances = np.geomspace(0.1, 1000.0, 4001).astype(np.float32)
    edges = log_bins([distances[:2000], distances[2000:]], num=4)
    assert np.diff(np.log(edges)) == pytest.approx(np.full(4, np.log(edges[-1] / edges[0]) / 4))
    assert edges[-1] > distances.max()
    error = np.where(distances < edges[1], 1.0, np.where(distances < edges[2], 5.0, 9.0)).astype(np.float32)
    middle, low, median, high = quartiles_by_bin(distances, error, edges)
    assert list(median) == list(low) == list(high) == [1.0, 5.0, 9.0, 9.0]
    assert middle == pytest.approx(np.sqrt(edges[:-1] * edges[1:]))


def test_a_bin_of_few_pairs_is_not_drawn():
    edges = np.array([1.0, 10.0, 100.0])
    distances = np.array([2.0] * 20 + [50.0] * 7)
    assert quartiles_by_bin(distances, np.ones(27), edges).shape == (4, 1)


def test_the_figure_has_three_logarithmic_axes_in_metres():
    runs = [run("a", with_frames=False), run("b", turn_deg=4.0, with_frames=False)]
    figure = draw_errors_by_baseline(runs, {"a": "#0072B2", "b": "#D55E00"})
    assert [axes.get_xscale() for axes in figure.axes] == ["log"] * 3
    assert "(m)" in figure.get_supxlabel()
    rotation = figure.axes[0]
    medians = {line.get_label(): np.mean(line.get_ydata()) for line in rotation.lines}
    assert medians["b"] > 2 * medians["a"]


def test_without_motion_there_is_no_figure():
    one = run("a", num_clips=1, failed_clip=0, with_frames=False)
    assert draw_errors_by_baseline([one], {"a": "#0072B2"}) is None


def test_points_in_the_figure_are_medians_of_bins_counted_by_hand():
    one = run("a", num_clips=2, turn_deg=4.0, with_frames=False)
    figure = draw_errors_by_baseline([one], {"a": "#0072B2"})
    pairs = np.concatenate([by_hand(clip.commanded, clip.recovered.poses) for clip in one.clips])
    low, high = np.quantile(pairs[:, 0].astype(np.float32), 0.01), pairs[:, 0].max()
    edges = low * (high / low) ** (np.arange(13) / 12)
    edges[-1] *= 1 + 1e-5
    for axes, error in zip(figure.axes, pairs[:, 1:].T, strict=True):
        wanted = []
        for left, right in pairwise(edges):
            # Lengths on an edge fall to either side by a rounding; 1e-6 of the length decides as float32 does.
            own = error[(pairs[:, 0] >= left * (1 - 1e-6)) & (pairs[:, 0] < right * (1 - 1e-6))]
            if len(own) >= 8:
                wanted.append([np.sqrt(left * right), np.median(own)])
        np.testing.assert_allclose(axes.lines[0].get_xydata(), wanted, rtol=1e-3, atol=1e-3)


def test_distances_are_written_in_plain_numbers():
    one = run("a", num_clips=2, with_frames=False)
    axes = draw_errors_by_baseline([one], {"a": "#0072B2"}).axes[0]
    axes.figure.canvas.draw()
    shown = [label.get_text() for label in axes.get_xticklabels(which="both") if label.get_text()]
    assert {"2", "5", "10"} <= set(shown)


def test_fewer_pairs_than_a_bin_needs_are_no_figure():
    commanded = turning(3)
    clip = RunClip(clip_id="a", commanded=commanded, recovered=Recovered.complete(perturbed(commanded, 1)))
    assert draw_errors_by_baseline([score_run([clip], label="a")], {"a": "#0072B2"}) is None
