"""What formats with a stamp, a position and a quaternion a row share: exact stamps, their order, and unit quaternions."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from merope.data.poses.table import PoseFileError
from merope.geometry.poses import Poses
from merope.geometry.rotations import quaternion_to_matrix


def seconds(words: tuple[str, ...], per_second: int) -> Float[np.ndarray, "time"]:
    """Stamps in seconds; whole numbers are divided exactly, where float64 would lose 0.1 us of nanoseconds since 1970.

    The words are finite numbers, as a `Table` has checked them.
    """
    return np.array([(int(word) if _is_whole(word) else float(word)) / per_second for word in words])


def _is_whole(word: str) -> bool:
    # A float64 has at most 309 digits before its point, and Python counts any digits, but for a limit of 4300.
    return word.removeprefix("+").removeprefix("-").isdigit() and len(word) <= 310


def required_times(format: str, poses: Poses) -> list[float]:
    """The times of poses, for a format that cannot do without.

    Raises:
        ValueError: if the poses carry none.
    """
    if poses.times is None:
        raise ValueError(
            f"format {format!r} needs a time for each pose and these poses have none. Construct Poses with times= "
            "(merope poses convert: --times FILE)."
        )
    return poses.times.tolist()


def whole_stamps(format: str, poses: Poses, per_second: int) -> list[int]:
    """The times of poses as whole stamps, rounded to the nearest.

    Raises:
        ValueError: if the poses carry no times, or two of them round to the same stamp.
    """
    stamps = [_rounded(time, per_second) for time in required_times(format, poses)]
    for index, (before, after) in enumerate(pairwise(stamps)):
        if after <= before:
            raise ValueError(
                f"format {format!r} counts time in 1/{per_second} s, in which poses {index} and {index + 1} have the "
                f"same stamp, {after}. Drop one of them."
            )
    return stamps


def _rounded(time: float, per_second: int) -> int:
    # In whole numbers: 1.4e9 s times 1e9 would be rounded to 256 ns.
    numerator, denominator = time.as_integer_ratio()
    return (2 * numerator * per_second + denominator) // (2 * denominator)


def require_increasing(
    path: Path, places: tuple[str, ...], words: tuple[str, ...], times: np.ndarray
) -> None:
    """Refuse stamps that do not increase; they are never sorted, for a jump back may be two recordings in one file.

    Raises:
        PoseFileError: with the place of the first that does not come after the one before.
    """
    late = np.diff(times) <= 0
    if late.any():
        row = int(np.argmax(late)) + 1
        raise PoseFileError(
            f"{path}, {places[row]}: the stamp {words[row]} does not come after the one before "
            f"({words[row - 1]}). Sort the rows by time and drop repeated ones."
        )


def matrices_of(
    path: Path,
    places: tuple[str, ...],
    centers: Float[np.ndarray, "time 3"],
    quaternions_xyzw: Float[np.ndarray, "time 4"],
    *,
    meaning: str,
) -> Float[np.ndarray, "time 3 4"]:
    """Matrices of positions and quaternions in x y z w order; ``meaning`` says what rows of the format are, for the error.

    Raises:
        PoseFileError: if a quaternion is further than 1e-3 from unit length.
    """
    # Numbers up to 1e308 are finite, their squares are not; the comparison refuses either.
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(quaternions_xyzw, axis=1)
    wrong = ~(np.abs(norms - 1) <= 1e-3)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise PoseFileError(
            f"{path}, {places[row]}: the quaternion should have unit length, but has length "
            f"{norms[row]:.4f}. {meaning}; are the columns in another order?"
        )
    rotations = quaternion_to_matrix(torch.from_numpy(np.ascontiguousarray(quaternions_xyzw))).numpy()
    return np.concatenate([rotations, centers[:, :, None]], axis=2)
