"""`merope demo`: every promised file, one table, and one plain line for a trajectory that does not fit."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from merope.cli.demo import _command
from merope.cli.main import run
from merope.data import PoseFileError, read_poses, write_poses
from merope.data.clips.video import read_frames, read_video
from merope.errors import TrajectoryError
from merope.evaluation.plots.bev import plot_bev
from merope.geometry.poses import Poses
from merope.worlds.drives import drive
from tests.support.shared import shared_file
from tests.support.standin import standin_weights
from tests.support.tiny_run import tiny_spec

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def demo(output, *options):
    """Exit code of a demo with stand-in weights and one denoising step."""
    return run(
        ["demo", "--weights", str(standin_weights()), "--output", str(output), "--steps", "1", *options]
    )


def strict_json(path):
    def refuse(name):
        raise AssertionError(f"{path} holds {name}, which is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished demo, its exit code, what it printed, and the paths from above that it drew."""
    folder = tmp_path_factory.mktemp("demo")
    printed, drawn = io.StringIO(), []

    def noting(path, *args, **kwargs):
        drawn.append(path.name)
        return plot_bev(path, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr("merope.evaluation.plots.bev.plot_bev", noting)
        code = demo(folder)
    return folder, code, printed.getvalue(), drawn


def refused(capsys, tmp_path, *options):
    """The one line that a demo failed with."""
    assert demo(tmp_path / "out", *options) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("merope demo: ")
    assert "\n" not in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
    return error


def file_of(tmp_path, poses, format="kitti"):
    path = tmp_path / f"path.{format}"
    write_poses(path, poses, format=format)
    return ["--trajectory", str(path), "--format", format]


def long_drive(num_frames=60):
    return drive("curve", seed=3, num_frames=num_frames, fps=10.0)


def test_every_promised_file_is_written(finished):
    folder, code, *_ = finished
    assert code == 0
    names = {entry.name for entry in folder.iterdir()}
    assert {"video.mp4", "frames", "bev.png", "figures", "results.json", "report.html"} <= names
    for suffix in ("", "-left", "-right"):
        assert {
            f"video{suffix}.mp4",
            f"frames{suffix}",
            f"bev{suffix}.png",
            f"commanded{suffix}.txt",
        } <= names
    assert not [name for name in names if name.startswith(".")]


def test_video_has_exactly_the_size_and_length_it_was_made_with(finished):
    frames, fps = read_video(finished[0] / "video.mp4")
    # Two clips of 24 x 32, six times as large, a gap of 6 and a banner of 18.
    assert frames.shape == (13, 18 + 144, 192 + 6 + 192, 3)
    assert fps == 10


def test_frames_are_lossless_and_begin_with_the_given_ones(finished):
    folder = finished[0]
    frames, left = read_frames(folder / "frames"), read_frames(folder / "frames-left")
    assert frames.shape == (13, 24, 32, 3)
    assert np.array_equal(frames[:5], left[:5])
    video, _ = read_video(folder / "video.mp4")
    shown = frames.repeat(6, axis=1).repeat(6, axis=2)
    # The mp4 is lossy, and chroma is halved: close on average, not equal.
    assert np.abs(video[:, 18:, 198:].astype(int) - shown).mean() < 12


def test_metrics_are_valid_json_with_a_row_for_each_model_and_the_floor(finished):
    content = strict_json(finished[0] / "results.json")
    text = json.dumps(content)
    for label in ("MeRoPE", "no camera encoding", "noise floor"):
        assert label in text
    assert '"unit"' in text


def test_commanded_file_is_the_command_and_variants_turn_to_their_sides(finished):
    folder = finished[0]
    ends = {}
    for suffix in ("", "-left", "-right"):
        poses = read_poses(folder / f"commanded{suffix}.txt", format="kitti")
        assert len(poses) == 13
        ends[suffix] = float(poses.rebase_to_first().center_world[-1, 0])
    assert ends["-left"] < ends[""] < ends["-right"]


def test_one_table_is_printed(finished):
    printed = finished[2]
    for words in (
        "rot (deg)",
        "tr (%)",
        "AUC@3",
        "AUC@10",
        "CamMC",
        "MeRoPE",
        "no camera encoding",
        "noise floor",
    ):
        assert words in printed
    assert "nan" not in printed.lower()


def test_report_names_seed_steps_and_given_frames(finished):
    report = (finished[0] / "report.html").read_text(encoding="utf-8")
    assert "seed 11, 1 denoising steps, 13 frames at 10 Hz of which 5 are given" in report


def command(trajectory, format="kitti", **options):
    """The poses that a demo commands for a file."""
    values = {"start": 0, "trajectory_fps": 10.0, "times": None, "unit": None, "scale": 1.0, "seed": 11}
    values["spec"] = tiny_spec()
    return _command(Path(trajectory), format, **{**values, **options})


def assert_same_motion(poses, wanted, tolerance=1e-9):
    torch.testing.assert_close(
        poses.rebase_to_first().T_world_cam, wanted.rebase_to_first().T_world_cam, rtol=0, atol=tolerance
    )


def test_window_of_a_file_is_commanded_and_stands_on_the_ground(tmp_path):
    poses = long_drive()
    path = file_of(tmp_path, poses.transformed(poses.R_world_cam[7].T, torch.ones(3, dtype=torch.float64)))[1]
    window = command(path, start=20)
    assert_same_motion(window, poses[20:33])
    assert float(window.center_world[:, 2].mean()) == pytest.approx(1.65)
    # 47 is the last start that leaves 13 of 60 poses.
    assert_same_motion(command(path, start=47), poses[47:60])


def test_file_with_its_own_rate_is_resampled_to_the_models(tmp_path):
    poses = long_drive(121)
    assert_same_motion(command(file_of(tmp_path, poses)[1], trajectory_fps=20.0, start=30), poses[30:55:2])
    timed = Poses(
        R_world_cam=poses.R_world_cam,
        center_world=poses.center_world,
        times=torch.arange(121, dtype=torch.float64) / 20 + 1.5e9,
    )
    # Times near 1.5e9 s leave 2e-7 s of float64, at 18 m/s; the rate of the file wins over the flag.
    window = command(file_of(tmp_path, timed, "tum")[1], "tum", trajectory_fps=3.0, start=30)
    assert_same_motion(window, poses[30:55:2], tolerance=1e-5)


def test_time_stamps_of_a_file_beside_it_win_over_the_rate(tmp_path):
    poses = long_drive(121)
    (tmp_path / "times.txt").write_text("".join(f"{index / 20:.6e}\n" for index in range(121)))
    path = file_of(tmp_path, poses)[1]
    window = command(path, times=tmp_path / "times.txt", trajectory_fps=3.0, start=30)
    assert_same_motion(window, poses[30:55:2], tolerance=1e-6)
    (tmp_path / "times.txt").write_text("0.0\n0.1\n")
    with pytest.raises(PoseFileError, match="121 poses and 2 times"):
        command(path, times=tmp_path / "times.txt")


def test_an_array_needs_its_unit(tmp_path):
    poses = long_drive()
    np.save(tmp_path / "path.npy", poses.T_world_cam.numpy())
    path = str(tmp_path / "path.npy")
    with pytest.raises(TrajectoryError, match=r"unit is 'unknown'.*Say --unit m if its lengths are metres"):
        command(path, "npy")
    assert_same_motion(command(path, "npy", unit="m"), poses[:13])
    assert_same_motion(command(path, "npy", scale=1.0 + 1e-12), poses[:13])


def test_rotations_that_had_to_be_projected_are_reported(tmp_path, capsys):
    path = file_of(tmp_path, long_drive())[1]
    command(path)
    assert capsys.readouterr().out == ""
    rows = long_drive().T_world_cam[:, :3].flatten(1).tolist()
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(" ".join(f"{value:.4f}" for value in row) + "\n" for row in rows)
    command(path)
    printed = capsys.readouterr().out
    assert f"rotations of {path} were off by " in printed
    assert "(largest entry of R^T R - I) and were projected to rotations" in printed


def test_a_missing_plot_package_is_found_before_the_weights_are_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("merope.cli.extras.find_spec", lambda name: None)
    assert run(["demo", "--weights", str(tmp_path / "none")]) == 1
    assert "pip install 'merope[plot]'" in capsys.readouterr().err


def test_a_negative_seed_is_refused(tmp_path, capsys):
    assert "--seed must be >= 0; got -3." in refused(capsys, tmp_path, "--seed=-3")


def test_every_picture_is_drawn_once(finished):
    assert finished[3] == ["bev.png", "bev-left.png", "bev-right.png"]


def test_scale_mends_centimetres(tmp_path):
    poses = long_drive()
    path = file_of(tmp_path, poses.scaled(100.0))[1]
    assert_same_motion(command(path, scale=0.01), poses[:13])


def test_a_window_of_a_real_kitti_drive_is_commanded():
    path = shared_file("data/kitti_odom/poses/00.txt")
    assert_same_motion(command(path, start=1000), read_poses(path, format="kitti")[1000:1013], tolerance=1e-6)


def test_parked_car_is_a_command_too(tmp_path, monkeypatch):
    monkeypatch.setattr("merope.evaluation.report.figure_book.pdf_bytes", lambda figure: b"")
    parked = Poses(
        R_world_cam=long_drive().R_world_cam[:1].expand(20, 3, 3),
        center_world=long_drive().center_world[:1].expand(20, 3),
    )
    assert demo(tmp_path / "out", *file_of(tmp_path, parked)) == 0
    strict_json(tmp_path / "out" / "results.json")


def test_too_short_trajectory_says_how_long_it_must_be(tmp_path, capsys):
    error = refused(capsys, tmp_path, *file_of(tmp_path, long_drive(10)))
    assert "ends 0.9 s after pose 0; 13 frames at 10 Hz need 1.2 s: choose a longer file" in error


def test_start_too_late_names_the_last_one_that_fits(tmp_path, capsys):
    files = file_of(tmp_path, long_drive())
    error = refused(capsys, tmp_path, *files, "--start", "48")
    assert "use --start 47 or less" in error


@pytest.mark.parametrize("start", ["60", "-1"])
def test_start_outside_the_file_names_its_range(tmp_path, capsys, start):
    error = refused(capsys, tmp_path, *file_of(tmp_path, long_drive()), f"--start={start}")
    assert f"--start {start} is outside" in error
    assert "60 poses (0 to 59)" in error


def test_centimetres_are_recognised(tmp_path, capsys):
    files = file_of(tmp_path, long_drive().scaled(100.0))
    error = refused(capsys, tmp_path, *files)
    assert "centimetres" in error
    assert "--scale" in error


def test_unit_that_is_not_metres_needs_a_scale(tmp_path, capsys):
    poses = long_drive()
    other = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world, unit="normalized")
    error = refused(capsys, tmp_path, *file_of(tmp_path, other, "merope"))
    assert "unit is 'normalized'" in error
    assert "--scale" in error


@pytest.mark.parametrize("option", ["--scale=0", "--trajectory-fps=-3"])
def test_numbers_that_make_no_sense_are_refused(tmp_path, capsys, option):
    error = refused(capsys, tmp_path, *file_of(tmp_path, long_drive()), option)
    assert "must be > 0" in error


def test_missing_file_and_missing_weights_are_one_line(tmp_path, capsys):
    error = refused(capsys, tmp_path, "--trajectory", str(tmp_path / "nowhere.txt"))
    assert "nowhere.txt" in error
    assert run(["demo", "--weights", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert "no model here" in error
    assert error.count("\n") == 1


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as stop:
        run(["demo", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in (
        "--trajectory",
        "--format",
        "--start",
        "--scale",
        "--trajectory-fps",
        "--times",
        "--unit",
        "--output",
        "--seed",
    ):
        assert option in text
    assert "Metres per unit of the file" in text
