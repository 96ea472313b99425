"""Choices that several commands offer for calibration files: plain names, so that ``--help`` imports nothing heavy."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from merope.errors import MeropeError

Calibration = Literal[
    "merope",
    "ucpe",
    "kalibr",
    "basalt",
    "camodocal",
    "opencv",
    "opencv-fisheye",
    "woodscape",
    "ocam",
    "rds-hq",
    "aria",
    "kitti",
    "nuscenes",
    "argoverse2",
    "comma2k19",
    "matrix",
]


@contextmanager
def flags_of_lens(flags: Mapping[str, str]) -> Iterator[None]:
    """Errors of reading a calibration file name this command's flags, {"camera": "lens-camera"} for --lens-camera."""
    try:
        yield
    except MeropeError as error:
        text = re.sub(r"--(\w+)", lambda flag: "--" + flags.get(flag[1], flag[1]), str(error))
        raise type(error)(text) from error
