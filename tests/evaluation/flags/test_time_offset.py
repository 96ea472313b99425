"""A shift in time is found where motion varies, to the frame and in seconds, and not invented where it does not."""

import pytest
import torch

from merope.evaluation.flags.time_offset import find_time_offset
from merope.evaluation.metrics.paper import Aligned
from tests.evaluation.trajectories import city_drive, perturbed, straight, turning, wandering

DRIVE = city_drive(140)


def offset_between(commanded, estimated):
    return find_time_offset(commanded, Aligned.from_poses(commanded, estimated))


@pytest.mark.parametrize("frames", [-15, -6, -2, -1, 1, 2, 3, 9, 15])
@pytest.mark.parametrize("scale", [1.0, 0.04])
def test_a_shift_is_found_to_the_frame_at_any_scale(frames, scale):
    commanded = DRIVE[40:89]
    # The estimate's frame t shows the command's frame t - frames.
    estimated = perturbed(DRIVE[40 - frames : 89 - frames], 1, turn_deg=0.02, shift=0.002, scale=scale)
    found = offset_between(commanded, estimated)
    assert found is not None
    assert found.num_frames == frames
    assert found.scale == pytest.approx(1 / scale, rel=0.02)
    assert ("later" if frames > 0 else "earlier") in found.words


def test_seconds_are_said_where_there_are_times():
    times = 100 + 0.1 * torch.arange(49, dtype=torch.float64)
    found = offset_between(DRIVE[40:89].with_times(times), DRIVE[36:85])
    assert found.seconds == pytest.approx(0.4)
    assert "4 frames later (0.4 s)" in found.words
    assert offset_between(DRIVE[40:89], DRIVE[36:85]).seconds is None


@pytest.mark.parametrize("path", [straight(70), turning(70, turn_deg=70)])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_at_constant_velocity_nothing_is_said(path, noise):
    estimated = perturbed(path[10:59], 2, turn_deg=noise, shift=noise)
    assert offset_between(path[:49], estimated) is None


def test_a_shift_of_a_handful_of_frames_needs_motion_to_compare():
    assert offset_between(DRIVE[40:48], DRIVE[41:49]) is None
    assert offset_between(DRIVE[40:42], DRIVE[41:43]) is None


@pytest.mark.parametrize("seed", range(20))
def test_two_drives_that_have_nothing_to_do_with_each_other_are_not_matched_up(seed):
    assert offset_between(wandering(49, seed), wandering(49, seed + 100)) is None
    start = 3 * seed
    assert offset_between(turning(49, turn_deg=80), DRIVE[start : start + 49]) is None


def test_the_same_poses_are_not_shifted():
    assert offset_between(DRIVE, DRIVE) is None
