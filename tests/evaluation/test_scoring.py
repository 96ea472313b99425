"""`evaluate_clip` and `evaluate_clips`: blind spots flagged, undefined values explained, failures counted."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.evaluation import ClipPair, Recovered, evaluate_clip, evaluate_clips
from merope.evaluation.protocol import FLAGS, SPECS
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import (
    OPENGL,
    city_drive,
    from_numpy,
    perturbed,
    reversed_path,
    straight,
    turning,
    wandering,
    with_camera_axes,
)
from tests.support.fresh_python import run_python


def test_perfect_estimate_scores_perfectly_without_flags():
    result = evaluate_clip(turning(), turning())
    assert result.flags == {}
    assert result.rot_deg == pytest.approx(0, abs=1e-7)
    assert result.tr_percent == pytest.approx(0, abs=1e-9)
    assert result.all["auc_3"].value == 100.0
    assert result.all["scale_error_percent"].value == pytest.approx(0, abs=1e-9)


def test_reversed_motion_scores_perfectly_under_the_driving_protocol_and_is_flagged():
    result = evaluate_clip(turning(49), reversed_path(turning(49)))
    assert result.scale == pytest.approx(-1)
    assert result.tr_percent == pytest.approx(0, abs=1e-9)
    assert result.rot_deg == pytest.approx(0, abs=1e-7)
    assert result.auc_3 == 100.0
    assert result.reversed
    assert "cannot see" in result.flags["reversed"]
    assert result.all["auc_3_oriented"].value == 0.0
    # Twice the normalised distance from the start, summed: mean 1 over an even drive.
    assert result.trans_err == pytest.approx(49, rel=0.02)
    assert result.all["scale_error_percent"].value == pytest.approx(200)


def test_opengl_axes_on_a_straight_drive_score_perfectly_and_are_named():
    commanded = straight(49)
    estimated = with_camera_axes(commanded, OPENGL)
    result = evaluate_clip(commanded, estimated)
    assert result.scale == pytest.approx(-1)
    assert (result.rot_deg, result.auc_3) == (pytest.approx(0, abs=1e-7), 100.0)
    assert result.tr_percent == pytest.approx(0, abs=1e-9)
    assert result.cammc == pytest.approx(49, rel=0.01)
    assert "OpenGL" in result.flags["axes_suspected"]
    assert "same turn in every frame" in result.flags["axes_suspected"]


def test_opengl_axes_on_a_turn_are_named_from_any_world_frame():
    commanded = turning(49)
    estimated = with_camera_axes(commanded, OPENGL)
    result = evaluate_clip(commanded, estimated.rebase_to_first())
    assert result.rot_deg == pytest.approx(47, abs=1.0)
    assert result.tr_percent > 20
    assert result.auc_3 < 5
    assert "OpenGL" in result.flags["axes_suspected"]


def test_a_backward_straight_drive_is_called_ambiguous_rather_than_wrong_axes_alone():
    result = evaluate_clip(straight(20), reversed_path(straight(20)))
    assert result.reversed
    assert "motion in the opposite direction looks the same" in result.flags["axes_suspected"]


@pytest.mark.parametrize(
    ("misread", "words"),
    [
        (
            lambda poses: Poses(
                R_world_cam=poses.R_world_cam.mT, center_world=poses.T_cam_world[:, :3, 3].contiguous()
            ),
            "world-to-camera",
        ),
        (
            lambda poses: Poses(R_world_cam=poses.R_world_cam.mT, center_world=poses.center_world),
            "transposed",
        ),
        (
            lambda poses: with_camera_axes(poses, [[0, -1, 0], [0, 0, -1], [1, 0, 0]]),
            "x forward, y left, z up",
        ),
    ],
)
def test_other_misreadings_are_named(misread, words):
    commanded = wandering(30, 4)
    assert words in evaluate_clip(commanded, misread(commanded)).flags["axes_suspected"]


@pytest.mark.parametrize("seed", range(10))
def test_a_bad_estimate_in_the_right_axes_is_not_suspected(seed):
    assert evaluate_clip(turning(49), perturbed(turning(49), seed, turn_deg=20, shift=8)).flags == {}


def test_a_static_estimate_is_finite_and_flagged():
    commanded = straight(4, step=2.0)
    standing = from_numpy(commanded.R_world_cam, np.tile([5.0, 6.0, 7.0], (4, 1)))
    result = evaluate_clip(commanded, standing)
    assert result.scale == 0.0
    assert result.tr_percent == pytest.approx((2 + 4 + 6) / 3 / 6 * 100)
    assert result.auc_10 == 0.0
    assert set(result.flags) == {"static_estimate"}
    assert result.all["metres_ratio"].value == 0.0


def test_rounding_of_centres_far_from_the_origin_is_no_motion():
    # A still camera in Earth-centred coordinates whose file holds world-to-camera matrices: -R^T (R c) is c to 1e-9.
    commanded = turning(30)
    R_world_cam = wandering(30, 2).R_world_cam.numpy()
    centre = np.array([4e6, -3e6, 4.1e6])
    rounded = np.einsum("tij,tj->ti", R_world_cam, np.einsum("tji,j->ti", R_world_cam, centre))
    assert len(np.unique(rounded, axis=0)) > 1
    result = evaluate_clip(commanded, from_numpy(R_world_cam, rounded, unit="unknown"))
    assert result.scale == 0.0
    assert set(result.flags) == {"static_estimate"}


@pytest.mark.parametrize("kind", ["parked", "jitter", "loop"])
def test_a_command_without_a_chord_leaves_tr_undefined_with_a_reason(kind):
    rng = np.random.default_rng(0)
    centers = {
        "parked": np.zeros((6, 3)),
        "jitter": rng.normal(scale=1e-3, size=(6, 3)),
        "loop": np.array([[0, 0, 0], [3, 0, 0], [3, 0, 4], [0, 0, 4], [0, 0, 2], [0, 0, 0.0]]),
    }[kind]
    commanded = from_numpy(np.tile(np.eye(3), (6, 1, 1)), centers)
    result = evaluate_clip(commanded, perturbed(commanded, 1))
    tr = result.all["tr_percent"]
    assert tr.value is None
    assert ("began" if kind != "jitter" else "stands still") in tr.reason
    assert "static_commanded" in result.flags
    assert result.cammc is not None


def test_undefined_clips_are_left_out_of_the_mean_and_counted():
    parked = from_numpy(np.tile(np.eye(3), (4, 1, 1)), np.zeros((4, 3)))
    clips = [
        ClipPair(clip_id="moves", commanded=turning(4), estimated=perturbed(turning(4), 1)),
        ClipPair(clip_id="parked", commanded=parked, estimated=perturbed(parked, 2)),
    ]
    result = evaluate_clips(clips)
    summary = result.summary()["tr_percent"]
    assert (summary.num_clips, summary.num_excluded) == (1, 1)
    assert summary.metric.value == pytest.approx(result.clips[0].tr_percent)
    assert result.flag_counts["static_commanded"] == 1


def test_means_are_over_clips_and_auc_over_pairs():
    clips = [
        ClipPair(clip_id="short", commanded=turning(4), estimated=turning(4)),
        ClipPair(clip_id="long", commanded=turning(20), estimated=perturbed(turning(20), 3, shift=0.5)),
    ]
    result = evaluate_clips(clips)
    short, long = result.clips
    assert result.summary()["rot_deg"].metric.value == pytest.approx((short.rot_deg + long.rot_deg) / 2)
    pooled = (6 * short.auc_10 + 190 * long.auc_10) / 196
    assert result.summary()["auc_10"].metric.value == pytest.approx(pooled)
    assert result.summary()["auc_10"].median == pytest.approx((short.auc_10 + long.auc_10) / 2)


def test_generated_only_figures_stand_beside_those_over_all_frames():
    commanded = turning(20)
    turns = np.tile(np.eye(3), (20, 1, 1))
    turns[9:] = Rotation.from_euler("y", 3, degrees=True).as_matrix()
    estimated = from_numpy(commanded.R_world_cam.numpy() @ turns, commanded.center_world)
    result = evaluate_clip(commanded, estimated, first_generated=9)
    assert result.rot_deg == pytest.approx(3 * 11 / 19)
    assert result.generated["rot_deg"].value == pytest.approx(3)
    assert evaluate_clip(commanded, estimated).generated is None


def test_scale_is_reported_only_where_both_sides_are_metric():
    commanded = turning(8)
    half = commanded.scaled(0.5)
    assert evaluate_clip(commanded, half).all["scale_error_percent"].value == pytest.approx(50)
    assert evaluate_clip(commanded, half).scale == pytest.approx(2)
    recovered = Recovered.complete(half, scale="up_to_scale")
    metric = evaluate_clip(commanded, recovered).all["scale_error_percent"]
    assert (metric.value, metric.reason) == (None, "the estimate has no metric scale")
    unknown = Poses(R_world_cam=half.R_world_cam, center_world=half.center_world, unit="unknown")
    assert evaluate_clip(commanded, unknown).all["scale_error_percent"].value is None


def test_partial_registration_is_flagged_with_its_rule():
    registered = torch.tensor([True] * 6 + [False] * 2)
    recovered = Recovered(poses=turning(8), registered=registered, scale="metric", fill="nearest pose held")
    flags = evaluate_clip(turning(8), recovered).flags
    assert "6 of 8 frames registered" in flags["partial_registration"]
    assert "nearest pose held" in flags["partial_registration"]


def failing_set():
    return [
        ClipPair(clip_id="a", commanded=turning(6), estimated=turning(6), first_generated=2),
        ClipPair(clip_id="b", commanded=turning(6), estimated=None, first_generated=2),
    ]


def test_a_failed_clip_is_an_error_unless_told_otherwise():
    with pytest.raises(ValueError, match=r"clip 'b' has no estimated trajectory.*'worst'.*'skip'"):
        evaluate_clips(failing_set())


def test_a_skipped_clip_still_lowers_the_success_rate():
    result = evaluate_clips(failing_set(), on_failure="skip")
    assert (len(result.clips), result.num_skipped, result.success_rate) == (1, 1, 0.5)
    assert "1 skipped" in result.table()


def test_a_failed_clip_scored_worst_bounds_any_estimate():
    worst = evaluate_clips(failing_set(), on_failure="worst").clips[1]
    assert worst.rot_deg == pytest.approx(180)
    assert worst.auc_10 == 0.0
    for seed in range(5):
        other = evaluate_clip(turning(6), perturbed(turning(6), seed, turn_deg=90, shift=30))
        assert other.cammc < worst.cammc
        assert other.trans_err < worst.trans_err
        assert other.rot_err_rad <= worst.rot_err_rad
    assert worst.flags.keys() == {"failed"}
    assert worst.generated["rot_deg"].value == pytest.approx(180)


def test_nothing_to_score_says_so():
    with pytest.raises(ValueError, match="all 1 clips failed"):
        evaluate_clips([ClipPair(clip_id="b", commanded=turning(6), estimated=None)], on_failure="skip")


def test_a_clip_id_counts_once():
    clip = ClipPair(clip_id="a", commanded=turning(6), estimated=turning(6))
    with pytest.raises(ValueError, match="'a' came twice"):
        evaluate_clips([clip, clip])


def many_clips():
    return [
        ClipPair(
            clip_id=str(seed),
            commanded=turning(8 + seed),
            estimated=perturbed(turning(8 + seed), seed),
            first_generated=3,
        )
        for seed in range(7)
    ]


def test_json_round_trips_and_every_number_has_unit_and_protocol():
    parked = from_numpy(np.tile(np.eye(3), (4, 1, 1)), np.zeros((4, 3)))
    clips = [
        *many_clips(),
        ClipPair(clip_id="parked", commanded=parked, estimated=parked),
        ClipPair(clip_id="lost", commanded=turning(6), estimated=None),
    ]
    result = evaluate_clips(clips, on_failure="worst")
    assert "NaN" not in result.to_json()
    read = json.loads(result.to_json())
    assert read == json.loads(json.dumps(result.to_dict()))
    assert set(read["metrics"]) == set(SPECS) == set(read["metrics_generated_frames"])
    for key, metric in read["metrics"].items():
        assert all(metric[name] for name in ("unit", "protocol")), key
        assert metric["num_clips"] + metric["num_excluded"] == 9
    assert read["flags"].keys() == FLAGS.keys()
    assert read["flags"]["failed"] == 1
    assert read["settings"]["versions"]["torch"] == torch.__version__


def test_order_of_clips_and_repetition_change_no_digit():
    first = evaluate_clips(many_clips(), seed=3).summary()
    again = evaluate_clips(reversed(many_clips()), seed=3).summary()
    assert first == again
    other = evaluate_clips(many_clips(), seed=4).summary()
    assert other["rot_deg"].interval != first["rot_deg"].interval
    assert other["rot_deg"].metric == first["rot_deg"].metric


def test_intervals_hold_the_mean_and_shrink_with_more_clips():
    few, many = (
        evaluate_clips(
            [
                ClipPair(clip_id=str(seed), commanded=turning(6), estimated=perturbed(turning(6), seed))
                for seed in range(count)
            ]
        ).summary()["rot_deg"]
        for count in (5, 80)
    )
    for summary in (few, many):
        assert summary.interval.low < summary.metric.value < summary.interval.high
    assert many.interval.high - many.interval.low < 0.5 * (few.interval.high - few.interval.low)


def test_the_table_states_gauge_and_units():
    table = evaluate_clips(many_clips()).table()
    for words in ("relative to the first frame", "deg", "rad", "generated only", "7 clips of 8 to 14 frames"):
        assert words in table


def test_acos_is_offered_for_parity():
    exact, parity = (evaluate_clip(turning(), perturbed(turning(), 1), method=m) for m in ("atan2", "acos"))
    assert parity.rot_deg == pytest.approx(exact.rot_deg, abs=1e-9)
    assert parity.angle_method == "acos"
    assert math.isfinite(evaluate_clip(turning(), turning(), method="acos").rot_deg)


def single_precision(poses):
    """Numbers that float32 holds exactly, as float32 and as float64 tensors: quarter turns and sixteenths of a metre."""
    quarters = np.array([[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]], dtype=float)
    rotations = torch.from_numpy(quarters[np.arange(len(poses)) // 7 % 2])
    centers = (poses.center_world * 16).round() / 16
    return rotations, centers


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16, None])
def test_float32_input_and_autocast_change_no_digit(autocast):
    (R, centers), (R_hat, centers_hat) = (
        single_precision(city_drive(30)),
        single_precision(city_drive(34)[4:]),
    )
    R_hat = R_hat.roll(2, dims=0)
    exact = evaluate_clip(
        Poses(R_world_cam=R, center_world=centers),
        Poses(R_world_cam=R_hat, center_world=centers_hat),
        first_generated=9,
    )
    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        single = evaluate_clip(
            Poses(R_world_cam=R.float(), center_world=centers.float()),
            Poses(R_world_cam=R_hat.float(), center_world=centers_hat.float()),
            first_generated=9,
        )
    assert single.to_dict() == exact.to_dict()
    assert exact.flags or exact.cammc > 1


def test_autocast_changes_no_digit_of_a_set_nor_of_its_intervals():
    plain = evaluate_clips(many_clips())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = evaluate_clips(many_clips())
    assert under.to_json() == plain.to_json()


def test_no_figure_that_is_gauge_free_depends_on_the_world_of_the_estimate():
    commanded, turn = wandering(15, 1), torch.from_numpy(Rotation.from_rotvec([0.3, -1.2, 2.0]).as_matrix())
    estimated = perturbed(commanded, 2)
    moved = estimated.transformed(turn, torch.tensor([70.0, -3.0, 12.0], dtype=torch.float64))
    through_extrinsics = Poses.from_world_to_camera(moved.T_cam_world)
    before = evaluate_clip(commanded, estimated, first_generated=5)
    for other in (moved, through_extrinsics):
        after = evaluate_clip(commanded, other, first_generated=5)
        for frames in ("all", "generated"):
            for key in SPECS:
                if key != "ate_none":
                    assert after.scores(frames).values[key] == pytest.approx(
                        before.scores(frames).values[key], abs=1e-9
                    ), key
    # The one figure that takes worlds as they come says so.
    assert "world frames they came in" in SPECS["ate_none"].protocol
    assert evaluate_clip(commanded, moved).ate_none > 10


def test_the_unaligned_error_is_undefined_where_the_estimate_has_a_world_of_its_own():
    clips = [
        ClipPair(
            clip_id=str(same), commanded=turning(9), estimated=turning(9), same_world=same, first_generated=3
        )
        for same in (True, False)
    ]
    result = evaluate_clips(clips)
    shared, own = (result.clip(str(same)) for same in (True, False))
    for frames in ("all", "generated"):
        assert shared.scores(frames).values["ate_none"] == 0
        assert own.scores(frames).reasons == {"ate_none": "the estimator's world is its own; use ATE SE(3)"}
        others = {key: value for key, value in shared.scores(frames).values.items() if key != "ate_none"}
        assert own.scores(frames).values == {**others, "ate_none": None}
    assert result.summary()["ate_none"].num_excluded == 1


def test_the_missing_scale_is_the_reason_that_is_given_first():
    estimated = Recovered.complete(turning(9), scale="up_to_scale")
    scores = evaluate_clip(turning(9), estimated, same_world=False).all
    assert scores.reasons["ate_none"] == "the estimate has no metric scale"


def test_every_figure_of_a_clip_is_a_value_or_has_a_reason():
    cases = [
        (turning(6), perturbed(turning(6), 1)),
        (straight(6), perturbed(straight(6), 1)),
        (straight(6), from_numpy(straight(6).R_world_cam, np.zeros((6, 3)))),
        (from_numpy(straight(6).R_world_cam, np.zeros((6, 3))), turning(6)),
        (turning(2), turning(2)),
        (turning(6), Recovered.complete(turning(6), scale="up_to_scale")),
    ]
    for commanded, estimated in cases:
        scores = evaluate_clip(commanded, estimated).all
        assert set(scores.values) == set(SPECS)
        for key, value in scores.values.items():
            assert (value is None) == (key in scores.reasons), key
            assert value is None or math.isfinite(value), key


def test_a_loop_has_a_scale_though_it_has_no_chord():
    loop = from_numpy(
        np.tile(np.eye(3), (5, 1, 1)), np.array([[0, 0, 0], [3, 0, 0], [3, 0, 4], [0, 0, 4], [0, 0, 0.0]])
    )
    result = evaluate_clip(loop, loop.scaled(0.5))
    assert result.tr_percent is None
    assert result.scale == pytest.approx(2)
    assert result.sim3_scale == pytest.approx(2)
    assert set(result.flags) == {"static_commanded", "scaled"}


def test_a_failed_clip_has_no_trajectory_errors_rather_than_made_up_ones():
    worst = evaluate_clips(failing_set(), on_failure="worst")
    assert worst.clips[1].ate_sim3 is None
    assert worst.clips[1].all.reasons["ate_sim3"] == "no trajectory was recovered"
    assert worst.summary()["ate_sim3"].num_excluded == 1


MEMORY = """
import resource, sys
import torch
from tests.evaluation.trajectories import city_drive, perturbed
from merope.evaluation import evaluate_clip

torch.set_num_threads(1)
command = city_drive(5000)
estimate = perturbed(command, 1, turn_deg=0.5)
evaluate_clip(command[:300], estimate[:300], first_generated=9)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = evaluate_clip(command, estimate, first_generated=9)
assert result.all.pairs.num_pairs == 5000 * 4999 // 2
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_five_thousand_frames_take_no_more_memory_than_a_block_of_pairs():
    done = run_python(MEMORY)
    assert done.returncode == 0, done.stderr
    # One matrix of 3 x 3 for each of the 12 497 500 pairs alone would be 858 MiB; measured 74 MiB.
    assert int(done.stdout) < 250
