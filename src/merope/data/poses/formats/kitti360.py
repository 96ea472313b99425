"""KITTI-360: poses of the IMU, and of the left camera; cameras mounted on the IMU by the data set's calibration."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from merope.data.poses.formats.raw import PoseFormat, RawPoses, by_line, matrices_in_axes
from merope.data.poses.formats.recognition import are_rotations, first_rows, heading_axis
from merope.data.poses.formats.text_rows import matrix_rows
from merope.data.poses.table import (
    R_AXES_OPENCV,
    PoseFileError,
    ReadOptions,
    explain_columns,
    plain_number,
    read_lines,
    read_table,
    split_index,
)
from merope.geometry.poses import Poses


def read_kitti360(path: Path, options: ReadOptions) -> RawPoses:
    """KITTI-360: rows of the SLAM benchmark, poses.txt (both of the IMU) or cam0_to_world.txt.

    The benchmark's rows have the 12 numbers of T_world_imu, poses.txt a frame number before them, cam0_to_world.txt a frame
    number and the 16 of T_world_cam0, the rectified left camera's. The IMU's x points forward, y right and z down, as its
    manual has it, not like those of KITTI. Neither file has a row for every frame: a car that stands is left out.
    """
    table = read_table(path, options)
    columns = table.num_columns
    if columns not in (12, 13, 17) or (columns == 12 and options.index_column):
        wanted = "KITTI-360 rows have 12, or a frame number and 12 (poses.txt) or 16 (cam0_to_world.txt)"
        raise explain_columns(path, table, wanted)
    if columns != 12:
        table = split_index(path, table)
    places = by_line(table.lines)
    if columns != 17:
        note = "the poses are the IMU's; where a camera is mounted stands in calib_cam_to_pose.txt of the data set"
        return RawPoses(
            matrices=table.values.reshape(-1, 3, 4), places=places, frame_ids=table.index, notes=(note,)
        )
    last = np.abs(table.values[:, 12:] - [0, 0, 0, 1]).max(axis=1) > 1e-6
    if last.any():
        raise PoseFileError(
            f"{path}, {places[int(np.argmax(last))]}: the last four numbers should be 0 0 0 1, the last row of a matrix. "
            "EuRoC ground truth also has 17 columns: format='euroc' (--format euroc)."
        )
    matrices = table.values[:, :12].reshape(-1, 3, 4)
    return RawPoses(matrices=matrices, places=places, frame_ids=table.index, axes="opencv", body="camera")


def write_kitti360(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The benchmark's 12 numbers a row with every digit, for a body whose x points forward, y right and z down."""
    return matrix_rows(matrices_in_axes(poses, "frd"))


def recognise_kitti360(path: Path) -> str | None:
    """Rows of 12 or 13 numbers that move along their x axis, or of a frame number and a 4 x 4 matrix."""
    rows = first_rows(path)
    if rows.shape[1] == 17 and (rows[:, 13:] == [0, 0, 0, 1]).all():
        if are_rotations(rows[:, 1:13].reshape(-1, 3, 4)):
            return "a frame number and the 16 numbers of a 4 x 4 matrix a row, as in cam0_to_world.txt"
    elif rows.shape[1] in (12, 13):
        matrices = rows[:, -12:].reshape(-1, 3, 4)
        if are_rotations(matrices) and heading_axis(matrices) == 0:
            number = " behind a frame number" if rows.shape[1] == 13 else ""
            return (
                f"{rows.shape[1]} numbers a row, rotation and position{number}; it moves along the first axis of what "
                "moves, as an IMU or a vehicle does"
            )
    return None


def kitti360_camera(poses: Poses, calibration: str | Path, *, camera: str) -> Poses:
    """Poses of a camera of the car from those of its IMU: T_world_imu T_imu_cam.

    ``calibration`` is calib_cam_to_pose.txt of the data set, ``camera`` a name in it, such as "image_00".

    Raises:
        PoseFileError: if the calibration has no line of 12 numbers for the camera.
    """
    names = []
    for line in read_lines(Path(calibration)):
        name, _, rest = line.partition(":")
        names.append(name.strip())
        fields = rest.split()
        if names[-1] != camera or len(fields) != 12:
            continue
        try:
            T_imu_cam = np.array([plain_number(field) for field in fields]).reshape(3, 4)
            if not np.isfinite(T_imu_cam).all():
                raise ValueError("it holds a value that is not finite.")
            # Poses hold the IMU's axes as OpenCV's, so its coordinates turn with them.
            R_body_imu = R_AXES_OPENCV["frd"].T
            mount = torch.from_numpy(R_body_imu @ T_imu_cam)
            return poses.mounted(mount[:, :3], mount[:, 3])
        except ValueError as error:
            raise PoseFileError(f"{calibration}, line {len(names)}: {error}") from None
    raise PoseFileError(
        f"{calibration} has no line '{camera}:' with 12 numbers; its lines are {', '.join(names)[:200] or '(none)'}."
    )


FORMATS = {
    "kitti360": PoseFormat(
        about="text of KITTI-360: 12 numbers a row of the IMU (x forward, y right, z down); poses.txt, cam0_to_world.txt",
        read=read_kitti360,
        write=write_kitti360,
        recognise=recognise_kitti360,
        options=("delimiter", "skip_lines", "index_column"),
        unit="m",
        axes="frd",
        body="imu",
    ),
}
