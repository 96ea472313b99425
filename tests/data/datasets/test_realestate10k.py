"""RealEstate10K: which frame belongs to which pose, by number or by presentation time, and which clips are refused."""

import pickle
import shutil

import numpy as np
import pytest
import torch

from merope.data.clips.clip import ClipError
from merope.data.clips.video import frame_times
from merope.data.datasets import open_dataset
from merope.data.datasets.realestate10k import join_frames, recording_names
from merope.errors import MeropeError
from tests.support.numbered_video import numbers_shown, truncate, write_numbered_video
from tests.support.shared import shared_file

# A recording of a variable rate: 30 Hz, then 24 Hz, then 30 Hz with jitter, from 0.1 s on.
RECORDING = np.cumsum([0.1, *[1 / 30] * 20, *[1 / 24] * 20, *(np.tile([0.9, 1.15, 0.95], 7) / 30).tolist()])


def write_poses(path, stamps, *, address="https://www.youtube.com/watch?v=aBcDeFgHiJk", fx=0.5):
    """Pose n stands n units along x."""
    lines = [address]
    for number, stamp in enumerate(stamps):
        matrix = f"1 0 0 {-number} 0 1 0 0 0 0 1 0"
        lines.append(f"{round(stamp * 1e6)} {fx} 0.8 0.5 0.5 0 0 {matrix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def test_presentation_times_are_those_of_the_decoded_frames(tmp_path):
    write_numbered_video(tmp_path / "v.mp4", RECORDING)
    shown = np.array(list(frame_times(tmp_path / "v.mp4")))
    assert len(shown) == len(RECORDING)
    assert np.abs(shown - RECORDING).max() < 1 / 90_000


def test_stamps_find_the_frames_that_were_shown_then(tmp_path):
    (tmp_path / "videos").mkdir()
    write_numbered_video(tmp_path / "videos" / "aBcDeFgHiJk.mp4", RECORDING)
    wanted = [3, 11, 19, 24, 30, 38, 45, 52]
    # As in the real files, stamps are up to a millisecond off.
    write_poses(tmp_path / "clip.txt", RECORDING[wanted] + np.tile([1e-3, -1e-3], 4))
    clip = open_dataset("realestate10k", tmp_path)[0]
    assert numbers_shown(clip.frames()) == wanted
    assert numbers_shown(clip.frames([1, 6])) == [11, 45]
    joined = clip.provenance["frames"]
    assert joined["joined"] == "full"
    assert joined["max_deviation_s"] == pytest.approx(1e-3, abs=1e-5)
    assert clip.provenance["video"] == "videos/aBcDeFgHiJk.mp4"
    # A constant rate, from the header or the mean, would have taken others.
    at_constant_rate = np.rint((RECORDING[wanted] - RECORDING[0]) * 25).astype(int).tolist()
    assert at_constant_rate != wanted
    # The rate is that of the stamps.
    assert clip.fps != 25
    assert np.abs(clip.times - RECORDING[wanted]).max() < 1.1e-3


def test_a_video_of_the_posed_frames_alone_is_joined_by_number(tmp_path):
    stamps = 158.692025 + np.cumsum([0, *np.tile([8, 9], 4)]) / 29.97
    write_poses(tmp_path / "pose_files" / "c.txt", stamps)
    (tmp_path / "reference_videos").mkdir()
    write_numbered_video(tmp_path / "reference_videos" / "c.mp4", np.arange(9) / 8, header_rate=8)
    clip = open_dataset("realestate10k", tmp_path)[0]
    assert numbers_shown(clip.frames()) == list(range(9))
    assert clip.provenance["frames"] == {
        "joined": "sampled",
        "asked": "auto",
        "frames_as_many_as_poses": True,
        "stamps_within_half_a_period": False,
    }
    assert clip.fps == pytest.approx(29.97 / 8.5, rel=1e-6)
    assert clip.unit == "unknown"
    with pytest.raises(ClipError, match=r"realestate10k/c: frames='full' does not hold.*frames='auto'"):
        open_dataset("realestate10k", tmp_path, frames="full")[0]


def test_where_both_fit_both_are_the_same(tmp_path):
    write_numbered_video(tmp_path / "c.mp4", RECORDING)
    write_poses(tmp_path / "c.txt", RECORDING)
    numbers, joined = join_frames(RECORDING, tmp_path / "c.mp4", how="auto")
    assert numbers == list(range(len(RECORDING)))
    assert joined["frames_as_many_as_poses"] and joined["stamps_within_half_a_period"]


def test_a_clip_beyond_half_a_frame_is_left_out_with_its_reason(tmp_path):
    write_numbered_video(tmp_path / "far.mp4", np.arange(30) / 30)
    write_poses(tmp_path / "far.txt", [0.1, 0.2, 1.2])
    shutil.copy(tmp_path / "far.mp4", tmp_path / "near.mp4")
    write_poses(tmp_path / "near.txt", [0.1, 0.2, 0.3])
    clips = open_dataset("realestate10k", tmp_path)
    broken, whole = clips.clips(skip_broken=True)
    assert isinstance(broken, ClipError)
    assert "neither by number nor by time" in broken.reason
    assert (
        "the pose at 1.200000 s is 0.233333 s from the nearest frame, where half a frame period is 0.016667 s"
        in broken.reason
    )
    assert numbers_shown(whole.frames()) == [3, 6, 9]


def test_two_poses_of_one_frame_are_refused(tmp_path):
    write_numbered_video(tmp_path / "c.mp4", np.arange(30) / 30)
    with pytest.raises(MeropeError, match="two poses have the same nearest frame"):
        join_frames(np.array([0.1, 0.2, 0.21]), tmp_path / "c.mp4", how="full")


def test_a_damaged_video_is_refused_or_shows_the_right_frames(tmp_path):
    write_numbered_video(tmp_path / "a.mp4", np.arange(24) / 10)
    write_poses(tmp_path / "a.txt", np.arange(0, 24, 3) / 10)
    content, rng = (tmp_path / "a.mp4").read_bytes(), np.random.default_rng(0)
    clips, outcomes = open_dataset("realestate10k", tmp_path), []
    for turn in range(60):
        mutated = bytearray(content)
        place, length = int(rng.integers(len(content))), int(rng.integers(1, 50))
        if turn % 3 == 0:
            del mutated[place:]
        elif turn % 3 == 1:
            del mutated[place : place + length]
        else:
            mutated[place:place] = rng.bytes(length)
        (tmp_path / "a.mp4").write_bytes(bytes(mutated))
        try:
            shown = numbers_shown(clips[0].frames())
        except ClipError as error:
            outcomes.append(str(error)[:17])
        else:
            assert shown == list(range(0, 24, 3))
            outcomes.append("right")
    assert set(outcomes) == {"realestate10k/a: ", "right"}
    assert outcomes.count("right") < 20


def test_a_truncated_or_missing_video_costs_its_clip_alone(tmp_path):
    for name in ("cut", "gone", "good", "none"):
        write_poses(tmp_path / f"{name}.txt", np.arange(8) / 10)
        if name != "none":
            write_numbered_video(tmp_path / f"{name}.mp4", np.arange(8) / 10)
    truncate(tmp_path / "cut.mp4")
    (tmp_path / "gone.mp4").write_bytes(b"<html>This video is not available</html>")
    found = list(open_dataset("realestate10k", tmp_path).clips(skip_broken=True))
    assert [isinstance(clip, ClipError) for clip in found] == [True, True, False, True]
    assert "cut.mp4 cannot be decoded as a video" in found[0].reason
    assert "there is no video none or aBcDeFgHiJk" in found[3].reason


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("https://www.youtube.com/watch?v=QShWPZxTDoE", ["QShWPZxTDoE"]),
        ("https://www.youtube.com/watch?t=3&v=-a_b", ["-a_b"]),
        ("https://youtu.be/QShWPZxTDoE", ["QShWPZxTDoE"]),
        ("about:blank", ["blank"]),
        ("", []),
    ],
)
def test_recordings_are_named_as_on_their_site(address, names):
    assert recording_names(address) == names


def test_scale_captions_and_unit_are_options(tmp_path):
    for name in ("a", "b"):
        write_poses(tmp_path / f"{name}.txt", np.arange(4) / 10)
        write_numbered_video(tmp_path / f"{name}.mp4", np.arange(4) / 10)
    (tmp_path / "captions.json").write_text('{"a": ["a kitchen\\n with a door", "other"]}')
    options = {"unit": "m", "captions": "captions.json"}
    (tmp_path / "factor.dat").write_text("9.5e-01\n")
    both = open_dataset("realestate10k", tmp_path, scale_file="factor.dat", **options)
    assert [clip.poses.center_world[3, 0].item() for clip in both] == pytest.approx([2.85, 2.85])
    assert (both[0].caption, both[1].caption, both[0].unit) == ("a kitchen with a door", "", "m")
    (tmp_path / "factor.dat").write_text("a 2.0\n")
    each = open_dataset("realestate10k", tmp_path, scale_file="factor.dat", **options)
    assert each[0].poses.center_world[3, 0].item() == 6.0
    with pytest.raises(ClipError, match=r"realestate10k/b: factor.dat has no factor for it"):
        each[1]
    (tmp_path / "factor.dat").write_text("a -2.0\n")
    with pytest.raises(MeropeError, match="line 1 must be 'CLIP_ID FACTOR' with a positive factor"):
        open_dataset("realestate10k", tmp_path, scale_file="factor.dat")


def test_a_set_goes_to_other_processes(tmp_path):
    write_poses(tmp_path / "a.txt", np.arange(4) / 10)
    write_numbered_video(tmp_path / "a.mp4", np.arange(4) / 10)
    clips = pickle.loads(pickle.dumps(open_dataset("realestate10k", tmp_path)))
    assert clips.ids == ("a",)
    # A clip itself can be sent too.
    assert numbers_shown(pickle.loads(pickle.dumps(clips[0])).frames([1, 3])) == [1, 3]


def test_folders_that_do_not_look_like_it_say_what_was_looked_for(tmp_path):
    with pytest.raises(
        MeropeError, match=r"\*.txt are looked for in ., pose_files, and none of them has any"
    ):
        open_dataset("realestate10k", tmp_path)
    write_poses(tmp_path / "a.txt", np.arange(4) / 10)
    with pytest.raises(MeropeError, match=r"videos are looked for in ., reference_videos, videos"):
        open_dataset("realestate10k", tmp_path)
    with pytest.raises(FileNotFoundError):
        open_dataset("realestate10k", tmp_path, videos="nowhere")


def test_intrinsics_of_the_whole_picture_at_the_decoded_size():
    clips = open_dataset("realestate10k", shared_file("data/re10k/cameractrl"))
    clip = clips.clip("0bf152ef84195293_16f")
    lens = clip.lens
    # 384 x 256, the 16:9 picture squashed.
    assert (lens.width, lens.height, lens.pixel_origin) == (384, 256, "corner")
    assert lens.fx == pytest.approx(0.474812461 * 384, abs=1e-9)
    assert lens.fy == pytest.approx(0.844111024 * 256, abs=1e-9)
    assert (lens.cx, lens.cy) == (192.0, 128.0)
    # CC-07: from the first pixel's centre the middle is half a pixel less.
    assert (lens.with_pixel_origin("center").cx, lens.with_pixel_origin("center").cy) == (191.5, 127.5)


@pytest.mark.parametrize(("count", "size", "steps"), [(16, (256, 384), (8, 9)), (25, (320, 576), (5, 6))])
def test_real_sampled_clips(count, size, steps):
    clips = open_dataset("realestate10k", shared_file("data/re10k/cameractrl"))
    assert len(clips) == 10
    names = [name for name in clips.ids if name.endswith(f"_{count}f")]
    for name in names:
        clip = clips.clip(name)
        assert clip.provenance["frames"]["joined"] == "sampled"
        assert (len(clip), (clip.lens.height, clip.lens.width)) == (count, size)
        assert clip.timing is not None
        if name.startswith("0bf"):
            assert [clip.timing.dt_min, clip.timing.dt_max] == pytest.approx(
                [steps[0] / 29.97, steps[1] / 29.97], abs=1e-4
            )
            assert 29.97 / steps[1] < clip.fps < 29.97 / steps[0]
    assert clip.frames().shape == (count, *size, 3)
    assert torch.isfinite(clip.poses.T_world_cam).all()
