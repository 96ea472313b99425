"""The geometry behind XFeat on synthetic tracks: exact without noise, any lens, and the clips that hold no path."""

import math

import pytest
import torch

from merope.cameras import Equirectangular, KannalaBrandt, Pinhole, UnifiedCamera
from merope.evaluation.estimators.features.chain import ChainOptions, chain
from merope.evaluation.estimators.features.tracks import Tracks, join_matches
from merope.evaluation.estimators.features.two_view import (
    RaySet,
    epipolar_errors_px,
    rays_of_pixels,
    relative_pose,
    resect,
    turn_between,
)
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotation_angle, rotvec_to_matrix
from tests.support.drives import drive

PINHOLE = Pinhole.from_fov(fov_x_deg=80, height=300, width=500)
LENSES = [
    PINHOLE,
    UnifiedCamera.from_fov(fov_x_deg=150, xi=1.1, height=300, width=500),
    KannalaBrandt.from_fov(fov_x_deg=190, height=300, width=400),
    Equirectangular.full_sphere(height=200, width=400),
]


@pytest.fixture(scope="module", autouse=True)
def _poselib():
    pytest.importorskip("poselib", reason="poselib is not installed: pip install 'merope[eval]'")


def scene(num: int = 500, seed: int = 0) -> torch.Tensor:
    """Points around a street along z, metres."""
    random = torch.rand(num, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return random * torch.tensor([24.0, 10.0, 50.0]) + torch.tensor([-12.0, -7.0, -8.0])


def seen_by(poses: Poses, camera, points: torch.Tensor, *, noise_px: float = 0.0) -> Tracks:
    """Every observation of the points, by projection through the lens and back."""
    random = torch.Generator().manual_seed(1)
    views, numbers, rays = [], [], []
    for view in range(len(poses)):
        points_cam = (points - poses.center_world[view]) @ poses.R_world_cam[view]
        pixels, mapped = camera.project(points_cam)
        pixels = pixels + noise_px * torch.randn(pixels.shape, dtype=torch.float64, generator=random)
        found, usable = rays_of_pixels(camera, pixels)
        kept = (mapped & usable & camera.in_image(pixels)).nonzero().squeeze(-1)
        views.append(torch.full_like(kept, view))
        numbers.append(kept)
        rays.append(found[kept])
    return Tracks(
        view_of=torch.cat(views),
        track_of=torch.cat(numbers),
        rays=RaySet(
            dirs_cam=torch.cat([found.dirs_cam for found in rays]),
            angle_per_px=torch.cat([found.angle_per_px for found in rays]),
        ),
        num_views=len(poses),
        num_tracks=len(points),
    )


def errors(found, true: Poses) -> tuple[float, float]:
    """Largest rotation error in radians, and of centres in metres after the one scale, from the first camera."""
    a = Poses(R_world_cam=found.R_world_cam, center_world=found.center_world).rebase_to_first()
    b = true.rebase_to_first()
    scale = float((a.center_world * b.center_world).sum() / a.center_world.square().sum())
    assert scale > 0
    return (
        float(rotation_angle(a.R_world_cam, b.R_world_cam).max()),
        float((scale * a.center_world - b.center_world).norm(dim=-1).max()),
    )


@pytest.mark.parametrize("camera", LENSES, ids=lambda camera: type(camera).__name__)
def test_without_noise_the_path_is_exact_under_any_lens(camera):
    path = drive(9, length=8.0, turn_deg=30)
    rotation, center = errors(chain(seen_by(path, camera, scene())), path)
    assert rotation < 1e-7 and center < 1e-6


def test_noise_of_half_a_pixel_stays_within_a_tenth_of_a_degree_and_a_percent():
    path = drive(9, length=8.0, turn_deg=30)
    found = chain(seen_by(path, PINHOLE, scene(), noise_px=0.5))
    rotation, center = errors(found, path)
    # measured: 0.02 degrees and 0.9 cm of 8 m
    assert math.degrees(rotation) < 0.1 and center < 0.08
    assert 0.3 < found.error_px < 1.0


def test_a_stop_on_the_way_keeps_the_scale_of_what_follows():
    path = drive(6, length=5.0)
    rows = torch.tensor([0, 1, 2, 3, 3, 3, 3, 4, 5])
    stopping = Poses(R_world_cam=path.R_world_cam[rows], center_world=path.center_world[rows])
    found = chain(seen_by(stopping, PINHOLE, scene()))
    steps = found.center_world.diff(dim=0).norm(dim=-1)
    torch.testing.assert_close(
        steps / steps[0], torch.tensor([1.0, 1, 1, 0, 0, 0, 1, 1]).double(), atol=1e-6, rtol=0
    )


def test_a_third_of_wrong_matches_changes_nothing_much():
    path = drive(7, length=6.0, turn_deg=20)
    tracks = seen_by(path, PINHOLE, scene())
    generator = torch.Generator().manual_seed(2)
    wrong = torch.rand(len(tracks.view_of), generator=generator) < 0.33
    rays = tracks.rays.dirs_cam.clone()
    rays[wrong] = rays[wrong][torch.randperm(int(wrong.sum()), generator=generator)]
    mixed = Tracks(
        view_of=tracks.view_of,
        track_of=tracks.track_of,
        rays=RaySet(dirs_cam=rays, angle_per_px=tracks.rays.angle_per_px),
        num_views=tracks.num_views,
        num_tracks=tracks.num_tracks,
    )
    rotation, center = errors(chain(mixed), path)
    assert rotation < 1e-3 and center < 0.02


def test_a_camera_that_only_turns_has_rotations_and_no_path():
    yaw = torch.zeros(6, 3, dtype=torch.float64)
    yaw[:, 1] = torch.linspace(0, 0.4, 6)
    turning = Poses(R_world_cam=rotvec_to_matrix(yaw), center_world=torch.zeros(6, 3, dtype=torch.float64))
    found = chain(seen_by(turning, PINHOLE, scene(), noise_px=0.3))
    assert found.only_turns and bool(found.found.all())
    assert float(found.center_world.abs().max()) == 0
    assert float(rotation_angle(found.R_world_cam, turning.R_world_cam).max()) < 1e-3


def test_frames_of_another_place_are_not_found_and_the_reason_is_given():
    path = drive(8, length=7.0)
    tracks = seen_by(path, PINHOLE, scene())
    # The last two frames see points of their own.
    there = tracks.view_of >= 6
    split = Tracks(
        view_of=tracks.view_of,
        track_of=torch.where(there, tracks.track_of + tracks.num_tracks, tracks.track_of),
        rays=tracks.rays,
        num_views=8,
        num_tracks=2 * tracks.num_tracks,
    )
    found = chain(split)
    assert found.found.tolist() == [True] * 6 + [False] * 2
    assert set(found.reasons) == {6, 7}
    assert "0 located points in sight, 16 that agree are needed" in found.reasons[7]


def test_the_same_tracks_give_the_same_bits():
    tracks = seen_by(drive(6, length=5.0, turn_deg=20), PINHOLE, scene(), noise_px=0.5)
    first, second = chain(tracks), chain(tracks, ChainOptions())
    assert torch.equal(first.center_world, second.center_world)
    assert torch.equal(first.R_world_cam, second.R_world_cam)


def two_frames(camera, *, length: float = 1.0):
    tracks = seen_by(drive(2, length=length, turn_deg=10), camera, scene())
    both = (tracks.table() >= 0).all(dim=0)
    return [tracks.rays[tracks.table()[view][both]] for view in range(2)], both


def test_the_epipolar_error_of_a_ray_moved_across_by_one_pixel_is_one_in_its_own_image():
    (first, second), _ = two_frames(PINHOLE)
    pair = relative_pose(first, second, threshold_px=1.0)
    assert pair is not None
    normal = torch.linalg.cross(
        pair.direction_first.expand(len(first), 3), second.dirs_cam @ pair.R_first_second.mT
    )
    normal = normal / normal.norm(dim=-1, keepdim=True)
    moved = first.dirs_cam + normal * first.angle_per_px[:, None]
    moved = RaySet(dirs_cam=moved / moved.norm(dim=-1, keepdim=True), angle_per_px=first.angle_per_px)
    # Two images share the error, so the first order says at most one and, for two alike, about the root of a half.
    off = epipolar_errors_px(moved, second, pair.R_first_second, pair.direction_first)
    assert float(off.median()) == pytest.approx(math.sqrt(0.5), abs=0.1)
    assert float(off.max()) <= 1.001


def test_the_direction_points_from_the_first_centre_to_the_second():
    (first, second), _ = two_frames(PINHOLE)
    pair = relative_pose(first, second, threshold_px=1.0)
    assert pair is not None and bool(pair.inliers.all())
    R_first_second, offset = drive(2, length=1.0, turn_deg=10).relative(0, 1)
    assert float(pair.direction_first @ offset) == pytest.approx(1.0, abs=1e-9)
    assert float(rotation_angle(pair.R_first_second, R_first_second)) < 1e-7


def test_a_turn_alone_leaves_nothing_and_a_step_leaves_parallax():
    turn = rotvec_to_matrix(torch.tensor([0.0, 0.2, 0.05], dtype=torch.float64))
    (first, second), _ = two_frames(PINHOLE)
    turned = RaySet(dirs_cam=first.dirs_cam @ turn, angle_per_px=first.angle_per_px)
    found, left = turn_between(first, turned)
    assert float(rotation_angle(found, turn)) < 1e-9 and float(left.max()) < 1e-6
    # measured: 2.8 px after a metre
    assert float(turn_between(first, second)[1].median()) > 2


def test_a_camera_is_found_by_known_points_beyond_a_pinholes_reach():
    camera = KannalaBrandt.from_fov(fov_x_deg=190, height=300, width=400)
    points, path = scene(), drive(3, length=3.0, turn_deg=40)
    tracks = seen_by(path, camera, points)
    rows = tracks.table()[2]
    placed = resect(points[rows >= 0], tracks.rays[rows[rows >= 0]], threshold_px=2.0)
    assert placed is not None
    R_world_cam, center, inliers = placed
    assert bool(inliers.all())
    torch.testing.assert_close(center, path.center_world[2], atol=1e-6, rtol=0)
    torch.testing.assert_close(R_world_cam, path.R_world_cam[2], atol=1e-7, rtol=0)


def test_the_angle_of_a_pixel_is_that_of_its_solid_angle():
    rays, usable = rays_of_pixels(
        PINHOLE, torch.tensor([[250.0, 150.0], [500.0, 150.0]], dtype=torch.float64)
    )
    focal = float(PINHOLE.fx)
    assert bool(usable.all())
    # At the edge, 40 degrees off the axis, a pixel covers cos^3 of the middle's solid angle.
    ratio = float((rays.angle_per_px[1] / rays.angle_per_px[0]) ** 2)
    assert float(rays.angle_per_px[0]) == pytest.approx(1 / focal, rel=1e-4)
    assert ratio == pytest.approx(math.cos(math.radians(40)) ** 3, rel=1e-4)


def test_matches_join_into_tracks_that_see_a_frame_once():
    rays = [RaySet(dirs_cam=torch.eye(3).double(), angle_per_px=torch.ones(3).double()) for _ in range(3)]
    pairs = {
        (0, 1): torch.tensor([[0, 1]]),
        (1, 2): torch.tensor([[1, 2], [0, 0]]),
        # Agrees with the first two joins; then one that would put two features of frame 2 into one track.
        (0, 2): torch.tensor([[0, 2], [0, 0]]),
    }
    tracks = join_matches(rays, pairs)
    found = sorted(
        sorted(
            (int(view), int(ray.argmax()))
            for view, ray in zip(
                tracks.view_of[tracks.track_of == number],
                tracks.rays.dirs_cam[tracks.track_of == number],
                strict=True,
            )
        )
        for number in range(tracks.num_tracks)
    )
    assert found == [[(0, 0), (1, 1), (2, 2)], [(1, 0), (2, 0)]]


def test_a_track_that_sees_a_frame_twice_is_refused():
    rays = RaySet(dirs_cam=torch.eye(3).double()[:2], angle_per_px=torch.ones(2).double())
    with pytest.raises(ValueError, match="at most once a frame"):
        Tracks(
            view_of=torch.tensor([0, 0]), track_of=torch.tensor([0, 0]), rays=rays, num_views=1, num_tracks=1
        )
