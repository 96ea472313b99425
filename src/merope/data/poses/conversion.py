"""`convert_poses`: poses from one file to another, in any format, convention, window, world and unit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras import CameraModel
from merope.data.poses.files import PoseFile, load_pose_file, window, write_poses
from merope.data.poses.formats import FORMATS
from merope.data.poses.table import (
    R_AXES_OPENCV,
    Axes,
    Direction,
    PoseFileError,
    ReadOptions,
    read_table,
)
from merope.geometry.poses import Poses, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is done to poses between two files, in the order of the fields."""

    mount: Path | None = None
    """File with the 3 x 4 matrix from camera (OpenCV axes) to body coordinates, see `read_mount`."""
    mount_axes: Axes = "opencv"
    """Axes of the body in that file."""
    start: int = 0
    """First pose that is kept."""
    count: int | None = None
    """How many are kept; all that follow where it is None."""
    step: int = 1
    """Which of those: every step-th."""
    rebase: bool = False
    """Whether the first camera becomes the world."""
    scale: float | None = None
    """What every length is multiplied by; goes with ``to_unit``."""
    to_unit: Unit | None = None
    """What a length of 1 is after that."""

    def __post_init__(self) -> None:
        if (self.scale is None) != (self.to_unit is None):
            raise ValueError(
                "scale and to_unit go together (--scale, --to-unit): a change of scale changes what a length of 1 is. What "
                "it is in the file that is read is said with unit (--unit)."
            )
        if self.scale is not None and not self.scale > 0:
            raise ValueError(f"scale (--scale) must be > 0; got {self.scale:g}.")

    def apply(self, poses: Poses) -> Poses:
        """The changed poses."""
        if self.mount is not None:
            poses = poses.mounted(*read_mount(self.mount, self.mount_axes))
        poses = window(poses, start=self.start, count=self.count, step=self.step)
        if self.rebase:
            poses = poses.rebase_to_first()
        if self.scale is not None and self.to_unit is not None:
            poses = Poses(
                R_world_cam=poses.R_world_cam,
                center_world=poses.center_world * self.scale,
                times=poses.times,
                unit=self.to_unit,
                projection_error=poses.projection_error,
            )
        return poses


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What was written, and what became of it."""

    poses: Poses
    lost: tuple[str, ...]
    """What the written file does not say, found by reading it again; one clause each."""
    difference: float
    """Largest entry by which the matrices differ that were written and read again."""
    notes: tuple[str, ...]
    """What a user should know of the file that was read, one sentence each."""


def convert_poses(
    source: str | Path,
    target: str | Path,
    *,
    format: str,
    to: str,
    options: ReadOptions | None = None,
    times: Float[Tensor, "time"] | None = None,
    changes: Changes | None = None,
    lens: CameraModel | None = None,
    to_direction: Direction | None = None,
    to_axes: Axes | None = None,
    overwrite: bool = False,
) -> Conversion:
    """Read ``source`` in ``format``, change the poses, write them to ``target`` in the format ``to`` and read that again.

    ``lens`` is written in place of the source's, in formats that keep one. ``to_direction`` and ``to_axes`` are for bare
    matrices, see `merope.data.write_poses`.

    Raises:
        PoseFileError: if the source cannot be read, or the target is there and is not to be overwritten.
        ValueError: if a format is unknown or cannot hold the poses.
        TrajectoryError: if the window does not fit.
    """
    require_free(target, overwrite)
    loaded = load_pose_file(source, format=format, times=times, options=options)
    changes = changes or Changes()
    poses = changes.apply(loaded.poses)
    kept = slice(changes.start, changes.start + len(poses) * changes.step, changes.step)
    camera = lens.to_dict() if lens is not None else frame_lens(loaded, lambda values: values[kept])
    changed = replace(
        loaded,
        poses=poses,
        camera=camera,
        names=None if loaded.names is None else loaded.names[kept],
        frame_ids=None if loaded.frame_ids is None else loaded.frame_ids[kept],
    )
    if changes.mount is not None:
        changed = replace(changed, body="camera")
    return write_pose_file(
        target, changed, to=to, to_direction=to_direction, to_axes=to_axes, overwrite=overwrite
    )


def write_pose_file(
    target: str | Path,
    file: PoseFile,
    *,
    to: str,
    to_direction: Direction | None = None,
    to_axes: Axes | None = None,
    overwrite: bool = False,
) -> Conversion:
    """Write what a file holds in the format ``to``, read it again, and say what is lost; as `convert_poses` otherwise."""
    require_free(target, overwrite)
    poses = file.poses
    keeps_policy = to in FORMATS and FORMATS[to].keeps_pose_policy
    write_poses(
        target,
        poses,
        format=to,
        camera=file.camera,
        pose_policy=file.pose_policy if keeps_policy else None,
        direction=to_direction,
        axes=to_axes,
    )
    again = load_pose_file(
        target, format=to, options=ReadOptions(direction=to_direction, camera_axes=to_axes)
    )
    written, read = poses, again.poses
    if not FORMATS[to].keeps_world:
        written, read = written.rebase_to_first(), read.rebase_to_first()
    difference = (read.T_world_cam - written.T_world_cam).abs().max()
    notes = [*file.notes] if file.projection_note is None else [file.projection_note, *file.notes]
    if file.body != "camera":
        notes.append(f"these are poses of the {file.body}, not of a camera on it: see mount (--mount)")
    return Conversion(
        poses=poses,
        lost=_lost(file, again, poses.unit, to_direction, to_axes),
        difference=float(difference),
        notes=tuple(notes),
    )


def frame_lens(file: PoseFile, change: Callable[[Tensor], Tensor]) -> dict[str, Any] | None:
    """The file's lens where frames change: parameters that it has for every frame go through ``change``, as [T] float64.

    Raises:
        PoseFileError: if there are not as many of them as there are poses.
    """
    if file.camera is None:
        return None
    changed = dict(file.camera)
    for name, values in file.camera.items():
        if isinstance(values, list):
            if len(values) != len(file.poses):
                raise PoseFileError(
                    f"{file.source}: its lens has {len(values)} values of {name} for {len(file.poses)} poses; it has "
                    "to have one, or one for each."
                )
            try:
                numbers = torch.tensor(values, dtype=torch.float64)
            except (ValueError, TypeError, RuntimeError, OverflowError):
                raise PoseFileError(
                    f"{file.source}: {name} of its lens must be numbers; got {values!r:.60}."
                ) from None
            changed[name] = change(numbers).tolist()
    return changed


def require_free(target: str | Path, overwrite: bool) -> None:
    """Refuse to write over a file, or anything else that is there.

    Raises:
        PoseFileError: if a file is there and is not to be overwritten, or a folder, a pipe or a device.
    """
    target = Path(target)
    if target.is_dir():
        raise PoseFileError(
            f"{target} is a folder that is there already, which is never written over. Name a file or a folder that is not "
            "there yet, or remove this one."
        )
    if target.exists() and not target.is_file():
        raise PoseFileError(
            f"{target} is a pipe or a device; poses are written to files, which appear whole or not at all. Name a file."
        )
    if target.exists() and not overwrite:
        raise PoseFileError(f"{target} is there already. Overwrite it with overwrite=True (--overwrite).")


def _lost(
    loaded: PoseFile, again: PoseFile, unit: Unit, direction: Direction | None, axes: Axes | None
) -> tuple[str, ...]:
    """What a file lacks when it is read again."""
    carried = {
        "times": (loaded.poses.times, again.poses.times),
        "the lens": (loaded.camera, again.camera),
        "names of frames": (loaded.names, again.names),
        "frame numbers": (_numbers_that_say_something(loaded), again.frame_ids),
        "the pose policy of latent frames": (loaded.pose_policy, again.pose_policy),
    }
    lost = [
        f"{what} {'has' if what.startswith('the') else 'have'} no place in it"
        for what, (before, after) in carried.items()
        if before is not None and after is None
    ]
    if loaded.names is not None and again.names is not None and again.names != loaded.names:
        lost.append("it has its own names of frames in place of the source's")
    if loaded.poses.times is not None and again.poses.times is not None:
        late = again.poses.times - loaded.poses.times
        if float(late.abs().max()) > 1e-9:
            lost.append(
                f"its times are rounded, by up to {float(late.abs().max()):.1g} s"
                if float(late.abs().max()) < 1e-3
                else f"its times count from another moment: {float(late[0]):.15g} s are added to them"
            )
    if not FORMATS[again.format].keeps_world:
        lost.append("its world is the first camera: where that stood has no place in it")
    if again.body not in ("camera", loaded.body):
        lost.append(f"its readers take these poses for those of the {again.body}")
    if again.poses.unit != unit:
        lost.append(
            f"it is read as {again.poses.unit!r} where the unit is {unit!r}: pass --unit {unit} to its readers"
        )
    flags = [
        f"{flag} {value}" for flag, value in (("--direction", direction), ("--camera-axes", axes)) if value
    ]
    if flags:
        lost.append(f"it does not say its convention: pass {' '.join(flags)} to its readers")
    return tuple(lost)


def _numbers_that_say_something(file: PoseFile) -> tuple[int, ...] | None:
    """Frame numbers unless they count the poses."""
    ids = file.frame_ids
    return None if ids is None or ids == tuple(range(len(ids))) else ids


def read_mount(path: str | Path, axes: Axes) -> tuple[Float[Tensor, "3 3"], Float[Tensor, "3"]]:
    """Where a camera sits on its body, as `Poses.mounted` takes it, from a text file with a 3 x 4 or 4 x 4 matrix.

    The matrix takes coordinates in the camera's OpenCV axes to the body's, which are ``axes`` ("flu" for most vehicles);
    its last column is the camera's centre there.

    Raises:
        PoseFileError: if the file does not hold such a matrix.
    """
    table = read_table(Path(path), ReadOptions())
    if table.values.size not in (12, 16):
        raise PoseFileError(
            f"{path} must hold a 3 x 4 or 4 x 4 matrix, 12 or 16 numbers; got {table.values.size}."
        )
    matrix = torch.from_numpy(table.values.reshape(-1, 4).copy())
    rotation, center = matrix[:3, :3], matrix[:3, 3]
    error = float((rotation.mT @ rotation - torch.eye(3, dtype=torch.float64)).abs().max())
    if error > 1e-6 or float(torch.linalg.det(rotation)) < 0:
        raise PoseFileError(
            f"{path}: the matrix is no rotation; R^T R is off by {error:.2g}, its determinant is "
            f"{float(torch.linalg.det(rotation)):.3g}. Give the camera's axes and centre in the body's."
        )
    if axes == "unreal":
        raise ValueError("a mount has right-handed axes: mount_axes (--mount-axes) cannot be 'unreal'.")
    R_opencv_axes = torch.from_numpy(R_AXES_OPENCV[axes].T.copy())
    return R_opencv_axes @ rotation, R_opencv_axes @ center
