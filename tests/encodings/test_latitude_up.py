"""Latitude and up of rays, against values that follow from vanishing points and from the released code."""

import json
import math

import pytest
import torch

from merope.cameras import Pinhole, UnifiedCamera, ViewRays
from merope.cameras.scenes import GRID, matrices, random_drive, scene, seen_through, turned
from merope.encodings import LatitudeUpMap
from merope.encodings.registry import input_map_from_config, input_map_to_config
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.released import released, unified_rays

ROWS, COLS = 3, 5
# The middle token looks along the axis: 3 x 5 tokens, row 1, column 2.
MIDDLE = 7


def lens(half_width=1.0):
    focal_px = COLS / 2 / half_width
    return Pinhole(
        fx=focal_px, fy=focal_px, cx=COLS / 2, cy=ROWS / 2, width=COLS, height=ROWS, pixel_origin="corner"
    )


def looking(*rotvecs, camera=None):
    """Two equal clips whose views are turned by these rotation vectors (degrees, world from camera)."""
    turns = rotvec_to_matrix(torch.deg2rad(torch.tensor(rotvecs, dtype=torch.float64)))
    turns = turns.expand(2, -1, -1, -1)
    return seen_through(lens() if camera is None else camera, turns, torch.zeros(2, len(rotvecs), 3).double())


def found(view, **options):
    """Up [B, V, P, 2] and latitude [B, V, P]."""
    features = LatitudeUpMap(**options).features(view, dtype=torch.float64)
    assert features.shape == (view.batch, view.num_tokens, 3)
    features = features.unflatten(1, (view.num_views, -1))
    return features[..., :2], features[..., 2]


def angle_deg(one, other):
    cross = one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0]
    return torch.rad2deg(torch.atan2(cross, (one * other).sum(-1)).abs())


# Values by hand


def test_a_level_camera_sees_up_everywhere_along_its_columns():
    up, latitude = found(looking((0, 0, 0), (0, 130, 0)))
    torch.testing.assert_close(up, torch.tensor([0.0, -1.0]).double().expand_as(up), rtol=0, atol=1e-12)
    # Column 4 of row 0: a pixel two columns right of the axis and one row above it.
    slope_x, slope_y = 2 / 2.5, 1 / 2.5
    expected = math.atan2(slope_y, math.hypot(slope_x, 1))
    for place, sign in ((4, 1), (0, 1), (14, -1), (10, -1)):
        torch.testing.assert_close(latitude[1, 1, place].item(), sign * expected)
    assert latitude[:, :, MIDDLE].abs().max() < 1e-12


def test_a_rolled_camera_sees_up_rolled_the_other_way():
    # A turn about z (forward) takes x (right) towards y (down): clockwise as seen by the camera.
    up, latitude = found(looking((0, 0, 30)))
    expected = torch.tensor([-0.5, -math.sqrt(3) / 2], dtype=torch.float64)
    torch.testing.assert_close(up[0, 0, MIDDLE], expected, rtol=0, atol=1e-12)
    assert abs(latitude[0, 0, MIDDLE].item()) < 1e-12


@pytest.mark.parametrize("pitch_deg", [25.0, -25.0])
def test_up_points_to_the_vanishing_point_of_verticals(pitch_deg):
    # A turn about x (right) by a positive angle takes z (forward) towards -y: the camera looks up.
    view = looking((pitch_deg, 0, 0))
    up, latitude = found(view)
    assert abs(math.degrees(latitude[0, 0, MIDDLE].item()) - pitch_deg) < 1e-10
    focal_px = COLS / 2
    # Looking up by p, the zenith is 90 - p above the axis; looking down, the nadir is below and up points away.
    distance_px = focal_px / math.tan(math.radians(abs(pitch_deg)))
    sign = 1 if pitch_deg > 0 else -1
    point = torch.tensor([COLS / 2, ROWS / 2 - sign * distance_px], dtype=torch.float64)
    pixels = torch.stack([view.col + 0.5, view.row + 0.5], -1)
    away = sign * (point - pixels)
    expected = away / away.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(up[0, 0], expected, rtol=0, atol=1e-12)


def test_where_the_camera_stands_does_not_matter():
    view = looking((10, 20, 30), (0, -40, 5))
    elsewhere = ViewRays.from_poses(
        matrices(view.R_world_cam, view.center_world + 1e6), view.dirs_cam, grid=(ROWS, COLS), camera=lens()
    )
    assert torch.equal(LatitudeUpMap().features(view), LatitudeUpMap().features(elsewhere))


def test_up_is_where_the_world_says():
    # The same cameras, written in a world whose z points up: x right stays, y down becomes -z.
    to_streets = torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]], dtype=torch.float64)
    view = looking((10, 20, 30), (0, -40, 5))
    streets = ViewRays.from_poses(
        matrices(to_streets @ view.R_world_cam, view.center_world),
        view.dirs_cam,
        grid=(ROWS, COLS),
        camera=lens(),
    )
    ours = LatitudeUpMap(up_world=(0.0, 0.0, 3.0)).features(streets, dtype=torch.float64)
    theirs = LatitudeUpMap().features(view, dtype=torch.float64)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert (LatitudeUpMap().features(streets) - theirs).abs().max() > 0.5


# Where up has no direction


@pytest.mark.parametrize("pitch_deg", [90.0, -90.0])
def test_zenith_and_nadir_have_no_up_and_a_latitude_of_90_degrees(pitch_deg):
    up, latitude = found(looking((pitch_deg, 0, 0)))
    assert torch.equal(up[:, :, MIDDLE], torch.zeros(2, 1, 2, dtype=torch.float64))
    assert abs(math.degrees(latitude[0, 0, MIDDLE].item()) - pitch_deg) < 1e-6
    others = torch.arange(ROWS * COLS) != MIDDLE
    torch.testing.assert_close(
        up[:, :, others].norm(dim=-1), torch.ones(2, 1, 14).double(), rtol=0, atol=1e-12
    )


def test_a_ray_that_turns_out_of_the_lens_has_no_up():
    # A pinhole so wide that the top row looks up by more than 89 degrees: 0.1 rad further is behind it.
    wide = Pinhole(fx=0.01, fy=0.01, cx=2.5, cy=1.5, width=COLS, height=ROWS, pixel_origin="corner")
    up, latitude = found(looking((0, 0, 0), camera=wide))
    top = up[0, 0, 2]
    assert math.degrees(latitude[0, 0, 2].item()) > 89
    assert torch.equal(top, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(up[0, 0, 12], torch.tensor([0.0, -1.0]).double(), rtol=0, atol=1e-9)


def test_tokens_without_a_ray_are_zero():
    view = scene("fisheye_200deg")
    features = LatitudeUpMap().features(view)
    missing = ~view.valid.flatten(1)
    assert missing.any()
    assert torch.equal(features[missing], torch.zeros_like(features[missing]))
    assert (features[~missing].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("pitch_deg", [0.0, 90.0, 30.0])
def test_gradients_with_respect_to_poses_are_finite(pitch_deg):
    view = looking((pitch_deg, 0, 0))
    rotations = view.R_world_cam.clone().requires_grad_()
    again = ViewRays.from_poses(
        matrices(view.R_world_cam, view.center_world), view.dirs_cam, grid=(ROWS, COLS), camera=lens()
    )
    object.__setattr__(again, "R_world_cam", rotations)
    LatitudeUpMap().features(again, dtype=torch.float64).sin().sum().backward()
    assert torch.isfinite(rotations.grad).all()


# The released code


def test_latitudes_are_the_released_ones():
    arrays = released()
    features = LatitudeUpMap(rays_at="patch_corner").features(unified_rays(arrays), dtype=torch.float64)
    # The release computes its map in float32.
    torch.testing.assert_close(features[..., 2], arrays["ucpe_lat_map"].flatten(1), rtol=0, atol=2e-7)


def test_the_released_term_of_rodrigues_turns_up_by_two_degrees():
    camera = UnifiedCamera.from_fov(fov_x_deg=110.0, xi=0.7, height=9, width=16)
    draw = torch.Generator().manual_seed(0)
    turns = rotvec_to_matrix(torch.randn(2, 8, 3, generator=draw, dtype=torch.float64))
    view = seen_through(camera, turns, torch.zeros(2, 8, 3).double())
    right, latitude = found(view)
    wrong, same = found(view, released_rodrigues=True)
    assert torch.equal(latitude, same)
    apart = angle_deg(right, wrong)
    assert 1.3 < apart.mean() < 2.7
    assert 3.5 < apart.max() < 5.5


def test_the_released_turn_is_the_formula_with_a_square_of_the_axis():
    view = random_drive(3)
    up, _ = found(view, released_rodrigues=True)
    clip, camera, token = 1, 2, 4
    R = view.R_world_cam[clip, camera]
    d = R @ view.dirs_cam[clip, camera, token]
    k = torch.linalg.cross(d, torch.tensor([0.0, -1, 0]).double())
    k = k / k.norm()
    moved = (
        d * math.cos(0.1) + torch.linalg.cross(k, d) * math.sin(0.1) + k * k * d.sum() * (1 - math.cos(0.1))
    )
    pixel, seen = view.lens.project(R.T @ moved)
    step = pixel - torch.tensor([view.col[token] + 0.5, view.row[token] + 0.5])
    expected = step / step.norm() if seen else torch.zeros(2).double()
    torch.testing.assert_close(up[clip, camera, token], expected, rtol=0, atol=1e-12)


# Options


def test_a_map_needs_the_lens():
    view = random_drive()
    bare = ViewRays.from_poses(matrices(turned(), view.center_world), view.dirs_cam, grid=GRID)
    with pytest.raises(ValueError, match="LatitudeUpMap projects points into views and needs their lens"):
        LatitudeUpMap().features(bare)


@pytest.mark.parametrize("up_world", [(0.0, 0.0, 0.0), (math.nan, 0.0, 1.0), (math.inf, 0.0, 0.0)])
def test_what_is_no_direction_is_refused(up_world):
    with pytest.raises(ValueError, match="up_world must be a direction of three numbers"):
        LatitudeUpMap(up_world=up_world)


def test_it_is_cast_last_and_survives_json():
    view = looking((10, 20, 30))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = LatitudeUpMap().features(view)
    assert torch.equal(inside, LatitudeUpMap().features(view))
    assert torch.equal(inside, LatitudeUpMap().features(view, dtype=torch.float64).float())
    made = LatitudeUpMap(up_world=(0.0, 0.0, 1.0), released_rodrigues=True, rays_at="patch_corner")
    stored = json.loads(json.dumps(input_map_to_config(made)))
    assert stored["name"] == "latitude-up"
    assert input_map_from_config(stored) == made
    assert made.num_features == 3
