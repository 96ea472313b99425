"""Frames by their times: variable rates, gaps, and resampling that invents no pose unless it is asked to."""

import numpy as np
import pytest
import torch

from merope.data.checks.clip_report import clip_report
from merope.data.clips.clip import ClipError
from merope.data.clips.frame_timing import FrameTiming, frames_at_rate, steady_rate, stretches
from tests.data.clips.test_clip import clip_of, drive, numbers


def timed_clip(times, **changes):
    """Frame n stands n metres ahead, at these times."""
    times = torch.as_tensor(times, dtype=torch.float64)
    return clip_of(len(times), poses=drive(len(times)).with_times(times), **changes)[0]


def sweeps_between_key_frames(num_intervals=6):
    """12 Hz of which every second interval of half a second has 4 frames between its ends, not 5: one was dropped."""
    keep = [n for n in range(6 * num_intervals + 1) if n % 12 != 3]
    return np.array(keep) / 12.0


def test_the_report_has_the_shortest_mean_and_longest_step():
    timing = FrameTiming.of(np.array([1.0, 1.1, 1.4, 1.5]))
    assert (timing.dt_min, timing.dt_mean, timing.dt_max) == pytest.approx((0.1, 0.5 / 3, 0.3))
    assert FrameTiming.of(np.array([1.0])) is None
    assert clip_of(3)[0].timing is None
    facts = clip_report(timed_clip([0.0, 0.1, 0.3]))
    assert facts["dt_s"] == {"dt_min": 0.1, "dt_mean": pytest.approx(0.15), "dt_max": pytest.approx(0.2)}


def test_the_rate_is_that_between_gaps():
    # 8 and 9 frames of 29.97 Hz by turns, as in sampled clips.
    alternating = np.cumsum([0, *[8, 9] * 8]) / 29.97
    assert steady_rate(alternating) == pytest.approx(29.97 / 8.5)
    assert steady_rate(np.array([0, 1, 2, 3, 9, 10, 11]) / 12.0) == pytest.approx(12.0)
    with pytest.raises(ValueError, match="two or more times that increase; got 1 times"):
        steady_rate(np.array([3.0]))


def test_even_times_are_thinned_as_frame_numbers_are():
    for fps, rate, count in [
        (12.0, 6.0, 13),
        (12.0, 4.0, 14),
        (12.0, 10.0, 13),
        (30.0, 20.0, 31),
        (12.0, 7.0, 50),
    ]:
        step = fps / rate
        wanted = [round(k * step) for k in range(count) if round(k * step) < count and k * step < count - 0.5]
        numbers_taken, moments = frames_at_rate(np.arange(count) / fps + 1e5, fps=fps, rate=rate)
        assert numbers_taken == wanted
        assert np.abs(moments - 1e5 - np.arange(len(wanted)) / rate).max() < 1e-9


def test_of_uneven_times_the_nearest_frames_are_taken():
    times = np.array([0.0, 0.04, 0.11, 0.18, 0.2, 0.31, 0.38, 0.41])
    taken, moments = frames_at_rate(times, fps=18.0, rate=10.0)
    assert taken == [0, 2, 4, 5, 7]
    for number, moment in zip(taken, moments, strict=True):
        assert abs(times[number] - moment) == np.abs(times - moment).min()


def test_a_missing_frame_ends_a_stretch_and_jitter_does_not():
    assert stretches(np.array([0, 1, 2, 4, 5, 6.4]) / 12, fps=12.0) == [range(3), range(3, 6)]


def test_no_window_reaches_over_a_missing_frame():
    times = sweeps_between_key_frames()
    clip = timed_clip(times)
    windows = clip.windows(5)
    assert len(windows) >= 4
    for window in windows:
        assert np.diff(window.times).max() < 1.5 / 12
        # Each frame has its own pose and its own time.
        assert np.array_equal(window.times, times[numbers(window)])
    assert any(np.diff(window.times).max() > 1.5 / 12 for window in clip.windows(5, allow_gaps=True))
    with pytest.raises(
        ClipError,
        match=r"frames are missing in 3 places: first, frame 3 comes 0.167 s after.*has 11 frames.*--allow-gaps",
    ):
        clip.windows(13)


def test_resampling_takes_frames_and_poses_together():
    times = np.cumsum([0.0, *np.tile([0.03, 0.05, 0.04], 20)])
    clip = timed_clip(times, fps=25.0)
    thinned = clip.at_rate(10.0)
    chosen = numbers(thinned)
    assert np.array_equal(thinned.times, times[chosen])
    assert np.abs(thinned.times - np.arange(len(chosen)) / 10).max() <= 0.025
    assert thinned.fps == 10.0


def test_poses_are_made_up_only_if_asked_for():
    times = np.cumsum([0.0, *np.tile([0.03, 0.05, 0.04], 20)])
    clip = timed_clip(times, fps=25.0)
    even = clip.at_rate(10.0, interpolate_poses=True)
    moments = np.arange(len(even)) / 10
    assert np.abs(even.times - moments).max() < 1e-9
    # Frame n is n metres ahead, so places between frames are known.
    assert (
        np.abs(even.poses.center_world[:, 2].numpy() - np.interp(moments, times, np.arange(len(times)))).max()
        < 1e-9
    )
    assert even.frames()[:, 0, 0, 0].tolist() == clip.at_rate(10.0).frames()[:, 0, 0, 0].tolist()


def test_a_clip_with_a_gap_is_not_resampled_unless_asked_for():
    clip = timed_clip([0, 1 / 12, 2 / 12, 6 / 12, 7 / 12, 8 / 12])
    with pytest.raises(
        ClipError, match=r"frame 3 comes 0\.333 s after the one before, at 12 frames a second"
    ):
        clip.at_rate(6.0)
    assert numbers(clip.at_rate(6.0, allow_gaps=True)) == [0, 2, 3, 5]


def test_missing_frames_are_noted():
    (note,) = clip_report(timed_clip(np.array([0, 1, 2, 5, 6, 8]) / 12))["notes"]
    assert note == "frames are missing in 2 places: up to 0.250 s lie between two, at 12 a second"


def test_metres_that_are_no_steps_of_a_camera_are_noted():
    assert clip_report(clip_of(5)[0])["notes"] == []
    for factor in (1e-4, 100.0):
        clip = clip_of(5, poses=drive(5).scaled(factor))[0]
        assert "stands still, or the unit is not metres" in clip_report(clip)["notes"][0]
