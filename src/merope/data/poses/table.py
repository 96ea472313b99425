"""Tables of numbers in text files, and what is wrong with them: every complaint names its line and its cure."""

import gzip
import io
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from merope.errors import MeropeError
from merope.files import require_file
from merope.geometry.poses import Unit

Axes = Literal["opencv", "opengl", "flu", "frd", "unreal"]
"""opencv: x right, y down, z forward. opengl: x right, y up, z back. flu: x forward, y left, z up (vehicles, IMUs, ROS).
frd: x forward, y right, z down (aircraft, comma2k19). unreal: x forward, y right, z up, left-handed like its world."""

Direction = Literal["camera-to-world", "world-to-camera"]

# R_AXES_OPENCV[axes] takes coordinates in a camera's OpenCV axes to those axes of the same frame.
R_AXES_OPENCV: dict[str, Float[np.ndarray, "3 3"]] = {
    "opencv": np.eye(3),
    "opengl": np.diag([1.0, -1.0, -1.0]),
    "flu": np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]),
    "frd": np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    "unreal": np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]),
}

# A million poses take 0.13 GB as an array and 0.25 GB as text; what unpacks to more holds something else.
LARGEST_UNPACKED = 1 << 30

_LINE_END = re.compile(r"\r\n|\r|\n")


class PoseFileError(MeropeError):
    """A pose file cannot be read as asked; the message names the line and the option that mends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a pose file departs from its format's standard; error messages name the field to set."""

    delimiter: Literal["space", "comma"] = "space"
    """What separates numbers in a text file."""
    skip_lines: int = 0
    """Lines to leave out at the top of a text file, for a header that has no '#'."""
    index_column: bool = False
    """Whether a frame number stands before the numbers of the format in each row."""
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    """Unit of time stamps in a TUM file; the other formats define theirs."""
    quaternion_order: Literal["xyzw", "wxyz"] = "xyzw"
    """Order of quaternion components in a TUM file; the other formats define theirs."""
    direction: Direction | None = None
    """Which way the matrices map; world-to-camera ones ("extrinsics") are inverted. None takes the format's definition."""
    camera_axes: Axes | None = None
    """Axes of what the matrices turn. None takes the format's definition."""
    camera: str | None = None
    """Which camera, in a file or folder of several."""
    scene: str | None = None
    """Which scene, sequence or trajectory, in a file or folder of several."""
    undo_applied_transform: bool = False
    """Whether to take out a change of the world that a nerfstudio file states of its own poses; False leaves its world."""
    mirror: Literal["none", "x", "y", "z"] = "none"
    """World axis to negate, for a left-handed world with right-handed camera axes (determinant -1)."""
    unit: Unit | None = None
    """What a length of 1 is. None takes the file's word, else its format's: metres for KITTI, unknown for arrays."""
    tolerance: float = 1e-3
    """How far R^T R may be from the identity (largest entry) before the file is refused."""
    nan_rows: Literal["refuse", "leave out"] = "refuse"
    """Rows with NaN for a pose (kitti, tum, npy, npz), as trackers write for frames they lost: refused, or left out and
    listed in `PoseFile.nan_rows`. Infinity is refused always."""

    def __post_init__(self) -> None:
        if self.skip_lines < 0:
            raise ValueError(f"skip_lines must be 0 or more, got {self.skip_lines}.")
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance must lie between 0 and 1, got {self.tolerance:g}.")
        if self.nan_rows not in ("refuse", "leave out"):
            raise ValueError(f"nan_rows must be 'refuse' or 'leave out', got {self.nan_rows!r}.")
        if self.unit is not None and self.unit not in get_args(Unit):
            raise ValueError(f"unit must be one of {get_args(Unit)} or None, got {self.unit!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of numbers with the line each came from; ``index`` holds a leading frame number where there is one."""

    values: Float[np.ndarray, "row column"]
    lines: tuple[int, ...]
    stamps: tuple[str, ...]
    """The field where a format with stamps has them, as it is written: a float64 cannot hold nanoseconds since 1970."""
    index: tuple[int, ...] | None = None

    @property
    def num_columns(self) -> int:
        """Numbers per row, the frame number left out."""
        return self.values.shape[1]


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where it is gzip.

    Raises:
        PoseFileError: if it is missing, empty, a folder, no plain file, too large, or a damaged gzip file.
    """
    content = packed_bytes(path)
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(content)) as unpacked:
                content = unpacked.read(LARGEST_UNPACKED + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise PoseFileError(f"{path} is a damaged gzip file: {error}. Fetch it again.") from None
        if len(content) > LARGEST_UNPACKED:
            raise PoseFileError(
                f"{path} unpacks to more than {LARGEST_UNPACKED >> 20} MiB, which is no trajectory."
            )
    if not content.strip():
        raise PoseFileError(f"{path} is empty.")
    return content


def packed_bytes(path: Path) -> bytes:
    """The content of a file as it is, packed or not.

    Raises:
        PoseFileError: if it is missing, a folder, a pipe or a device, too large, or cannot be read.
    """
    try:
        size = require_file(path)
        if size > LARGEST_UNPACKED:
            raise PoseFileError(
                f"{path} has {size >> 20} MiB, more than {LARGEST_UNPACKED >> 20}, which is no trajectory."
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise PoseFileError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise PoseFileError(f"{path} is a folder; name the pose file in it.") from None
    except OSError as error:
        raise PoseFileError(f"{path} cannot be read: {error.strerror}.") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, unpacked where it is gzip, whichever of the three line ends each has.

    `str.splitlines` would also end a line at form feeds and at separators of other scripts, within a comment or a name.
    """
    return lines_of(read_text(path))


def lines_of(text: str) -> list[str]:
    """The lines of a text, which end with CR LF, CR or LF."""
    lines = _LINE_END.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def read_text(path: Path) -> str:
    """The text of a file, unpacked where it is gzip."""
    content = read_bytes(path)
    if b"\0" in content:
        raise PoseFileError(f"{path} is a binary file{_binary(content)}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PoseFileError(
            f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#x}."
        ) from None


def _binary(content: bytes) -> str:
    """What a binary file is by its first bytes, with the format that reads it."""
    for start, name, format in (
        (b"\x93NUMPY", "a NumPy array", "npy"),
        (b"PK\x03\x04", "a zip archive, perhaps of NumPy arrays", "npz"),
        (b"ARROW1", "an Arrow table, as Argoverse 2 has them", "argoverse2"),
    ):
        if content.startswith(start):
            return f", {name}: read it with format={format!r} (--format {format})"
    if content[257:262] == b"ustar":
        return ", a tar archive. Of vehicle poses? Read it with format='rds-hq' (--format rds-hq)"
    return ". `merope poses inspect` says which format it may be; others have to be converted first"


def read_table(path: Path, options: ReadOptions) -> Table:
    """All rows of numbers in a text file; empty lines and '#' comments are left out.

    Raises:
        PoseFileError: for commas, headers, words, values that are not finite, and rows of unequal length.
    """
    return read_rows(path, enumerate(read_lines(path), start=1), options)


def read_rows(path: Path, numbered: Iterable[tuple[int, str]], options: ReadOptions) -> Table:
    """`read_table` of lines with their numbers, for a file that begins with something else."""
    rows: list[list[float]] = []
    lines: list[int] = []
    stamps: list[str] = []
    for number, line in numbered:
        text = line.split("#", 1)[0].strip()
        if not text or number <= options.skip_lines:
            continue
        if not rows:
            _refuse_foreign(path, number, text)
        fields = _fields(path, number, text, options)
        rows.append(_numbers(path, number, fields, is_first=not rows))
        lines.append(number)
        stamps.append(fields[min(int(options.index_column), len(fields) - 1)])
        if len(rows[-1]) != len(rows[0]):
            raise PoseFileError(
                f"{path}, line {number} has {len(rows[-1])} numbers where line {lines[0]} has {len(rows[0])}: "
                "the line is damaged or cut short. Mend or remove it."
            )
    if not rows:
        raise PoseFileError(
            f"{path} has no line of numbers after {options.skip_lines} skipped lines and comments."
        )
    values = np.asarray(rows, dtype=np.float64)
    finite = np.isfinite(values).all(axis=1)
    if options.nan_rows == "leave out":
        finite |= np.isnan(values).any(axis=1) & ~np.isinf(values).any(axis=1)
    if not finite.all():
        bad = int(np.argmin(finite))
        raise PoseFileError(
            f"{path}, line {lines[bad]} holds a value that is not finite (NaN or infinity). "
            "Remove frames without a pose; keep a frame number in the first column (index_column, --index-column)."
        )
    return Table(values=values, lines=tuple(lines), stamps=tuple(stamps))


def _refuse_foreign(path: Path, number: int, text: str) -> None:
    """Say what a file is whose first line gives it away."""
    known = (
        (text.startswith(("http://", "https://")), "RealEstate10K", "realestate10k"),
        ("tracking_timestamp_us" in text, "an Aria trajectory", "aria"),
    )
    for matches, name, format in known:
        if matches:
            raise PoseFileError(
                f"{path}, line {number} begins like {name}: read it with format={format!r} (--format {format})."
            )
    if text[0] in "{[":
        raise PoseFileError(
            f"{path}, line {number} begins like JSON. This project's own is read with format='merope' (--format merope); "
            "for another, `merope poses inspect` says which format it may be."
        )


def _fields(path: Path, number: int, text: str, options: ReadOptions) -> list[str]:
    if options.delimiter == "comma":
        return [field.strip() for field in text.rstrip(",").split(",")]
    if "," not in text:
        return text.split()
    fields = [field.strip() for field in text.split(",")]
    if len(fields) in (8, 17) and len(fields[0]) >= 16 and fields[0].isdigit():
        raise PoseFileError(
            f"{path}, line {number} holds commas behind a stamp in nanoseconds. EuRoC (t, position, quaternion wxyz)? "
            "Use format='euroc' (--format euroc)."
        )
    raise PoseFileError(
        f"{path}, line {number} holds commas. Comma-separated numbers are read with delimiter='comma' "
        "(--delimiter comma); decimal commas have to be turned into points first."
    )


def _numbers(path: Path, number: int, fields: list[str], *, is_first: bool) -> list[float]:
    try:
        joined = "".join(fields)
        if joined.isascii() and "_" not in joined:
            # What `plain_number` asks of each word, asked once a line.
            return list(map(float, fields))
        return [plain_number(field) for field in fields]
    except ValueError:
        word = next(field for field in fields if not _is_number(field))
    if is_first:
        raise PoseFileError(
            f"{path}, line {number} is not numbers but starts a header or another format (first word: "
            f"{word[:40]!r}). Skip a header with skip_lines={number} (--skip-lines {number})."
        )
    raise PoseFileError(f"{path}, line {number}: {word[:40]!r} is not a number. Mend or remove the line.")


def plain_number(field: str) -> float:
    """The number that a word is, NaN and infinity among them.

    Raises:
        ValueError: if it is none.
    """
    # Python also takes 1_000 for a thousand, and the digits of other scripts; no writer of poses means them.
    if "_" in field or not field.isascii():
        raise ValueError(field)
    return float(field)


def _is_number(field: str) -> bool:
    try:
        plain_number(field)
    except ValueError:
        return False
    return True


def finite_number(path: Path, number: int, word: str) -> float:
    """The number that a field holds.

    Raises:
        PoseFileError: if it is none, or not finite.
    """
    if not _is_number(word):
        raise PoseFileError(f"{path}, line {number}: {word[:40]!r} is not a number. Mend or remove the line.")
    value = plain_number(word)
    if not np.isfinite(value):
        raise PoseFileError(
            f"{path}, line {number} holds a value that is not finite. Remove frames without a pose."
        )
    return value


def split_index(path: Path, table: Table) -> Table:
    """Take the first column off as frame numbers.

    Raises:
        PoseFileError: if they are not whole numbers that increase.
    """
    index = table.values[:, 0]
    bad = (
        (index != np.round(index)) | (np.abs(index) > 2**53) | np.concatenate([[False], np.diff(index) <= 0])
    )
    if bad.any():
        row = int(np.argmax(bad))
        raise PoseFileError(
            f"{path}, line {table.lines[row]}: the first column should be a frame number that increases, got "
            f"{index[row]:g}. Drop index_column (--index-column) if the file has none, or sort its rows."
        )
    return replace(table, values=table.values[:, 1:], index=tuple(int(value) for value in index))


def explain_columns(path: Path, table: Table, wanted: str) -> PoseFileError:
    """What a table with the wrong number of columns may be, and the option that reads it."""
    likely = {
        1: "times, one a line: they go beside a file of poses (--times FILE)",
        7: "a TUM trajectory without time stamps: add a first column of seconds",
        8: "TUM (t x y z qx qy qz qw)? Use format='tum' (--format tum)",
        9: "a frame number before a TUM row? Use format='tum', index_column=True (--format tum --index-column)",
        11: "a KITTI row that lost one number: the file is damaged",
        12: "KITTI (a 3 x 4 camera-to-world matrix, row by row)? Use format='kitti' (--format kitti). Or KITTI-360's "
        "IMU? Use format='kitti360' (--format kitti360)",
        13: "a frame number before a KITTI row? Use format='kitti' (--format kitti). Or poses.txt of KITTI-360? Use "
        "format='kitti360' (--format kitti360)",
        14: "a KITTI row with two numbers too many: keep the 12 of the matrix",
        16: "4 x 4 matrices, row by row? Keep the first 12 numbers of each row for format 'kitti'",
        17: "cam0_to_world.txt of KITTI-360? Use format='kitti360' (--format kitti360). Or EuRoC ground truth (t, "
        "position, quaternion wxyz, velocity, biases)? Use format='euroc' (--format euroc)",
        18: "a RealEstate10K row that lost one number: the file is damaged",
        19: "RealEstate10K (stamp, fx fy cx cy, two zeros, 12 numbers world-to-camera)? Use format='realestate10k' "
        "(--format realestate10k)",
        20: "a RealEstate10K row with a number too many, or a 4 x 4 matrix behind fx fy cx cy",
    }
    count = table.num_columns
    guess = likely.get(count, "no pose format that is known here")
    return PoseFileError(
        f"{path}, line {table.lines[0]} has {count} numbers; {wanted}. {count} columns may be {guess}."
    )
