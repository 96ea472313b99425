"""Eqs. 35-45 against numbers worked out by hand and against a second derivation with 4 x 4 inverses and acos."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.evaluation.metrics import pairs
from merope.evaluation.metrics import paper as metrics
from merope.evaluation.metrics.pairs import PairCounts, count_pairs, pair_errors_deg
from merope.evaluation.metrics.paper import Aligned, geodesic_angle
from tests.evaluation.trajectories import from_numpy, perturbed, straight, turning, wandering


def four_frames():
    """Commanded: 1 m a frame along z. Recovered: twice that, 2 m to the side at the end, turned 0, 1.5, 2.5, 3.5 deg."""
    rotations = Rotation.from_euler("y", [[0], [1.5], [2.5], [3.5]], degrees=True).as_matrix()
    centers = np.array([[0, 0, 0], [0, 0, 2], [0, 0, 4], [2, 0, 6.0]])
    return Aligned.from_poses(straight(), from_numpy(rotations, centers))


def test_four_frames_score_as_computed_by_hand():
    aligned = four_frames()
    scale = 28 / 60
    last = math.hypot(2 * scale, 3 - 6 * scale)
    tr = ((1 - 2 * scale) + (2 - 4 * scale) + last) / 3 / 3 * 100
    reach = math.sqrt(40)
    offsets = [0, 1 / 3 - 2 / reach, 2 / 3 - 4 / reach, math.hypot(2 / reach, 1 - 6 / reach)]
    half_angles = [math.radians(angle) / 2 for angle in (0, 1.5, 2.5, 3.5)]

    assert metrics.least_squares_scale(aligned) == pytest.approx(scale, abs=1e-14)
    assert metrics.metres_ratio(aligned) == pytest.approx(28 / 14, abs=1e-14)
    assert metrics.rot_deg(aligned) == pytest.approx(2.5, abs=1e-12)
    assert metrics.tr_percent(aligned) == pytest.approx(tr, abs=1e-12)
    assert metrics.rot_err_rad(aligned) == pytest.approx(math.radians(7.5), abs=1e-14)
    assert metrics.trans_err(aligned) == pytest.approx(sum(map(abs, offsets)), abs=1e-8)
    # The Frobenius distance of two rotations an angle a apart is 2 sqrt(2) sin(a / 2).
    cammc = sum(
        math.hypot(2 * math.sqrt(2) * math.sin(half), offset)
        for half, offset in zip(half_angles, offsets, strict=True)
    )
    assert metrics.cammc(aligned) == pytest.approx(cammc, abs=1e-8)


def test_four_frames_count_pairs_as_by_hand():
    # (1,2): rotation 1.5; (1,3): 2.5; (2,3): rotation 1.0, direction 1.5; the three pairs with frame 4 exceed 10.
    aligned = four_frames()
    errors = pair_errors_deg(aligned)
    assert errors[[0, 1, 3]].tolist() == pytest.approx([1.5, 2.5, 1.5], abs=1e-12)
    assert errors[2] == pytest.approx(math.degrees(math.atan2(2, 6)), abs=1e-12)
    assert (errors[[2, 4, 5]] > 10).all()
    counts = count_pairs(aligned)
    assert counts.below == (0, 2, 3, 3, 3, 3, 3, 3, 3, 3)
    assert counts.auc_percent(3) == pytest.approx(100 * (0 + 2 / 6 + 3 / 6) / 3)
    assert counts.auc_percent(10) == pytest.approx(100 * (2 / 6 + 8 * 3 / 6) / 10)


def textbook(commanded, estimated):
    """All metrics once more: 4 x 4 matrices, general inverses, acos, plain loops."""
    T = [np.linalg.inv(commanded.T_world_cam[0].numpy()) @ m for m in commanded.T_world_cam.numpy()]
    E = [np.linalg.inv(estimated.T_world_cam[0].numpy()) @ m for m in estimated.T_world_cam.numpy()]

    def angle(a, b):
        return math.degrees(math.acos(np.clip((np.trace(a[:3, :3].T @ b[:3, :3]) - 1) / 2, -1, 1)))

    num = len(T)
    o, e = np.array([m[:3, 3] for m in T]), np.array([m[:3, 3] for m in E])
    scale = (o * e).sum() / (e * e).sum()
    o_bar = o / (np.linalg.norm(o, axis=1).max() + 1e-9)
    e_bar = e / (np.linalg.norm(e, axis=1).max() + 1e-9)
    joint, joint_oriented = [], []
    for i in range(num):
        for j in range(i + 1, num):
            a, b = np.linalg.inv(T[i]) @ T[j], np.linalg.inv(E[i]) @ E[j]
            cosine = a[:3, 3] @ b[:3, 3] / np.linalg.norm(a[:3, 3]) / np.linalg.norm(b[:3, 3])
            joint.append(max(angle(a, b), math.degrees(math.acos(min(1, abs(cosine))))))
            joint_oriented.append(max(angle(a, b), math.degrees(math.acos(np.clip(cosine, -1, 1)))))
    return {
        "rot_deg": np.mean([angle(T[t], E[t]) for t in range(1, num)]),
        "tr_percent": np.linalg.norm(o - scale * e, axis=1)[1:].mean() / np.linalg.norm(o[-1]) * 100,
        "scale": scale,
        "cammc": sum(
            np.linalg.norm(np.c_[T[t][:3, :3], o_bar[t]] - np.c_[E[t][:3, :3], e_bar[t]]) for t in range(num)
        ),
        "rot_err_rad": math.radians(sum(angle(T[t], E[t]) for t in range(num))),
        "trans_err": np.linalg.norm(o_bar - e_bar, axis=1).sum(),
        "joint": np.array(joint),
        "joint_oriented": np.array(joint_oriented),
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", ["atan2", "acos"])
def test_metrics_equal_a_second_derivation(seed, method):
    # The last of them comes most of the way back, so that its chord is not its reach.
    commanded = wandering(9 + seed, seed) if seed < 4 else turning(17, turn_deg=300)
    estimated = perturbed(commanded, seed + 100, scale=0.4)
    aligned, expected = Aligned.from_poses(commanded, estimated), textbook(commanded, estimated)
    # acos itself is only good to about 1e-8 rad where an angle vanishes: frame 1, summed by RotErr.
    assert metrics.rot_deg(aligned, method=method) == pytest.approx(expected["rot_deg"], abs=1e-9)
    assert metrics.rot_err_rad(aligned, method=method) == pytest.approx(expected["rot_err_rad"], abs=1e-7)
    assert metrics.tr_percent(aligned) == pytest.approx(expected["tr_percent"], abs=1e-9)
    assert metrics.least_squares_scale(aligned) == pytest.approx(expected["scale"], abs=1e-12)
    assert metrics.cammc(aligned) == pytest.approx(expected["cammc"], abs=1e-9)
    assert metrics.trans_err(aligned) == pytest.approx(expected["trans_err"], abs=1e-9)
    np.testing.assert_allclose(pair_errors_deg(aligned, method=method), expected["joint"], atol=1e-6)
    np.testing.assert_allclose(
        pair_errors_deg(aligned, oriented=True, method=method), expected["joint_oriented"], atol=1e-6
    )
    counts = count_pairs(aligned, method=method)
    assert counts.num_pairs == len(expected["joint"])
    assert counts.below == tuple(int((expected["joint"] < k).sum()) for k in range(1, 11))
    assert counts.below_oriented == tuple(int((expected["joint_oriented"] < k).sum()) for k in range(1, 11))


@pytest.mark.parametrize("block_pairs", [1, 7, 30, 10_000])
@pytest.mark.parametrize("first", [0, 1, 5, 12])
def test_pair_counts_do_not_depend_on_the_block_size(monkeypatch, block_pairs, first):
    commanded = wandering(13, 3)
    aligned = Aligned.from_poses(commanded, perturbed(commanded, 4))
    i, j = torch.triu_indices(13, 13, offset=1)
    errors = pair_errors_deg(aligned)[j >= first]
    monkeypatch.setattr(pairs, "_BLOCK_PAIRS", block_pairs)
    counts = count_pairs(aligned, first=first)
    assert counts.num_pairs == len(errors)
    assert counts.below == tuple(int((errors < k).sum()) for k in range(1, 11))


def test_an_error_equal_to_a_threshold_is_not_below_it(monkeypatch):
    exactly_three = torch.full((2, 2), 3.0, dtype=torch.float64)
    zero = torch.zeros(2, 2, dtype=torch.float64)

    def block(aligned, rows, first_column, method):
        shape = (rows.stop - rows.start, len(aligned) - first_column)
        return (
            exactly_three[: shape[0], : shape[1]],
            zero[: shape[0], : shape[1]],
            zero[: shape[0], : shape[1]],
        )

    monkeypatch.setattr(pairs, "_block_errors", block)
    counts = count_pairs(Aligned.from_poses(straight(3), straight(3)))
    assert counts.below == (0, 0, 0, 3, 3, 3, 3, 3, 3, 3)


def test_pairs_without_translation_get_the_sentinel_and_are_counted():
    centers = straight(5).center_world.clone()
    centers[3] = centers[2]
    commanded = from_numpy(straight(5).R_world_cam, centers)
    counts = count_pairs(Aligned.from_poses(commanded, straight(5)))
    assert (counts.num_pairs, counts.num_vanishing) == (10, 1)
    assert counts.below == (9,) * 10
    assert counts.auc_percent(3) == pytest.approx(90.0)


def test_auc_pools_pairs_not_clips():
    good = PairCounts(num_pairs=90, num_vanishing=0, below=(90,) * 10, below_oriented=(90,) * 10)
    bad = PairCounts.none_below(10)
    assert (good + bad).auc_percent(3) == pytest.approx(90.0)


@pytest.mark.parametrize("threshold", [0, 11])
def test_auc_refuses_thresholds_off_the_grid(threshold):
    with pytest.raises(ValueError, match="whole number from 1 to 10"):
        PairCounts.none_below(10).auc_percent(threshold)


@pytest.mark.parametrize("far", [0.0, 4.65e6])
def test_no_metric_depends_on_the_world_frame(far):
    commanded = wandering(15, 1)
    estimated = perturbed(commanded, 2)
    rotation = torch.from_numpy(Rotation.from_rotvec([0.3, -1.2, 2.0]).as_matrix())
    moved = estimated.transformed(rotation, torch.tensor([far, -3.0, 12.0], dtype=torch.float64))
    before, after = Aligned.from_poses(commanded, estimated), Aligned.from_poses(commanded, moved)
    # At 4.65e6 m float64 itself resolves 1e-9 m.
    tolerance = 1e-9 if far == 0 else 1e-6
    for function in (
        metrics.rot_deg,
        metrics.tr_percent,
        metrics.cammc,
        metrics.trans_err,
        metrics.rot_err_rad,
    ):
        assert function(after) == pytest.approx(function(before), abs=tolerance)
    np.testing.assert_allclose(
        pair_errors_deg(after), pair_errors_deg(before), atol=1e-9 if far == 0 else 1e-5
    )


def test_float32_input_with_millimetre_steps_scores_as_float64():
    commanded = wandering(20, 5, step=5e-4, noise=3e-4)
    estimated = perturbed(commanded, 6, shift=1e-5)
    single = from_numpy(*_through_float32(estimated))
    exact = count_pairs(Aligned.from_poses(commanded, estimated))
    rounded = count_pairs(Aligned.from_poses(commanded, single))
    assert rounded.auc_percent(10) == pytest.approx(exact.auc_percent(10), abs=1e-6)
    assert 0 < exact.auc_percent(10) < 100


def _through_float32(poses):
    from merope.geometry.rotations import project_to_so3

    return project_to_so3(poses.R_world_cam.float().double()), poses.center_world.float().double()


@pytest.mark.parametrize("angle_deg", [0.0, 1e-3, 1e-7, 90.0, 179.999, 180.0])
def test_atan2_angle_is_exact_from_zero_to_half_a_turn(angle_deg):
    base = torch.from_numpy(Rotation.random(random_state=8).as_matrix())
    turn = torch.from_numpy(
        Rotation.from_rotvec(math.radians(angle_deg) * np.array([0.6, 0, 0.8])).as_matrix()
    )
    found = math.degrees(float(geodesic_angle(base, base @ turn)))
    assert found == pytest.approx(angle_deg, abs=2e-13 if angle_deg < 1 else 1e-12 + 1e-6 * (angle_deg > 179))


def test_comparing_a_rotation_with_itself_gives_zero():
    base = torch.from_numpy(Rotation.random(50, random_state=9).as_matrix())
    assert float(torch.rad2deg(geodesic_angle(base, base)).max()) <= 1e-7


def test_generated_figures_leave_the_given_frames_out():
    commanded = turning(12)
    estimated = from_numpy(
        torch.cat([commanded.R_world_cam[:9], commanded.R_world_cam[9:] @ _yaw(2.0)]), commanded.center_world
    )
    aligned = Aligned.from_poses(commanded, estimated)
    assert metrics.rot_deg(aligned) == pytest.approx(2.0 * 3 / 11, abs=1e-9)
    assert metrics.rot_deg(aligned, first=9) == pytest.approx(2.0, abs=1e-9)
    assert metrics.rot_err_rad(aligned, first=9) == pytest.approx(math.radians(6.0), abs=1e-9)
    assert count_pairs(aligned, first=9).num_pairs == 9 + 10 + 11


def _yaw(angle_deg):
    return torch.from_numpy(Rotation.from_euler("y", angle_deg, degrees=True).as_matrix())


def test_unequal_lengths_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="got 4 and 5"):
        Aligned.from_poses(straight(4), straight(5))


def test_first_generated_outside_the_clip_is_refused():
    with pytest.raises(ValueError, match="first_generated must lie in"):
        metrics.cammc(Aligned.from_poses(straight(4), straight(4)), first=4)
