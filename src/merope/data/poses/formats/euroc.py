"""EuRoC: comma-separated ground truth with stamps in nanoseconds and quaternions w x y z."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from merope.data.poses.formats.raw import PoseFormat, RawPoses, by_line
from merope.data.poses.formats.recognition import first_lines, first_rows
from merope.data.poses.formats.stamped import matrices_of, require_increasing, seconds, whole_stamps
from merope.data.poses.table import PoseFileError, ReadOptions, explain_columns, read_lines, read_table
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_NS = 10**9
_HEADER = "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z []\n"


def read_euroc(path: Path, options: ReadOptions) -> RawPoses:
    """EuRoC's data.csv: stamp, position, quaternion w x y z; the estimates of velocity and biases behind them are left out.

    The poses are of the sensor S in the reference R: the IMU, or the marker of the laser tracker or the motion capture.
    """
    _require_commas(path, options)
    table = read_table(path, replace(options, delimiter="comma", index_column=False))
    if table.num_columns == 4:
        raise PoseFileError(
            f"{path} has 4 columns, stamp and position alone, as of a laser tracker: there is no rotation in it. "
            "Take state_groundtruth_estimate0/data.csv of the recording."
        )
    if table.num_columns not in (8, 17):
        raise explain_columns(path, table, "EuRoC rows have 8, or 17 with velocity and biases")
    places, stamps = by_line(table.lines), table.values[:, 0]
    broken = stamps != np.round(stamps)
    if broken.any():
        row = int(np.argmax(broken))
        raise PoseFileError(
            f"{path}, {places[row]}: EuRoC stamps are whole nanoseconds, got {table.stamps[row]}. With seconds, and commas "
            "between the columns, use format='tum', delimiter='comma', quaternion_order='wxyz' (--format tum --delimiter "
            "comma --quaternion-order wxyz), if 8 columns are all it has."
        )
    times = seconds(table.stamps, _NS)
    require_increasing(path, places, table.stamps, times)
    return RawPoses(
        matrices=matrices_of(
            path,
            places,
            table.values[:, 1:4],
            table.values[:, [5, 6, 7, 4]],
            meaning="EuRoC rows are t, position, quaternion w x y z",
        ),
        places=places,
        times=times,
        notes=(
            "the poses are a body's, in its own axes; T_BS in a camera's sensor.yaml says where the camera is",
        ),
    )


def _require_commas(path: Path, options: ReadOptions) -> None:
    for number, line in enumerate(read_lines(path), start=1):
        text = line.split("#", 1)[0].strip()
        if text and number > options.skip_lines:
            if "," not in text and len(text.split()) > 1:
                raise PoseFileError(
                    f"{path}, line {number} has no commas, as EuRoC's data.csv does. Trajectories that SLAM systems write "
                    "for EuRoC are TUM rows in nanoseconds: format='tum', time_unit='ns' (--format tum --time-unit ns)."
                )
            return


def write_euroc(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """Eight columns a row; times are rounded to nanoseconds.

    Raises:
        ValueError: if the poses carry no times.
    """
    stamps = whole_stamps("euroc", poses, _NS)
    quaternions = matrix_to_quaternion(poses.R_world_cam)[:, [3, 0, 1, 2]].tolist()
    rows = zip(stamps, poses.center_world.tolist(), quaternions, strict=True)
    return (
        _HEADER
        + "".join(f"{stamp},{','.join(map(repr, [*center, *wxyz]))}\n" for stamp, center, wxyz in rows)
    ).encode()


def recognise_euroc(path: Path) -> str | None:
    """Comma-separated rows of 8 or 17 numbers with a stamp in nanoseconds and a unit quaternion."""
    rows = first_rows(path, delimiter=",")
    if rows.shape[1] not in (8, 17) or (np.abs(np.linalg.norm(rows[:, 4:8], axis=1) - 1) > 1e-2).any():
        return None
    if not (rows[:, 0] == np.round(rows[:, 0])).all():
        return None
    named = any("p_RS_R_x" in line for line in first_lines(path)[:3])
    if not named and np.abs(rows[:, 0]).max() < 1e14:
        return None
    return f"{rows.shape[1]} columns with commas: nanoseconds, a position and a unit quaternion" + (
        ", under a header with p_RS_R_x" if named else ""
    )


FORMATS = {
    "euroc": PoseFormat(
        about="comma-separated, ns x y z qw qx qy qz a row, of a body in its own axes; more columns are left out",
        read=read_euroc,
        write=write_euroc,
        recognise=recognise_euroc,
        options=("delimiter", "skip_lines"),
        unit="m",
        body="imu",
    ),
}
