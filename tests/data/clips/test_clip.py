"""Clips: frames on demand, windows of them, each frame with its own pose."""

import pickle

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.data.clips.clip import Clip, ClipError
from merope.errors import MeropeError
from merope.geometry.poses import Poses

HEIGHT, WIDTH = 4, 6


def drive(num_frames):
    """Frame n is n everywhere and stands n metres ahead."""
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(num_frames, 1, 1)
    T_world_cam[:, 2, 3] = torch.arange(num_frames, dtype=torch.float64)
    return Poses.from_matrices(T_world_cam)


def clip_of(num_frames, **changes):
    asked = []

    def decode(indices):
        asked.extend(indices)
        shape = (len(indices), HEIGHT, WIDTH, 3)
        return np.broadcast_to(np.array(indices, dtype=np.uint8)[:, None, None, None], shape)

    values = {
        "clip_id": "a",
        "poses": drive(num_frames),
        "lens": Pinhole.from_fov(fov_x_deg=90.0, height=HEIGHT, width=WIDTH),
        "fps": 12.0,
        "decode": decode,
    }
    return Clip(**{**values, **changes}), asked


def numbers(clip):
    """Which frames of the whole clip a window holds, by its pixels, and checked by its poses."""
    seen = clip.frames()[:, 0, 0, 0].tolist()
    assert clip.poses.center_world[:, 2].tolist() == seen
    return seen


def test_nothing_is_decoded_before_it_is_asked_for():
    clip, asked = clip_of(20)
    windows = clip.windows(5)
    assert asked == []
    assert numbers(windows[2]) == [10, 11, 12, 13, 14]
    assert asked == [10, 11, 12, 13, 14]


def test_windows_follow_each_other_or_overlap():
    clip, _ = clip_of(20)
    assert [window.clip_id for window in clip.windows(9)] == ["a@00000", "a@00009"]
    overlapping = clip.windows(9, stride=4)
    assert [window.clip_id for window in overlapping] == ["a@00000", "a@00004", "a@00008"]
    assert numbers(overlapping[2]) == list(range(8, 17))
    assert {window.fps for window in overlapping} == {12.0}


@pytest.mark.parametrize(
    ("fps", "wanted"),
    [(6.0, [0, 2, 4, 6]), (4.0, [0, 3, 6, 9]), (10.0, [0, 1, 2, 4]), (12.005, [0, 1, 2, 3])],
)
def test_faster_clips_give_the_frames_nearest_in_time_with_their_own_poses(fps, wanted):
    clip, _ = clip_of(13)
    window = clip.windows(4, fps=fps)[0]
    assert numbers(window) == wanted
    assert window.fps == fps


def test_windows_of_a_thinned_clip_use_all_its_length():
    clip, _ = clip_of(13)
    assert [numbers(window) for window in clip.windows(3, fps=6.0)] == [[0, 2, 4], [6, 8, 10]]
    # 13 frames at 12 Hz are 7 at 6 Hz.
    assert numbers(clip.windows(7, fps=6.0)[0]) == [0, 2, 4, 6, 8, 10, 12]


def test_a_part_of_a_part_is_a_part():
    clip, _ = clip_of(20)
    inner = clip.take([3, 5, 7, 9], clip_id="b").take([1, 3], clip_id="c")
    assert numbers(inner) == [5, 9]
    assert inner.frames([1])[0, 0, 0, 0] == 9
    with pytest.raises(ValueError, match="among the 20 frames"):
        clip.take([20], clip_id="b")


def test_clips_that_cannot_give_a_window_say_why():
    clip, _ = clip_of(8)
    with pytest.raises(ClipError, match="clips/a: it has 8 frames at 12 a second; a window has 9"):
        clip.windows(9)
    with pytest.raises(ClipError, match="frames would have to be repeated"):
        clip.windows(4, fps=24.0)


def test_frames_must_fit_poses_and_lens():
    clip, _ = clip_of(3, decode=lambda indices: np.zeros((2, HEIGHT, WIDTH, 3), np.uint8))
    with pytest.raises(ClipError, match="clips/a: it has 2 frames of 4 x 6"):
        clip.frames()
    clip, _ = clip_of(3, decode=lambda indices: np.zeros((len(indices), HEIGHT, WIDTH + 1, 3), np.uint8))
    with pytest.raises(ClipError, match="of 4 x 7"):
        clip.frames()


def test_a_broken_file_is_the_clips_own_error():
    def broken(indices):
        raise MeropeError("the file ends too early")

    clip, _ = clip_of(3, decode=broken, source="nuscenes")
    with pytest.raises(ClipError, match="nuscenes/a: the file ends too early") as caught:
        clip.frames()
    assert (caught.value.source, caught.value.clip_id) == ("nuscenes", "a")
    # Errors come back from other processes.
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.reason) == (str(caught.value), caught.value.reason)


def test_a_lens_per_view_is_refused():
    lens = Pinhole.from_fov(fov_x_deg=torch.tensor([60.0, 90.0]), height=HEIGHT, width=WIDTH)
    with pytest.raises(ClipError, match="a clip has one lens"):
        clip_of(2, lens=lens)
