"""Long clips in pieces: which frames each has, and how their paths become one."""

import itertools

import pytest
import torch

from merope.evaluation.estimators.learned.passes import check_pieces, join_pieces, pieces_of
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.drives import drive


@pytest.mark.parametrize(
    ("num", "most", "overlap"), [(5, 8, 2), (9, 8, 2), (23, 8, 3), (200, 100, 10), (191, 100, 10)]
)
def test_pieces_cover_every_frame_and_share_at_least_the_overlap(num, most, overlap):
    runs = pieces_of(num, max_frames=most, overlap=overlap)
    assert runs[0].start == 0 and runs[-1].stop == num
    assert all(len(run) <= most for run in runs)
    assert all(before.stop - after.start >= overlap for before, after in itertools.pairwise(runs))
    assert all(before.start < after.start for before, after in itertools.pairwise(runs))


def piece_of(path: Poses, run: range, seed: int, scale: float) -> tuple[range, Poses]:
    turn = rotvec_to_matrix(
        torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    )
    part = path[run.start : run.stop]
    return run, part.transformed(turn, torch.tensor([3.0, -2.0, seed], dtype=torch.float64)).scaled(scale)


@pytest.mark.parametrize("turn_deg", [0.0, 70.0])
def test_pieces_in_worlds_of_their_own_become_the_path_they_were_cut_from(turn_deg):
    path = drive(20, length=15.0, turn_deg=turn_deg)
    runs = pieces_of(20, max_frames=8, overlap=3)
    pieces = [piece_of(path, run, seed, 1.0 + 0.5 * seed) for seed, run in enumerate(runs)]
    joined, notes = join_pieces(pieces, metric=False)
    found, true = joined.rebase_to_first(), path.rebase_to_first()
    assert float((found.center_world - true.center_world).abs().max()) < 1e-9
    assert float((found.R_world_cam - true.R_world_cam).abs().max()) < 1e-12
    assert notes == ()


def test_metric_pieces_keep_their_own_metres():
    path = drive(12, length=6.0)
    runs = pieces_of(12, max_frames=8, overlap=3)
    pieces = [piece_of(path, run, seed, 1.0 + seed) for seed, run in enumerate(runs)]
    joined, _ = join_pieces(pieces, metric=True)
    steps = joined.step_lengths
    assert float(steps[0]) == pytest.approx(6 / 11) and float(steps[-1]) == pytest.approx(12 / 11)


def test_a_camera_that_stands_where_pieces_meet_is_noted():
    path = drive(12, length=6.0)
    centers = path.center_world.clone()
    centers[3:9] = centers[3]
    standing = Poses(R_world_cam=path.R_world_cam, center_world=centers)
    runs = [range(8), range(4, 12)]
    _, notes = join_pieces([(run, standing[run.start : run.stop]) for run in runs], metric=False)
    assert notes == ("the camera stands in frames 4 to 7: the scale after them is a guess",)


def test_pieces_that_share_fewer_than_two_frames_are_refused():
    with pytest.raises(ValueError, match="overlap must be at least 2"):
        check_pieces(10, 1)
