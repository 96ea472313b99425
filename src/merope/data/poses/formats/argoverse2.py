"""Argoverse 2 logs: the vehicle's poses in the city, and the cameras mounted on it (Feather files, read with pyarrow).

A log is a folder with ``city_SE3_egovehicle.feather`` and ``calibration/``. Stamps are whole nanoseconds of some 3e17, which
float64 seconds would round to 60 ns, while rows are as little as 1 ns apart. So times count from the first stamp, and the
stamps themselves are the names of the frames, as they are the images' before ``.jpg``.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np

from merope.cameras import CameraModel, Pinhole
from merope.data.poses.formats.choosing import chosen_camera
from merope.data.poses.formats.file_lens import NoLens, lens_or_note
from merope.data.poses.formats.raw import PoseFormat, RawPoses, by_entry, matrices_in_axes, require_metres
from merope.data.poses.formats.recognition import first_bytes
from merope.data.poses.formats.stamped import matrices_of, whole_stamps
from merope.data.poses.table import PoseFileError, ReadOptions, read_bytes
from merope.errors import MissingDependency
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_EGO = "city_SE3_egovehicle.feather"
_MOUNTS, _LENSES = "calibration/egovehicle_SE3_sensor.feather", "calibration/intrinsics.feather"
_QUATERNION, _CENTER = ("qx", "qy", "qz", "qw"), ("tx_m", "ty_m", "tz_m")
_MEANING = "columns are qw qx qy qz tx_m ty_m tz_m"
_SECOND = 10**9
_CLOSE = 1000


def read_argoverse2(path: Path, options: ReadOptions) -> RawPoses:
    """Poses of the vehicle, or of the camera that the options name, where ``path`` is a log's folder or in one.

    A camera's poses are T_city_ego T_ego_sensor, its lens that of its images: they are published without distortion, so k1,
    k2 and k3 of the calibration, which are those of the glass, are not in it.
    """
    file = path / _EGO if path.is_dir() else path
    table = _read(file, ("timestamp_ns",), (*_QUATERNION, *_CENTER))
    stamps = table["timestamp_ns"]
    values = np.stack([table[name] for name in (*_CENTER, *_QUATERNION)], axis=1)
    rows, notes = _by_time(file, stamps, values)
    stamps, values = stamps[rows], values[rows]
    places = tuple(f"row {row}" for row in rows.tolist())
    matrices = matrices_of(file, places, values[:, :3], values[:, 3:], meaning=_MEANING)
    notes += (f"times count from the first stamp, {stamps[0]} ns",)
    close = int((np.diff(stamps) < _CLOSE).sum())
    if close:
        notes += (
            f"{close} of {len(stamps)} poses are less than 1 us from the one before: resample by time before taking speeds",
        )
    camera: dict[str, Any] | None = None
    if options.camera is not None:
        matrices, camera, lens_notes = _mounted(file.parent, options, matrices)
        notes += (
            f"there is a pose for every stamp of the log, and {options.camera} took an image at some of them: match images "
            "by name",
            *lens_notes,
        )
    return RawPoses(
        matrices=matrices,
        places=places,
        times=(stamps - stamps[0]) / _SECOND,
        names=tuple(map(str, stamps.tolist())),
        camera=camera,
        axes=None if options.camera is None else "opencv",
        body=None if options.camera is None else "camera",
        notes=notes,
    )


def _by_time(path: Path, stamps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Rows in the order of their stamps, without repeats, and what there is to say about it."""
    rows = np.argsort(stamps, kind="stable")
    notes: tuple[str, ...] = ()
    if (np.diff(rows) < 0).any():
        notes = ("the rows were not in the order of their stamps and were sorted",)
    again = np.concatenate([[False], np.diff(stamps[rows]) == 0])
    for place in np.flatnonzero(again).tolist():
        before, after = rows[place - 1], rows[place]
        if (values[before] != values[after]).any():
            raise PoseFileError(
                f"{path}, rows {before} and {after} have the stamp {stamps[after]} and different poses. Remove one."
            )
    if again.any():
        notes += (f"{int(again.sum())} repeated rows were left out",)
    return rows[~again], notes


def _mounted(
    log: Path, options: ReadOptions, matrices: np.ndarray
) -> tuple[np.ndarray, dict[str, Any] | None, tuple[str, ...]]:
    """Poses of a sensor on the vehicle, and its lens where it has one."""
    mounts, lenses = log / _MOUNTS, log / _LENSES
    table = _read(mounts, (), (*_QUATERNION, *_CENTER), text="sensor_name")
    names = table["sensor_name"].tolist()
    # The other sensors there, whose axes are not a camera's, are up_lidar and down_lidar.
    camera_names = [name for name in names if not name.endswith("lidar")]
    row = names.index(chosen_camera(mounts, options, camera_names))
    center = np.stack([table[name] for name in _CENTER], axis=1)[row : row + 1]
    quaternion = np.stack([table[name] for name in _QUATERNION], axis=1)[row : row + 1]
    mount = matrices_of(mounts, by_entry(len(names))[row : row + 1], center, quaternion, meaning=_MEANING)[0]
    rotations = matrices[:, :, :3] @ mount[:, :3]
    centers = matrices[:, :, 3] + matrices[:, :, :3] @ mount[:, 3]
    described = _read(
        lenses,
        ("height_px", "width_px"),
        ("fx_px", "fy_px", "cx_px", "cy_px", "k1", "k2", "k3"),
        text="sensor_name",
    )
    found = np.flatnonzero(described["sensor_name"] == options.camera)
    values = {name: column[found[0]].item() for name, column in described.items()} if len(found) else {}

    def pinhole() -> CameraModel:
        if not values:
            raise NoLens(f"{lenses} has no {options.camera}")
        return Pinhole(
            fx=values["fx_px"],
            fy=values["fy_px"],
            cx=values["cx_px"],
            cy=values["cy_px"],
            height=values["height_px"],
            width=values["width_px"],
            pixel_origin="center",
        )

    camera, notes = lens_or_note(pinhole)
    if camera is not None and any(values[name] for name in ("k1", "k2", "k3")):
        notes += (undistorted_note(values["k1"], values["k2"], values["k3"]),)
    return np.concatenate([rotations, centers[:, :, None]], axis=2), camera, notes


def undistorted_note(k1: float, k2: float, k3: float) -> str:
    """What is to be said of distortion in a calibration of images that have none."""
    return (
        f"the lens is the pinhole of the published images, from which distortion was removed; k1 {k1:g}, k2 {k2:g}, "
        f"k3 {k3:g} are those of the original lens"
    )


def _read(
    path: Path, whole: tuple[str, ...], real: tuple[str, ...], *, text: str | None = None
) -> dict[str, np.ndarray]:
    """Columns of a Feather file: whole numbers, finite real numbers, and one of text.

    Raises:
        PoseFileError: if the file cannot be read so; it names the column and the row.
        MissingDependency: if pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import feather
    except ImportError:
        raise MissingDependency.for_extra("pyarrow", extra="data", purpose="reading Argoverse 2") from None
    try:
        table = feather.read_table(io.BytesIO(read_bytes(path)))
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PoseFileError(f"{path} is no Feather file that can be read: {error}.") from None
    columns: dict[str, np.ndarray] = {}
    checks = {**dict.fromkeys(whole, pa.types.is_integer), **dict.fromkeys(real, pa.types.is_floating)}
    if text is not None:
        checks[text] = lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if table.num_rows == 0:
        raise PoseFileError(f"{path} has no rows.")
    for name, is_right in checks.items():
        if table.column_names.count(name) != 1:
            raise PoseFileError(
                f"{path} should have one column {name!r}; it has {', '.join(table.column_names)}."
            )
        column = table.column(name)
        if not is_right(column.type):
            raise PoseFileError(
                f"{path}: column {name!r} holds {column.type}, which is another kind of value."
            )
        if column.null_count:
            row = column.to_pylist().index(None)
            raise PoseFileError(f"{path}, row {row} has no {name!r}. Remove rows without a pose.")
        values = np.asarray(column.to_pylist() if name == text else column.to_numpy())
        if name in real:
            values = values.astype(np.float64)
            finite = np.isfinite(values)
            if not finite.all():
                raise PoseFileError(
                    f"{path}, row {int(np.argmin(finite))}: {name} is not finite. Remove rows without a pose."
                )
        elif name in whole:
            if values.max() > np.iinfo(np.int64).max:
                raise PoseFileError(f"{path}: column {name!r} holds numbers that are too large.")
            values = values.astype(np.int64)
        columns[name] = values
    return columns


def write_argoverse2(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The same columns, of a vehicle (x forward, y left, z up) that has these poses; the lens is lost.

    Raises:
        ValueError: without times, without metres, or with times less than 1 ns apart.
        MissingDependency: if pyarrow is not installed.
    """
    require_metres("argoverse2", poses)
    stamps = whole_stamps("argoverse2", poses, _SECOND)
    if not -(2**63) <= stamps[0] <= stamps[-1] < 2**63:
        raise ValueError("format 'argoverse2' holds times of up to 292 years; these lie further from zero.")
    try:
        import pyarrow as pa
        from pyarrow import feather
    except ImportError:
        raise MissingDependency.for_extra("pyarrow", extra="data", purpose="writing Argoverse 2") from None
    import torch

    rotations = torch.from_numpy(np.ascontiguousarray(matrices_in_axes(poses, "flu")[:, :, :3]))
    x, y, z, w = matrix_to_quaternion(rotations).T.numpy()
    tx, ty, tz = poses.center_world.T.numpy()
    table = pa.table(
        {"timestamp_ns": stamps, "qw": w, "qx": x, "qy": y, "qz": z, "tx_m": tx, "ty_m": ty, "tz_m": tz}
    )
    stream = io.BytesIO()
    feather.write_feather(table, stream, compression="uncompressed")
    return stream.getvalue()


def recognise_argoverse2(path: Path) -> str | None:
    """A Feather file with the columns of poses, or a folder with one."""
    if path.is_dir():
        return f"a folder with {_EGO}" if recognise_argoverse2(path / _EGO) else None
    content = first_bytes(path)
    is_table = content[:6] == b"ARROW1" and all(name in content for name in (b"timestamp_ns", b"qw", b"tx_m"))
    return "a Feather table of timestamp_ns, quaternions and positions" if is_table else None


FORMATS = {
    "argoverse2": PoseFormat(
        about="Argoverse 2's city_SE3_egovehicle.feather, or its log's folder: the vehicle, or a camera on it by name",
        read=read_argoverse2,
        write=write_argoverse2,
        recognise=recognise_argoverse2,
        options=("camera",),
        unit="m",
        axes="flu",
        body="vehicle",
    ),
}
