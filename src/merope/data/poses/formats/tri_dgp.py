"""TRI's Dataset Governance Policy (DGP): scenes of images with a pose each, and calibrations.

A scene is ``scene_<hash>.json`` with a folder ``calibration/`` beside it. Its data are images and other things in any order;
an image's pose is that of its camera (OpenCV axes) in the world, metres, with quaternions by name. The short form with
"frames" and "calibration" in one file has the same poses.
"""

import datetime
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from merope.cameras import CameraModel, OpenCV, Pinhole
from merope.data.poses.formats.choosing import chosen_camera
from merope.data.poses.formats.file_lens import NoLens, lens_or_note, lens_to_write
from merope.data.poses.formats.json_entries import Entry, json_glimpse, read_json
from merope.data.poses.formats.raw import PoseFormat, RawPoses, require_metres
from merope.data.poses.formats.stamped import matrices_of, whole_stamps
from merope.data.poses.table import PoseFileError, ReadOptions
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion

_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z")
_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = 10**9
# What a datum of the schema may be.
_KINDS = ("image", "point_cloud", "radar_point_cloud", "file_datum")
_OPENCV = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
# Of other lens models (fisheyes, double sphere, thin prism, tilt); zero or absent means that they are not used.
_OTHER_MODELS = (
    "skew",
    "fov",
    "fisheye",
    "s1",
    "s2",
    "s3",
    "s4",
    "taux",
    "tauy",
    "alpha",
    "beta",
    "w",
    "xi",
    "equirectangular",
)
_MEANING = "rotations are qw qx qy qz by name"


@dataclass(frozen=True, slots=True)
class _Image:
    """One image of a scene; its stamp in whole nanoseconds."""

    pose_world_cam: Entry
    stamp: int
    stamp_text: str
    file: str
    height: int
    width: int
    calibration: str


def read_tri_dgp(path: Path, options: ReadOptions) -> RawPoses:
    """The images of one camera, by their time stamps, with the lens of its calibration."""
    path = _scene_file(path) if path.is_dir() else path
    content = read_json(path)
    if content.find("frames") is not None:
        camera, images = _short_images(content, options)
        calibrations = {"": content.find("calibration")}
    else:
        camera, images = _scene_images(content, options)
        calibrations = {key: _calibration(path, key) for key in {image.calibration for image in images}}
    images = sorted(images, key=lambda image: image.stamp)
    for before, after in pairwise(images):
        if after.stamp == before.stamp:
            raise PoseFileError(
                f"{after.pose_world_cam.where}: the stamp {after.stamp_text} of {camera} is that of "
                f"{before.pose_world_cam.place} too. "
                "Remove one of them."
            )
    lens, notes = lens_or_note(lambda: _lens(camera, images, calibrations))
    year = _EPOCH.year + images[0].stamp // (_SECOND * 31_556_952)
    if not 1990 <= year < 2100:
        notes += (f"the stamps lie in the year {year:.4g}, so they are no times of capture",)
    places = tuple(image.pose_world_cam.place for image in images)
    centers = np.array([_named(image.pose_world_cam["translation"], ("x", "y", "z")) for image in images])
    quaternions = np.array(
        [_named(image.pose_world_cam["rotation"], ("qx", "qy", "qz", "qw")) for image in images]
    )
    return RawPoses(
        matrices=matrices_of(path, places, centers, quaternions, meaning=_MEANING),
        places=places,
        times=np.array([image.stamp / _SECOND for image in images]),
        names=tuple(image.file for image in images),
        camera=lens,
        notes=notes,
    )


def _scene_file(folder: Path) -> Path:
    scenes = sorted(folder.glob("scene_*.json"))
    if len(scenes) != 1:
        found = ", ".join(scene.name for scene in scenes) or "none"
        raise PoseFileError(f"{folder} should hold one scene_*.json; it holds {found}. Name the file.")
    return scenes[0]


def _short_images(content: Entry, options: ReadOptions) -> tuple[str, list[_Image]]:
    frames = content["frames"].items()
    cameras = [frame["camera"].text() for frame in frames]
    camera = chosen_camera(content.path, options, _distinct(cameras))
    return camera, [
        _Image(
            pose_world_cam=frame["pose_c2w"],
            stamp=_nanoseconds(frame["time_s"].number()),
            stamp_text=f"{frame['time_s'].number()!r} s",
            file=frame["file"].text(),
            height=frame["height"].whole(),
            width=frame["width"].whole(),
            calibration="",
        )
        for frame, name in zip(frames, cameras, strict=True)
        if name == camera
    ]


def _scene_images(content: Entry, options: ReadOptions) -> tuple[str, list[_Image]]:
    calibration_of = {
        key.text(): sample["calibration_key"].text()
        for sample in content["samples"].items()
        for key in sample["datum_keys"].items()
    }
    images = []
    for datum in content["data"].items():
        # One of a kind that is not known may be an image with a damaged name: its pose would be missing without a word.
        for kind, value in datum["datum"].members():
            if kind not in _KINDS:
                raise datum.refused(f"a datum of the kind {', '.join(_KINDS)}")
            if kind == "image" and value.value is not None:
                images.append((datum["id"], datum, value))
    if not images:
        raise PoseFileError(f"{content.where} holds no images among its data.")
    camera = chosen_camera(
        content.path, options, _distinct(identity["name"].text() for identity, _, _ in images)
    )
    return camera, [
        _Image(
            pose_world_cam=image["pose"],
            stamp=_stamp(identity["timestamp"]),
            stamp_text=identity["timestamp"].text(),
            file=image["filename"].text(),
            height=image["height"].whole(),
            width=image["width"].whole(),
            calibration=calibration_of.get(datum["key"].text(), ""),
        )
        for identity, datum, image in images
        if identity["name"].text() == camera
    ]


def _distinct(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


def _named(entry: Entry, names: tuple[str, ...]) -> list[float]:
    return [entry[name].number() for name in names]


def _nanoseconds(time: float) -> int:
    numerator, denominator = time.as_integer_ratio()
    return (2 * numerator * _SECOND + denominator) // (2 * denominator)


def _stamp(entry: Entry) -> int:
    match = _STAMP.fullmatch(entry.text())
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(match[part]) for part in range(1, 7))
        moment = datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        raise entry.refused("a time such as 2019-06-27T14:30:24.993653Z") from None
    span = moment - _EPOCH
    return (span.days * 86400 + span.seconds) * _SECOND + int((match[7] or "").ljust(9, "0"))


def _calibration(scene: Path, key: str) -> Entry | None:
    """A calibration as camera -> intrinsics, or None where its file is missing."""
    path = scene.parent / "calibration" / f"{key}.json"
    if re.fullmatch(r"[0-9A-Za-z_-]+", key) is None or not path.is_file():
        return None
    content = read_json(path)
    names, intrinsics = content["names"].items(), content["intrinsics"].items()
    if len(names) != len(intrinsics):
        raise PoseFileError(f"{path} has {len(names)} names and {len(intrinsics)} intrinsics.")
    pairs = zip(names, intrinsics, strict=True)
    return Entry(path, "", {name.text(): {"intrinsics": entry.value} for name, entry in pairs})


def _lens(camera: str, images: list[_Image], calibrations: dict[str, Entry | None]) -> CameraModel:
    lenses: list[CameraModel] = []
    for image in images:
        calibration = calibrations.get(image.calibration)
        if calibration is None:
            raise NoLens(
                f"the calibration {image.calibration!r} of {image.pose_world_cam.place} is not there"
            )
        found = calibration.find(camera)
        if found is None:
            raise NoLens(f"{calibration.where} has no {camera}")
        lenses.append(_lens_of(found["intrinsics"], image))
        if lenses[-1] != lenses[0]:
            raise NoLens(
                f"the lens of {image.pose_world_cam.place} differs from that of {images[0].pose_world_cam.place}"
            )
    return lenses[0]


def _lens_of(intrinsics: Entry, image: _Image) -> CameraModel:
    def value(name: str) -> float:
        found = intrinsics.find(name)
        return 0.0 if found is None else found.number()

    other = [name for name in _OTHER_MODELS if value(name)]
    if other:
        raise NoLens(f"there is no lens here for its {', '.join(other)}")
    distortion: dict[str, Any] = {name: value(name) for name in _OPENCV}
    raster: dict[str, Any] = {
        **{name: intrinsics[name].number() for name in ("fx", "fy", "cx", "cy")},
        "height": image.height,
        "width": image.width,
        # The format does not say; its distortion is OpenCV's, and so are its pixels taken to be.
        "pixel_origin": "center",
    }
    return OpenCV(**raster, **distortion) if any(distortion.values()) else Pinhole(**raster)


def write_tri_dgp(poses: Poses, camera: dict[str, Any] | None) -> dict[str, bytes]:
    """A scene of one camera, CAMERA_01, and its calibration, whose first sensor is the camera itself.

    Raises:
        ValueError: without times (in the years 1 to 9999), metres, or a lens that this format has.
    """
    require_metres("tri-dgp", poses)
    lens = lens_to_write("tri-dgp", camera, pixel_origin="center")
    stamps = [_stamp_text(stamp) for stamp in whole_stamps("tri-dgp", poses, _SECOND)]
    calibration = _json({"names": ["CAMERA_01"], "intrinsics": [_intrinsics(lens)], "extrinsics": [_STILL]})
    calibration_key = hashlib.sha1(calibration).hexdigest()
    quaternions = matrix_to_quaternion(poses.R_world_cam).tolist()
    data, samples = [], []
    for index, (stamp, center, quaternion) in enumerate(
        zip(stamps, poses.center_world.tolist(), quaternions, strict=True)
    ):
        identity = {"index": str(index), "log": "merope", "timestamp": stamp}
        key = hashlib.sha1(f"CAMERA_01 {stamp}".encode()).hexdigest()
        image = {
            "filename": f"rgb/CAMERA_01/frame_{index:05d}.png",
            "height": lens.height,
            "width": lens.width,
            "channels": 3,
            "annotations": {},
            "metadata": {},
            "pose": {
                "rotation": dict(zip(("qx", "qy", "qz", "qw"), quaternion, strict=True)),
                "translation": dict(zip(("x", "y", "z"), center, strict=True)),
            },
        }
        data.append({"id": {**identity, "name": "CAMERA_01"}, "key": key, "datum": {"image": image}})
        samples.append(
            {"id": {**identity, "name": ""}, "calibration_key": calibration_key, "datum_keys": [key]}
        )
    for before, after in pairwise(data):
        before["next_key"], after["prev_key"] = after["key"], before["key"]
    data[0].setdefault("prev_key", "")
    data[-1].setdefault("next_key", "")
    scene = _json({"name": "", "log": "merope", "data": data, "samples": samples})
    return {
        f"scene_{hashlib.sha1(scene).hexdigest()}.json": scene,
        f"calibration/{calibration_key}.json": calibration,
    }


_STILL = {
    "rotation": {"qx": 0.0, "qy": 0.0, "qz": 0.0, "qw": 1.0},
    "translation": {"x": 0.0, "y": 0.0, "z": 0.0},
}


def _stamp_text(stamp: int) -> str:
    whole, rest = divmod(stamp, _SECOND)
    try:
        moment = _EPOCH + datetime.timedelta(seconds=whole)
    except OverflowError:
        raise ValueError(
            f"format 'tri-dgp' holds dates of the years 1 to 9999; a time of {stamp / _SECOND:g} s is beyond them."
        ) from None
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f".{rest:09d}Z"


def _intrinsics(lens: CameraModel) -> dict[str, float]:
    if not isinstance(lens, Pinhole | OpenCV):
        raise ValueError(
            f"format 'tri-dgp' is written with pinholes and OpenCV's lenses; got {lens.model!r}. Undistort the images first."
        )
    values = lens.to_dict()
    return {name: values[name] for name in ("fx", "fy", "cx", "cy", *_OPENCV) if name in values} | {
        "skew": 0.0
    }


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def recognise_tri_dgp(path: Path) -> str | None:
    """A scene's JSON, a folder with one, or the short form."""
    if path.is_dir():
        scene = next(iter(sorted(path.glob("scene_*.json"))), None)
        return f"a folder with {scene.name}" if scene is not None and recognise_tri_dgp(scene) else None
    text = json_glimpse(path)
    if '"pose_c2w"' in text:
        return "JSON with a pose_c2w for each frame"
    is_scene = '"datum"' in text and '"translation"' in text and '"qw"' in text
    return "the JSON of a DGP scene" if is_scene else None


FORMATS = {
    "tri-dgp": PoseFormat(
        about="TRI's DGP scenes: JSON with a pose for each image of each camera, and their calibration",
        read=read_tri_dgp,
        write=write_tri_dgp,
        recognise=recognise_tri_dgp,
        options=("camera",),
        unit="m",
    ),
}
