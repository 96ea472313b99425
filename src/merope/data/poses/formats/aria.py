"""Aria: closed-loop trajectories of the glasses, a CSV file whose columns are found by their names."""

from pathlib import Path
from typing import Any

import numpy as np

from merope.data.poses.formats.raw import PoseFormat, RawPoses, by_line
from merope.data.poses.formats.recognition import first_lines
from merope.data.poses.formats.stamped import matrices_of, require_increasing, seconds, whole_stamps
from merope.data.poses.table import (
    PoseFileError,
    ReadOptions,
    Table,
    explain_columns,
    finite_number,
    read_lines,
    read_table,
)
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_US = 10**6
_STAMP = "tracking_timestamp_us"
_POSE = tuple(f"t{axis}_world_device" for axis in "xyz") + tuple(f"q{axis}_world_device" for axis in "xyzw")
_GRAVITY = tuple(f"gravity_{axis}_world" for axis in "xyz")
_GRAPH = "graph_uid"


def read_aria(path: Path, options: ReadOptions) -> RawPoses:
    """closed_loop_trajectory.csv of the machine perception services, or aria_trajectory.csv of the digital twin.

    The poses are the device's, whose axes are those of its left SLAM camera: x right, y down, z forward. Trajectories that
    could not be joined have a graph_uid each and no common world: ``options.scene`` chooses one.
    """
    columns, lines = _columns(path, options)
    places = by_line(lines)
    table = np.array(
        [[finite_number(path, line, word) for word in words] for line, words in _rows(columns, lines)]
    )
    stamps = tuple(columns[_STAMP])
    times = seconds(stamps, _US)
    require_increasing(path, places, stamps, times)
    notes = []
    if all(name in columns for name in _GRAVITY):
        notes.append(_gravity(table[:, 8:11]))
    return RawPoses(
        matrices=matrices_of(
            path, places, table[:, 1:4], table[:, 4:8], meaning="q*_world_device are x y z w"
        ),
        places=places,
        times=times,
        notes=tuple(notes),
    )


def _columns(path: Path, options: ReadOptions) -> tuple[dict[str, list[str]], tuple[int, ...]]:
    """Words by the names of the columns that are read, and the lines they come from."""
    numbered = [
        (number, line)
        for number, line in enumerate(read_lines(path), start=1)
        if line.strip() and number > options.skip_lines
    ]
    names = [name.strip() for name in numbered[0][1].split(",")] if numbered else []
    _require_names(path, names, options)
    wanted = [_STAMP, *_POSE]
    if all(name in names for name in _GRAVITY):
        wanted += _GRAVITY
    rows = []
    for number, line in numbered[1:]:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(names):
            raise PoseFileError(
                f"{path}, line {number} has {len(fields)} columns where the header has {len(names)}: the line is damaged or "
                "cut short. Mend or remove it."
            )
        rows.append((number, fields))
    if not rows:
        raise PoseFileError(f"{path} has a header and no rows.")
    if _GRAPH in names:
        rows = _of_one_graph(path, rows, names.index(_GRAPH), options.scene)
    places = {name: names.index(name) for name in wanted}
    return (
        {name: [fields[place] for _, fields in rows] for name, place in places.items()},
        tuple(number for number, _ in rows),
    )


def _require_names(path: Path, names: list[str], options: ReadOptions) -> None:
    missing = [name for name in (_STAMP, *_POSE) if name not in names]
    if not missing:
        return
    if "tx_odometry_device" in names:
        raise PoseFileError(
            f"{path} is an open-loop trajectory, whose poses drift and have no fixed world (tx_odometry_device). Take "
            "closed_loop_trajectory.csv of the same recording."
        )
    if not any(_STAMP in name for name in names):
        # Not Aria's at all: a table of numbers says what it may be.
        table: Table = read_table(path, options)
        raise explain_columns(path, table, f"Aria trajectories begin with a header that names {_STAMP}")
    raise PoseFileError(
        f"{path} has no column {', '.join(missing)}. A closed-loop trajectory of Aria has {_STAMP}, t*_world_device and "
        "q*_world_device."
    )


def _of_one_graph(
    path: Path, rows: list[tuple[int, list[str]]], column: int, scene: str | None
) -> list[tuple[int, list[str]]]:
    graphs = list(dict.fromkeys(fields[column] for _, fields in rows))
    if scene is None and len(graphs) == 1:
        return rows
    if scene not in graphs:
        problem = (
            "has several trajectories without a common world" if scene is None else f"has none {scene!r}"
        )
        raise PoseFileError(
            f"{path} {problem}; choose by scene (--scene) one of the {_GRAPH} {', '.join(graphs[:8])}."
        )
    return [(number, fields) for number, fields in rows if fields[column] == scene]


def _rows(columns: dict[str, list[str]], lines: tuple[int, ...]) -> list[tuple[int, tuple[str, ...]]]:
    return list(zip(lines, zip(*columns.values(), strict=True), strict=True))


def _gravity(gravity: np.ndarray) -> str:
    with np.errstate(over="ignore", invalid="ignore"):
        mean = gravity.mean(axis=0)
        length = float(np.linalg.norm(mean))
        steady = bool(np.abs(gravity - mean).max() <= 0.05 * length)
    if not steady or not 9 < length < 11:
        return "the columns of gravity do not hold one vector of about 9.8 m/s^2, so nothing is said of up"
    x, y, z = mean.tolist()
    up = ", ".join(f"{-value / length + 0.0:.6g}" for value in (x, y, z))
    return f"gravity is ({x:.6g}, {y:.6g}, {z:.6g}) m/s^2 in the world: up_world is ({up})"


def write_aria(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The columns that a pose takes, for a device with axes x right, y down, z forward; times are rounded to microseconds.

    Velocities, gravity and quality are left out: poses do not say them.

    Raises:
        ValueError: if the poses carry no times.
    """
    stamps = whole_stamps("aria", poses, _US)
    quaternions = matrix_to_quaternion(poses.R_world_cam).tolist()
    rows = zip(stamps, poses.center_world.tolist(), quaternions, strict=True)
    lines = [f"{stamp},{','.join(map(repr, [*center, *xyzw]))}" for stamp, center, xyzw in rows]
    return "\n".join([",".join((_STAMP, *_POSE)), *lines, ""]).encode()


def recognise_aria(path: Path) -> str | None:
    """A header that names the stamp and the position."""
    lines = first_lines(path)
    names = [name.strip() for name in lines[0].split(",")] if lines else []
    if _STAMP in names and all(name in names for name in _POSE):
        return f"a header with {_STAMP} and {_POSE[0]}"
    return None


FORMATS = {
    "aria": PoseFormat(
        about="CSV of Aria's closed-loop trajectory: tracking_timestamp_us, t*_world_device, q*_world_device, of the device",
        read=read_aria,
        write=write_aria,
        recognise=recognise_aria,
        options=("skip_lines", "scene"),
        unit="m",
        body="device",
    ),
}
