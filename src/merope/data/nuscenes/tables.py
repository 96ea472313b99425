"""nuScenes' tables as columns: which camera took which image, when and from where, in which scene.

The tables are lists of records that name each other by tokens. sample_data, ego_pose and calibrated_sensor are needed;
sample and scene say which scene an image belongs to, and sensor what a camera is called. Without these, all images are one
scene and a camera has the name of its folder. Records are read one at a time, so the 2.6 million of the full set need no
more memory than their columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from merope.cameras import Pinhole
from merope.data.clips.frame_timing import GAP
from merope.data.nuscenes.records import TableColumns, read_columns
from merope.data.poses.table import PoseFileError
from merope.geometry.rotations import quaternion_to_matrix

NEEDED = ("sample_data", "ego_pose", "calibrated_sensor")
"""Tables without which no camera has a pose."""

IMAGE_RATE, KEY_FRAME_RATE = 12.0, 2.0
"""Images and key frames a second, by nuScenes' definition. An image comes 0.05 or 0.1 s after the one before: the lidar,
which turns 20 times a second, triggers the cameras."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NuScenesTables:
    """All camera images of a folder of tables, sorted by camera, scene and time."""

    columns: TableColumns

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The tables in a folder.

        Raises:
            PoseFileError: if a table is missing or no list of records, or a record lacks what it needs, with its place.
        """
        return cls(columns=read_columns(folder))

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras that took an image."""
        return self.columns.cameras

    @property
    def scenes(self) -> tuple[str, ...]:
        """Names of the scenes, sorted."""
        return self.columns.scene_names

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in sentences."""
        strangers = self.columns.num_without_sample
        return (
            (f"{strangers} images are left out, whose samples are not in sample.json",) if strangers else ()
        )

    def track(self, *, camera: str, scene: str) -> "Track":
        """The images of a camera in a scene, in the order of time; there may be none.

        Raises:
            ValueError: if there is no such camera or scene.
        """
        for what, name, known in (("camera", camera, self.cameras), ("scene", scene, self.scenes)):
            if name not in known:
                raise ValueError(
                    f"there is no {what} {name!r} in these tables; there are {shortened(known)}."
                )
        columns = self.columns
        number, place = self.cameras.index(camera), self.scenes.index(scene)
        first, last = np.searchsorted(columns.camera, [number, number + 1])
        start, stop = first + np.searchsorted(columns.scene[first:last], [place, place + 1])
        return Track(tables=self, camera=camera, scene_number=place, rows=np.arange(start, stop))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Track:
    """Images of one camera in one scene, in the order of time."""

    tables: NuScenesTables
    camera: str
    scene_number: int
    rows: Int[np.ndarray, "image"]
    """Places of the images in the columns of the tables."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice | range | Sequence[int] | np.ndarray) -> "Track":
        """Some of the images."""
        if isinstance(chosen, range):
            chosen = slice(chosen.start, chosen.stop, chosen.step)
        return replace(self, rows=self.rows[chosen])

    @property
    def scene(self) -> str:
        """Name of the scene."""
        return self.tables.scenes[self.scene_number]

    @property
    def description(self) -> str:
        """What nuScenes says of the scene, or nothing."""
        return self.tables.columns.scene_descriptions[self.scene_number]

    @property
    def log(self) -> str:
        """The drive that the scene is cut from, or nothing."""
        return self.tables.columns.scene_logs[self.scene_number]

    @property
    def location(self) -> str:
        """The map whose coordinates the poses are in, or nothing."""
        return self.tables.columns.scene_locations[self.scene_number]

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the images below the root of the data set."""
        return tuple(name.decode("utf-8") for name in self.tables.columns.files[self.rows].tolist())

    @property
    def times_us(self) -> Float[np.ndarray, "image"]:
        """Time stamps in microseconds: whole numbers, in nuScenes' own tables."""
        return self.tables.columns.times_us[self.rows]

    @property
    def is_key_frame(self) -> Bool[np.ndarray, "image"]:
        """Whether each image is of the 2 a second that are annotated."""
        return self.tables.columns.is_key_frame[self.rows]

    @property
    def calibration(self) -> Int[np.ndarray, "image"]:
        """Number of the calibration of each image, which nuScenes changes between scenes alone."""
        return self.tables.columns.calibration[self.rows]

    @property
    def T_world_cam(self) -> Float[np.ndarray, "image 3 4"]:
        """The ego pose of each image's own record times the camera's mounting: camera-to-world, OpenCV axes, metres."""
        columns, calibration = self.tables.columns, self.calibration
        R_world_ego = _rotations(columns.ego_rotation_wxyz[self.rows])
        R_ego_cam = _rotations(columns.camera_rotation_wxyz[calibration])
        offsets = R_world_ego @ columns.camera_center_ego[calibration][:, :, None]
        centers = columns.ego_center_world[self.rows][:, :, None] + offsets
        return np.concatenate([R_world_ego @ R_ego_cam, centers], axis=2)

    @property
    def lens(self) -> Pinhole | None:
        """The lens of the first image, None where the tables have no intrinsics for it."""
        columns = self.tables.columns
        values = columns.intrinsics[self.calibration[0]].tolist()
        height, width = int(columns.height[self.rows[0]]), int(columns.width[self.rows[0]])
        if not np.isfinite(values).all() or height == 0 or width == 0:
            return None
        fx, fy, cx, cy = values
        # OpenCV's calibration counts from the first pixel's centre.
        return Pinhole(fx=fx, fy=fy, cx=cx, cy=cy, height=height, width=width, pixel_origin="center")

    def gaps(self, fps: float) -> tuple[str, ...]:
        """A sentence for every step of more than 1.5 spacings of ``fps``, where images are missing, and for every two images
        with one time, which cannot both be right."""
        steps = np.diff(self.times_us / 1e6)
        return tuple(
            f"images {number} and {number + 1} have the same time"
            if steps[number] <= 0
            else f"images {number} and {number + 1} are {steps[number]:.3f} s apart, more than {GAP} spacings at {fps:g} a "
            "second"
            for number in np.flatnonzero((steps > GAP / fps) | (steps <= 0)).tolist()
        )


def find_tables(path: Path, version: str | None = None) -> Path:
    """The one folder of tables that ``path`` is or holds, such as v1.0-trainval.

    Raises:
        PoseFileError: if there is none, or several and ``version`` names none of them.
    """
    folders = table_folders(path)
    if version is not None:
        folders = [folder for folder in folders if folder.name == version]
    if len(folders) == 1:
        return folders[0]
    if not folders:
        wanted = f" named {version}" if version is not None else ""
        raise PoseFileError(
            f"{path} holds no folder{wanted} with nuScenes' tables: {', '.join(f'{name}.json' for name in NEEDED)} are "
            "needed, as in v1.0-mini or v1.0-trainval."
        )
    raise PoseFileError(
        f"{path} holds the tables {', '.join(folder.name for folder in folders)}. Give the folder of one, or name it "
        "(version; --option version=NAME)."
    )


def table_folders(path: Path) -> list[Path]:
    """The folder itself if it holds nuScenes' tables, else those just below it that do."""
    if _has_tables(path):
        return [path]
    return sorted(below for below in path.iterdir() if _has_tables(below)) if path.is_dir() else []


def shortened(names: Sequence[str]) -> str:
    """The first names of a list that may be long, and how many more there are."""
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _has_tables(folder: Path) -> bool:
    return all((folder / f"{name}.json").is_file() for name in NEEDED)


def _rotations(wxyz: Float[np.ndarray, "image 4"]) -> np.ndarray:
    return quaternion_to_matrix(torch.from_numpy(np.ascontiguousarray(wxyz[:, [1, 2, 3, 0]]))).numpy()
