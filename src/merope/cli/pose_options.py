"""Choices that several commands offer for pose files: plain names, so that ``--help`` imports nothing heavy."""

from typing import Literal

Format = Literal["kitti", "tum", "npy", "npz", "merope"]
Unit = Literal["m", "normalized", "unknown"]
Axes = Literal["opencv", "opengl", "flu", "frd", "unreal"]
Direction = Literal["camera-to-world", "world-to-camera"]
