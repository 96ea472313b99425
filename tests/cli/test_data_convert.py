"""`merope data readers` and `merope data convert`: options of readers on the command line, and what is reported."""

from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from merope.cli.data.reader_options import Reader
from merope.cli.main import run
from merope.data.clips.folder import clip_ids
from merope.data.datasets import DATASETS
from tests.data.datasets.test_realestate10k import write_poses
from tests.support.numbered_video import truncate, write_numbered_video


@pytest.fixture
def recordings(tmp_path):
    root = tmp_path / "in"
    for name in ("a", "b", "c"):
        write_poses(root / f"{name}.txt", np.arange(6) / 10)
        write_numbered_video(root / f"{name}.mp4", np.arange(6) / 10)
    truncate(root / "b.mp4")
    return root


def test_every_data_set_can_be_named():
    assert get_args(Reader) == tuple(DATASETS)


def test_readers_lists_layouts_and_every_option(capsys):
    assert run(["data", "readers"]) == 0
    text = capsys.readouterr().out
    for name, kind in DATASETS.items():
        assert f"{name}: {kind.about}" in text
        for each in fields(kind.options):
            assert f"  {each.name} (" in text
    assert run(["data", "readers", "kitti_odometry"]) == 0
    one = capsys.readouterr().out
    assert "camera (image_0 | image_1 | image_2 | image_3, image_0)" in one
    assert "realestate10k" not in one


def test_a_broken_clip_is_named_and_the_rest_goes_through(recordings, tmp_path, capsys):
    arguments = [
        "data",
        "convert",
        str(recordings),
        "--reader",
        "realestate10k",
        "--out",
        str(tmp_path / "out"),
    ]
    assert run([*arguments, "--option", "unit=m", "--option", "frames=full"]) == 0
    text = capsys.readouterr().out
    assert "2 clips written, 0 were there" in text
    assert "2 of 3 clips of" in text
    assert "fewer than 99 % are there" in text
    assert "left out: realestate10k/b: " in text
    assert "b.mp4 cannot be decoded as a video: there is none in it" in text
    assert clip_ids(tmp_path / "out") == ["a", "c"]
    assert run([*arguments, "--option", "unit=m", "--option", "frames=full"]) == 0
    assert "0 clips written, 2 were there" in capsys.readouterr().out
    assert run([*arguments, "--option", "unit=m"]) == 1
    assert "converted otherwise" in (told := capsys.readouterr().err)
    assert "origin: " in told


def test_nothing_that_goes_through_is_a_failure(recordings, tmp_path, capsys):
    for name in ("a", "c"):
        truncate(recordings / f"{name}.mp4")
    arguments = [
        "data",
        "convert",
        str(recordings),
        "--reader",
        "realestate10k",
        "--out",
        str(tmp_path / "out"),
    ]
    assert run(arguments) == 1
    assert capsys.readouterr().out.count("left out:") == 3


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("unit", "--option takes NAME=VALUE"),
        ("units=m", "realestate10k has no option 'units'; its options are poses, videos"),
        ("unit=feet", "--option unit takes m | normalized | unknown; got 'feet'"),
    ],
)
def test_options_that_are_none(recordings, tmp_path, capsys, option, message):
    arguments = [
        "data",
        "convert",
        str(recordings),
        "--reader",
        "realestate10k",
        "--out",
        str(tmp_path / "out"),
    ]
    assert run([*arguments, "--option", option]) == 2
    assert message in capsys.readouterr().err


def test_numbers_are_read_as_numbers(recordings, capsys, tmp_path):
    arguments = [
        "data",
        "convert",
        str(recordings),
        "--reader",
        "kitti_odometry",
        "--out",
        str(tmp_path / "out"),
    ]
    assert run([*arguments, "--option", "first-frame=x"]) == 2
    assert "--option first_frame takes whole number; got 'x'" in capsys.readouterr().err
