"""nuScenes: a folder of JSON tables, of which one camera in one scene is a trajectory."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from merope.cameras import Pinhole
from merope.data.nuscenes.tables import (
    IMAGE_RATE,
    KEY_FRAME_RATE,
    NuScenesTables,
    Track,
    find_tables,
    shortened,
    table_folders,
)
from merope.data.poses.formats.file_lens import NoLens, lens_or_note, lens_to_write
from merope.data.poses.formats.raw import PoseFormat, RawPoses, require_metres
from merope.data.poses.formats.stamped import required_times
from merope.data.poses.table import R_AXES_OPENCV, PoseFileError, ReadOptions
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_SCENE, _CAMERA = "scene-0001", "CAM_FRONT"


def read_nuscenes(path: Path, options: ReadOptions) -> RawPoses:
    """All images of one camera in one scene, sweeps and key frames: ego pose of each image's own record times the mounting.

    ``path`` is the folder of tables, or the folder above if that holds one.
    """
    tables = NuScenesTables.read(find_tables(path))
    scene = _chosen(path, "scene", options.scene, tables.scenes)
    camera = _chosen(path, "camera", options.camera, tables.cameras)
    track = tables.track(camera=camera, scene=scene)
    if len(track) == 0:
        raise PoseFileError(f"{path}: {camera} took no image in {scene}.")
    lens, lens_notes = lens_or_note(lambda: _lens(track))
    rate = KEY_FRAME_RATE if track.is_key_frame.all() else IMAGE_RATE
    return RawPoses(
        matrices=track.T_world_cam,
        places=track.files,
        times=track.times_us / 1e6,
        names=track.files,
        camera=lens,
        notes=(*tables.notes, *track.gaps(rate), *lens_notes),
    )


def write_nuscenes(poses: Poses, camera: dict[str, Any] | None) -> Mapping[str, bytes]:
    """The smallest set of tables that reads back: one scene of key frames, seen by one camera that looks forward.

    The ego is at the camera's centre, x forward, y left, z up. Time stamps are whole microseconds where the times are, and
    keep their fraction otherwise. Images are named but not written.

    Raises:
        ValueError: if the poses carry no times or are not in metres, or the lens is no pinhole.
    """
    times = required_times("nuscenes", poses)
    require_metres("nuscenes", poses)
    lens = None if camera is None else lens_to_write("nuscenes", camera, pixel_origin="center")
    if lens is not None and not isinstance(lens, Pinhole):
        raise ValueError(
            f"format 'nuscenes' keeps pinhole lenses alone and this one is {lens.model!r}. Leave the lens out, or choose "
            "format 'merope', which keeps every lens."
        )
    R_ego_cam = torch.from_numpy(R_AXES_OPENCV["flu"])
    ego_xyzw = matrix_to_quaternion(poses.R_world_cam @ R_ego_cam.mT)
    stamps = [_stamp(time) for time in times]
    count = len(poses)
    samples = [_token("sample", number) for number in range(count)]
    images = [_token("sample_data", number) for number in range(count)]
    tables: dict[str, list[dict[str, Any]]] = {
        "sensor": [{"token": _token("sensor"), "channel": _CAMERA, "modality": "camera"}],
        "calibrated_sensor": [
            {
                "token": _token("calibrated_sensor"),
                "sensor_token": _token("sensor"),
                "translation": [0.0, 0.0, 0.0],
                "rotation": _wxyz(matrix_to_quaternion(R_ego_cam)),
                "camera_intrinsic": [] if lens is None else lens.matrix().tolist(),
            }
        ],
        "ego_pose": [
            {
                "token": images[number],
                "timestamp": stamps[number],
                "rotation": _wxyz(ego_xyzw[number]),
                "translation": poses.center_world[number].tolist(),
            }
            for number in range(count)
        ],
        "sample_data": [
            {
                "token": images[number],
                "sample_token": samples[number],
                "ego_pose_token": images[number],
                "calibrated_sensor_token": _token("calibrated_sensor"),
                "timestamp": stamps[number],
                "fileformat": "jpg",
                "is_key_frame": True,
                "height": 0 if lens is None else lens.height,
                "width": 0 if lens is None else lens.width,
                "filename": f"samples/{_CAMERA}/{number:05d}.jpg",
                **_neighbours(images, number),
            }
            for number in range(count)
        ],
        "sample": [
            {
                "token": samples[number],
                "timestamp": stamps[number],
                "scene_token": _token("scene"),
                **_neighbours(samples, number),
            }
            for number in range(count)
        ],
        "scene": [
            {
                "token": _token("scene"),
                "name": _SCENE,
                "description": "",
                "nbr_samples": count,
                "first_sample_token": samples[0],
                "last_sample_token": samples[-1],
            }
        ],
    }
    return {
        f"{name}.json": ("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n").encode()
        for name, rows in tables.items()
    }


def recognise_nuscenes(path: Path) -> str | None:
    """Whether the tables that carry poses are there, at ``path`` or one folder below."""
    try:
        folders = table_folders(path)
    except OSError:
        return None
    if not folders:
        return None
    return f"a folder with nuScenes' tables sample_data, ego_pose and calibrated_sensor ({folders[0].name})"


def _chosen(path: Path, what: str, wanted: str | None, known: tuple[str, ...]) -> str:
    """The scene or camera that is wanted, the only one if none is."""
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted in known:
        return wanted

    came = f"has no {what} {wanted!r}" if wanted is not None else f"holds several {what}s"
    raise PoseFileError(f"{path} {came}: name one of {shortened(known)} with {what} (--{what}).")


def _lens(track: Track) -> Pinhole:
    if (track.calibration != track.calibration[0]).any():
        raise NoLens(f"{track.camera} has more than one calibration in {track.scene}")
    lens = track.lens
    if lens is None:
        raise NoLens(f"the tables have no intrinsics for {track.camera}")
    return lens


def _stamp(time: float) -> int | float:
    whole = round(time * 1e6)
    return whole if whole / 1e6 == time else time * 1e6


def _token(kind: str, number: int = 0) -> str:
    """32 hexadecimal digits, as all tokens are; equal poses give equal files."""
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()[:32]


def _neighbours(tokens: list[str], number: int) -> dict[str, str]:
    return {
        "prev": tokens[number - 1] if number else "",
        "next": tokens[number + 1] if number + 1 < len(tokens) else "",
    }


def _wxyz(quaternion_xyzw: torch.Tensor) -> list[float]:
    x, y, z, w = quaternion_xyzw.tolist()
    return [w, x, y, z]


FORMATS = {
    "nuscenes": PoseFormat(
        about="folder of nuScenes' tables: one camera in one scene, ego pose of each image times the camera's mounting",
        read=read_nuscenes,
        write=write_nuscenes,
        recognise=recognise_nuscenes,
        options=("camera", "scene"),
        unit="m",
    ),
}
