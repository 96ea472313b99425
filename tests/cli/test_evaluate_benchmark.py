"""`merope evaluate --benchmark`: what it takes from the benchmark, what the user overrules, and that both are said."""

import json

import pytest

from merope.cameras import Pinhole
from merope.cli.main import run
from merope.data import write_poses
from tests.evaluation.runs.clips import write_clip
from tests.evaluation.trajectories import perturbed, turning

LENS = Pinhole.from_fov(fov_x_deg=90, height=40, width=64)


def evaluate(*arguments):
    return run(["evaluate", *map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    write_poses(tmp_path / "true.txt", turning(110), format="kitti")
    write_poses(tmp_path / "mine.txt", perturbed(turning(110), 1), format="kitti")
    return ("--commanded", tmp_path / "true.txt", "--estimated", tmp_path / "mine.txt", "--format", "kitti")


@pytest.fixture
def clips(tmp_path):
    write_clip(tmp_path / "ours", "a/one", lens=LENS)
    return tmp_path / "ours"


def test_pose_files_are_cut_into_clips_of_the_benchmark_and_its_given_frames_stand_apart(files, capsys):
    assert evaluate(*files, "--benchmark", "nuscenes-384") == 0
    printed = capsys.readouterr().out
    assert (
        "taken from nuscenes-384: clips of 49 frames (--window), 9 given frames (--first-generated), worst answers for "
        "clips without cameras (--on-failure), the columns of its table" in printed
    )
    assert "mine: 2 clips of 49 frames" in printed
    assert "generated only: from frame 9 on" in printed
    header = next(line for line in printed.splitlines() if line.startswith("nuscenes-384 "))
    assert header.split("  ", 1)[1].split() == (
        ["rot", "[deg]", "tr", "[%]", "AUC@3", "[%]", "AUC@10", "[%]", "CamMC", "[1]", "clips", "comparable"]
    )
    row = next(line for line in printed.splitlines() if line.startswith("mine  "))
    assert row.split()[-2:] == ["2/384", "no"]


def test_the_command_line_overrules_the_benchmark_and_that_is_said(files, capsys):
    options = (
        "--benchmark",
        "nuscenes-384",
        "--window",
        "30",
        "--first-generated",
        "4",
        "--on-failure",
        "skip",
    )
    assert evaluate(*files, *options, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["settings"]["benchmark"] == {
        "name": "nuscenes-384",
        "taken": ["the columns of its table"],
        "overruled": [
            "--window 30 instead of 49",
            "--first-generated 4 instead of 9",
            "--on-failure skip instead of worst",
        ],
    }
    assert {clip["num_frames"] for clip in row["clips"]} == {30}
    assert any("another number of frames than 49" in reason for reason in row["verdict"]["reasons"])


def test_files_of_clips_are_not_cut(files, tmp_path, capsys):
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        write_poses(tmp_path / side / "one.txt", turning(60), format="kitti")
    folders = ("--commanded", tmp_path / "left", "--estimated", tmp_path / "right", "--format", "kitti")
    assert evaluate(*folders, "--benchmark", "nuscenes-384", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert [(clip["clip_id"], clip["num_frames"]) for clip in row["clips"]] == [("one", 60)]


def test_a_file_shorter_than_the_clips_stays_whole(tmp_path, capsys):
    for name in ("true", "mine"):
        write_poses(tmp_path / f"{name}.txt", turning(30), format="kitti")
    files = ("--commanded", tmp_path / "true.txt", "--estimated", tmp_path / "mine.txt", "--format", "kitti")
    assert evaluate(*files, "--benchmark", "nuscenes-384") == 0
    assert "mine: 1 clip of 30 frames" in capsys.readouterr().out


def test_the_estimator_is_the_benchmarks(clips, tmp_path, capsys):
    assert evaluate(clips, "--benchmark", "worlds-1") == 0
    printed = capsys.readouterr().out
    assert "taken from worlds-1: estimator network (--estimator)" in printed
    assert "cameras by network" in printed
    assert evaluate(clips, "--benchmark", "panshot-272") == 2
    error = capsys.readouterr().err
    assert "'vggt-omega' needs weights" in error
    assert "panshot-272 takes vggt-omega; --estimator chooses another" in error


def test_another_estimator_is_the_users_choice_and_the_verdict_says_so(clips, capsys):
    assert evaluate(clips, "--benchmark", "nuscenes-384", "--estimator", "network") == 0
    printed = capsys.readouterr().out
    assert "not as nuscenes-384 has it: --estimator network instead of vggt-omega" in printed
    assert "Cameras were recovered by network; nuscenes-384 takes vggt-omega." in printed
