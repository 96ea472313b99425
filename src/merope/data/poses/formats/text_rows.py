"""Formats with one pose a line of numbers: KITTI and TUM."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from merope.data.poses.formats.raw import PoseFormat, RawPoses, by_line
from merope.data.poses.formats.recognition import are_rotations, first_rows, heading_axis
from merope.data.poses.formats.stamped import matrices_of, require_increasing, required_times, seconds
from merope.data.poses.table import PoseFileError, ReadOptions, explain_columns, read_table, split_index
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_NO_INDEX = "; leave index_column (--index-column) out where there is none"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def read_kitti(path: Path, options: ReadOptions) -> RawPoses:
    """KITTI odometry: 12 numbers a row, the 3 x 4 matrix row by row; 13 with a frame number in front."""
    table = read_table(path, options)
    if table.num_columns == 13 or options.index_column:
        if table.num_columns != 13:
            raise explain_columns(path, table, f"KITTI rows with a frame number have 13{_NO_INDEX}")
        table = split_index(path, table)
    elif table.num_columns != 12:
        raise explain_columns(path, table, "KITTI rows have 12, or 13 with a frame number in front")
    return RawPoses(
        matrices=table.values.reshape(-1, 3, 4), places=by_line(table.lines), frame_ids=table.index
    )


def write_kitti(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """Twelve numbers a row with every digit; times and lens have no place in this format."""
    return matrix_rows(poses.T_world_cam[:, :3].numpy())


def matrix_rows(matrices: Float[np.ndarray, "time 3 4"]) -> bytes:
    """Rows of 12 numbers with every digit."""
    return "".join(" ".join(map(repr, row)) + "\n" for row in matrices.reshape(-1, 12).tolist()).encode()


def recognise_kitti(path: Path) -> str | None:
    """Rows of 12 or 13 numbers that are rotations."""
    rows = first_rows(path)
    if rows.shape[1] not in (12, 13):
        return None
    matrices = rows[:, -12:].reshape(-1, 3, 4)
    if not are_rotations(matrices):
        return None
    reason = f"{rows.shape[1]} numbers a row, rotation and position"
    if rows.shape[1] == 13:
        reason += " behind a frame number"
    axis = heading_axis(matrices)
    if axis == 2:
        reason += "; it moves along the third axis of what moves, as a camera does"
    elif axis == 0:
        reason += (
            "; but it moves along the first axis of what moves, and KITTI's cameras look along the third"
        )
    return reason


def read_tum(path: Path, options: ReadOptions) -> RawPoses:
    """TUM RGB-D: t x y z qx qy qz qw a row, camera-to-world, quaternion order by option."""
    table = read_table(path, options)
    if options.index_column:
        if table.num_columns != 9:
            raise explain_columns(path, table, f"TUM rows with a frame number have 9{_NO_INDEX}")
        table = split_index(path, table)
    elif table.num_columns != 8:
        raise explain_columns(path, table, "TUM rows have 8 (t x y z qx qy qz qw)")
    stamps, centers, quaternions = table.values[:, 0], table.values[:, 1:4], table.values[:, 4:]
    places = by_line(table.lines)
    if options.time_unit == "s" and np.abs(stamps).max() > 1e14:
        raise PoseFileError(
            f"{path}, {places[0]}: the stamp {table.stamps[0]} is no time in seconds. Nanoseconds? "
            "Use time_unit='ns' (--time-unit ns), or 'us' for microseconds."
        )
    times = seconds(table.stamps, _PER_SECOND[options.time_unit])
    if not np.isfinite(times).all():
        raise PoseFileError(
            f"{path}, {places[int(np.argmin(np.isfinite(times)))]}: the stamp is not finite; a row without a pose still "
            "needs its time."
        )
    require_increasing(path, places, table.stamps, times)
    xyzw = quaternions if options.quaternion_order == "xyzw" else quaternions[:, [1, 2, 3, 0]]
    # NaN comes this far only where the caller has such rows left out.
    lost = np.isnan(table.values[:, 1:]).any(axis=1)
    xyzw = np.where(lost[:, None], [0.0, 0.0, 0.0, 1.0], xyzw)
    matrices = matrices_of(path, places, centers, xyzw, meaning="TUM rows are t x y z qx qy qz qw")
    matrices[lost] = np.nan
    return RawPoses(
        matrices=matrices,
        places=places,
        times=times,
        frame_ids=table.index,
    )


def write_tum(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """Eight numbers a row with every digit.

    Raises:
        ValueError: if the poses carry no times.
    """
    times = torch.tensor(required_times("tum", poses), dtype=torch.float64)
    columns = torch.cat([times[:, None], poses.center_world, matrix_to_quaternion(poses.R_world_cam)], dim=1)
    header = "# t x y z qx qy qz qw (seconds, camera-to-world, OpenCV camera axes)\n"
    return (header + "".join(" ".join(map(repr, row)) + "\n" for row in columns.tolist())).encode()


def recognise_tum(path: Path) -> str | None:
    """Rows of 8 numbers, of which the last four are a unit quaternion."""
    rows = first_rows(path)
    if rows.shape[1] != 8 or (np.abs(np.linalg.norm(rows[:, 4:], axis=1) - 1) > 1e-2).any():
        return None
    if (np.diff(rows[:, 0]) <= 0).any():
        return None
    unit = ", in nanoseconds (--time-unit ns)" if np.abs(rows[:, 0]).max() > 1e14 else ""
    return f"8 numbers a row: a stamp{unit}, a position and a unit quaternion"


FORMATS = {
    "kitti": PoseFormat(
        about="text, 12 numbers a row: 3 x 4 camera-to-world matrix; 13 with a frame number in front",
        read=read_kitti,
        write=write_kitti,
        recognise=recognise_kitti,
        options=("delimiter", "skip_lines", "index_column"),
        bare=True,
        unit="m",
    ),
    "tum": PoseFormat(
        about="text, t x y z qx qy qz qw a row, camera-to-world",
        read=read_tum,
        write=write_tum,
        recognise=recognise_tum,
        options=("delimiter", "skip_lines", "index_column", "time_unit", "quaternion_order"),
        unit="m",
    ),
}
