"""Calibration files as plain values: JSON, YAML (OpenCV's too) and NumPy arrays, and numbers taken out of them with care.

Nothing in a file is executed: YAML goes through PyYAML's safe loader, arrays are loaded without pickle.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from jaxtyping import Float
from torch import Tensor

from merope.data.foreign_files.strict_json import parse_json
from merope.data.lenses.calibrations.raw import CalibrationError
from merope.data.poses.formats.arrays import in_float64, load_array
from merope.data.poses.table import PoseFileError, read_bytes, read_text
from merope.geometry.rotations import project_to_so3, quaternion_to_matrix

# Calibrations are kilobytes; a nuScenes table of all logs has a few megabytes.
_MAX_BYTES = 64 * 2**20
_MAX_VALUES = 100_000
_MAX_DEPTH = 64
_NPY = b"\x93NUMPY"


class _Loader(yaml.SafeLoader):
    """The safe loader, which also knows the tag that OpenCV puts before a matrix; a matrix stays a plain mapping."""


def _opencv_matrix(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(
            None, None, "a matrix must have rows, cols and data", node.start_mark
        )
    return loader.construct_mapping(node, deep=True)


for _kind in ("matrix", "nd-matrix"):
    _Loader.add_constructor(f"tag:yaml.org,2002:opencv-{_kind}", _opencv_matrix)


def read_document(path: Path) -> Any:
    """The content of a JSON or YAML file as plain values; what begins with a bracket is JSON.

    OpenCV's header "%YAML:1.0" is no YAML and is left out.

    Raises:
        CalibrationError: if the file is missing, too large or neither.
    """
    text = _text(path)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _require_plain(path, parse_json(text), of_yaml=False)
        except (ValueError, RecursionError) as error:
            raise CalibrationError(f"{path} is not JSON: {_brief(error)}.") from None
    if text.startswith("%YAML"):
        # The line stays, so that numbers of lines in messages are those of the file.
        text = "#" + text[1:]
    try:
        return _require_plain(path, yaml.load(text, Loader=_Loader), of_yaml=True)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise CalibrationError(f"{path} is not YAML: {_brief(error)}.") from None


def read_array(path: Path) -> np.ndarray:
    """The array of a .npy file, as float64.

    Raises:
        CalibrationError: if it is no array of real numbers, or its header promises more or less than follows.
    """
    content = _bytes(path)
    if not content.startswith(_NPY):
        raise CalibrationError(f"{path} is no .npy file. Is it of another format: format= (--format)?")
    try:
        array = load_array(path, content)
    except PoseFileError as error:
        # Its advice is for files of poses.
        raise CalibrationError(str(error).split(" `merope poses inspect`")[0]) from None
    if array.dtype.kind not in "fiu":
        raise CalibrationError(f"{path} holds no array of real numbers.")
    return in_float64(array)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file.

    Raises:
        CalibrationError: if it is missing or no text.
    """
    return _text(path).splitlines()


def document_or_none(path: Path) -> Any:
    """`read_document`, or None for what is none: for recognisers, which ask for the same file one after another."""
    try:
        state = path.stat()
    except OSError:
        return None
    return _last_document(path, state.st_mtime_ns, state.st_size) if path.is_file() else None


@lru_cache(maxsize=1)
def _last_document(path: Path, changed: int, size: int) -> Any:
    try:
        return read_document(path)
    except (CalibrationError, OSError):
        return None


def lines_or_none(path: Path) -> list[str] | None:
    """`read_lines`, or None for what is no text: for recognisers."""
    try:
        return read_lines(path) if path.is_file() else None
    except (CalibrationError, OSError):
        return None


def array_or_none(path: Path) -> np.ndarray | None:
    """`read_array`, or None for what is none: for recognisers."""
    try:
        if not path.is_file() or path.open("rb").read(6) != _NPY:
            return None
        return read_array(path)
    except (CalibrationError, OSError):
        return None


def entry(path: Path, content: Any, *keys: str | int) -> Any:
    """``content[key][key]...``.

    Raises:
        CalibrationError: naming the way to the first entry that is missing.
    """
    for depth, key in enumerate(keys):
        try:
            content = content[key] if isinstance(content, dict | list) else None  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            content = None
        if content is None:
            raise CalibrationError(f"{path} has no entry {'.'.join(map(str, keys[: depth + 1]))}.")
    return content


def number(path: Path, name: str, value: Any) -> float:
    """A finite number; YAML takes "1e-5" for a word, so words that are numbers count.

    Raises:
        CalibrationError: for anything else.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        found = float(value)
        if not math.isfinite(found):
            raise ValueError
    except (ValueError, OverflowError):
        raise CalibrationError(f"{path}: {name} must be a finite number, got {value!r:.60}.") from None
    return found


def numbers(path: Path, name: str, value: Any, count: int | Sequence[int]) -> list[float]:
    """A list of so many finite numbers, or of one of these lengths.

    Raises:
        CalibrationError: for anything else.
    """
    counts = [count] if isinstance(count, int) else list(count)
    if not isinstance(value, list) or len(value) not in counts:
        got = f"{len(value)} entries" if isinstance(value, list) else f"{value!r:.60}"
        raise CalibrationError(
            f"{path}: {name} must be a list of {' or '.join(map(str, counts))} numbers, got {got}."
        )
    return [number(path, f"{name}[{index}]", item) for index, item in enumerate(value)]


def named(path: Path, section: str, content: Any, *names: str) -> list[float]:
    """The numbers under these names of one section.

    Raises:
        CalibrationError: naming the first that is missing or no number.
    """
    return [number(path, f"{section}.{name}", entry(path, content, name)) for name in names]


def pixels(path: Path, name: str, value: Any) -> int:
    """A positive whole number of pixels, which some files write as 966.0.

    Raises:
        CalibrationError: for anything else.
    """
    found = number(path, name, value)
    if found < 1 or found != int(found):
        raise CalibrationError(
            f"{path}: {name} must be a positive whole number of pixels, got {value!r:.60}."
        )
    return int(found)


def matrix_values(path: Path, name: str, value: Any, rows: int, cols: int) -> list[float]:
    """The rows of a matrix, one after another: a list of lists, or a mapping with rows, cols and data.

    Raises:
        CalibrationError: if it has another shape or holds anything but finite numbers.
    """
    if isinstance(value, Mapping):
        shape = tuple(pixels(path, f"{name}.{side}", value.get(side)) for side in ("rows", "cols"))
        if shape != (rows, cols):
            raise CalibrationError(f"{path}: {name} must be {rows} x {cols}, got {shape[0]} x {shape[1]}.")
        return numbers(path, f"{name}.data", value.get("data"), rows * cols)
    if not isinstance(value, list) or len(value) != rows:
        raise CalibrationError(f"{path}: {name} must have {rows} rows, got {value!r:.60}.")
    return [x for index, row in enumerate(value) for x in numbers(path, f"{name}[{index}]", row, cols)]


def intrinsic_matrix(path: Path, name: str, values: Sequence[float]) -> dict[str, Any]:
    """fx, fy, cx, cy of a calibration matrix [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], its rows one after another.

    Raises:
        CalibrationError: if it has skew or another form.
    """
    fx, skew, cx, below, fy, cy, *last = values
    if (skew, below, *last) != (0, 0, 0, 0, 1):
        raise CalibrationError(
            f"{path}: {name} must be [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], got {list(values)}. Skew is not supported."
        )
    return {"fx": fx, "fy": fy, "cx": cx, "cy": cy}


def rigid(path: Path, name: str, values: Sequence[float]) -> Float[Tensor, "4 4"]:
    """A rigid transform from the 16 numbers of its matrix, rows one after another; the file's rounding is mended.

    Raises:
        CalibrationError: if the rotation is off by more than 1e-3, or the last row is not 0 0 0 1.
    """
    matrix = torch.tensor(list(values), dtype=torch.float64).reshape(4, 4)
    rotation = matrix[:3, :3]
    error = float((rotation.mT @ rotation - torch.eye(3, dtype=torch.float64)).abs().max())
    if matrix[3].tolist() != [0, 0, 0, 1] or error > 1e-3 or torch.linalg.det(rotation) < 0:
        raise CalibrationError(
            f"{path}: {name} is no rigid transform: R^T R is off by {error:.2g}, its last row is {matrix[3].tolist()}."
        )
    return transform(project_to_so3(rotation), matrix[:3, 3])


def rigid_from_quaternion(
    path: Path, name: str, xyzw: Sequence[float], offset: Sequence[float]
) -> Float[Tensor, "4 4"]:
    """A rigid transform from a unit quaternion, scalar last, and a translation.

    Raises:
        CalibrationError: if the quaternion's length is off by more than 1e-3.
    """
    quaternion = torch.tensor(list(xyzw), dtype=torch.float64)
    length = float(quaternion.norm())
    if abs(length - 1) > 1e-3:
        raise CalibrationError(f"{path}: the quaternion of {name} must have length 1, got {length:.6g}.")
    return transform(
        quaternion_to_matrix(quaternion / length), torch.tensor(list(offset), dtype=torch.float64)
    )


def inverse(T_a_b: Float[Tensor, "4 4"]) -> Float[Tensor, "4 4"]:
    """T_b_a of a rigid transform."""
    R_b_a = T_a_b[:3, :3].mT
    return transform(R_b_a, -R_b_a @ T_a_b[:3, 3])


def transform(rotation: Float[Tensor, "3 3"], offset: Float[Tensor, "3"]) -> Float[Tensor, "4 4"]:
    """The 4 x 4 matrix of a rotation and a translation."""
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, :3], matrix[:3, 3] = rotation, offset
    return matrix


def _require_plain(path: Path, content: Any, *, of_yaml: bool) -> Any:
    """The content, if it is of a size to be looked at.

    YAML can name a list within a list many times over, or in itself; tables of JSON may be long.
    """
    limit = _MAX_VALUES if of_yaml else math.inf
    pending, count = [(content, 0)], 0
    while pending:
        value, depth = pending.pop()
        count += 1
        if count > limit or depth > _MAX_DEPTH:
            raise CalibrationError(
                f"{path} is no calibration: more than {_MAX_VALUES:,} values, or {_MAX_DEPTH} lists in each other."
            )
        if isinstance(value, Mapping):
            pending += [(item, depth + 1) for pair in value.items() for item in pair]
        elif isinstance(value, list | tuple | set):
            pending += [(item, depth + 1) for item in value]
    return content


def _text(path: Path) -> str:
    _require_small(path)
    try:
        return read_text(path)
    except PoseFileError as error:
        # Its advice is for files of poses.
        raise CalibrationError(str(error).split(" NumPy arrays are read with")[0]) from None


def _bytes(path: Path) -> bytes:
    _require_small(path)
    try:
        return read_bytes(path)
    except PoseFileError as error:
        raise CalibrationError(str(error)) from None


def _require_small(path: Path) -> None:
    if path.is_file() and path.stat().st_size > _MAX_BYTES:
        raise CalibrationError(
            f"{path} has {path.stat().st_size:,} bytes; calibration files of up to {_MAX_BYTES:,} are read."
        )


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")[:300] or type(error).__name__
