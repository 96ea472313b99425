"""Tables of numbers in text files, and what is wrong with them: every complaint names its line and its cure."""

import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from merope.errors import MeropeError
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
    """Unit of time stamps in the file."""
    quaternion_order: Literal["xyzw", "wxyz"] = "xyzw"
    """Order of quaternion components in the file."""
    direction: Direction | None = None
    """Which way the matrices map; world-to-camera ones ("extrinsics") are inverted. None takes the format's definition."""
    camera_axes: Axes | None = None
    """Axes of what the matrices turn. None takes the format's definition."""
    camera: str | None = None
    """Which camera, in a file or folder of several."""
    scene: str | None = None
    """Which scene, sequence or trajectory, in a file or folder of several."""
    mirror: Literal["none", "x", "y", "z"] = "none"
    """World axis to negate, for a left-handed world with right-handed camera axes (determinant -1)."""
    unit: Unit | None = None
    """What a length of 1 is. None takes the file's word, else its format: metres for KITTI and TUM, unknown for arrays."""
    tolerance: float = 1e-3
    """How far R^T R may be from the identity (largest entry) before the file is refused."""

    def __post_init__(self) -> None:
        if self.skip_lines < 0:
            raise ValueError(f"skip_lines must be 0 or more, got {self.skip_lines}.")
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance must lie between 0 and 1, got {self.tolerance:g}.")
        if self.unit is not None and self.unit not in get_args(Unit):
            raise ValueError(f"unit must be one of {get_args(Unit)} or None, got {self.unit!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of numbers with the line each came from; ``index`` holds a leading frame number where there is one."""

    values: Float[np.ndarray, "row column"]
    lines: tuple[int, ...]
    index: tuple[int, ...] | None = None

    @property
    def num_columns(self) -> int:
        """Numbers per row, the frame number left out."""
        return self.values.shape[1]


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where it is gzip.

    Raises:
        PoseFileError: if it is missing, empty, a folder, or a damaged gzip file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise PoseFileError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise PoseFileError(f"{path} is a folder; name the pose file in it.") from None
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(content)) as unpacked:
                content = unpacked.read()
        except (OSError, EOFError) as error:
            raise PoseFileError(f"{path} is a damaged gzip file: {error}. Fetch it again.") from None
    if not content.strip():
        raise PoseFileError(f"{path} is empty.")
    return content


def read_text(path: Path) -> str:
    """The text of a file, unpacked where it is gzip, with any kind of line end."""
    content = read_bytes(path)
    if b"\0" in content[:4096]:
        raise PoseFileError(
            f"{path} is a binary file. NumPy arrays are read with format 'npy' (--format npy), "
            "other binary formats have to be converted first."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PoseFileError(
            f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#x}."
        ) from None


def read_table(path: Path, options: ReadOptions) -> Table:
    """All rows of numbers in a text file; empty lines and '#' comments are left out.

    Raises:
        PoseFileError: for commas, headers, words, values that are not finite, and rows of unequal length.
    """
    rows: list[list[float]] = []
    lines: list[int] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.split("#", 1)[0].strip()
        if not text or number <= options.skip_lines:
            continue
        rows.append(_numbers(path, number, text, options, is_first=not rows))
        lines.append(number)
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
    if not finite.all():
        bad = int(np.argmin(finite))
        raise PoseFileError(
            f"{path}, line {lines[bad]} holds a value that is not finite (NaN or infinity). "
            "Remove frames without a pose; keep a frame number in the first column (index_column, --index-column)."
        )
    return Table(values=values, lines=tuple(lines))


def _numbers(path: Path, number: int, text: str, options: ReadOptions, *, is_first: bool) -> list[float]:
    if options.delimiter == "comma":
        fields = [field.strip() for field in text.rstrip(",").split(",")]
    elif "," in text:
        raise PoseFileError(
            f"{path}, line {number} holds commas. Comma-separated numbers are read with delimiter='comma' "
            "(--delimiter comma); decimal commas have to be turned into points first."
        )
    else:
        fields = text.split()
    try:
        return [float(field) for field in fields]
    except ValueError:
        word = next(field for field in fields if not _is_number(field))
    if is_first:
        raise PoseFileError(
            f"{path}, line {number} is not numbers but starts a header or another format (first word: "
            f"{word[:40]!r}). Skip a header with skip_lines={number} (--skip-lines {number})."
        )
    raise PoseFileError(f"{path}, line {number}: {word[:40]!r} is not a number. Mend or remove the line.")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


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
    return Table(values=table.values[:, 1:], lines=table.lines, index=tuple(int(value) for value in index))


def explain_columns(path: Path, table: Table, wanted: str) -> PoseFileError:
    """What a table with the wrong number of columns may be, and the option that reads it."""
    likely = {
        7: "a TUM trajectory without time stamps: add a first column of seconds",
        8: "TUM (t x y z qx qy qz qw)? Use format='tum' (--format tum)",
        9: "a frame number before a TUM row? Use format='tum', index_column=True (--format tum --index-column)",
        11: "a KITTI row that lost one number: the file is damaged",
        12: "KITTI (a 3 x 4 camera-to-world matrix, row by row)? Use format='kitti' (--format kitti)",
        13: "a frame number before a KITTI row? Use format='kitti' (--format kitti)",
        14: "a KITTI row with two numbers too many: keep the 12 of the matrix",
        16: "4 x 4 matrices, row by row? Keep the first 12 numbers of each row for format 'kitti'",
        17: "EuRoC ground truth (t, position, quaternion wxyz, velocity, biases)? Keep the first 8 columns",
        19: "RealEstate10K (stamp, fx fy cx cy, two zeros, 12 numbers world-to-camera)?",
    }
    count = table.num_columns
    guess = likely.get(count, "no pose format that is known here")
    return PoseFileError(
        f"{path}, line {table.lines[0]} has {count} numbers; {wanted}. {count} columns may be {guess}."
    )
