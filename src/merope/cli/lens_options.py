"""Choices that several commands offer for calibration files: plain names, so that ``--help`` imports nothing heavy."""

from typing import Literal

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
