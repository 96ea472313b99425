"""Formats with one pose a line of numbers: KITTI and TUM."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from merope.data.pose_formats.raw import PoseFormat, RawPoses, by_line
from merope.data.pose_table import PoseFileError, ReadOptions, explain_columns, read_table, split_index
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion, quaternion_to_matrix

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def read_kitti(path: Path, options: ReadOptions) -> RawPoses:
    """KITTI odometry: 12 numbers a row, the 3 x 4 matrix row by row; 13 with a frame number in front."""
    table = read_table(path, options)
    if table.num_columns == 13 or options.index_column:
        if table.num_columns != 13:
            raise explain_columns(path, table, "KITTI rows with a frame number have 13")
        table = split_index(path, table)
    elif table.num_columns != 12:
        raise explain_columns(path, table, "KITTI rows have 12, or 13 with a frame number in front")
    return RawPoses(
        matrices=table.values.reshape(-1, 3, 4), places=by_line(table.lines), frame_ids=table.index
    )


def write_kitti(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """Twelve numbers a row with every digit; times and lens have no place in this format."""
    rows = poses.T_world_cam[:, :3].flatten(1).tolist()
    return "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()


def read_tum(path: Path, options: ReadOptions) -> RawPoses:
    """TUM RGB-D: t x y z qx qy qz qw a row, camera-to-world, quaternion order by option."""
    table = read_table(path, options)
    if options.index_column:
        if table.num_columns != 9:
            raise explain_columns(path, table, "TUM rows with a frame number have 9")
        table = split_index(path, table)
    elif table.num_columns != 8:
        raise explain_columns(path, table, "TUM rows have 8 (t x y z qx qy qz qw)")
    stamps, centers, quaternions = table.values[:, 0], table.values[:, 1:4], table.values[:, 4:]
    if options.time_unit == "s" and np.abs(stamps).max() > 1e14:
        raise PoseFileError(
            f"{path}, line {table.lines[0]}: the stamp {stamps[0]:.0f} is no time in seconds. Nanoseconds? "
            "Use time_unit='ns' (--time-unit ns), or 'us' for microseconds."
        )
    late = np.diff(stamps) <= 0
    if late.any():
        row = int(np.argmax(late)) + 1
        raise PoseFileError(
            f"{path}, line {table.lines[row]}: the stamp {stamps[row]!r} does not come after the one before "
            f"({stamps[row - 1]!r}). Sort the rows by time and drop repeated ones."
        )
    norms = np.linalg.norm(quaternions, axis=1)
    if (np.abs(norms - 1) > 1e-3).any():
        row = int(np.argmax(np.abs(norms - 1) > 1e-3))
        raise PoseFileError(
            f"{path}, line {table.lines[row]}: the last four numbers should be a unit quaternion, but have length "
            f"{norms[row]:.4f}. TUM rows are t x y z qx qy qz qw; are the columns in another order?"
        )
    xyzw = quaternions if options.quaternion_order == "xyzw" else quaternions[:, [1, 2, 3, 0]]
    rotations = quaternion_to_matrix(torch.from_numpy(np.ascontiguousarray(xyzw))).numpy()
    return RawPoses(
        matrices=np.concatenate([rotations, centers[:, :, None]], axis=2),
        places=by_line(table.lines),
        times=stamps * _SECONDS[options.time_unit],
        frame_ids=table.index,
    )


def write_tum(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """Eight numbers a row with every digit.

    Raises:
        ValueError: if the poses carry no times.
    """
    if poses.times is None:
        raise ValueError(
            "format 'tum' needs a time for each pose and these poses have none. Construct Poses with times=."
        )
    columns = torch.cat(
        [poses.times[:, None], poses.center_world, matrix_to_quaternion(poses.R_world_cam)], dim=1
    )
    header = "# t x y z qx qy qz qw (seconds, camera-to-world, OpenCV camera axes)\n"
    return (header + "".join(" ".join(map(repr, row)) + "\n" for row in columns.tolist())).encode()


FORMATS = {
    "kitti": PoseFormat(
        about="text, 12 numbers a row: 3 x 4 camera-to-world matrix; 13 with a frame number in front",
        read=read_kitti,
        write=write_kitti,
        unit="m",
    ),
    "tum": PoseFormat(
        about="text, t x y z qx qy qz qw a row, camera-to-world",
        read=read_tum,
        write=write_tum,
        unit="m",
    ),
}
