"""What Figure 2 draws, against triangles and the operator itself."""

import math

import pytest
import torch

from merope.encodings import MeRoPE
from merope.evaluation.encodings.pair_geometry import frame_sweeps, pair_geometry, two_cameras

FRACTIONS = (0.0, 0.05, 0.15, 0.4, 0.7, 1.0)


@pytest.fixture
def geometry():
    return pair_geometry(two_cameras((1.6, -0.4, 2.4), -55.0), 1, 7, FRACTIONS)


def test_the_scene_is_what_was_asked_for(geometry):
    assert geometry.offset_query.tolist() == [1.6, -0.4, 2.4]
    # Turned to the left: the key camera's axis points to -x.
    axis = geometry.R_query_key[:, 2]
    assert axis.tolist() == pytest.approx(
        [-math.sin(math.radians(55)), 0, math.cos(math.radians(55))], abs=1e-12
    )


def test_every_anchor_looks_at_the_point_of_the_key_ray_at_its_depth(geometry):
    assert math.isinf(geometry.anchor_depths[0]) and geometry.anchor_depths[-1] < 1e-12
    assert (geometry.anchor_depths[1:].diff() < 0).all()
    for anchor, depth in zip(geometry.anchors[1:], geometry.anchor_depths[1:], strict=True):
        point = geometry.offset_query + depth * geometry.dir_key_query
        torch.testing.assert_close(point / point.norm(), anchor, rtol=0, atol=1e-9)


def test_the_arc_goes_from_the_far_direction_to_the_epipole_in_its_fractions(geometry):
    torch.testing.assert_close(geometry.anchors[0], geometry.dir_key_query, rtol=0, atol=1e-12)
    torch.testing.assert_close(geometry.anchors[-1], geometry.epipole, rtol=0, atol=1e-12)
    for fraction, anchor in zip(FRACTIONS, geometry.anchors, strict=True):
        angle = math.acos(min(1.0, float(anchor @ geometry.dir_key_query)))
        assert angle == pytest.approx(fraction * geometry.arc, abs=1e-7)


def test_the_drawn_frames_are_those_of_the_operator(geometry):
    view_rays = two_cameras((1.6, -0.4, 2.4), -55.0)
    operator = MeRoPE().operator(view_rays, dtype=torch.float64)
    pair = operator.pair(1, view_rays.tokens_per_view + 7)[0]
    rotation = geometry.frame_query.mT @ geometry.frame_key_query
    torch.testing.assert_close(pair[36:39, 36:39], rotation, rtol=0, atol=1e-12)
    for k, frame in enumerate(geometry.anchor_frames):
        block = pair[6 * k : 6 * k + 3, 6 * k : 6 * k + 3]
        torch.testing.assert_close(block, geometry.frame_query.mT @ frame, rtol=0, atol=1e-12)
    cosines = [math.cos(2 * math.pi * float(t) / 200.0) for t in geometry.offset_query]
    # The longest of four waves of each axis.
    for axis, cosine in enumerate(cosines):
        assert float(pair[72 + 8 * axis + 6, 72 + 8 * axis + 6]) == pytest.approx(cosine, abs=1e-12)


@pytest.mark.parametrize(
    ("query_token", "key_token", "message"),
    [(15, 0, r"query_token must lie in 0 \.\.\. 14"), (0, -1, r"key_token must lie in 0 \.\.\. 14.*got -1")],
)
def test_a_token_that_is_not_there_is_refused(query_token, key_token, message):
    with pytest.raises(ValueError, match=message):
        pair_geometry(two_cameras((1.0, 0.0, 0.0), 0.0), query_token, key_token, FRACTIONS)


def test_cameras_on_one_spot_have_no_epipole():
    with pytest.raises(ValueError, match="the two cameras coincide"):
        pair_geometry(two_cameras((0.0, 0.0, 0.0), 10.0), 0, 0, FRACTIONS)


def test_only_the_released_frames_lose_orthonormality_at_the_vertical():
    released, mended, least = frame_sweeps(torch.tensor([60.0, 1.0, 1e-3, 1e-6]))
    assert released.orthonormality[:3].max() < 1e-14
    assert released.orthonormality[3] > 0.9
    assert mended.orthonormality.max() < 1e-14
    assert least.orthonormality.max() < 1e-14


def test_level_frames_roll_to_the_azimuth_and_spin_as_one_over_the_sine():
    angles = torch.tensor([90.0, 50.0, 10.0, 1.0, 0.01])
    released, _, least = frame_sweeps(angles, azimuth_deg=25.0)
    assert float(released.roll_deg[0]) == pytest.approx(0, abs=1e-9)
    assert float(released.roll_deg[-1]) == pytest.approx(-25, abs=0.01)
    assert least.roll_deg.abs().max() < 1e-9
    torch.testing.assert_close(
        released.turn_rate, 1 / torch.deg2rad(angles).sin().double(), rtol=1e-3, atol=0
    )
    # The minimum rotation has nothing special at the vertical.
    assert least.turn_rate.max() < 1.5
