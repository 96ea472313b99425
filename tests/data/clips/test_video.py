"""Clips on disk: exact size, exact count, exact rate, and nothing half-written."""

from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from merope.data.clips.video import exact_rate, read_frames, read_video, write_frames, write_video
from merope.errors import MeropeError


def street_like(num_frames: int, height: int, width: int) -> np.ndarray:
    """Smooth colours that move: what a codec meets in a real clip, unlike noise."""
    rows, columns = np.mgrid[0:height, 0:width]
    phase = np.arange(num_frames)[:, None, None] * 0.3
    waves = [np.sin(rows / (9 + 4 * c) + phase) + np.cos(columns / (13 + 3 * c) - phase) for c in range(3)]
    return np.stack([(127.5 + 60 * wave).astype(np.uint8) for wave in waves], axis=-1)


def psnr(first: np.ndarray, second: np.ndarray) -> float:
    error = ((first.astype(float) - second.astype(float)) ** 2).mean()
    return float(10 * np.log10(255**2 / error))


@pytest.mark.parametrize(("height", "width"), [(48, 80), (54, 98), (50, 82), (2, 4)])
@pytest.mark.parametrize("num_frames", [1, 17])
def test_mp4_keeps_size_and_count(tmp_path, height, width, num_frames):
    write_video(tmp_path / "clip.mp4", street_like(num_frames, height, width), fps=10)
    frames, fps = read_video(tmp_path / "clip.mp4")
    assert frames.shape == (num_frames, height, width, 3)
    assert fps == 10


def test_mp4_frames_stay_in_order_and_look_the_same(tmp_path):
    frames = street_like(12, 48, 80)
    write_video(tmp_path / "clip.mp4", frames, fps=12)
    decoded, _ = read_video(tmp_path / "clip.mp4")
    assert psnr(frames, decoded) > 33
    for index in range(1, 11):
        own = psnr(frames[index], decoded[index])
        assert own > psnr(frames[index - 1], decoded[index]) + 3
        assert own > psnr(frames[index + 1], decoded[index]) + 3


def test_mp4_plays_in_ordinary_players(tmp_path):
    import av

    write_video(tmp_path / "clip.mp4", street_like(5, 48, 80), fps=10)
    with av.open(str(tmp_path / "clip.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert stream.duration * stream.time_base == Fraction(1, 2)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (30, Fraction(30)),
        (29.97, Fraction(30000, 1001)),
        (23.976, Fraction(24000, 1001)),
        (12.5, Fraction(25, 2)),
    ],
)
def test_rate_survives_the_file(tmp_path, given, expected):
    assert exact_rate(given) == expected
    write_video(tmp_path / "clip.mp4", street_like(6, 48, 80), fps=given)
    assert read_video(tmp_path / "clip.mp4")[1] == expected


@pytest.mark.parametrize("fps", [0, -5, float("nan"), float("inf")])
def test_impossible_rate_is_refused(tmp_path, fps):
    with pytest.raises(ValueError, match="fps must be positive"):
        write_video(tmp_path / "clip.mp4", street_like(2, 48, 80), fps=fps)


def test_odd_size_is_refused_with_both_ways_out(tmp_path):
    with pytest.raises(ValueError, match=r"47 x 80.*odd_size='pad'.*write_frames"):
        write_video(tmp_path / "clip.mp4", street_like(3, 47, 80), fps=10)
    assert list(tmp_path.iterdir()) == []


def test_odd_size_can_be_padded_by_one_row_and_column(tmp_path):
    frames = street_like(3, 47, 79)
    write_video(tmp_path / "clip.mp4", frames, fps=10, odd_size="pad")
    decoded, _ = read_video(tmp_path / "clip.mp4")
    assert decoded.shape == (3, 48, 80, 3)
    assert psnr(frames, decoded[:, :47, :79]) > 33


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((2, 48, 80, 3), dtype=np.float32),
        np.zeros((48, 80, 3), dtype=np.uint8),
        np.zeros((2, 48, 80, 4), dtype=np.uint8),
        np.zeros((0, 48, 80, 3), dtype=np.uint8),
    ],
)
def test_frames_of_another_kind_are_refused(tmp_path, frames):
    # The shape checks of the test run speak first where they can; both refuse.
    with pytest.raises((ValueError, TypeError)):
        write_video(tmp_path / "clip.mp4", frames, fps=10)


def test_failed_write_leaves_the_old_video_and_no_rest(tmp_path, monkeypatch):
    import av

    write_video(tmp_path / "clip.mp4", street_like(3, 48, 80), fps=10)
    before = (tmp_path / "clip.mp4").read_bytes()

    def full_disk(*_args, **_kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(av.VideoFrame, "from_ndarray", full_disk, raising=True)
    with pytest.raises(OSError, match="no space"):
        write_video(tmp_path / "clip.mp4", street_like(9, 48, 80), fps=10)
    assert (tmp_path / "clip.mp4").read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.mp4"]


def test_unreadable_video_is_explained(tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"not a video at all")
    with pytest.raises(MeropeError, match="cannot be decoded"):
        read_video(tmp_path / "broken.mp4")
    with pytest.raises(FileNotFoundError):
        read_video(tmp_path / "absent.mp4")


def test_png_frames_are_bit_exact(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (5, 47, 81, 3), dtype=np.uint8)
    write_frames(tmp_path / "frames", frames)
    assert np.array_equal(read_frames(tmp_path / "frames"), frames)
    assert sorted(entry.name for entry in (tmp_path / "frames").iterdir())[-1] == "frame_00004.png"


def test_shorter_clip_replaces_a_longer_one_whole(tmp_path):
    write_frames(tmp_path / "frames", street_like(9, 48, 80))
    write_frames(tmp_path / "frames", street_like(4, 30, 50))
    assert read_frames(tmp_path / "frames").shape == (4, 30, 50, 3)
    assert [entry.name for entry in tmp_path.iterdir()] == ["frames"]


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MeropeError, match=r"notes\.txt"):
        write_frames(tmp_path, street_like(2, 48, 80))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_missing_frame_is_named(tmp_path):
    write_frames(tmp_path / "frames", street_like(4, 48, 80))
    (tmp_path / "frames" / "frame_00002.png").unlink()
    with pytest.raises(MeropeError, match=r"frame_00002\.png is missing"):
        read_frames(tmp_path / "frames")
    with pytest.raises(FileNotFoundError):
        read_frames(tmp_path / "elsewhere")


def test_chosen_frames_are_those_of_the_whole_clip(tmp_path):
    frames = street_like(12, 48, 80)
    write_frames(tmp_path / "frames", frames)
    assert np.array_equal(read_frames(tmp_path / "frames", [2, 3, 11]), frames[[2, 3, 11]])
    write_video(tmp_path / "clip.mp4", frames, fps=12)
    whole, _ = read_video(tmp_path / "clip.mp4")
    assert np.array_equal(read_video(tmp_path / "clip.mp4", [0, 5, 11])[0], whole[[0, 5, 11]])


def test_chosen_frames_must_be_there(tmp_path):
    frames = street_like(4, 48, 80)
    write_frames(tmp_path / "frames", frames)
    write_video(tmp_path / "clip.mp4", frames, fps=12)
    with pytest.raises(MeropeError, match="ends before frame 4"):
        read_frames(tmp_path / "frames", [0, 4])
    with pytest.raises(MeropeError, match="ends before frame 4"):
        read_video(tmp_path / "clip.mp4", [0, 4])
    with pytest.raises(ValueError, match="increase from 0"):
        read_frames(tmp_path / "frames", [2, 1])


def test_a_damaged_picture_is_named(tmp_path):
    write_frames(tmp_path / "frames", street_like(3, 48, 80))
    path = tmp_path / "frames" / "frame_00001.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(MeropeError, match=r"frame_00001\.png cannot be read"):
        read_frames(tmp_path / "frames")


def test_a_picture_of_16_bit_grey_is_refused_and_not_read_as_white(tmp_path):
    Image.fromarray(np.full((4, 4), 60 * 257, dtype=np.uint16)).save(tmp_path / "frame_00000.png")
    with pytest.raises(MeropeError, match=r"^\S+frame_00000.png holds grey values of more than 8 bits"):
        read_frames(tmp_path, [0])
