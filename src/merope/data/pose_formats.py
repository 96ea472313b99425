"""One small reader and writer per pose format: numbers in, numbers out; conventions are settled in `pose_files`."""

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from merope.data.pose_table import (
    PoseFileError,
    ReadOptions,
    explain_columns,
    read_bytes,
    read_table,
    read_text,
)
from merope.data.pose_table import split_index as _split_index
from merope.geometry.poses import Poses, Unit
from merope.geometry.rotations import matrix_to_quaternion, quaternion_to_matrix

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MEROPE_FORMAT = "merope-poses"
_MEROPE_CONVENTION = (
    "T_world_cam: camera-to-world, 3 x 4 row-major, column vectors; "
    "camera axes x right, y down, z forward (OpenCV)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPoses:
    """Matrices as the file holds them, before direction, axes and handedness are settled.

    ``places`` says where each came from ("line 7", "entry 6"), for error messages. ``unit`` is what the file states
    of its lengths, None where it states nothing.
    """

    matrices: Float[np.ndarray, "time 3 4"]
    places: tuple[str, ...]
    times: Float[np.ndarray, "time"] | None = None
    frame_ids: tuple[int, ...] | None = None
    unit: Unit | None = None
    camera: dict[str, Any] | None = None


def _lines(numbers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"line {number}" for number in numbers)


def read_kitti(path: Path, options: ReadOptions) -> RawPoses:
    """KITTI odometry: 12 numbers a row, the 3 x 4 matrix row by row; 13 with a frame number in front."""
    table = read_table(path, options)
    if table.num_columns == 13 or options.index_column:
        if table.num_columns != 13:
            raise explain_columns(path, table, "KITTI rows with a frame number have 13")
        table = _split_index(path, table)
    elif table.num_columns != 12:
        raise explain_columns(path, table, "KITTI rows have 12, or 13 with a frame number in front")
    return RawPoses(
        matrices=table.values.reshape(-1, 3, 4), places=_lines(table.lines), frame_ids=table.index
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
        table = _split_index(path, table)
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
        places=_lines(table.lines),
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


def read_numpy(path: Path, options: ReadOptions) -> RawPoses:
    """A NumPy array [T, 3, 4] or [T, 4, 4], alone (.npy) or in an archive (.npz, with times and unit if present)."""
    try:
        loaded = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return _from_array(path, loaded, None, None)
        arrays = {key: loaded[key] for key in loaded.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise PoseFileError(f"{path} is no NumPy array or archive that can be read: {error}.") from None
    names = [name for name in ("T_world_cam", "c2w", "camera_to_world", "poses") if name in arrays]
    if not names and len(arrays) == 1:
        names = list(arrays)
    if not names:
        raise PoseFileError(
            f"{path} holds the arrays {', '.join(arrays) or '(none)'}; camera-to-world matrices are looked for "
            "under 'T_world_cam', 'c2w', 'camera_to_world' or 'poses'. Rename one."
        )
    unit = str(arrays["unit"]) if "unit" in arrays else None
    return _from_array(path, arrays[names[0]], arrays.get("times"), unit)


def _from_array(path: Path, array: np.ndarray, times: np.ndarray | None, unit: str | None) -> RawPoses:
    if array.ndim != 3 or array.shape[1:] not in ((3, 4), (4, 4)) or len(array) == 0:
        raise PoseFileError(
            f"{path} must hold matrices [T, 3, 4] or [T, 4, 4]; got shape {list(array.shape)}."
        )
    if array.dtype.kind not in "fiu":
        raise PoseFileError(f"{path} must hold real numbers; got {array.dtype}.")
    if array.shape[1] == 4 and np.abs(array[:, 3] - [0, 0, 0, 1]).max() > 1e-6:
        raise PoseFileError(
            f"{path}: the last row of each matrix must be 0 0 0 1; the first has {array[0, 3].tolist()}. "
            "A translation there means transposed (row-vector) matrices: save array.transpose(0, 2, 1)."
        )
    return RawPoses(
        matrices=array[:, :3].astype(np.float64),
        places=tuple(f"entry {index}" for index in range(len(array))),
        times=None if times is None else np.asarray(times, dtype=np.float64),
        unit=None if unit is None else _checked_unit(path, unit),
    )


def _checked_unit(path: Path, unit: str) -> Unit:
    if unit == "m":
        return "m"
    if unit == "normalized":
        return "normalized"
    if unit == "unknown":
        return "unknown"
    raise PoseFileError(f"{path}: the unit must be 'm', 'normalized' or 'unknown', got {unit!r}.")


def write_npy(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The matrices [T, 4, 4] alone."""
    buffer = io.BytesIO()
    np.save(buffer, poses.T_world_cam.numpy())
    return buffer.getvalue()


def write_npz(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """Matrices, unit, convention, and times where there are any."""
    arrays: dict[str, Any] = {
        "T_world_cam": poses.T_world_cam.numpy(),
        "unit": np.asarray(poses.unit),
        "convention": np.asarray(_MEROPE_CONVENTION),
    }
    if poses.times is not None:
        arrays["times"] = poses.times.numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read_merope(path: Path, options: ReadOptions) -> RawPoses:
    """This project's JSON: convention, unit, optional times and lens stand in the file itself."""
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise PoseFileError(f"{path} is not JSON: {error}.") from None
    if not isinstance(content, dict) or content.get("format") != _MEROPE_FORMAT:
        raise PoseFileError(
            f'{path} is JSON, but not this project\'s pose format (no "format": "{_MEROPE_FORMAT}").'
        )
    if content.get("version") != 1:
        raise PoseFileError(
            f"{path} has version {content.get('version')!r} of the format; this release reads 1."
        )
    if content.get("convention") != _MEROPE_CONVENTION:
        raise PoseFileError(
            f"{path} states the convention {content.get('convention')!r}; this format has one only: "
            f"{_MEROPE_CONVENTION!r}. Write it with merope.data.write_poses."
        )
    try:
        matrices = np.asarray(content["T_world_cam"], dtype=np.float64).reshape(-1, 3, 4)
        times = None if content.get("times") is None else np.asarray(content["times"], dtype=np.float64)
        if times is not None and times.ndim != 1:
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise PoseFileError(
            f"{path}: T_world_cam must be a list of rows of 12 numbers, times a list of seconds."
        ) from None
    raw = _from_array(path, matrices, times, str(content.get("unit")))
    return RawPoses(
        matrices=raw.matrices, places=raw.places, times=raw.times, unit=raw.unit, camera=content.get("camera")
    )


def write_merope(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """One matrix per line, so that two versions of a file can be compared by eye."""
    head = {
        "format": _MEROPE_FORMAT,
        "version": 1,
        "convention": _MEROPE_CONVENTION,
        "unit": poses.unit,
        "camera": camera,
        "times": None if poses.times is None else poses.times.tolist(),
    }
    rows = ",\n".join("  " + json.dumps(row) for row in poses.T_world_cam[:, :3].flatten(1).tolist())
    return (json.dumps(head, allow_nan=False)[:-1] + ',\n "T_world_cam": [\n' + rows + "\n]}\n").encode()
