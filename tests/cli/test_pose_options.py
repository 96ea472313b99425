"""The choices on the command line are those of the library."""

import inspect
from dataclasses import fields
from typing import get_args

import pytest

from merope.cli import demo, generate, overlay, pose_options
from merope.cli.evaluate_flags import ReadingFlags
from merope.cli.pose_options import ReadFlags
from merope.cli.usage import UsageError
from merope.data import ReadOptions
from merope.data.poses import table as pose_table
from merope.data.poses.files import FORMATS
from merope.geometry import poses


def test_every_format_that_can_be_read_can_be_chosen():
    assert get_args(pose_options.Format) == tuple(FORMATS)


def test_every_unit_can_be_chosen():
    assert get_args(pose_options.Unit) == get_args(poses.Unit)


@pytest.mark.parametrize("name", ["Axes", "Direction"])
def test_every_convention_can_be_chosen(name):
    assert getattr(pose_options, name) == getattr(pose_table, name)


@pytest.mark.parametrize("command", [demo.demo, ReadingFlags, generate.generate, overlay.overlay])
def test_commands_share_the_choices(command):
    parameters = inspect.signature(command).parameters
    assert parameters["format"].annotation in (pose_options.Format, pose_options.Format | None)
    assert parameters["unit"].annotation == pose_options.Unit | None


@pytest.mark.parametrize(
    ("format", "flags", "name"),
    [
        ("kitti", {"camera": "left"}, "--camera"),
        ("euroc", {"quaternion_order": "wxyz"}, "--quaternion-order"),
        ("npy", {"index_column": True}, "--index-column"),
        ("aria", {"time_unit": "ns"}, "--time-unit"),
        ("merope", {"undo_applied_transform": True}, "--undo-applied-transform"),
    ],
)
def test_a_flag_that_would_go_unheeded_is_refused(format, flags, name):
    with pytest.raises(UsageError, match=f"{name} is for .*not for --format {format}"):
        ReadFlags(format=format, **flags).options()


def test_what_a_format_heeds_are_options_that_there_are():
    known = {field.name for field in fields(ReadOptions)}
    for kind in FORMATS.values():
        assert set(kind.options) <= known
    assert ReadFlags(format="tum", quaternion_order="wxyz").options().quaternion_order == "wxyz"
    assert (
        ReadFlags(format="colmap", camera="1", unit="m", direction="camera-to-world").options().camera == "1"
    )
