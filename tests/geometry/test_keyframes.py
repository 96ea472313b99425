"""Paths through keyframes: they pass every one, turn the shorter way, and keep an even speed."""

import math

import pytest
import torch

from merope.errors import TrajectoryError
from merope.geometry.keyframes import half_turns, keyframe_path
from merope.geometry.poses import Poses
from merope.geometry.presets import looking
from merope.geometry.rotations import quaternion_to_matrix, rotation_angle, rotvec_to_matrix

NUM = 2001


def keyframes(centers, yaw_deg=None, times=None):
    """Level cameras with these headings to the left."""
    center = torch.tensor(centers, dtype=torch.float64)
    yaw = torch.deg2rad(torch.tensor(yaw_deg or [0.0] * len(center), dtype=torch.float64))
    return Poses(
        R_world_cam=looking(yaw, torch.zeros_like(yaw)),
        center_world=center,
        times=None if times is None else torch.tensor(times, dtype=torch.float64),
    )


@pytest.fixture
def uneven():
    """Chords of 1, 8 and 0.5 m, with turns of any size between them."""
    generator = torch.Generator().manual_seed(4)
    chords = torch.tensor([[1.0, 0, 0], [0, 2, math.sqrt(60)], [0.3, 0, 0.4]], dtype=torch.float64)
    return Poses(
        R_world_cam=rotvec_to_matrix(torch.randn(4, 3, dtype=torch.float64, generator=generator)),
        center_world=torch.cat([torch.zeros(1, 3, dtype=torch.float64), chords.cumsum(0)]),
        times=torch.tensor([1.0, 1.5, 4.0, 4.1], dtype=torch.float64),
    )


@pytest.mark.parametrize("shape", ["spline", "straight"])
def test_the_speed_is_constant_and_every_keyframe_is_passed(uneven, shape):
    path = keyframe_path(uneven, num_frames=NUM, fps=100.0, shape=shape)
    steps = path.step_lengths
    # Straight pieces meet in corners, where one step is shorter than the way.
    corners = 2 if shape == "straight" else 0
    uneven_steps = (steps / steps.median() - 1).abs() > 1e-3
    assert int(uneven_steps.sum()) <= corners
    torch.testing.assert_close(path.T_world_cam[[0, -1]], uneven.T_world_cam[[0, -1]], rtol=0, atol=1e-12)
    torch.testing.assert_close(path.times, torch.arange(NUM, dtype=torch.float64) / 100)
    for pose in uneven:
        distance = (path.center_world - pose.center_world).norm(dim=-1)
        nearest = int(distance.argmin())
        assert float(distance[nearest]) < 0.6 * float(steps.max())
        assert float(rotation_angle(path.R_world_cam[nearest], pose.R_world_cam[0])) < 0.05


def test_straight_pieces_are_straight(uneven):
    path = keyframe_path(uneven, num_frames=NUM, fps=100.0, shape="straight")
    assert path.path_length == pytest.approx(uneven.path_length, rel=1e-3)
    frames = int(1.0 / uneven.path_length * (NUM - 1))
    torch.testing.assert_close(path.center_world[:frames, 1:], torch.zeros(frames, 2, dtype=torch.float64))


def test_a_spline_has_no_corners_and_goes_through_a_circle():
    angle = torch.arange(9, dtype=torch.float64) * math.pi / 8
    center = torch.stack([angle.cos(), torch.zeros(9), angle.sin()], dim=-1)
    points = Poses(R_world_cam=torch.eye(3, dtype=torch.float64).expand(9, 3, 3), center_world=center)
    path = keyframe_path(points, num_frames=NUM, fps=100.0)
    direction = torch.nn.functional.normalize(path.center_world.diff(dim=0), dim=-1)
    assert float((direction[1:] - direction[:-1]).norm(dim=-1).max()) < 0.01
    inner = path.center_world[300:-300].norm(dim=-1)
    assert float((inner - 1).abs().max()) < 2e-3
    assert float(path.step_lengths.max() / path.step_lengths.min() - 1) < 1e-5


def test_a_spline_is_centripetal():
    # The published definition, by repeated linear interpolation over knots (Barry and Goldman).
    points = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1.2, 0, 2], [4, 1, 2]], dtype=torch.float64)
    knots = torch.cat([torch.zeros(1), points.diff(dim=0).norm(dim=-1).sqrt().cumsum(0)]).double()
    where = knots[1] + torch.linspace(0, 1, 4001, dtype=torch.float64)[:, None] * (knots[2] - knots[1])

    def between(a, b, i, j):
        return ((knots[j] - where) * a + (where - knots[i]) * b) / (knots[j] - knots[i])

    a = [between(points[i], points[i + 1], i, i + 1) for i in range(3)]
    b = [between(a[i], a[i + 1], i, i + 2) for i in range(2)]
    expected = between(b[0], b[1], 1, 2)
    poses = Poses(R_world_cam=torch.eye(3, dtype=torch.float64).expand(4, 3, 3), center_world=points)
    path = keyframe_path(poses, num_frames=4001, fps=1.0)
    piece = path.center_world[(path.center_world[:, 0] > 1.001) & (path.center_world[:, 2] < 1.99)]
    assert len(piece) > 500
    assert float(torch.cdist(piece, expected).min(dim=1).values.max()) < 1e-3


def test_smooth_starts_and_ends_at_rest(uneven):
    steps = keyframe_path(uneven, num_frames=NUM, fps=100.0, easing="smooth").step_lengths
    assert float(steps[0]) < 1e-5 * float(steps.max())
    assert float(steps[-1]) < 1e-5 * float(steps.max())


@pytest.mark.parametrize("shape", ["spline", "straight"])
def test_keyframes_with_times_are_passed_at_them(uneven, shape):
    path = keyframe_path(uneven, fps=10.0, shape=shape, pace="times")
    assert len(path) == 32
    torch.testing.assert_close(path.times, 1 + torch.arange(32, dtype=torch.float64) / 10)
    torch.testing.assert_close(path[[0, 5, 30, 31]].T_world_cam, uneven.T_world_cam, rtol=0, atol=1e-9)
    steps = path.step_lengths[5:30]
    assert float(steps.max() / steps.min() - 1) < (1e-9 if shape == "straight" else 0.02)
    counted = keyframe_path(uneven, num_frames=63, shape=shape, pace="times")
    torch.testing.assert_close(counted[::2].T_world_cam, path.T_world_cam, rtol=0, atol=1e-9)
    if shape == "straight":
        torch.testing.assert_close(
            path.T_world_cam, uneven.interpolate(path.times).T_world_cam, rtol=0, atol=1e-9
        )


def test_turns_go_the_shorter_way_at_an_even_pace():
    path = keyframe_path(keyframes([[0, 0, 0], [0, 0, 9]], [170, -170]), num_frames=21, fps=1.0)
    turns = torch.rad2deg(rotation_angle(path.R_world_cam[:-1], path.R_world_cam[1:]))
    torch.testing.assert_close(turns, torch.ones(20, dtype=torch.float64))
    assert float(path.R_world_cam[10, 2, 2]) == pytest.approx(-1)


def test_the_sign_of_a_quaternion_is_not_seen():
    quaternion = torch.tensor([[0.1, 0.2, 0.3, 0.9], [0.2, 0.6, -0.1, 0.7]], dtype=torch.float64)
    center = torch.tensor([[0.0, 0, 0], [0, 0, 1]], dtype=torch.float64)
    paths = [
        keyframe_path(
            Poses(R_world_cam=quaternion_to_matrix(signs * quaternion), center_world=center),
            num_frames=9,
            fps=1.0,
        )
        for signs in (1.0, torch.tensor([[1.0], [-1.0]], dtype=torch.float64))
    ]
    torch.testing.assert_close(paths[0].T_world_cam, paths[1].T_world_cam, rtol=0, atol=1e-12)
    whole = rotation_angle(paths[0].R_world_cam[0], paths[0].R_world_cam[-1])
    half = rotation_angle(paths[0].R_world_cam[0], paths[0].R_world_cam[4])
    torch.testing.assert_close(2 * half, whole)


@pytest.mark.parametrize("noise_deg", [0.0, 1e-9, -1e-9])
def test_a_half_turn_goes_to_the_right_and_is_named(noise_deg):
    points = keyframes([[0, 0, 0], [0, 0, 1], [0, 0, 2]], [0, 180 + noise_deg, 180])
    path = keyframe_path(points, num_frames=5, fps=1.0)
    torch.testing.assert_close(
        path.R_world_cam[1, :, 2], torch.tensor([1.0, 0, 0], dtype=torch.float64), rtol=0, atol=1e-9
    )
    assert half_turns(points) == [0]
    assert half_turns(keyframes([[0, 0, 0], [0, 0, 1]], [0, 179.9])) == []


def test_a_camera_that_only_turns_has_constant_angular_speed():
    path = keyframe_path(keyframes([[5, 5, 5]] * 3, [0, 10, 100]), num_frames=101, fps=1.0)
    turns = torch.rad2deg(rotation_angle(path.R_world_cam[:-1], path.R_world_cam[1:]))
    torch.testing.assert_close(turns, torch.ones(100, dtype=torch.float64))
    assert path.path_length == 0


def test_a_repeated_keyframe_is_passed_once():
    once = keyframes([[0, 0, 0], [0, 0, 2], [2, 0, 3]], [0, 10, 20])
    twice = once[[0, 1, 1, 2]]
    expected, found = (keyframe_path(points, num_frames=51, fps=1.0) for points in (once, twice))
    torch.testing.assert_close(found.T_world_cam, expected.T_world_cam, rtol=0, atol=1e-9)
    # With times, it is where the camera waits.
    waiting = twice.with_times(torch.tensor([0.0, 1.0, 2.0, 3.0]))
    path = keyframe_path(waiting, fps=10.0, pace="times")
    torch.testing.assert_close(path.center_world[10:21], once.center_world[1].expand(11, 3))


def test_a_path_far_from_the_origin_keeps_its_digits():
    far = torch.tensor([6.4e6, -2.1e6, 3.3e6], dtype=torch.float64)
    near = keyframes([[0, 0, 0], [0, 0, 2], [2, 0, 3]], [0, 10, 20])
    moved = near.transformed(torch.eye(3), far)
    expected, found = (keyframe_path(points, num_frames=51, fps=1.0) for points in (near, moved))
    torch.testing.assert_close(found.center_world - far, expected.center_world, rtol=0, atol=5e-9)


def test_what_has_no_path_is_refused(uneven):
    with pytest.raises(TrajectoryError, match="there is one"):
        keyframe_path(uneven[:1], num_frames=5, fps=1.0)
    with pytest.raises(TrajectoryError, match="keyframes 0 and 1 have the same centre"):
        keyframe_path(keyframes([[0, 0, 0], [0, 0, 0], [0, 0, 1]], [0, 90, 0]), num_frames=5, fps=1.0)
    with pytest.raises(TrajectoryError, match="all the same pose"):
        keyframe_path(keyframes([[0, 0, 0], [0, 0, 0]]), num_frames=5, fps=1.0)
    with pytest.raises(TrajectoryError, match="needs keyframes with times"):
        keyframe_path(keyframes([[0, 0, 0], [0, 0, 1]]), fps=1.0, pace="times")
    with pytest.raises(ValueError, match="give both"):
        keyframe_path(uneven, num_frames=5)
    with pytest.raises(ValueError, match="either num_frames or fps"):
        keyframe_path(uneven, num_frames=5, fps=2.0, pace="times")
    with pytest.raises(ValueError, match="easing is for constant speed"):
        keyframe_path(uneven, fps=2.0, pace="times", easing="smooth")
