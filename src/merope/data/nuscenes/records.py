"""From the records of nuScenes' tables to columns of numbers; `merope.data.nuscenes.tables` reads them."""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from merope.data.foreign_files.record_stream import Record, read_records
from merope.data.poses.table import PoseFileError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableColumns:
    """A row for each image of a camera, sorted by camera, scene and time; an entry for each scene and calibration."""

    cameras: tuple[str, ...]
    scene_names: tuple[str, ...]
    scene_descriptions: tuple[str, ...]
    scene_logs: tuple[str, ...]
    """The drive that each scene is cut from, "" where log.json or scene.json lack it."""
    scene_locations: tuple[str, ...]
    """The map whose coordinates its poses are in, "" likewise."""
    num_without_sample: int
    """Images that are left out because sample.json does not have their sample."""
    camera: Int[np.ndarray, "row"]
    """Number of the camera that took each image."""
    scene: Int[np.ndarray, "row"]
    times_us: Float[np.ndarray, "row"]
    is_key_frame: Bool[np.ndarray, "row"]
    files: np.ndarray
    """Paths below the root of the data set, in UTF-8."""
    ego_center_world: Float[np.ndarray, "row 3"]
    ego_rotation_wxyz: Float[np.ndarray, "row 4"]
    calibration: Int[np.ndarray, "row"]
    height: Int[np.ndarray, "row"]
    width: Int[np.ndarray, "row"]
    camera_center_ego: Float[np.ndarray, "calibration 3"]
    camera_rotation_wxyz: Float[np.ndarray, "calibration 4"]
    intrinsics: Float[np.ndarray, "calibration 4"]
    """fx, fy, cx, cy; NaN where the tables have none."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The same as arrays, names included."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "TableColumns":
        """What `to_arrays` gave.

        Raises:
            KeyError: if one is missing.
        """
        values: dict[str, Any] = {field.name: arrays[field.name] for field in fields(cls)}
        for name in ("cameras", "scene_names", "scene_descriptions", "scene_logs", "scene_locations"):
            values[name] = tuple(values[name].tolist())
        values["num_without_sample"] = int(values["num_without_sample"])
        return cls(**values)


def read_columns(folder: Path) -> TableColumns:
    """The camera images of a folder of tables.

    Raises:
        PoseFileError: if a table is missing, no list of records, or a record lacks what it needs; the message names both.
    """
    calibrations = _read_calibrations(folder)
    scenes, scene_of = _read_scenes(folder)
    images = _Images()
    num_without_sample = 0
    for record in read_records(folder / "sample_data.json"):
        number = calibrations.of_token.get(record.text("calibrated_sensor_token"))
        if number is None:
            raise record.error("its calibrated_sensor_token is not in calibrated_sensor.json")
        camera = calibrations.camera[number]
        if camera is None:
            # Without sensor.json the folder says what took it: samples/CAM_FRONT/..., sweeps/LIDAR_TOP/...
            parts = record.text("filename").split("/")
            camera = parts[1] if len(parts) == 3 and parts[1].startswith("CAM") else ""
        if not camera:
            continue
        scene = 0 if scene_of is None else scene_of.get(record.text("sample_token"))
        if scene is None:
            num_without_sample += 1
            continue
        images.add(record, camera, scene, number)
    if not images.file:
        raise PoseFileError(f"{folder / 'sample_data.json'} lists no image of a camera.")
    centers, rotations = _read_ego_poses(folder, images.ego_numbers)
    cameras = tuple(sorted(set(images.camera)))
    numbers = {name: number for number, name in enumerate(cameras)}
    camera_column = np.asarray([numbers[name] for name in images.camera], dtype=np.int32)
    scene_column = np.asarray(images.scene, dtype=np.int32)
    times_us = np.asarray(images.times_us, dtype=np.float64)
    order = np.lexsort((times_us, scene_column, camera_column))
    ego = np.asarray(images.ego, dtype=np.int64)[order]
    return TableColumns(
        cameras=cameras,
        scene_names=tuple(scene.name for scene in scenes),
        scene_descriptions=tuple(scene.description for scene in scenes),
        scene_logs=tuple(scene.log for scene in scenes),
        scene_locations=tuple(scene.location for scene in scenes),
        num_without_sample=num_without_sample,
        camera=camera_column[order],
        scene=scene_column[order],
        times_us=times_us[order],
        is_key_frame=np.asarray(images.is_key_frame, dtype=bool)[order],
        files=np.asarray([name.encode("utf-8") for name in images.file])[order],
        ego_center_world=centers[ego],
        ego_rotation_wxyz=rotations[ego],
        calibration=np.asarray(images.calibration, dtype=np.int32)[order],
        height=np.asarray(images.height, dtype=np.int32)[order],
        width=np.asarray(images.width, dtype=np.int32)[order],
        camera_center_ego=calibrations.center_ego,
        camera_rotation_wxyz=calibrations.rotation_wxyz,
        intrinsics=calibrations.intrinsics,
    )


class _Images:
    """Columns that grow while sample_data is read."""

    def __init__(self) -> None:
        self.camera: list[str] = []
        self.scene: list[int] = []
        self.times_us: list[float] = []
        self.is_key_frame: list[bool] = []
        self.file: list[str] = []
        self.ego: list[int] = []
        self.calibration: list[int] = []
        self.height: list[int] = []
        self.width: list[int] = []
        self.ego_numbers: dict[str, int] = {}
        """The ego poses that are needed, by their tokens."""

    def add(self, record: Record, camera: str, scene: int, calibration: int) -> None:
        self.camera.append(camera)
        self.scene.append(scene)
        self.times_us.append(_microseconds(record))
        self.is_key_frame.append(record.flag("is_key_frame"))
        self.file.append(record.text("filename"))
        token = record.text("ego_pose_token")
        self.ego.append(self.ego_numbers.setdefault(token, len(self.ego_numbers)))
        self.calibration.append(calibration)
        self.height.append(_size(record, "height"))
        self.width.append(_size(record, "width"))


def _microseconds(record: Record) -> float:
    time = record.number("timestamp")
    # Beyond that float64 skips whole microseconds.
    if not 0 <= time < 2**53:
        raise record.error(f"'timestamp' must be microseconds since 1970, got {time:g}")
    return time


def _size(record: Record, side: str) -> int:
    size = record.number(side)
    if not (0 <= size < 2**31 and size == int(size)):
        raise record.error(f"{side!r} must be a whole number of pixels, got {size:g}")
    return int(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calibrations:
    of_token: dict[str, int]
    camera: list[str | None]
    """Name of the camera, "" for another sensor, None where sensor.json is missing."""
    center_ego: np.ndarray
    rotation_wxyz: np.ndarray
    intrinsics: np.ndarray


def _read_calibrations(folder: Path) -> _Calibrations:
    sensors: dict[str, str] | None = None
    if _is_given(folder / "sensor.json"):
        sensors = {
            record.text("token"): record.text("channel") if record.text("modality") == "camera" else ""
            for record in read_records(folder / "sensor.json")
        }
    of_token: dict[str, int] = {}
    cameras: list[str | None] = []
    centers, rotations, intrinsics = [], [], []
    for record in read_records(folder / "calibrated_sensor.json"):
        sensor = record.text("sensor_token")
        if sensors is not None and sensor not in sensors:
            raise record.error("its sensor_token is not in sensor.json")
        if record.text("token") in of_token:
            raise record.error("its token has been there before")
        of_token[record.text("token")] = len(of_token)
        cameras.append(None if sensors is None else sensors[sensor])
        centers.append(record.numbers("translation", 3))
        rotations.append(record.quaternion("rotation"))
        intrinsics.append(_intrinsics(record))
    return _Calibrations(
        of_token=of_token,
        camera=cameras,
        center_ego=np.asarray(centers, dtype=np.float64).reshape(-1, 3),
        rotation_wxyz=np.asarray(rotations, dtype=np.float64).reshape(-1, 4),
        intrinsics=np.asarray(intrinsics, dtype=np.float64).reshape(-1, 4),
    )


def _is_given(table: Path) -> bool:
    """Whether there is such a table; a link that leads nowhere is a table that is lost, not one that was left out."""
    return os.path.lexists(table)


def _intrinsics(record: Record) -> list[float]:
    """fx, fy, cx, cy of a camera; NaN for other sensors, whose matrix is empty."""
    rows = record.values.get("camera_intrinsic") or []
    if not rows:
        return [np.nan] * 4
    try:
        matrix = np.asarray(rows, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        matrix = np.zeros(())
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise record.error("'camera_intrinsic' must be a 3 x 3 matrix of finite numbers")
    if matrix[0, 1] or matrix[1, 0] or matrix[2].tolist() != [0, 0, 1]:
        raise record.error(
            f"'camera_intrinsic' must be [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], got {matrix.tolist()}"
        )
    return [float(value) for value in matrix[[0, 1, 0, 1], [0, 1, 2, 2]]]


@dataclass(frozen=True, slots=True)
class _Scene:
    name: str
    description: str = ""
    log: str = ""
    location: str = ""


def _read_scenes(folder: Path) -> tuple[list[_Scene], dict[str, int] | None]:
    """The scenes by name, and the number of each sample's scene; None where one scene holds all."""
    if not _is_given(folder / "sample.json"):
        return [_Scene("all")], None
    drives = {}
    if _is_given(folder / "log.json"):
        drives = {
            record.text("token"): (record.text("logfile"), record.text("location"))
            for record in read_records(folder / "log.json")
        }
    named: dict[str, _Scene] = {}
    if _is_given(folder / "scene.json"):
        taken = set()
        for record in read_records(folder / "scene.json"):
            name = record.text("name")
            if name in taken:
                raise record.error(f"a second scene has the name {name!r}")
            taken.add(name)
            description, log = record.values.get("description"), record.values.get("log_token")
            named[record.text("token")] = _Scene(
                name,
                description if isinstance(description, str) else "",
                *(drives.get(log, ("", "")) if isinstance(log, str) else ()),
            )
    scene_token_of: dict[str, str] = {}
    for record in read_records(folder / "sample.json"):
        if (
            scene_token_of.setdefault(record.text("token"), record.text("scene_token"))
            != record.values["scene_token"]
        ):
            raise record.error("its token has been there before, in another scene")
    # A scene that scene.json lacks is called by its token.
    found = {token: named.get(token, _Scene(token)) for token in sorted(set(scene_token_of.values()))}
    order = sorted(found, key=lambda token: found[token].name)
    numbers = {token: number for number, token in enumerate(order)}
    return [found[token] for token in order], {
        sample: numbers[token] for sample, token in scene_token_of.items()
    }


def _read_ego_poses(folder: Path, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Centres and wxyz rotations of the ego poses that are needed, by their numbers."""
    centers, rotations = np.full((len(numbers), 3), np.nan), np.full((len(numbers), 4), np.nan)
    for record in read_records(folder / "ego_pose.json"):
        number = numbers.get(record.text("token"))
        if number is not None:
            if not np.isnan(centers[number, 0]):
                raise record.error("its token has been there before")
            centers[number] = record.numbers("translation", 3)
            rotations[number] = record.quaternion("rotation")
    missing = np.isnan(centers[:, 0])
    if missing.any():
        token = list(numbers)[int(np.argmax(missing))]
        raise PoseFileError(
            f"{folder / 'ego_pose.json'} lacks {int(missing.sum())} of the {len(missing)} poses that sample_data.json "
            f"names, the first with token {token!r}. Are the tables of one version?"
        )
    return centers, rotations
