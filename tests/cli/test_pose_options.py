"""The choices on the command line are those of the library."""

import inspect
from typing import get_args

import pytest

from merope.cli import demo, evaluate, generate, overlay, pose_options
from merope.data import pose_table
from merope.data.pose_files import FORMATS
from merope.geometry import poses


def test_every_format_that_can_be_read_can_be_chosen():
    assert get_args(pose_options.Format) == tuple(FORMATS)


def test_every_unit_can_be_chosen():
    assert get_args(pose_options.Unit) == get_args(poses.Unit)


@pytest.mark.parametrize("name", ["Axes", "Direction"])
def test_every_convention_can_be_chosen(name):
    assert getattr(pose_options, name) == getattr(pose_table, name)


@pytest.mark.parametrize("command", [demo.demo, evaluate.evaluate, generate.generate, overlay.overlay])
def test_commands_share_the_choices(command):
    parameters = inspect.signature(command).parameters
    assert parameters["format"].annotation in (pose_options.Format, pose_options.Format | None)
    assert parameters["unit"].annotation == pose_options.Unit | None
