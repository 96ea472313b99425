"""RDS-HQ: poses of the vehicle as 4 x 4 arrays, stacked in one file or one file a frame in a folder or a tar archive."""

import io
import re
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from merope.data.poses.formats.arrays import array_bytes, from_array, in_float64, load_array
from merope.data.poses.formats.raw import PoseFormat, RawPoses, matrices_in_axes
from merope.data.poses.formats.recognition import array_head, first_bytes
from merope.data.poses.table import PoseFileError, ReadOptions, read_bytes
from merope.geometry.poses import Poses

_ENDING = ".vehicle_pose.npy"
# A 4 x 4 matrix takes 256 bytes with its header.
_LARGEST_MEMBER = 1 << 16
_BLOCK = 512
_NOTE = "the file does not say how many poses there are in a second: give times, or the rate where one is asked for"


def read_rds_hq(path: Path, options: ReadOptions) -> RawPoses:
    """T_world_vehicle of each frame, x forward, y left, z up: an array [T, 4, 4], or a folder or .tar of arrays [4, 4].

    Of a folder or archive the files that end in .vehicle_pose.npy are read, or all .npy files if none does, in order of the
    numbers in their names. A name that begins with a number gives the frame number. Nothing is unpacked to disk.
    """
    if path.is_dir():
        parts = {file.name: read_bytes(file) for file in _poses_among(path) if file.is_file()}
    else:
        content = read_bytes(path)
        if content.startswith(b"\x93NUMPY"):
            return _stacked(path, content)
        if not _is_tar(content):
            raise PoseFileError(
                f"{path} is neither a NumPy array nor a tar archive of such; RDS-HQ has T_world_vehicle in one [T, 4, 4] "
                "array, or one file a frame in a folder or .tar. `merope poses inspect` says what it may be."
            )
        parts = _members(path, content)
    chosen = {name: part for name, part in parts.items() if name.endswith(_ENDING)} or {
        name: part for name, part in parts.items() if name.endswith(".npy")
    }
    if not chosen:
        raise PoseFileError(f"{path} holds no file that ends in {_ENDING} or .npy, one for each frame.")
    names = sorted(chosen, key=_in_order)
    arrays = [load_array(path, chosen[name], member=name) for name in names]
    for name, array in zip(names, arrays, strict=True):
        if array.shape != (4, 4) or array.dtype.kind not in "fiu":
            raise PoseFileError(
                f"{name} of {path} must hold real numbers [4, 4]; got {array.dtype} of shape {list(array.shape)}."
            )
    raw = from_array(path, np.stack([in_float64(array) for array in arrays]), None, None)
    return RawPoses(
        matrices=raw.matrices, places=tuple(names), frame_ids=_frame_numbers(path, names), notes=(_NOTE,)
    )


def _stacked(path: Path, content: bytes) -> RawPoses:
    array = load_array(path, content)
    if array.ndim != 3 or array.shape[1:] != (4, 4):
        raise PoseFileError(
            f"{path} must hold T_world_vehicle of all frames, [T, 4, 4]; got shape {list(array.shape)}. Camera-to-world "
            "matrices [T, 3, 4] are read with format='npy' (--format npy)."
        )
    raw = from_array(path, array, None, None)
    return RawPoses(matrices=raw.matrices, places=raw.places, notes=(_NOTE,))


def _poses_among(folder: Path) -> list[Path]:
    files = [file for file in folder.iterdir() if file.name.endswith(".npy")]
    return [file for file in files if file.name.endswith(_ENDING)] or files


def _is_tar(content: bytes) -> bool:
    return content[257:262] == b"ustar"


def _members(path: Path, content: bytes) -> dict[str, bytes]:
    """Names and bytes of the .npy files in a tar archive, held in memory."""
    parts: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                _refuse_unsafe(path, member)
                if not member.name.endswith(".npy"):
                    continue
                if member.size > _LARGEST_MEMBER:
                    raise PoseFileError(
                        f"{path}: {member.name:.200} has {member.size} bytes, which is no 4 x 4 matrix."
                    )
                stream = archive.extractfile(member)
                name = PurePosixPath(member.name).name
                if name in parts:
                    raise PoseFileError(
                        f"{path} holds two files {name:.200}. Keep the poses of one clip in it."
                    )
                parts[name] = b"" if stream is None else stream.read()
            # tarfile takes a damaged header, and the end of a file that was cut short, for the end of the archive.
            if content[archive.offset : archive.offset + _BLOCK] != bytes(_BLOCK):
                raise tarfile.ReadError(
                    f"its members end at byte {archive.offset} without the mark of the end"
                )
    except PoseFileError:
        raise
    except Exception as error:
        # tarfile has errors of its own for damage and lets others of its parsing through.
        raise PoseFileError(f"{path} is a damaged tar archive: {error!s:.300}. Fetch it again.") from None
    return parts


def _refuse_unsafe(path: Path, member: tarfile.TarInfo) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise PoseFileError(
            f"{path}: the member {member.name!r:.200} leaves its folder. Do not trust this archive."
        )
    if not member.isreg() or member.issparse() or member.size < 0:
        raise PoseFileError(
            f"{path}: the member {member.name!r:.200} is a link or no plain file. Do not trust this archive."
        )


def _in_order(name: str) -> list[str | int]:
    """A key that sorts 9 before 10."""
    parts = re.split("([0-9]{1,300})", name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def _frame_numbers(path: Path, names: list[str]) -> tuple[int, ...] | None:
    found = [re.match("[0-9]{1,18}(?=[.])", name) for name in names]
    numbers = tuple(int(match[0]) for match in found if match)
    if len(numbers) < len(names):
        return None
    if len(set(numbers)) < len(numbers):
        raise PoseFileError(f"{path} has two files for one frame number. Keep the poses of one clip in it.")
    return numbers


def write_rds_hq(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """One array [T, 4, 4] in float64, for a body whose x points forward, y left and z up; the data set's has float32."""
    matrices = poses.T_world_cam.numpy().copy()
    matrices[:, :3] = matrices_in_axes(poses, "flu")
    return array_bytes(matrices)


def recognise_rds_hq(path: Path) -> str | None:
    """Files of that ending in a folder or at the start of a tar archive, or an array that is named so."""
    try:
        if path.is_dir():
            count = sum(1 for file in path.iterdir() if file.name.endswith(_ENDING))
            return f"a folder with {count} files that end in {_ENDING}" if count else None
    except OSError:
        return None
    head = array_head(path)
    if head is not None:
        named = path.name.removesuffix(".gz").endswith("vehicle_pose.npy")
        if named and len(head.shape) == 3 and head.shape[1:] == (4, 4):
            return f"NumPy array of shape {list(head.shape)} that is named vehicle_pose"
        return None
    start = first_bytes(path)
    if _is_tar(start) and _ENDING.encode() in start:
        return f"a tar archive with files that end in {_ENDING}"
    return None


FORMATS = {
    "rds-hq": PoseFormat(
        about="T_world_vehicle [T, 4, 4] of RDS-HQ (x forward, y left, z up): NumPy array, or folder or .tar of one a frame",
        read=read_rds_hq,
        write=write_rds_hq,
        recognise=recognise_rds_hq,
        unit="m",
        axes="flu",
        body="vehicle",
    ),
}
