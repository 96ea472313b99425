"""The share of one camera's view that another sees: known cases, any lens, both rotation and translation."""

import math

import pytest
import torch

from merope.cameras import Equirectangular, Pinhole
from merope.data.history.overlap import overlaps, view_points
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.history import FISHEYE, PINHOLE


def overlap(lens, other, *, rotvec=(0.0, 0.0, 0.0), center=(0.0, 0.0, 0.0), depths=(5.0, 10.0, 20.0, 40.0)):
    """Of a query at the origin with ``lens``; the candidate is turned by ``rotvec`` and stands at ``center``."""
    R_cand_query = rotvec_to_matrix(torch.tensor([rotvec], dtype=torch.float64)).mT
    offset_cand = -(R_cand_query @ torch.tensor(center, dtype=torch.float64))
    return float(overlaps(view_points(lens, depths), R_cand_query, offset_cand, other))


@pytest.mark.parametrize("lens", [PINHOLE, FISHEYE], ids=["pinhole", "fisheye"])
def test_a_camera_sees_all_that_it_sees_and_nothing_behind_it(lens):
    assert overlap(lens, lens) == 1
    if lens is PINHOLE:
        assert overlap(lens, lens, rotvec=(0.0, math.pi, 0.0)) == 0


def test_a_turn_by_half_the_field_of_view_leaves_half():
    # Eight columns: the rays of the right half are at less than half the field of view from the turned axis.
    half = math.atan(32 / 40)
    assert overlap(PINHOLE, PINHOLE, rotvec=(0.0, half, 0.0)) == pytest.approx(0.5, abs=0.1)
    assert overlap(PINHOLE, PINHOLE, rotvec=(0.0, -half, 0.0)) == pytest.approx(0.5, abs=0.1)
    assert overlap(PINHOLE, PINHOLE, rotvec=(0.0, 2.1 * half, 0.0)) == 0


def test_a_step_to_the_side_costs_what_lies_within_it():
    # At depth 10 along the axis the image is 16 m wide; columns are 2 m apart there, and 4 m hide two of eight.
    lens = Pinhole(fx=400.0, fy=4000.0, cx=320.0, cy=180.0, width=640, height=360, pixel_origin="corner")
    assert overlap(lens, lens, center=(3.0, 0.0, 0.0), depths=(10.0,)) == pytest.approx(6 / 8)
    assert overlap(lens, lens, center=(-3.0, 0.0, 0.0), depths=(10.0,)) == pytest.approx(6 / 8)
    near, far = (overlap(lens, lens, center=(3.0, 0.0, 0.0), depths=(depth,)) for depth in (5.0, 200.0))
    assert near < 6 / 8 < far == 1


def test_overlap_has_a_direction():
    # From behind, a camera sees all of this view; from ahead, less of what is near.
    ahead, behind = (overlap(PINHOLE, PINHOLE, center=(0.0, 0.0, z)) for z in (8.0, -8.0))
    assert behind == 1 and ahead < 0.6


def test_a_wide_lens_sees_all_of_a_narrow_one():
    sphere = Equirectangular.full_sphere(height=64, width=128)
    assert overlap(PINHOLE, sphere, rotvec=(0.3, 2.0, -0.5), center=(3.0, 0.5, -2.0)) == 1
    assert overlap(sphere, PINHOLE) < 0.2


def test_points_that_are_projected_in_parts_are_those_projected_together(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    rotvecs = torch.randn(50, 3, generator=generator, dtype=torch.float64) * 0.3
    offsets = torch.randn(50, 3, generator=generator, dtype=torch.float64) * 3
    points = view_points(FISHEYE, (5.0, 20.0))
    together = overlaps(points, rotvec_to_matrix(rotvecs), offsets, PINHOLE)
    monkeypatch.setattr("merope.data.history.overlap._POINTS", 300)
    assert torch.equal(overlaps(points, rotvec_to_matrix(rotvecs), offsets, PINHOLE), together)
    assert 0.1 < float(together.mean()) < 0.95 and len(together.unique()) > 10


def test_depths_without_meaning_are_refused():
    with pytest.raises(ValueError, match="depths must be positive"):
        view_points(PINHOLE, (5.0, 0.0))
