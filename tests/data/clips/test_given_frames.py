"""Given frames: which ones are taken of a video, a folder or a picture, and how they come to another size."""

import numpy as np
import pytest
from PIL import Image

from merope.cameras import Pinhole
from merope.data.clips.given_frames import fit_view, read_given_frames
from merope.data.clips.video import write_video
from merope.errors import MeropeError


def shades(num_frames, height=32, width=48):
    """Frame i has the shade 10 i: which frame is which shows through any codec."""
    frames = np.zeros((num_frames, height, width, 3), dtype=np.uint8)
    frames += (10 * np.arange(num_frames, dtype=np.uint8))[:, None, None, None]
    return frames


def numbers(frames):
    return (frames.reshape(len(frames), -1).astype(float).mean(axis=1) / 10).round().astype(int).tolist()


@pytest.mark.parametrize(
    ("rate", "fps", "wanted"),
    [
        (10, 10.0, [0, 1, 2, 3, 4]),
        (24, 12.0, [0, 2, 4, 6, 8]),
        (25, 10.0, [0, 2, 5, 8, 10]),
        (29.97, 30.0, [0, 1, 2, 3, 4]),
    ],
)
def test_of_a_video_the_frames_nearest_in_time_are_taken(tmp_path, rate, fps, wanted):
    write_video(tmp_path / "in.mp4", shades(20), fps=rate)
    given = read_given_frames(tmp_path / "in.mp4", num_frames=5, fps=fps)
    assert numbers(given.frames) == wanted
    assert bool(given.notes) == (wanted != [0, 1, 2, 3, 4])
    if given.notes:
        assert f"frames 0, {wanted[1]}, " in given.notes[0]


@pytest.mark.parametrize(
    ("rate", "fps", "words"),
    [
        (10, 12.0, "10 frames a second and the model 12"),
        (24, 12.0, "ends too early.*frames 0 to 16, and it has 5"),
    ],
)
def test_slow_and_short_videos_are_refused(tmp_path, rate, fps, words):
    write_video(tmp_path / "in.mp4", shades(10), fps=rate)
    with pytest.raises(MeropeError, match=words):
        read_given_frames(tmp_path / "in.mp4", num_frames=9, fps=fps)


def test_pictures_of_a_folder_come_in_the_order_of_their_numbers(tmp_path):
    for index, frame in enumerate(shades(12)):
        Image.fromarray(frame).save(tmp_path / f"img_{index}.png")
    (tmp_path / "notes.txt").write_text("no picture")
    assert numbers(read_given_frames(tmp_path, num_frames=12, fps=10).frames) == list(range(12))
    with pytest.raises(MeropeError, match=r"has 12 pictures .* and 13 frames"):
        read_given_frames(tmp_path, num_frames=13, fps=10)
    Image.fromarray(shades(1, 16, 48)[0]).save(tmp_path / "img_1.png")
    with pytest.raises(MeropeError, match=r"img_1\.png is 16 x 48.*img_0\.png is 32 x 48"):
        read_given_frames(tmp_path, num_frames=3, fps=10)


def test_one_picture_is_one_frame(tmp_path):
    Image.fromarray(shades(3)[2]).convert("L").save(tmp_path / "one.jpg")
    assert numbers(read_given_frames(tmp_path / "one.jpg", num_frames=1, fps=10).frames) == [2]
    with pytest.raises(MeropeError, match="one picture and 5 frames are to be given"):
        read_given_frames(tmp_path / "one.jpg", num_frames=5, fps=10)


def test_what_cannot_be_read_is_named(tmp_path):
    for name, kind in (("a.png", "picture"), ("a.mp4", "video")):
        (tmp_path / name).write_text("text")
        with pytest.raises(MeropeError, match=f"{name} cannot be .* as a {kind}"):
            read_given_frames(tmp_path / name, num_frames=1, fps=10)
    with pytest.raises(FileNotFoundError):
        read_given_frames(tmp_path / "none", num_frames=1, fps=10)


LENS = Pinhole.from_fov(fov_x_deg=90, height=90, width=160)


def test_what_has_the_size_already_stays():
    frames = shades(2, 90, 160)
    kept, lens, notes = fit_view(frames, LENS, height=90, width=160)
    assert kept is frames
    assert lens is LENS
    assert notes == ()


def test_the_same_shape_is_resized_and_less_than_a_pixel_is_no_other_shape():
    frames, lens, notes = fit_view(shades(2, 90, 160), LENS, height=45, width=80)
    assert frames.shape == (2, 45, 80, 3)
    assert lens == LENS.resize(height=45, width=80)
    assert notes == ("frames and lens resized from 90 x 160 to 45 x 80",)
    # 16:9 at 50 rows is 88.9 columns.
    _, lens, _ = fit_view(shades(2, 90, 160), LENS, height=50, width=89)
    assert lens == LENS.resize(height=50, width=89)


def test_a_lens_for_the_wanted_size_stays_and_the_frames_alone_are_resized():
    small = LENS.resize(height=45, width=80)
    frames, lens, notes = fit_view(shades(2, 90, 160), small, height=45, width=80)
    assert frames.shape == (2, 45, 80, 3)
    assert lens is small
    assert notes == ("frames resized from 90 x 160 to 45 x 80",)
    with pytest.raises(MeropeError, match="give the lens of the given frames"):
        fit_view(shades(2, 90, 200), small, height=45, width=80, crop=True)


def test_a_lens_alone_is_cut_and_resized():
    _, lens, notes = fit_view(None, LENS, height=45, width=60, crop=True)
    assert lens == LENS.crop(top=0, left=20, height=90, width=120).resize(height=45, width=60)
    assert notes == ("lens resized from 90 x 120 to 45 x 60, the middle of 90 x 160",)
    with pytest.raises(MeropeError, match="the lens is for 90 x 160"):
        fit_view(None, LENS, height=45, width=60)


def test_a_lens_of_a_third_size_is_refused():
    with pytest.raises(MeropeError, match=r"the lens is for frames of 90 x 160.*given frames are 30 x 40"):
        fit_view(shades(1, 30, 40), LENS, height=60, width=80)
