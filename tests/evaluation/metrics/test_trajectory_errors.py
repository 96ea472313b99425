"""Trajectory errors against evo itself, on the real estimates whose errors are published beside them."""

import gzip
import math

import numpy as np
import pytest
import torch
from evo.core import metrics as evo_metrics
from evo.core.trajectory import PosePath3D
from evo.tools import file_interface

from merope.data import load_pose_file
from merope.evaluation.matching import match_poses
from merope.evaluation.metrics.alignment import AlignmentUndefined, align
from merope.evaluation.metrics.trajectory_errors import (
    TrajectoryErrors,
    absolute_errors,
    absolute_trajectory_error,
    relative_errors,
    relative_pose_error,
)
from tests.evaluation.trajectories import from_numpy, perturbed, straight, turning, wandering
from tests.support.shared import shared_file

KITTI = "data/kitti_odom"
TUM = "data/tum/freiburg1_xyz"
# Published with the files, from evo 1.38.1: unaligned, SE(3) and Sim(3) error, scale, turn (deg) and step one frame apart.
TABLE = {
    "00_ORB.txt.gz": (7.7903, 1.3034, 0.9377, 1.0047, 0.11497, 0.02812),
    "00_SPTAM.txt.gz": (9.2245, 3.7385, 3.6353, 1.00453, 0.29639, 0.03492),
    "09_example_0.txt": (350.0874, 215.4353, 8.3866, 20.98506, 0.07461, 1.05244),
    "09_example_1.txt": (17.9191, 10.8803, 10.7295, 1.00805, 0.04412, 0.07477),
    "rgbdslam": (0.0201, 0.0135, 0.0134, 1.008, 0.35361, 0.00576),
    "rgbdslam_drift": (0.1342, 0.0135, 0.0134, 1.008, 0.35361, 0.00576),
    "ORB_kf_mono": (2.0251, 0.0243, 0.0098, 1.10562, 0.88485, 0.02527),
}
DIGITS = (4, 4, 4, 5, 5, 5)


def matched(name):
    """The poses of a real estimate and of the truth that belong together."""
    if name[:2].isdigit():
        truth = load_pose_file(shared_file(f"{KITTI}/poses/{name[:2]}.txt"), format="kitti")
        found = load_pose_file(shared_file(f"{KITTI}/estimates/{name}"), format="kitti")
        pair = match_poses(
            truth.poses, found.poses, commanded_ids=truth.frame_ids, estimated_ids=found.frame_ids
        )
    else:
        truth = load_pose_file(shared_file(f"{TUM}-groundtruth.txt"), format="tum")
        found = load_pose_file(shared_file(f"{TUM}-{name}.txt"), format="tum")
        pair = match_poses(truth.poses, found.poses, max_time_difference=0.01)
    return pair.commanded, pair.estimated


def path_of(poses):
    return PosePath3D(poses_se3=list(poses.T_world_cam.numpy()))


def by_evo(commanded, estimated, relation, *, alignment="none", relative=False, delta=1, all_pairs=False):
    """The errors that evo finds, and the scale of its alignment."""
    reference, other = path_of(commanded), path_of(estimated)
    scale = 1.0
    if alignment != "none":
        _, _, scale = other.align(reference, correct_scale=alignment == "sim3")
    kind = (
        evo_metrics.RPE(relation, delta, evo_metrics.Unit.frames, all_pairs=all_pairs)
        if relative
        else evo_metrics.APE(relation)
    )
    kind.process_data((reference, other))
    return kind, scale


@pytest.fixture(scope="module", params=list(TABLE))
def real(request):
    return request.param, *matched(request.param)


def rmse(kind):
    return kind.get_statistic(evo_metrics.StatisticsType.rmse)


TRANSLATION = evo_metrics.PoseRelation.translation_part
ANGLE = evo_metrics.PoseRelation.rotation_angle_deg


def test_every_real_estimate_has_the_errors_that_evo_finds_and_its_table_prints(real):
    name, commanded, estimated = real
    values, reasons = TrajectoryErrors.of(commanded, estimated).values(first=0, metric=True)
    assert reasons == {}
    found = [
        values[key] for key in ("ate_none", "ate_se3", "ate_sim3", "sim3_scale", "rpe_rot_deg", "rpe_trans")
    ]
    assert tuple(round(value, digits) for value, digits in zip(found, DIGITS, strict=True)) == TABLE[name]
    for key, alignment in (("ate_none", "none"), ("ate_se3", "se3"), ("ate_sim3", "sim3")):
        kind, scale = by_evo(commanded, estimated, TRANSLATION, alignment=alignment)
        assert values[key] == pytest.approx(rmse(kind), rel=1e-6, abs=1e-9), key
        if alignment == "sim3":
            assert values["sim3_scale"] == pytest.approx(scale, rel=1e-6)
    for key, relation in (("rpe_trans", TRANSLATION), ("rpe_rot_deg", ANGLE)):
        kind, _ = by_evo(commanded, estimated, relation, relative=True)
        assert values[key] == pytest.approx(rmse(kind), rel=1e-6), key


def test_files_read_by_evo_give_the_same_figures(tmp_path):
    # Not even the reader is shared: evo reads and aligns, we read and align.
    truth = file_interface.read_kitti_poses_file(str(shared_file(f"{KITTI}/poses/00.txt")))
    plain = tmp_path / "orb.txt"
    plain.write_bytes(gzip.decompress(shared_file(f"{KITTI}/estimates/00_ORB.txt.gz").read_bytes()))
    other = file_interface.read_kitti_poses_file(str(plain))
    other.align(truth, correct_scale=True)
    kind = evo_metrics.APE(TRANSLATION)
    kind.process_data((truth, other))
    ours = absolute_trajectory_error(*matched("00_ORB.txt.gz"), alignment="sim3")
    assert ours.rmse == pytest.approx(rmse(kind), rel=1e-6)


@pytest.mark.parametrize(("delta", "all_pairs"), [(1, False), (3, False), (3, True), (8, False)])
def test_all_statistics_at_any_delta_equal_those_of_evo(delta, all_pairs):
    commanded = wandering(30, 2)
    estimated = perturbed(commanded, 3, scale=0.9)
    ours = relative_pose_error(commanded, estimated, delta=delta, all_pairs=all_pairs)
    for statistics, relation in zip(ours, (TRANSLATION, ANGLE), strict=True):
        kind, _ = by_evo(commanded, estimated, relation, relative=True, delta=delta, all_pairs=all_pairs)
        for name in ("rmse", "mean", "median", "max", "std"):
            expected = kind.get_statistic(evo_metrics.StatisticsType[name])
            assert getattr(statistics, name) == pytest.approx(expected, rel=1e-9), name


@pytest.mark.parametrize("alignment", ["none", "se3", "sim3"])
def test_all_statistics_of_the_absolute_error_equal_those_of_evo(alignment):
    commanded = wandering(31, 7)
    estimated = perturbed(commanded, 8, scale=0.5)
    kind, _ = by_evo(commanded, estimated, TRANSLATION, alignment=alignment)
    ours = absolute_trajectory_error(commanded, estimated, alignment=alignment)
    for name in ("rmse", "mean", "median", "max", "std"):
        assert getattr(ours, name) == pytest.approx(
            kind.get_statistic(evo_metrics.StatisticsType[name]), rel=1e-9
        ), name


def test_errors_of_four_frames_are_as_computed_by_hand():
    # A square commanded; recovered it is twice as large and turned by 90 degrees about y, one corner off by 0.4 m.
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1]])
    quarter = np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])
    commanded = from_numpy(np.tile(np.eye(3), (4, 1, 1)), corners)
    estimated = from_numpy(np.tile(quarter, (4, 1, 1)), 2 * corners @ quarter.T)
    assert absolute_trajectory_error(commanded, estimated, alignment="sim3").rmse == pytest.approx(
        0, abs=1e-12
    )
    # After the rigid motion every corner is half a diagonal of the unit square from its own: sqrt(2) / 2.
    rigid = absolute_trajectory_error(commanded, estimated, alignment="se3")
    assert (rigid.rmse, rigid.max, rigid.std) == pytest.approx((math.sqrt(0.5), math.sqrt(0.5), 0), abs=1e-12)
    offsets, angles = relative_errors(commanded, estimated)
    # In its own camera's axes every step is the commanded one, twice as long.
    assert offsets.tolist() == pytest.approx([1, 1, 1], abs=1e-12)
    assert angles.tolist() == pytest.approx([0, 0, 0], abs=1e-12)
    assert absolute_errors(commanded, estimated).tolist() == pytest.approx(
        [0, math.hypot(1, 2), math.hypot(1, 3), math.hypot(2, 1)], abs=1e-12
    )


def test_generated_frames_alone_keep_the_alignment_of_all():
    commanded = wandering(12, 4)
    estimated = perturbed(commanded, 5, scale=0.5)
    errors = TrajectoryErrors.of(commanded, estimated)
    values, _ = errors.values(first=9, metric=True)
    found = align(commanded.center_world, estimated.center_world, with_scale=True)
    later = (found.apply(estimated.center_world) - commanded.center_world)[9:].norm(dim=-1)
    assert values["ate_sim3"] == pytest.approx(float(later.square().mean().sqrt()), rel=1e-12)
    assert values["sim3_scale"] == pytest.approx(found.scale)
    offsets, _ = relative_errors(commanded, estimated)
    # The motions into frames 9, 10 and 11.
    assert values["rpe_trans"] == pytest.approx(float(offsets[8:].square().mean().sqrt()), rel=1e-12)


def test_a_straight_clip_has_no_aligned_error_and_says_why():
    commanded = straight(10)
    values, reasons = TrajectoryErrors.of(commanded, perturbed(commanded, 1)).values(first=0, metric=True)
    for key in ("ate_se3", "ate_sim3", "sim3_scale"):
        assert values[key] is None
        assert "rotation about the path axis is unobservable" in reasons[key]
    assert values["ate_none"] > 0
    assert values["rpe_rot_deg"] > 0
    with pytest.raises(AlignmentUndefined):
        absolute_errors(commanded, commanded, alignment="se3")


def test_figures_that_keep_the_scale_are_undefined_without_one():
    commanded = turning(10)
    values, reasons = TrajectoryErrors.of(commanded, perturbed(commanded, 1)).values(first=0, metric=False)
    assert {key for key, value in values.items() if value is None} == {"ate_none", "ate_se3", "rpe_trans"}
    assert set(reasons.values()) == {"the estimate has no metric scale"}


@pytest.mark.parametrize(
    "call",
    [
        lambda: absolute_errors(straight(4), straight(5)),
        lambda: relative_errors(straight(4), straight(5)),
        lambda: relative_errors(straight(4), straight(4), delta=4),
        lambda: relative_errors(straight(4), straight(4), delta=0),
    ],
)
def test_lengths_and_deltas_that_do_not_fit_are_refused(call):
    with pytest.raises(ValueError, match="got"):
        call()


def test_relative_errors_do_not_depend_on_either_world():
    commanded = wandering(12, 6)
    estimated = perturbed(commanded, 7)
    turn = torch.from_numpy(np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]))
    moved = estimated.transformed(turn, torch.tensor([30.0, -5, 2], dtype=torch.float64))
    for before, after in zip(
        relative_errors(commanded, estimated), relative_errors(commanded, moved), strict=True
    ):
        torch.testing.assert_close(after, before, atol=1e-9, rtol=0)
    for alignment in ("se3", "sim3"):
        torch.testing.assert_close(
            absolute_errors(commanded, moved, alignment=alignment),
            absolute_errors(commanded, estimated, alignment=alignment),
            atol=1e-9,
            rtol=0,
        )
