"""What a reader of one pose format hands over, and what a format is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from merope.data.poses.table import R_AXES_OPENCV, Axes, Direction, PoseFileError, ReadOptions
from merope.geometry.poses import Poses, Unit

PosePolicy = Literal["last", "first", "mean"]
"""Which pose of a group of frames stands for a latent frame: `merope.cameras.latent_poses`."""

CONVENTION = (
    "T_world_cam: camera-to-world, 3 x 4 row-major, column vectors; "
    "camera axes x right, y down, z forward (OpenCV)"
)
"""What this project's own formats state; there is no other that they can hold."""


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
    names: tuple[str, ...] | None = None
    """File names of the frames."""
    unit: Unit | None = None
    camera: dict[str, Any] | None = None
    """The lens of all frames, as `CameraModel.to_dict` gives it."""
    pose_policy: PosePolicy | None = None
    """Which pose of a group of frames each pose is, where the file says that its poses are those of latent frames."""
    axes: Axes | None = None
    """Axes of what the matrices turn, where this file has others than its format."""
    body: str | None = None
    """What the poses are of, where that differs from the format."""
    notes: tuple[str, ...] = ()
    """What a user should know of this file, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseFormat:
    """A file format of trajectories: how to recognise, read and write it, and what its numbers mean by its definition."""

    about: str
    """What one line or entry holds."""
    read: Callable[[Path, ReadOptions], RawPoses]
    """The numbers of a file or folder. Raises PoseFileError for what is not this format or needs an option: the message
    names the line or entry and what mends it."""
    write: Callable[..., bytes | Mapping[str, bytes]] | None = None
    """The bytes of a file, or of the files of a folder by their names; from poses and a lens, `CameraModel.to_dict` or None.
    With ``keeps_pose_policy`` a `PosePolicy` or None may follow."""
    keeps_pose_policy: bool = False
    """Whether files can say that their poses are those of latent frames."""
    recognise: Callable[[Path], str | None] | None = None
    """Why a file or folder looks like this format, in a few words, or None; it never raises for what is none."""
    unit: Unit = "unknown"
    """What a length of 1 is in a file that does not say."""
    axes: Axes = "opencv"
    """Axes of what the matrices turn."""
    direction: Direction = "camera-to-world"
    """Which way the matrices map."""
    body: str = "camera"
    """What the poses are of: "camera", or "vehicle", "imu", "device", whose axes need not be a camera's."""
    options: tuple[str, ...] = ()
    """Fields of `ReadOptions` that this reader heeds, beside those that say a convention, which are for every format."""
    keeps_world: bool = True
    """Whether files hold the world's origin and axes; False for poses relative to the first."""
    bare: bool = False
    """Whether files are matrices alone, which programs fill in several conventions: `write_poses` then writes others too."""


def by_line(numbers: tuple[int, ...]) -> tuple[str, ...]:
    """Places of rows in a text file."""
    return tuple(f"line {number}" for number in numbers)


def by_entry(count: int) -> tuple[str, ...]:
    """Places of entries in an array or a list."""
    return tuple(f"entry {index}" for index in range(count))


def checked_unit(path: Path, unit: str) -> Unit:
    """A unit that a file states.

    Raises:
        PoseFileError: if there is no such unit.
    """
    if unit == "m":
        return "m"
    if unit == "normalized":
        return "normalized"
    if unit == "unknown":
        return "unknown"
    raise PoseFileError(f"{path}: the unit must be 'm', 'normalized' or 'unknown', got {unit!r}.")


def require_as_many(path: Path, num_poses: int, num_times: int) -> None:
    """Refuse times that are not one for each pose.

    Raises:
        PoseFileError: if there are more or fewer.
    """
    if num_poses != num_times:
        raise PoseFileError(
            f"{path} has {num_poses} poses and {num_times} times. Give one time for each pose."
        )


def require_metres(format: str, poses: Poses) -> None:
    """Refuse poses that are not in metres, for a format that holds no other unit.

    Raises:
        ValueError: with the options that say or change the unit.
    """
    if poses.unit != "m":
        raise ValueError(
            f"format {format!r} is in metres and these poses have unit {poses.unit!r}. If they are metres, read them with "
            "unit='m' (--unit m), else scale them (Poses.scaled; merope poses convert: --scale FACTOR --to-unit m)."
        )


def checked_policy(path: Path, policy: str) -> PosePolicy:
    """A pose policy that a file states.

    Raises:
        PoseFileError: if there is no such policy.
    """
    if policy == "last":
        return "last"
    if policy == "first":
        return "first"
    if policy == "mean":
        return "mean"
    raise PoseFileError(f"{path}: pose_policy must be 'last', 'first' or 'mean', got {policy!r:.60}.")


def matrices_in_axes(poses: Poses, axes: Axes) -> Float[np.ndarray, "time 3 4"]:
    """Camera-to-world matrices whose rotations act on coordinates in the given right-handed axes, for a writer."""
    matrices = poses.T_world_cam[:, :3].numpy().copy()
    matrices[:, :, :3] = matrices[:, :, :3] @ R_AXES_OPENCV[axes].T
    return matrices
