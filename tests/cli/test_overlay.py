"""`merope overlay`: the path on a video of exactly the size and length that came in."""

import json

import numpy as np
import pytest

from merope.cameras import Pinhole
from merope.cli.main import run
from merope.data import write_poses
from merope.data.clips.generated import write_generated
from merope.data.clips.video import read_frames, read_video, write_frames, write_video
from tests.support.wan_run import bend

LENS = Pinhole.from_fov(fov_x_deg=90, height=120, width=200)


@pytest.fixture
def video(tmp_path):
    """A gray video, its poses and its lens, as files."""
    write_video(tmp_path / "in.mp4", np.full((9, 120, 200, 3), 90, dtype=np.uint8), fps=10)
    write_poses(tmp_path / "poses.txt", bend(30, step=1.0), format="kitti")
    (tmp_path / "lens.json").write_text(json.dumps(LENS.to_dict()))
    return tmp_path


def overlay(folder, *options, video="in.mp4", out="out.mp4", poses=True):
    files = ["--poses", str(folder / "poses.txt"), "--format", "kitti"] if poses else []
    return run(["overlay", str(folder / video), "--out", str(folder / out), *files, *map(str, options)])


def changed(frames):
    return np.abs(frames.astype(int) - 90).max(axis=-1) > 12


def test_size_length_and_rate_stay(video, capsys):
    assert overlay(video, "--lens", video / "lens.json") == 0
    frames, rate = read_video(video / "out.mp4")
    assert frames.shape == (9, 120, 200, 3)
    assert rate == 10
    printed = capsys.readouterr().out
    assert "poses 0 to 8 of 30, one per frame at 10 Hz" in printed
    assert "9 frames of 120 x 200, with the path on the ground" in printed


def test_ribbon_inset_and_numbers_each_have_their_place(video):
    assert overlay(video, "--lens", video / "lens.json", "--lossless", out="all") == 0
    assert (
        overlay(
            video, "--lens", video / "lens.json", "--lossless", "--no-inset", "--no-numbers", out="ribbon"
        )
        == 0
    )
    assert overlay(video, "--lossless", out="flat") == 0
    everything, ribbon, flat = (changed(read_frames(video / name)[0]) for name in ("all", "ribbon", "flat"))
    assert ribbon[80:, 70:130].any()
    assert not ribbon[:55].any()
    assert flat[4:40, 160:].any()
    assert flat[100:, :60].any()
    # Below the horizon, between the numbers and the inset, there is the ribbon alone.
    assert not flat[60:100].any()
    assert np.array_equal(everything[60:100], ribbon[60:100])


def test_lossless_frames_are_the_drawn_ones_to_the_bit(tmp_path):
    given = np.random.default_rng(0).integers(0, 256, (5, 121, 201, 3), dtype=np.uint8)
    write_frames(tmp_path / "in", given)
    write_poses(tmp_path / "poses.txt", bend(5), format="kitti")
    assert overlay(tmp_path, "--lossless", video="in", out="out") == 0
    drawn = read_frames(tmp_path / "out")
    assert drawn.shape == given.shape
    same = (drawn == given).all(axis=-1)
    assert same[:, 45:95].all()
    assert not same.all()


def test_a_rate_of_zero_is_refused(tmp_path, capsys):
    write_frames(tmp_path / "in", np.zeros((5, 120, 200, 3), dtype=np.uint8))
    write_poses(tmp_path / "poses.txt", bend(5), format="kitti")
    assert overlay(tmp_path, "--fps", 0, video="in") == 1
    assert "the video's rate must be > 0" in capsys.readouterr().err


def test_an_odd_size_needs_lossless_frames(tmp_path, capsys):
    write_frames(tmp_path / "in", np.zeros((5, 121, 201, 3), dtype=np.uint8))
    write_poses(tmp_path / "poses.txt", bend(5), format="kitti")
    assert overlay(tmp_path, video="in") == 1
    assert "121 x 201 do not fit an mp4" in capsys.readouterr().err
    assert not (tmp_path / "out.mp4").exists()


def test_a_generated_clip_brings_everything(tmp_path, capsys):
    write_generated(
        tmp_path / "case" / "left",
        np.full((9, 120, 200, 3), 90, dtype=np.uint8),
        commanded=bend(9, step=1.0),
        lens=LENS,
        fps=12.0,
        prefix_frames=5,
        result={},
    )
    assert overlay(tmp_path, video="case/left", poses=False) == 0
    assert read_video(tmp_path / "out.mp4")[1] == 12
    assert "with the path on the ground" in capsys.readouterr().out


def test_small_frames_are_enlarged_with_their_lens(tmp_path, capsys):
    write_frames(tmp_path / "in", np.full((9, 40, 64, 3), 90, dtype=np.uint8))
    write_poses(tmp_path / "poses.txt", bend(9, step=1.0), format="kitti")
    assert overlay(tmp_path, "--fov", 90, video="in") == 1
    assert "enlarge the frames first" in capsys.readouterr().err
    assert overlay(tmp_path, "--fov", 90, "--enlarge", 3, "--lossless", video="in", out="out") == 0
    assert read_frames(tmp_path / "out").shape == (9, 120, 192, 3)


def test_windows_and_rates_of_pose_files(video, capsys):
    assert overlay(video, "--start", 2, "--trajectory-fps", 5) == 0
    assert "poses 2 to 6 of 30, 5 a second, at 10 Hz" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (
            ("--start", 25),
            "ends 0.4 s after pose 25; 9 frames at 10 Hz need 0.8 s: use --start 21 or less",
            1,
        ),
        (("--fov", 90, "--lens", "lens.json"), "--lens and --fov both say", 2),
        (("--enlarge", 0), "--enlarge must be 1 or more", 2),
        (("--lens", "gone.json"), "gone.json does not exist", 1),
        (("--fov", 190), "fov_x_deg must be inside (0, 180)", 1),
    ],
)
def test_what_does_not_fit_is_one_line(video, capsys, options, words, code):
    assert overlay(video, *options) == code
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not (video / "out.mp4").exists()


def test_missing_poses_format_or_ending_are_said(video, capsys):
    assert overlay(video, poses=False) == 1
    assert "name a file with --poses" in capsys.readouterr().err
    assert run(["overlay", str(video / "in.mp4"), "--out", "x.mp4", "--poses", "poses.txt"]) == 2
    assert "never guessed" in capsys.readouterr().err
    assert overlay(video, out="out.avi") == 2
    assert "--out must end in .mp4" in capsys.readouterr().err


def test_a_lens_of_another_size_is_refused(video, capsys):
    (video / "lens.json").write_text(json.dumps(LENS.resize(height=60, width=100).to_dict()))
    assert overlay(video, "--lens", video / "lens.json") == 1
    assert (
        "the lens is for frames of 60 x 100 (height x width), the video's are 120 x 200"
        in capsys.readouterr().err
    )
