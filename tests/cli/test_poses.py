"""`merope poses inspect | convert | plot`: what they print, what they write, and what they refuse."""

import json
import shlex
from dataclasses import fields
from inspect import signature

import numpy as np
import pytest
import torch

from merope.cli.main import run
from merope.cli.pose_options import ReadFlags
from merope.data import ReadOptions, read_poses, write_poses
from merope.data.poses.formats import FORMATS
from merope.geometry.poses import Poses
from tests.support.drives import drive
from tests.support.shared import REPOSITORY


def poses(*arguments):
    return run(["poses", *map(str, arguments)])


@pytest.fixture
def kitti(tmp_path):
    write_poses(tmp_path / "drive.txt", drive(41, turn_deg=90), format="kitti")
    return tmp_path / "drive.txt"


# What becomes of rows of NaN is the command's to say: `evaluate` leaves those of an estimate out and flags the clip.
OPTIONS = [field for field in fields(ReadOptions) if field.name != "nan_rows"]


def test_the_flags_are_the_options_of_the_reader():
    flags = {field.name: field.default for field in fields(ReadFlags)}
    assert flags.pop("format") is None
    assert flags == {field.name: field.default for field in OPTIONS}
    for field in OPTIONS:
        assert (
            signature(ReadFlags).parameters[field.name].annotation
            == signature(ReadOptions).parameters[field.name].annotation
        ), field.name
    assert ReadFlags(skip_lines=2, mirror="y").options() == ReadOptions(skip_lines=2, mirror="y")


def test_the_page_names_every_format_and_every_flag():
    page = (REPOSITORY / "docs" / "pose-files.md").read_text()
    for name in FORMATS:
        assert f"`{name}`" in page
    for field in OPTIONS:
        assert f"--{field.name.replace('_', '-')}" in page


def test_a_right_file_is_described_in_few_lines_and_the_next_commands(kitti, capsys):
    assert poses("inspect", kitti, "--format", "kitti") == 0
    text = capsys.readouterr().out
    assert "read as kitti: camera-to-world of the camera, opencv axes, unit m" in text
    assert "41 poses, path 20 m" in text
    assert "last pose 90 deg to the left of the first" in text
    assert "right-handed" in text
    assert "the cameras move the way they look (mean cosine 1.00), as read" in text
    assert "findings" not in text
    assert f"merope poses convert {kitti} poses.json --format kitti --to merope" in text
    assert f"merope poses plot {kitti} --format kitti --out path.png" in text
    assert len(text.splitlines()) < 30


def test_a_file_the_other_way_round_gets_its_flag(tmp_path, capsys):
    path = tmp_path / "w2c.txt"
    write_poses(path, drive(41, turn_deg=90), format="kitti", direction="world-to-camera")
    assert poses("inspect", path, "--format", "kitti") == 0
    text = capsys.readouterr().out
    assert "convention: as read, the cameras move" in text
    assert f"merope poses inspect {path} --format kitti --direction world-to-camera" in text
    assert "merope poses convert" not in text
    assert poses("inspect", path, "--format", "kitti", "--direction", "world-to-camera") == 0
    text = capsys.readouterr().out
    assert "--format kitti --direction world-to-camera --to merope" in text


def test_millimetres_are_answered_with_a_conversion(tmp_path, capsys):
    path = tmp_path / "mm.txt"
    write_poses(path, drive(41).scaled(1000), format="kitti")
    assert poses("inspect", path, "--format", "kitti") == 0
    line = next(
        line.strip()
        for line in capsys.readouterr().out.splitlines()
        if "--scale 0.001" in line and "convert" in line
    )
    words = [word if word != "poses.json" else str(tmp_path / "m.json") for word in line.split()[1:]]
    assert run(words) == 0
    read = read_poses(tmp_path / "m.json", format="merope")
    assert read.unit == "m"
    assert read.path_length == pytest.approx(20)


def test_json_has_every_number(kitti, capsys):
    assert poses("inspect", kitti, "--format", "kitti", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["num_poses"] == 41
    assert found["facts"]["path_length"] == pytest.approx(20, rel=1e-3)
    assert found["matrices"]["left_handed"] == 0
    assert found["verdict"]["outcome"] == "agrees"
    assert len(found["readings"]) == 10
    assert found["commands"]


def test_times_beside_the_poses_are_measured(kitti, tmp_path, capsys):
    np.savetxt(tmp_path / "times.txt", np.arange(41) * 0.1)
    assert poses("inspect", kitti, "--format", "kitti", "--times", tmp_path / "times.txt") == 0
    text = capsys.readouterr().out
    assert "41 times over 4 s, 0.1 to 0.1 s apart, 10 a second; speed 5 to 5 m/s" in text
    assert f"--times {tmp_path / 'times.txt'} --to merope" in text


def test_a_wrong_format_is_one_line(kitti, capsys):
    assert poses("inspect", kitti, "--format", "tum") == 1
    assert "--format kitti" in capsys.readouterr().err


def test_convert_says_what_was_written_and_what_is_lost(kitti, tmp_path, capsys):
    out = tmp_path / "out.npy"
    assert poses("convert", kitti, out, "--format", "kitti", "--to", "npy", "--start", 5, "--count", 10) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{out}: 10 poses as npy, path 4.5 m, read again with a largest difference of 0")
    assert "pass --unit m to its readers" in second
    assert len(read_poses(out, format="npy")) == 10
    assert poses("convert", kitti, out, "--format", "kitti", "--to", "npy") == 1
    assert "--overwrite" in capsys.readouterr().err


def test_convert_needs_a_format_and_scales_only_with_a_unit(kitti, tmp_path, capsys):
    assert poses("convert", kitti, tmp_path / "b", "--to", "npy") == 2
    assert "--format is missing" in capsys.readouterr().err
    assert poses("convert", kitti, tmp_path / "b", "--format", "kitti", "--to", "npy", "--scale", 2) == 1
    assert "--to-unit" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_plot_draws_several_files(kitti, tmp_path, ending, start, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    write_poses(tmp_path / "other.json", drive(41, turn_deg=-30), format="merope")
    out = tmp_path / f"path{ending}"
    assert poses("plot", kitti, tmp_path / "other.json", "--formats", "kitti", "merope", "--out", out) == 0
    assert out.read_bytes().startswith(start)
    assert capsys.readouterr().out == f"{out}: 2 paths from above, up is -y (up of the cameras)\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "kitti", "--out", "a.jpg"], "must end in .png, .svg or .pdf"),
        (["--out", "a.png"], "--format is missing"),
        (["--formats", "kitti", "tum", "--out", "a.png"], "2 formats for 1 files"),
        (["--format", "kitti", "--out", "a.png", "--labels", "a", "b"], "1 different names"),
        (["--format", "kitti", "--out", "a.png", "--fps", "0"], "--fps must be > 0"),
    ],
)
def test_plot_refuses_by_name(kitti, arguments, message, capsys):
    assert poses("plot", kitti, *arguments) == 2
    assert message in capsys.readouterr().err


def _kitti_like(axes=None, direction=None, change=lambda matrices: matrices):
    def write(path):
        write_poses(path, drive(41, turn_deg=90, turning=0.4), format="kitti", direction=direction, axes=axes)
        np.savetxt(path, change(np.loadtxt(path).reshape(-1, 3, 4)).reshape(-1, 12), fmt="%.17g")
        return "kitti"

    return write


def _mirrored(matrices):
    return matrices * np.array([1, -1, 1])[:, None]


def _centimetres(matrices):
    return matrices * np.array([1, 1, 1, 100])


def timed(poses):
    return Poses(
        R_world_cam=poses.R_world_cam,
        center_world=poses.center_world,
        times=torch.arange(len(poses)) / 10,
        unit=poses.unit,
    )


def _tum(columns, per_second=1.0):
    def write(path):
        write_poses(path, timed(drive(41, turn_deg=90, turning=0.4)), format="tum")
        rows = np.loadtxt(path)[:, columns]
        rows[:, 0] *= per_second
        np.savetxt(path, rows, fmt="%.17g")
        return "tum"

    return write


@pytest.mark.parametrize(
    "write",
    [
        _kitti_like(direction="world-to-camera"),
        _kitti_like(axes="opengl"),
        _kitti_like(axes="flu"),
        _kitti_like(axes="opengl", direction="world-to-camera"),
        _kitti_like(change=_mirrored),
        _kitti_like(change=_centimetres),
        _kitti_like(change=lambda matrices: matrices.round(2)),
        _tum([0, 1, 2, 3, 7, 4, 5, 6]),
        _tum(list(range(8)), 1000.0),
    ],
    ids=["w2c", "opengl", "flu", "opengl w2c", "mirrored", "centimetres", "rounded", "wxyz", "milliseconds"],
)
def test_every_command_that_is_suggested_runs_and_one_of_them_mends_the_file(
    tmp_path, monkeypatch, capsys, write
):
    """Followed to the end, the suggestions lead to the drive as it was."""
    format = write(tmp_path / "a file.txt")
    monkeypatch.chdir(tmp_path)
    waiting, tried, reached = [["inspect", "a file.txt", "--format", format]], set(), []
    while waiting:
        command = waiting.pop()
        if tuple(command) in tried:
            continue
        tried.add(tuple(command))
        if command[0] == "inspect":
            assert poses(*command, "--json") == 0
            waiting += [shlex.split(line)[2:] for line in json.loads(capsys.readouterr().out)["commands"]]
        elif command[0] == "convert":
            assert poses(*command, "--overwrite") == 0
            capsys.readouterr()
            reached.append(read_poses("poses.json", format="merope"))
    assert len(tried) < 20
    true = drive(41, turn_deg=90, turning=0.4).rebase_to_first().T_world_cam
    assert min((found.rebase_to_first().T_world_cam - true).abs().max() for found in reached) < 0.02


def test_without_a_cure_no_command_follows(tmp_path, capsys):
    _kitti_like(change=lambda matrices: matrices * np.array([2, 2, 2, 1]))(tmp_path / "a")
    assert poses("inspect", tmp_path / "a", "--format", "kitti") == 0
    text = capsys.readouterr().out
    assert "not-orthonormal" in text
    assert "next:" not in text
