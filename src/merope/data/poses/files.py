"""Trajectory files in and out: `read_poses`, `write_poses` and the registry of formats.

The formats themselves are in `pose_formats`. What they share happens here: direction, axes, handedness, orthonormality,
times, windows.
"""

import gzip
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from merope.data.poses.formats import FORMATS, PoseFormat, RawPoses
from merope.data.poses.formats.inversion import inverse_offsets, offsets_of_centers
from merope.data.poses.formats.raw import PosePolicy
from merope.data.poses.table import (
    R_AXES_OPENCV,
    Axes,
    Direction,
    PoseFileError,
    ReadOptions,
    plain_number,
    read_lines,
    read_table,
)
from merope.errors import TrajectoryError
from merope.files import atomic_folder, atomic_path
from merope.geometry.poses import Poses, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class NanRow:
    """A row of a pose file with NaN for its pose: its place among all rows, its frame number and time where it has them."""

    row: int
    frame_id: int | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseFile:
    """What a pose file holds: the poses, and beside them frame numbers, names and a lens description if it has them."""

    poses: Poses
    format: str
    source: str
    frame_ids: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    """File names of the frames."""
    camera: dict[str, Any] | None = None
    body: str = "camera"
    """What the poses are of: "camera", or "vehicle", "imu", "device". A camera on it is at `Poses.mounted`."""
    pose_policy: PosePolicy | None = None
    """Which pose of a group of frames each pose is, in a file of latent frames; None for one pose a frame."""
    notes: tuple[str, ...] = ()
    """What a user should know of this file, one sentence each."""
    nan_rows: tuple[NanRow, ...] = ()
    """Rows without a pose, which everything above leaves out; there are none unless `ReadOptions.nan_rows` allows them."""

    @property
    def projection_note(self) -> str | None:
        """A sentence for the user where rotations were off by more than rounding (1e-6), else None."""
        error = self.poses.projection_error
        if error <= 1e-6:
            return None
        return (
            f"rotations of {self.source} were off by {error:.1e} (largest entry of R^T R - I) and were projected "
            "to rotations"
        )

    def require_frames(self) -> None:
        """Refuse poses of latent frames where there has to be one for every frame.

        Raises:
            TrajectoryError: if the file says that they are such.
        """
        if self.pose_policy is not None:
            raise TrajectoryError(
                f"{self.source} says that its poses are those of latent frames (pose_policy {self.pose_policy!r}), each of "
                "several frames. Give the poses of the frames."
            )


def read_poses(
    path: str | Path,
    *,
    format: str,
    times: Float[Tensor, "time"] | None = None,
    options: ReadOptions | None = None,
) -> Poses:
    """The poses in a file, camera-to-world in OpenCV axes, float64.

    ``format`` is a key of `merope.data.poses.formats.FORMATS`; it is never guessed (`merope poses inspect` says what a file
    may be). ``times`` (seconds) serve formats without stamps.
    Gzip files are unpacked by their content. ``options`` says how the file departs from the standard. KITTI and TUM
    are in metres by definition; an array that does not say its unit has ``unit`` "unknown", unless ``options.unit`` says it.

    Raises:
        PoseFileError: if the file cannot be read so; the message names the line and the option that mends it.
    """
    return load_pose_file(path, format=format, times=times, options=options).poses


def load_pose_file(
    path: str | Path,
    *,
    format: str,
    times: Float[Tensor, "time"] | None = None,
    options: ReadOptions | None = None,
) -> PoseFile:
    """`read_poses` with the frame numbers and the lens that the file may carry."""
    path, options = Path(path), options or ReadOptions()
    return settled(path, _format(format).read(path, options), format=format, times=times, options=options)


def settled(
    path: Path,
    raw: RawPoses,
    *,
    format: str,
    times: Float[Tensor, "time"] | None = None,
    options: ReadOptions,
) -> PoseFile:
    """What was read from a file in ``format``, brought to this project's convention; ``path`` is for messages.

    Raises:
        PoseFileError: if the numbers are no poses in the convention of the format and the options.
    """
    kind = _format(format)
    stamps = times if times is not None else raw.times
    if stamps is not None and len(stamps) != len(raw.matrices):
        raise PoseFileError(
            f"{path} has {len(raw.matrices)} poses and {len(stamps)} times. Give one time for each pose."
        )
    lost: tuple[NanRow, ...] = ()
    if options.nan_rows == "leave out":
        raw, stamps, lost = _without_nan_rows(path, raw, stamps)
    matrices = _settle_convention(path, raw, options, kind)
    try:
        poses = Poses.from_matrices(
            torch.from_numpy(matrices),
            times=None if stamps is None else torch.as_tensor(stamps, dtype=torch.float64),
            unit=_settle_unit(path, raw, options, default=kind.unit),
            tolerance=options.tolerance,
        )
    except ValueError as error:
        raise PoseFileError(f"{path}: {error}") from None
    return PoseFile(
        poses=poses,
        format=format,
        source=str(path),
        frame_ids=raw.frame_ids,
        names=raw.names,
        camera=raw.camera,
        body=raw.body or kind.body,
        pose_policy=raw.pose_policy,
        notes=raw.notes,
        nan_rows=lost,
    )


def _without_nan_rows(path: Path, raw: RawPoses, stamps: Any) -> tuple[RawPoses, Any, tuple[NanRow, ...]]:
    """What a file holds without the rows that are NaN, its times without theirs, and those rows."""
    holds = ~np.isnan(raw.matrices).any(axis=(1, 2))
    if holds.all():
        return raw, stamps, ()
    if not holds.any():
        raise PoseFileError(f"{path} holds no pose: each of its {len(holds)} rows is NaN.")
    lost = tuple(
        NanRow(
            row=row,
            frame_id=None if raw.frame_ids is None else raw.frame_ids[row],
            time=None if stamps is None else float(stamps[row]),
        )
        for row in np.flatnonzero(~holds).tolist()
    )
    kept = np.flatnonzero(holds).tolist()
    raw = replace(
        raw,
        matrices=raw.matrices[kept],
        places=tuple(raw.places[row] for row in kept),
        times=None if raw.times is None else raw.times[kept],
        frame_ids=None if raw.frame_ids is None else tuple(raw.frame_ids[row] for row in kept),
        names=None if raw.names is None else tuple(raw.names[row] for row in kept),
    )
    return raw, None if stamps is None else stamps[kept], lost


def _format(name: str) -> PoseFormat:
    if name not in FORMATS:
        offered = "; ".join(f"{key}: {value.about}" for key, value in FORMATS.items())
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {name!r}. {offered}.")
    return FORMATS[name]


def _settle_unit(path: Path, raw: RawPoses, options: ReadOptions, *, default: Unit) -> Unit:
    """The unit that the caller, else the file, else the format states; a contradiction is refused."""
    if options.unit is None:
        return raw.unit or default
    if raw.unit not in (None, "unknown", options.unit):
        raise PoseFileError(
            f"{path} says that its unit is {raw.unit!r}, not {options.unit!r}. Leave unit (--unit) out, or write the file "
            "anew in the other unit (Poses.scaled)."
        )
    return options.unit


def _settle_convention(path: Path, raw: RawPoses, options: ReadOptions, kind: PoseFormat) -> np.ndarray:
    """Camera-to-world matrices in OpenCV axes and a right-handed world, refused with their place in the file."""
    direction, axes = options.direction or kind.direction, options.camera_axes or raw.axes or kind.axes
    rotations, offsets = raw.matrices[:, :, :3].copy(), raw.matrices[:, :, 3].copy()
    finite = np.isfinite(raw.matrices).all(axis=(1, 2))
    if not finite.all():
        raise PoseFileError(
            f"{path}, {raw.places[int(np.argmin(finite))]} holds a value that is not finite. "
            "Remove frames without a pose."
        )
    # Finite numbers of 1e200 have no finite square, and their error is NaN, which is larger than nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(rotations.transpose(0, 2, 1) @ rotations - np.eye(3)).max(axis=(1, 2))
    if not (error <= options.tolerance).all():
        worst = int(np.argmax(error))
        with np.errstate(all="ignore"):
            scale = float(np.cbrt(abs(np.linalg.det(rotations[worst]))))
        hint = (
            f" The matrix is scaled by {scale:.6g}: divide the rotations by that."
            if abs(scale - 1) > 1e-2
            else ""
        )
        raise PoseFileError(
            f"{path}, {raw.places[worst]}: the rotation is not orthonormal; R^T R is off by {error[worst]:.3g} "
            f"where {options.tolerance:g} is allowed.{hint} Rounded files need a larger tolerance (--tolerance); "
            "a larger error means another format or a column too many."
        )
    if options.mirror != "none":
        axis = "xyz".index(options.mirror)
        if direction == "camera-to-world":
            rotations[:, axis, :] *= -1
            offsets[:, axis] *= -1
        else:
            rotations[:, :, axis] *= -1
    left_handed = np.linalg.det(rotations) < 0
    if left_handed.any():
        place = raw.places[int(np.argmax(left_handed))]
        raise PoseFileError(
            f"{path}, {place}: the rotation has determinant -1, a left-handed frame on one side. If the "
            "world is left-handed, name the axis to negate: mirror='y' (--mirror y), or x, or z. A file from a "
            "left-handed engine has to have the axes of world and camera converted together."
        )
    if direction == "world-to-camera":
        offsets = inverse_offsets(rotations, offsets)
        rotations = rotations.transpose(0, 2, 1)
    to_opencv = R_AXES_OPENCV[axes]
    rotations = rotations @ to_opencv
    if np.linalg.det(to_opencv) < 0:
        # A left-handed engine: its world has the axes of its cameras, and both turn together.
        rotations, offsets = to_opencv.T @ rotations, offsets @ to_opencv
    return np.concatenate([rotations, offsets[:, :, None]], axis=2)


def write_poses(
    path: str | Path,
    poses: Poses,
    *,
    format: str,
    camera: dict[str, Any] | None = None,
    pose_policy: PosePolicy | None = None,
    direction: Direction | None = None,
    axes: Axes | None = None,
) -> None:
    """Write poses with every digit (reading them back gives the same to 1e-9 or better), in one step.

    A path that ends in .gz is compressed; a format of several files makes a folder. ``camera`` is `CameraModel.to_dict()`,
    for the formats that keep a lens. ``pose_policy`` marks poses of latent frames, in this project's own formats.
    ``direction`` and ``axes`` are for bare matrices (kitti, npy) that another program wants in another convention than
    camera-to-world and OpenCV axes; such a file is read with the same in `ReadOptions`.

    Raises:
        ValueError: if the format is unknown, needs what the poses lack, or states its convention and is to have another.
        FileExistsError: if the folder of a format of several files is there already.
    """
    kind = _format(format)
    writer = kind.write
    if writer is None:
        raise ValueError(f"format {format!r} can be read, not written.")
    if pose_policy not in (None, *get_args(PosePolicy)):
        raise ValueError(f"pose_policy must be one of {get_args(PosePolicy)} or None, got {pose_policy!r}.")
    if direction is not None or axes is not None:
        if not kind.bare:
            bare = " or ".join(repr(name) for name, other in FORMATS.items() if other.bare)
            raise ValueError(
                f"format {format!r} has one convention; direction and axes (--to-direction, --to-axes) are for {bare}."
            )
        poses = _in_convention(poses, direction or kind.direction, axes or kind.axes)
    if pose_policy is None:
        content = writer(poses, camera)
    elif kind.keeps_pose_policy:
        content = writer(poses, camera, pose_policy)
    else:
        keepers = " or ".join(repr(name) for name, other in FORMATS.items() if other.keeps_pose_policy)
        raise ValueError(f"format {format!r} has no place for pose_policy. Use format {keepers}.")
    if not isinstance(content, bytes):
        with atomic_folder(path) as folder:
            for name, part in content.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(part)
        return
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def _in_convention(poses: Poses, direction: Direction, axes: Axes) -> Poses:
    """Poses whose matrices are the numbers that a file in this convention holds; `_settle_convention` undoes it."""
    R_axes_opencv = R_AXES_OPENCV[axes]
    rotations, offsets = poses.R_world_cam.numpy() @ R_axes_opencv.T, poses.center_world.numpy()
    if np.linalg.det(R_axes_opencv) < 0:
        rotations, offsets = R_axes_opencv @ rotations, offsets @ R_axes_opencv.T
    if direction == "world-to-camera":
        rotations = rotations.transpose(0, 2, 1)
        offsets = offsets_of_centers(rotations, offsets)
    return Poses(
        R_world_cam=torch.from_numpy(rotations),
        center_world=torch.from_numpy(offsets),
        times=poses.times,
        unit=poses.unit,
    )


def window(poses: Poses, *, start: int = 0, count: int | None = None, step: int = 1) -> Poses:
    """``count`` poses from ``start`` on, every ``step``-th; all that follow without a count.

    Raises:
        ValueError: if ``start`` is negative, or ``count`` or ``step`` below 1.
        TrajectoryError: if the trajectory is too short, with what it has and what would fit.
    """
    if start < 0 or step < 1 or (count is not None and count < 1):
        raise ValueError(f"start must be >= 0, step and count >= 1; got {start}, {step}, {count}.")
    available = max(0, -(-(len(poses) - start) // step))
    if available == 0 or (count is not None and count > available):
        wanted = 1 if count is None else count
        stride = f" of every {step}th pose" if step > 1 else ""
        raise TrajectoryError(
            f"the trajectory has {len(poses)} poses; {wanted}{stride} from {start} on need "
            f"{start + (wanted - 1) * step + 1}. Use start={max(0, len(poses) - 1 - (wanted - 1) * step)} or "
            f"less, or count={max(available, 1)} or less."
        )
    stop = None if count is None else start + (count - 1) * step + 1
    return poses[start:stop:step]


def read_times(path: str | Path, *, options: ReadOptions | None = None) -> Float[Tensor, "time"]:
    """Seconds from a text file with one stamp a line, such as KITTI's times.txt.

    Raises:
        PoseFileError: if there is more than one column.
    """
    table = read_table(Path(path), options or ReadOptions())
    if table.num_columns != 1:
        raise PoseFileError(
            f"{path}, line {table.lines[0]} has {table.num_columns} numbers; a file of times has 1 a line."
        )
    return torch.from_numpy(table.values[:, 0].copy())


def kitti_camera(poses: Poses, calibration: str | Path, *, camera: int) -> Poses:
    """Poses of another camera of the KITTI rig; the files of poses belong to camera 0, the left grey one.

    The rectified cameras differ by a shift: with P = K [I | t] in the calibration file, camera i sits at -t in
    camera 0's axes (about 0.06 m to the left for camera 2, 0.54 m to the right for camera 1).

    Raises:
        PoseFileError: if the calibration has no usable row for the camera.
    """
    projection = kitti_projection(calibration, camera=camera)
    offset = torch.from_numpy(-np.linalg.solve(projection[:, :3], projection[:, 3]))
    return poses.mounted(torch.eye(3, dtype=torch.float64), offset)


def kitti_projection(calibration: str | Path, *, camera: int) -> Float[np.ndarray, "3 4"]:
    """The projection matrix P = K [I | t] of a rectified KITTI camera, pixels counted from the first one's centre.

    Rows are named "P0:" to "P3:" in the data set's own files; without names they are cameras 0, 1, ... in order.

    Raises:
        PoseFileError: if the calibration has no usable row for the camera.
    """
    unnamed: list[list[str]] = []
    row = None
    for line in read_lines(Path(calibration)):
        name, colon, rest = line.partition(":")
        if name.strip() == f"P{camera}" and colon:
            row = rest.split()
            break
        if line.strip() and not colon:
            unnamed.append(line.split())
    if row is None and camera < len(unnamed):
        row = unnamed[camera]
    try:
        projection = np.array([plain_number(field) for field in row or []]).reshape(3, 4)
        if (
            np.isfinite(projection).all()
            and projection[0, 0] > 0
            and projection[1, 1] > 0
            and projection[2, 2] > 0
        ):
            return projection
    except ValueError:
        pass
    raise PoseFileError(f"{calibration} has no line 'P{camera}:' with the 12 numbers of a projection matrix.")
