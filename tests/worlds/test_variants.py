"""Left and right variants: same past, bounded bend, as the definition says."""

import numpy as np
import pytest
import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.worlds import drive, random_drive, turn_variant
from merope.worlds.vehicle import AXLE_TO_CAMERA
from tests.worlds.test_drives import axle_motion


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


@pytest.mark.parametrize("start", [0, 8, 24])
def test_frames_up_to_the_start_are_bit_identical(start):
    base = random_drive(3, 25, 10.0)
    for side in ("left", "right"):
        variant = turn_variant(base, side=side, start=start)
        assert torch.equal(variant.T_world_cam[: start + 1], base.T_world_cam[: start + 1])
        assert torch.equal(variant.times, base.times)
        assert start == 24 or not torch.equal(variant.T_world_cam[start + 1 :], base.T_world_cam[start + 1 :])


@pytest.mark.parametrize("speed", [8.0, 10.0, 12.0])
def test_the_default_bends_by_20_to_40_degrees_in_16_frames(speed):
    base = steady(speed)
    left = np.degrees(headings(turn_variant(base, side="left", start=8))[-1])
    right = np.degrees(headings(turn_variant(base, side="right", start=8))[-1])
    assert 20.0 <= left <= 40.0
    assert right == pytest.approx(-left, abs=1e-9)


def test_left_and_right_of_a_straight_drive_mirror_each_other():
    left, right = (turn_variant(steady(9.0), side=side, start=5) for side in ("left", "right"))
    mirror = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(left.center_world * mirror, right.center_world, atol=1e-12, rtol=0)
    assert left.center_world[-1, 1] > 1.0


def test_a_standing_car_does_not_turn():
    base = steady(0.0)
    variant = turn_variant(base, side="left", start=4)
    torch.testing.assert_close(variant.T_world_cam, base.T_world_cam, atol=0, rtol=0)


def test_yaw_depends_on_metres_and_not_on_time():
    slow, fast = (turn_variant(steady(speed), side="left", start=0) for speed in (4.0, 8.0))
    # After equal metres: frame 20 at 4 m/s is frame 10 at 8 m/s; steps of 0.4 and 0.8 m sample the ramp differently.
    assert headings(slow)[20] == pytest.approx(headings(fast)[10], abs=0.01)


def test_variants_keep_distances_heights_and_the_limits_of_a_car():
    for seed in range(60):
        base = random_drive(seed, 25, 10.0)
        base_speed, _, _ = axle_motion(base, 10.0)
        for side in ("left", "right"):
            variant = turn_variant(base, side=side, start=8)
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
    more = abs(headings(turn_variant(window, side=sharper, start=0))[-1] - headings(window)[-1])
    less = abs(headings(turn_variant(window, side=other, start=0))[-1] - headings(window)[-1])
    assert more < 0.7 * less


def test_the_axle_still_rolls_where_the_camera_points():
    base = drive("curve", seed=4, num_frames=41, fps=20.0, vibration=0.0)
    variant = turn_variant(base, side="right", start=8)
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
        turn_variant(base, side="up", start=3)
    with pytest.raises(ValueError, match=r"start must be a frame index in \[0, 24\]; got 25"):
        turn_variant(base, side="left", start=25)
    unscaled = Poses(R_world_cam=base.R_world_cam, center_world=base.center_world, unit="normalized")
    with pytest.raises(TrajectoryError, match="must be in metres"):
        turn_variant(unscaled, side="left", start=3)
