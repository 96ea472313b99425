"""Formats that are NumPy arrays: npy and npz."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from merope.data.pose_formats.raw import CONVENTION, PoseFormat, RawPoses, by_entry, checked_unit
from merope.data.pose_table import PoseFileError, ReadOptions, read_bytes
from merope.geometry.poses import Poses


def read_numpy(path: Path, options: ReadOptions) -> RawPoses:
    """A NumPy array [T, 3, 4] or [T, 4, 4], alone (.npy) or in an archive (.npz, with times and unit if present)."""
    try:
        loaded = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return from_array(path, loaded, None, None)
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
    return from_array(path, arrays[names[0]], arrays.get("times"), unit)


def from_array(path: Path, array: np.ndarray, times: np.ndarray | None, unit: str | None) -> RawPoses:
    """Camera-to-world matrices [T, 3, 4] or [T, 4, 4] of a file.

    Raises:
        PoseFileError: for another shape, a last row other than 0 0 0 1, or what is not numbers.
    """
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
        places=by_entry(len(array)),
        times=None if times is None else np.asarray(times, dtype=np.float64),
        unit=None if unit is None else checked_unit(path, unit),
    )


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
        "convention": np.asarray(CONVENTION),
    }
    if poses.times is not None:
        arrays["times"] = poses.times.numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


FORMATS = {
    "npy": PoseFormat(
        about="NumPy array [T, 3, 4] or [T, 4, 4] of camera-to-world matrices",
        read=read_numpy,
        write=write_npy,
    ),
    "npz": PoseFormat(
        about="NumPy archive with T_world_cam, times, unit",
        read=read_numpy,
        write=write_npz,
    ),
}
