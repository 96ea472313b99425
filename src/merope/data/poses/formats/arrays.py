"""Formats that are NumPy arrays: npy and npz; and arrays of other formats, read without trust in their headers."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from merope.data.foreign_files.strict_json import parse_json
from merope.data.poses.formats.raw import (
    CONVENTION,
    PoseFormat,
    PosePolicy,
    RawPoses,
    by_entry,
    checked_policy,
    checked_unit,
    require_as_many,
)
from merope.data.poses.formats.recognition import array_head, array_head_of, first_bytes
from merope.data.poses.table import LARGEST_UNPACKED, PoseFileError, ReadOptions, read_bytes
from merope.geometry.poses import Poses

_NAMES = ("T_world_cam", "c2w", "camera_to_world", "poses")


def read_numpy(path: Path, options: ReadOptions) -> RawPoses:
    """A NumPy array [T, 3, 4] or [T, 4, 4], alone (.npy) or in an archive (.npz, with times and unit if present)."""
    content = read_bytes(path)
    if not content.startswith(b"PK"):
        return from_array(path, load_array(path, content), None, None, nan_rows=options.nan_rows)
    arrays = _load_archive(path, content)
    names = [name for name in _NAMES if name in arrays]
    if not names and len(arrays) == 1:
        names = list(arrays)
    if not names:
        raise PoseFileError(
            f"{path} holds the arrays {', '.join(arrays) or '(none)'}; camera-to-world matrices are looked for "
            "under 'T_world_cam', 'c2w', 'camera_to_world' or 'poses'. Rename one."
        )
    convention = str(arrays.get("convention", CONVENTION))
    if convention != CONVENTION:
        raise PoseFileError(
            f"{path} states the convention {convention[:200]!r}; this format has one only: {CONVENTION!r}. "
            "Write it with merope.data.write_poses."
        )
    times = arrays.get("times")
    if times is not None and (times.ndim != 1 or times.dtype.kind not in "fiu"):
        raise PoseFileError(
            f"{path}: times must be numbers [T] of seconds; got {times.dtype} of shape {list(times.shape)}."
        )
    if times is not None:
        require_as_many(path, len(np.atleast_1d(arrays[names[0]])), len(times))
    unit = str(arrays["unit"]) if "unit" in arrays else None
    raw = from_array(path, arrays[names[0]], times, unit, nan_rows=options.nan_rows)
    # What else these names hold in an archive that is not ours is not known.
    if "convention" not in arrays:
        return raw
    return replace(raw, camera=_camera(path, arrays), pose_policy=_policy(path, arrays))


def _camera(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    if "camera" not in arrays:
        return None
    try:
        camera = parse_json(str(arrays["camera"]))
    except (ValueError, RecursionError) as error:
        raise PoseFileError(f"{path}: its camera is no JSON: {error}.") from None
    if not isinstance(camera, dict):
        raise PoseFileError(f"{path}: its camera must be a JSON object, the text of CameraModel.to_dict.")
    return camera


def _policy(path: Path, arrays: dict[str, np.ndarray]) -> PosePolicy | None:
    return checked_policy(path, str(arrays["pose_policy"])) if "pose_policy" in arrays else None


def load_array(path: Path, content: bytes, *, member: str | None = None) -> np.ndarray:
    """The array in the bytes of a .npy file; ``member`` names it within ``path``, for the error.

    Raises:
        PoseFileError: for anything else, an array of Python objects, and a header that promises more than follows.
    """
    place = str(path) if member is None else f"{member[:100]} of {path}"
    head = array_head_of(content)
    # NumPy would set memory aside for what a header promises before it looks at what there is.
    if head is not None and head.num_bytes > len(content):
        raise PoseFileError(
            f"{place} is cut short: with its shape {list(head.shape)} it should have {head.num_bytes} bytes, and has "
            f"{len(content)}. Fetch it again."
        )
    if head is None and content.startswith(np.lib.format.MAGIC_PREFIX):
        raise PoseFileError(f"{place} is no NumPy array that can be read: its header is damaged.")
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception as error:
        # A damaged header goes through Python's own parser, which has many ways to say no.
        raise PoseFileError(
            f"{place} is no NumPy array or archive that can be read: {error!s:.300}. `merope poses inspect` says which "
            "format it may be."
        ) from None
    if head is not None and head.num_bytes < len(content):
        raise PoseFileError(
            f"{place} has {len(content)} bytes, where its shape {list(head.shape)} takes {head.num_bytes}: its header is "
            "damaged, or something was written behind the array. Save it again."
        )
    return np.asarray(array)


def _load_archive(path: Path, content: bytes) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            names = [member.filename for member in members]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise PoseFileError(
                    f"{path} has two members {twice[:60]!r}, and which one counts is not said. Save it again."
                )
            # Together: a small archive can hold many that each unpack to much.
            size = sum(member.file_size for member in members)
            if size > LARGEST_UNPACKED:
                raise PoseFileError(
                    f"{path} unpacks to {size} bytes, more than {LARGEST_UNPACKED >> 20} MiB, which is no trajectory."
                )
            for member in archive.infolist():
                # Compares the name in the table of contents with the member's own: a damaged one would go unseen.
                archive.open(member).close()
            parts = {member.filename: archive.read(member) for member in members}
    except PoseFileError:
        raise
    except Exception as error:
        # zipfile has several errors for damage, and others for passwords and methods of packing it lacks.
        raise PoseFileError(
            f"{path} is no NumPy array or archive that can be read: {error!s:.300}."
        ) from None
    return {name.removesuffix(".npy"): load_array(path, part, member=name) for name, part in parts.items()}


def in_float64(array: np.ndarray) -> np.ndarray:
    """Real numbers in float64; a signalling NaN is not finite, which is told elsewhere, and no reason for a warning."""
    with np.errstate(invalid="ignore", over="ignore"):
        return array.astype(np.float64)


def from_array(
    path: Path,
    array: np.ndarray,
    times: np.ndarray | None,
    unit: str | None,
    *,
    nan_rows: Literal["refuse", "leave out"] = "refuse",
) -> RawPoses:
    """Camera-to-world matrices [T, 3, 4] or [T, 4, 4] of a file; ``nan_rows`` is that of `ReadOptions`.

    Raises:
        PoseFileError: for another shape, a last row other than 0 0 0 1, or what is not numbers.
    """
    if array.ndim != 3 or array.shape[1:] not in ((3, 4), (4, 4)) or len(array) == 0:
        raise PoseFileError(
            f"{path} must hold matrices [T, 3, 4] or [T, 4, 4]; got shape {list(array.shape)}."
        )
    if array.dtype.kind not in "fiu":
        raise PoseFileError(f"{path} must hold real numbers; got {array.dtype}.")
    last_rows = array[:, 3] if array.shape[1] == 4 else None
    if last_rows is not None and nan_rows == "leave out":
        last_rows = last_rows[~np.isnan(array).any(axis=(1, 2))]
    if last_rows is not None and len(last_rows) and not (np.abs(last_rows - [0, 0, 0, 1]).max() <= 1e-6):
        raise PoseFileError(
            f"{path}: the last row of each matrix must be 0 0 0 1; the first has {last_rows[0].tolist()}. "
            "A translation there means transposed (row-vector) matrices: save array.transpose(0, 2, 1)."
        )
    return RawPoses(
        matrices=in_float64(array[:, :3]),
        places=by_entry(len(array)),
        times=None if times is None else np.asarray(times, dtype=np.float64),
        unit=None if unit is None else checked_unit(path, unit),
    )


def write_npy(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The matrices [T, 4, 4] alone."""
    return array_bytes(poses.T_world_cam.numpy())


def array_bytes(array: np.ndarray) -> bytes:
    """The bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def write_npz(poses: Poses, camera: dict[str, Any] | None, pose_policy: PosePolicy | None = None) -> bytes:
    """Matrices, unit, convention; times, lens (as JSON) and pose policy where there are any."""
    arrays: dict[str, Any] = {
        "T_world_cam": poses.T_world_cam.numpy(),
        "unit": np.asarray(poses.unit),
        "convention": np.asarray(CONVENTION),
    }
    if poses.times is not None:
        arrays["times"] = poses.times.numpy()
    if camera is not None:
        arrays["camera"] = np.asarray(json.dumps(camera, allow_nan=False))
    if pose_policy is not None:
        arrays["pose_policy"] = np.asarray(pose_policy)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def recognise_npy(path: Path) -> str | None:
    """An array of the right shape, by its header."""
    head = array_head(path)
    if head is None or len(head.shape) != 3 or head.shape[1:] not in ((3, 4), (4, 4)):
        return None
    return f"NumPy array of shape {list(head.shape)}, {head.dtype}"


def recognise_npz(path: Path) -> str | None:
    """An archive that holds an array under one of the names looked for, or one alone."""
    if not first_bytes(path, 4).startswith(b"PK\x03\x04"):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except Exception:
        # Gzip around it, or damage of many kinds.
        return None
    if any(name in names for name in _NAMES) or len(names) == 1:
        return f"NumPy archive with the arrays {', '.join(names)[:200]}"
    return None


FORMATS = {
    "npy": PoseFormat(
        about="NumPy array [T, 3, 4] or [T, 4, 4] of camera-to-world matrices",
        read=read_numpy,
        write=write_npy,
        recognise=recognise_npy,
        bare=True,
    ),
    "npz": PoseFormat(
        about="NumPy archive with T_world_cam, times, unit, lens, pose policy",
        read=read_numpy,
        write=write_npz,
        keeps_pose_policy=True,
        recognise=recognise_npz,
    ),
}
