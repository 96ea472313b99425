"""Left and right variants: same past, bounded bend, as the definition says, in any world."""

from functools import partial

import numpy as np
import pytest
import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.geometry.rotations import project_to_so3, rotation_angle, rotvec_to_matrix
from merope.geometry.turns import AXLE_TO_CAMERA, turn_variant
from merope.worlds import drive, random_drive
from tests.worlds.test_drives import axle_motion

# Streets have z up.
turned = partial(turn_variant, up_world=(0, 0, 1))


def headings(poses):
    return np.unwrap(np.arctan2(poses.R_world_cam[:, 1, 2].numpy(), poses.R_world_cam[:, 0, 2].numpy()))


def steady(speed, num_frames=25, fps=10.0):
    """A straight drive along x at constant speed."""
    rotation = torch.tensor([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]], dtype=torch.float64)
    center = torch.zeros(num_frames, 3, dtype=torch.float64)
    center[:, 0] = torch.arange(num_frames) * speed / fps
    center[:, 2] = 1.65
    times = torch.arange(num_frames, dtype=torch.float64) / fps
    return Poses(R_world_cam=rotation.expand(num_frames, 3, 3), center_world=center, times=times)


@pytest.mark.parametrize("start", [0, 8, 23])
def test_frames_up_to_the_start_are_bit_identical(start):
    base = random_drive(3, 25, 10.0)
    for side in ("left", "right"):
        variant = turned(base, side=side, start=start)
        assert torch.equal(variant.T_world_cam[: start + 1], base.T_world_cam[: start + 1])
        assert torch.equal(variant.times, base.times)
        assert not torch.equal(variant.T_world_cam[start + 1 :], base.T_world_cam[start + 1 :])


@pytest.mark.parametrize("speed", [8.0, 10.0, 12.0])
def test_the_default_bends_by_20_to_40_degrees_in_16_frames(speed):
    base = steady(speed)
    left = np.degrees(headings(turned(base, side="left", start=8))[-1])
    right = np.degrees(headings(turned(base, side="right", start=8))[-1])
    assert 20.0 <= left <= 40.0
    assert right == pytest.approx(-left, abs=1e-9)


def test_left_and_right_of_a_straight_drive_mirror_each_other():
    left, right = (turned(steady(9.0), side=side, start=5) for side in ("left", "right"))
    mirror = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(left.center_world * mirror, right.center_world, atol=1e-12, rtol=0)
    assert left.center_world[-1, 1] > 1.0


def test_a_standing_car_does_not_turn():
    base = steady(0.0)
    variant = turned(base, side="left", start=4)
    torch.testing.assert_close(variant.T_world_cam, base.T_world_cam, atol=0, rtol=0)


def test_yaw_depends_on_metres_and_not_on_time():
    slow, fast = (turned(steady(speed), side="left", start=0) for speed in (4.0, 8.0))
    # After equal metres: frame 20 at 4 m/s is frame 10 at 8 m/s; steps of 0.4 and 0.8 m sample the ramp differently.
    assert headings(slow)[20] == pytest.approx(headings(fast)[10], abs=0.01)


def test_variants_keep_distances_heights_and_the_limits_of_a_car():
    for seed in range(60):
        base = random_drive(seed, 25, 10.0)
        base_speed, _, _ = axle_motion(base, 10.0)
        for side in ("left", "right"):
            variant = turned(base, side=side, start=8)
            speed, yaw_rate, radius = axle_motion(variant, 10.0)
            np.testing.assert_allclose(speed, base_speed, atol=0.02 * 10.0)
            assert torch.equal(variant.center_world[:, 2], base.center_world[:, 2])
            torch.testing.assert_close(variant.R_world_cam[:, 2], base.R_world_cam[:, 2], atol=0, rtol=0)
            assert np.abs(speed * yaw_rate).max() <= 4.2
            assert radius >= 6.9
            bend = headings(variant)[-1] - headings(base)[-1]
            assert bend * (1.0 if side == "left" else -1.0) >= -1e-9


def test_a_base_turn_at_the_limit_gets_no_more_but_the_other_side_does():
    base = drive("roundabout", seed=1, num_frames=60, fps=10.0, vibration=0.0)
    tight = int(np.argmax(np.abs(np.diff(headings(base)))))
    sharper = "left" if np.diff(headings(base))[tight] > 0 else "right"
    other = "right" if sharper == "left" else "left"
    start = max(tight - 5, 0)
    window = base[start : start + 12]
    more = abs(headings(turned(window, side=sharper, start=0))[-1] - headings(window)[-1])
    less = abs(headings(turned(window, side=other, start=0))[-1] - headings(window)[-1])
    assert more < 0.7 * less


def test_the_axle_still_rolls_where_the_camera_points():
    base = drive("curve", seed=4, num_frames=41, fps=20.0, vibration=0.0)
    variant = turned(base, side="right", start=8)
    heading = headings(variant)
    forward = np.stack([np.cos(heading), np.sin(heading)], axis=1)
    step = np.diff(variant.center_world[:, :2].numpy() - AXLE_TO_CAMERA * forward, axis=0)
    middle = forward[1:] + forward[:-1]
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    assert np.abs(step[:, 0] * middle[:, 1] - step[:, 1] * middle[:, 0]).max() < 2e-3


def test_bad_arguments_say_what_to_pass():
    base = steady(5.0)
    # Under shape checks the Literal is refused before the function's own check.
    with pytest.raises((ValueError, TypeError), match="side"):
        turned(base, side="up", start=3)
    with pytest.raises(ValueError, match=r"start must be a frame index in \[0, 23\].*got 24"):
        turned(base, side="left", start=24)
    unscaled = Poses(R_world_cam=base.R_world_cam, center_world=base.center_world, unit="normalized")
    with pytest.raises(TrajectoryError, match="must be in metres"):
        turned(unscaled, side="left", start=3)
    for wrong in (
        {"curvature": -0.1},
        {"ramp_length": float("nan")},
        {"axle_to_camera": -1.0},
        {"min_radius": 0.0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            turned(base, side="left", start=3, **wrong)
    bare = Poses(R_world_cam=base.R_world_cam, center_world=base.center_world)
    with pytest.raises(TrajectoryError, match="--trajectory-fps, --rate"):
        turned(bare, side="left", start=3)
    down = Poses(
        R_world_cam=torch.diag(torch.tensor([1.0, -1, -1])).double().expand(9, 3, 3),
        center_world=bare.center_world[:9],
    )
    with pytest.raises(TrajectoryError, match="camera 0 looks straight up or down"):
        turned(down, side="left", start=3, fps=10.0)


def any_world(seed):
    """Axes like no other's, far from the origin."""
    generator = torch.Generator().manual_seed(seed)
    rotation = project_to_so3(torch.randn(3, 3, dtype=torch.float64, generator=generator))
    return rotation, torch.tensor([3.1e6, -2.2e6, 5.0e6], dtype=torch.float64)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("seed", range(4))
def test_a_drive_turns_the_same_whatever_its_world(side, seed):
    base = random_drive(seed, 49, 12.0)
    rotation, offset = any_world(seed)
    expected = turned(base, side=side, start=8).transformed(rotation, offset)
    moved = base.transformed(rotation, offset)
    found = turn_variant(moved, side=side, start=8, up_world=rotation[:, 2].tolist())
    # Coordinates of 5e6 m have their digits at 1e-9.
    torch.testing.assert_close(found.center_world, expected.center_world, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.R_world_cam, expected.R_world_cam, rtol=0, atol=1e-9)
    assert torch.equal(found.T_world_cam[:9], moved.T_world_cam[:9])


@pytest.mark.parametrize("axis", range(3))
def test_every_axis_may_be_up(axis):
    base = random_drive(5, 49, 12.0)
    order = torch.eye(3, dtype=torch.float64).roll(axis, dims=0)
    for sign in (1.0, -1.0):
        # Upside down is a half turn, not a mirror.
        rotation = (
            rotvec_to_matrix(torch.tensor([0.0, 0.0 if sign > 0 else np.pi, 0.0], dtype=torch.float64))
            @ order
        )
        expected = turned(base, side="left").transformed(rotation, torch.zeros(3, dtype=torch.float64))
        moved = base.transformed(rotation, torch.zeros(3, dtype=torch.float64))
        found = turn_variant(moved, side="left", up_world=rotation[:, 2].tolist())
        torch.testing.assert_close(found.T_world_cam, expected.T_world_cam, rtol=0, atol=1e-9)


def test_up_comes_from_the_cameras_where_nobody_says_it():
    base = drive("curve", seed=3, num_frames=49, fps=12.0)
    moved = base.transformed(*any_world(1))
    said = turn_variant(moved, side="left", up_world=any_world(1)[0][:, 2].tolist())
    found = turn_variant(moved, side="left")
    # The up direction of a drive is estimated: a car that pitches is a fraction of a degree off.
    torch.testing.assert_close(found.center_world, said.center_world, rtol=0, atol=0.05)
    assert torch.equal(found.T_world_cam[:9], moved.T_world_cam[:9])


@pytest.mark.parametrize("seed", range(6))
def test_the_left_variant_of_a_mirrored_drive_is_the_mirrored_right_variant(seed):
    def mirrored(poses):
        """The world in a mirror at y = 0, its cameras with their own x turned back."""
        flip_y = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
        flip_x = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
        return Poses(
            R_world_cam=flip_y[:, None] * poses.R_world_cam * flip_x,
            center_world=poses.center_world * flip_y,
            times=poses.times,
        )

    base = random_drive(seed, 49, 12.0)
    left, right = turned(mirrored(base), side="left"), mirrored(turned(base, side="right"))
    torch.testing.assert_close(left.T_world_cam, right.T_world_cam, rtol=0, atol=1e-11)
    assert not torch.allclose(left.center_world, mirrored(base).center_world) or base.path_length < 1.0


def test_a_camera_on_no_car_turns_about_itself():
    rotation = torch.eye(3, dtype=torch.float64).expand(20, 3, 3)
    center = torch.zeros(20, 3, dtype=torch.float64)
    center[:, 0] = 0.3 * torch.arange(20)
    sideways = Poses(R_world_cam=rotation, center_world=center, times=torch.arange(20).double() / 10)
    variant = turn_variant(sideways, side="left", start=0, up_world=(0, -1, 0), axle_to_camera=0.0)
    torch.testing.assert_close(variant.step_lengths, sideways.step_lengths)
    assert float(torch.rad2deg(rotation_angle(sideways.R_world_cam[-1], variant.R_world_cam[-1]))) > 5
    rising = Poses(R_world_cam=rotation, center_world=center[:, [1, 0, 2]], times=sideways.times)
    still = turn_variant(rising, side="left", start=0, up_world=(0, -1, 0))
    torch.testing.assert_close(still.T_world_cam, rising.T_world_cam)


def test_the_vehicle_sets_the_limits():
    base = steady(12.0)
    gentle = turned(base, side="left", start=0, curvature=1.0, max_lateral_acceleration=1.0)
    brisk = turned(base, side="left", start=0, curvature=1.0, min_radius=50.0)
    # 1 m/s^2 at 12 m/s is a radius of 144 m; after the ramp each step turns by its length over the radius.
    np.testing.assert_allclose(np.diff(headings(gentle))[5:], 1.2 / 144.0, rtol=1e-5)
    np.testing.assert_allclose(np.diff(headings(brisk))[5:], 1.2 / 50.0, rtol=1e-5)
