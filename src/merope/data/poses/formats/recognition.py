"""Glimpses of a file for `recognise`: its first rows or the head of its array, or nothing. They never raise."""

import gzip
import io
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from merope.data.poses.table import lines_of

_GLIMPSE = 1 << 16


@dataclass(frozen=True, slots=True)
class ArrayHead:
    """Shape and type of a .npy file, whose numbers were not read."""

    shape: tuple[int, ...]
    dtype: np.dtype
    num_bytes: int
    """Size of a whole file with this head."""


def first_bytes(path: Path, count: int = _GLIMPSE) -> bytes:
    """The first bytes of a file, unpacked where it is gzip; none of a folder or of what cannot be read."""
    try:
        # Opening a pipe would wait for whoever writes into it.
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not packed:
                return file.read(count)
            with gzip.open(file) as unpacked:
                return unpacked.read(count)
    except (OSError, EOFError, ValueError, zlib.error):
        return b""


def first_lines(path: Path) -> list[str]:
    """The first lines of a text file, the last of them whole; none of a binary file."""
    content = first_bytes(path)
    if b"\0" in content:
        return []
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # A character may be cut in two at the end of the glimpse, and that alone.
        text = content[:-4].decode("utf-8-sig", errors="ignore") if len(content) == _GLIMPSE else ""
    lines = lines_of(text)
    return lines[:-1] if len(content) == _GLIMPSE else lines


def first_rows(
    path: Path, *, delimiter: str | None = None, header: int = 0
) -> Float[np.ndarray, "row column"]:
    """The numbers of the first lines after ``header`` ones and comments; no rows where they are not equally many numbers."""
    rows: list[list[float]] = []
    for line in first_lines(path)[header:]:
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        try:
            rows.append([float(field) for field in text.split(delimiter)])
        except ValueError:
            return np.zeros((0, 0))
    if not rows or len({len(row) for row in rows}) > 1 or not np.isfinite(rows).all():
        return np.zeros((0, 0))
    return np.asarray(rows)


def array_head(path: Path) -> ArrayHead | None:
    """Shape and type of a .npy file by its first bytes, else None."""
    return array_head_of(first_bytes(path))


def array_head_of(content: bytes) -> ArrayHead | None:
    """Shape and type by the first bytes of a .npy file, else None."""
    if content[:6] != np.lib.format.MAGIC_PREFIX:
        return None
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read(stream)
    except Exception:
        # A damaged header goes through Python's own parser, which has many ways to say no.
        return None
    # As Python's numbers: a damaged shape may have more entries than 64 bits count.
    num_bytes = stream.tell() + dtype.itemsize * math.prod(int(size) for size in shape)
    return ArrayHead(shape, dtype, num_bytes)


def are_rotations(matrices: Float[np.ndarray, "time rows columns"], *, tolerance: float = 0.05) -> bool:
    """Whether the left 3 x 3 parts are rotations, or nearly so."""
    rotations = matrices[:, :3, :3]
    if len(rotations) == 0 or np.abs(rotations).max() > 2:
        return False
    return bool(np.abs(rotations.transpose(0, 2, 1) @ rotations - np.eye(3)).max() <= tolerance)


def heading_axis(matrices: Float[np.ndarray, "time 3 4"]) -> int | None:
    """The axis of the body, 0 to 2, along which its steps go forward on average, else None."""
    steps = np.diff(matrices[:, :, 3], axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    moved = lengths > 1e-9
    if not moved.any():
        return None
    inside = (matrices[:-1, :, :3].transpose(0, 2, 1) @ steps[:, :, None])[:, :, 0]
    heading = (inside[moved] / lengths[moved, None]).mean(axis=0)
    axis = int(np.argmax(np.abs(heading)))
    return axis if heading[axis] > 0.8 else None
