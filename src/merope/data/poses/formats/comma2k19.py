"""comma2k19: a folder of arrays with position and orientation of the camera in Earth-centred coordinates."""

from pathlib import Path
from typing import Any

import numpy as np

from merope.data.poses.formats.arrays import array_bytes, in_float64, load_array
from merope.data.poses.formats.raw import PoseFormat, RawPoses, by_entry, matrices_in_axes
from merope.data.poses.formats.recognition import array_head
from merope.data.poses.formats.stamped import matrices_of, require_increasing, required_times
from merope.data.poses.table import PoseFileError, ReadOptions, read_bytes
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_COLUMNS = {"frame_positions": 3, "frame_orientations": 4, "frame_times": None}
_VELOCITIES = "frame_velocities"
_GPS_TIMES = "frame_gps_times"
_OPTIONAL = {_VELOCITIES: 3, _GPS_TIMES: 2}


def read_comma2k19(path: Path, options: ReadOptions) -> RawPoses:
    """The folder global_pose of a segment: frame_positions, frame_orientations, frame_times, with or without .npy.

    Positions are metres in the Earth-centred, Earth-fixed frame, 6.4e6 from its origin: they stay float64. The matrix of
    the quaternion (w, x, y, z) takes the camera's forward, right and down to that frame, as velocities show.

    frame_velocities and frame_gps_times, where they are there, need a row for each frame too. Notes say how well positions
    and velocities agree, and when the first frame was taken.
    """
    if not path.is_dir():
        kind = "does not exist" if not path.exists() else "is a file"
        raise PoseFileError(
            f"{path} {kind}; name the folder with frame_positions, frame_orientations and frame_times (global_pose)."
        )
    columns = _COLUMNS | {name: count for name, count in _OPTIONAL.items() if _file(path, name)}
    arrays = {name: _load(path, name, count) for name, count in columns.items()}
    positions, quaternions, times = (arrays[name] for name in _COLUMNS)
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        raise PoseFileError(
            f"{path}: the files must have a row for each frame; "
            + ", ".join(f"{name} has {count}" for name, count in counts.items())
            + ". Fetch them again."
        )
    places = by_entry(len(positions))
    require_increasing(path / "frame_times", places, tuple(map(repr, times.tolist())), times)
    matrices = matrices_of(
        path / "frame_orientations",
        places,
        positions,
        quaternions[:, [1, 2, 3, 0]],
        meaning="Rows are w x y z",
    )
    notes = [
        "the world is the Earth-centred, Earth-fixed frame: up is away from its origin, and differs along the path"
    ]
    if _VELOCITIES in arrays and len(times) > 2:
        off = _velocity_error(positions, times, arrays[_VELOCITIES])
        notes.append(
            f"positions move as {_VELOCITIES} say, to {off:.2g} m/s (root mean square over frames, of central differences)"
        )
    if _GPS_TIMES in arrays:
        week, seconds = arrays[_GPS_TIMES][0].tolist()
        notes.append(
            f"frame 0 was taken in GPS week {week:.0f}, {seconds:.3f} s into it; times count from elsewhere"
        )
    return RawPoses(matrices=matrices, places=places, times=times, notes=tuple(notes))


def _velocity_error(positions: np.ndarray, times: np.ndarray, velocities: np.ndarray) -> float:
    """Root mean square length of what is between finite differences of positions and velocities, m/s."""
    spacing = (times[2:] - times[:-2])[:, None]
    off = (positions[2:] - positions[:-2]) / spacing - velocities[1:-1]
    return float(np.sqrt((off**2).sum(axis=1).mean()))


def _file(path: Path, name: str) -> Path | None:
    return next((file for file in (path / name, path / f"{name}.npy") if file.is_file()), None)


def _load(path: Path, name: str, columns: int | None) -> np.ndarray:
    file = _file(path, name)
    if file is None:
        raise PoseFileError(
            f"{path} has no file {name} or {name}.npy. Name the folder global_pose of a comma2k19 segment, with "
            "frame_positions, frame_orientations and frame_times."
        )
    array = load_array(file, read_bytes(file))
    wanted = "[T]" if columns is None else f"[T, {columns}]"
    if (
        array.ndim != (1 if columns is None else 2)
        or (columns and array.shape[1] != columns)
        or len(array) == 0
    ):
        raise PoseFileError(f"{file} must hold an array {wanted}; got shape {list(array.shape)}.")
    if array.dtype.kind not in "fiu":
        raise PoseFileError(f"{file} must hold real numbers; got {array.dtype}.")
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if not finite.all():
        raise PoseFileError(f"{file}, entry {int(np.argmin(finite))} holds a value that is not finite.")
    return in_float64(array)


def write_comma2k19(poses: Poses, camera: dict[str, Any] | None) -> dict[str, bytes]:
    """The three files, in the data set's names without ending.

    Raises:
        ValueError: if the poses carry no times.
    """
    times = required_times("comma2k19", poses)
    rotations = poses.R_world_cam.new_tensor(matrices_in_axes(poses, "frd")[:, :, :3])
    quaternions = matrix_to_quaternion(rotations)[:, [3, 0, 1, 2]]
    return {
        "frame_positions": array_bytes(poses.center_world.numpy()),
        "frame_orientations": array_bytes(quaternions.numpy()),
        "frame_times": array_bytes(np.array(times)),
    }


def recognise_comma2k19(path: Path) -> str | None:
    """A folder with the three files."""
    for name, columns in _COLUMNS.items():
        file = _file(path, name)
        head = None if file is None else array_head(file)
        if head is None or head.shape[1:] != (() if columns is None else (columns,)):
            return None
    return "a folder with " + ", ".join(_COLUMNS)


FORMATS = {
    "comma2k19": PoseFormat(
        about="folder with frame_positions, frame_orientations (w x y z; forward, right, down) and frame_times of comma2k19",
        read=read_comma2k19,
        write=write_comma2k19,
        recognise=recognise_comma2k19,
        unit="m",
        axes="frd",
    ),
}
