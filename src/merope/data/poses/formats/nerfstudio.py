"""nerfstudio's transforms.json (instant-ngp's and Blender's too): camera-to-world matrices in OpenGL camera axes."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from merope.cameras import CameraModel, KannalaBrandt, OpenCV, Pinhole
from merope.data.poses.formats.file_lens import NoLens, lens_or_note, lens_to_write
from merope.data.poses.formats.json_entries import Entry, json_glimpse, read_json
from merope.data.poses.formats.raw import PoseFormat, RawPoses, matrices_in_axes
from merope.data.poses.table import PoseFileError, ReadOptions
from merope.geometry.poses import Poses, Unit

_FILE = "transforms.json"
_FISHEYE = "OPENCV_FISHEYE"
_PERSPECTIVE = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV")
_DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2")
_LENS_KEYS = ("camera_model", "w", "h", "fl_x", "fl_y", "cx", "cy", "camera_angle_x", "camera_angle_y")
_UNITS: dict[str, Unit] = {"m": "m", "normalized": "normalized", "unknown": "unknown"}


def read_nerfstudio(path: Path, options: ReadOptions) -> RawPoses:
    """``frames`` in the file's order, each with a transform_matrix; intrinsics of the file or of each frame.

    The world is the file's. Where the file states that its poses were turned or scaled already (applied_transform,
    applied_scale), a note says so, and ``undo_applied_transform`` takes that out again.
    """
    if path.is_dir():
        path = path / _FILE
    content = read_json(path)
    frames = content["frames"].items()
    matrices = np.stack([frame["transform_matrix"].matrix() for frame in frames])
    matrices, notes = _applied(content, matrices, undo=options.undo_applied_transform)
    camera, lens_notes = lens_or_note(lambda: _lens(content, frames))
    files = [frame.find("file_path") for frame in frames]
    unit, stated = None, content.find("unit")
    if stated is not None:
        unit = _UNITS.get(stated.text())
        if unit is None:
            notes += (f"the file's unit {stated.text()[:40]!r} is not one of {', '.join(_UNITS)}",)
    return RawPoses(
        matrices=matrices,
        places=tuple(frame.place for frame in frames),
        names=tuple(file.text() for file in files if file is not None) if None not in files else None,
        unit=unit,
        camera=camera,
        notes=notes + lens_notes,
    )


def _applied(
    content: Entry, matrices: Float[np.ndarray, "time 3 4"], *, undo: bool
) -> tuple[Float[np.ndarray, "time 3 4"], tuple[str, ...]]:
    """Matrices in the world that was asked for, and what there is to say about it."""
    transform, scale = content.find("applied_transform"), content.find("applied_scale")
    found = " and ".join(entry.place for entry in (transform, scale) if entry is not None)
    if not found:
        if undo:
            raise PoseFileError(
                f"{content.path} states no applied_transform and no applied_scale to take out. "
                "Leave undo_applied_transform (--undo-applied-transform) off."
            )
        return matrices, ()
    if not undo:
        return matrices, (
            f"the file states an {found}: its world is not that of the poses it was made from. They come back with "
            "undo_applied_transform=True (--undo-applied-transform)",
        )
    factor = 1.0 if scale is None else scale.number()
    if scale is not None and factor <= 0:
        raise scale.refused("a positive number")
    rotations, centers = matrices[:, :, :3], matrices[:, :, 3] / factor
    if transform is not None:
        R_file_source, offset = np.split(transform.matrix(), [3], axis=1)
        error = np.abs(R_file_source.T @ R_file_source - np.eye(3)).max()
        if error > 1e-6 or np.linalg.det(R_file_source) < 0:
            raise PoseFileError(
                f"{transform.where} is no rotation and translation (R^T R is off by {error:.3g}, determinant "
                f"{np.linalg.det(R_file_source):.3g}), so it cannot be taken out. Leave undo_applied_transform off."
            )
        rotations, centers = R_file_source.T @ rotations, (centers - offset[:, 0]) @ R_file_source
    return np.concatenate([rotations, centers[:, :, None]], axis=2), (f"the file's {found} was taken out",)


def _lens(content: Entry, frames: list[Entry]) -> CameraModel:
    """The lens of all frames; what a frame says of it goes before what the file says."""
    shared = _described(content)
    described = [{**shared, **_described(frame)} for frame in frames]
    for frame, values in zip(frames, described, strict=True):
        if values != described[0]:
            raise NoLens(
                f"the lens of {frame.place} differs from that of {frames[0].place}, and poses here share one lens"
            )
    values = described[0]
    model = values.get("camera_model", "OPENCV")
    if model not in (_FISHEYE, *_PERSPECTIVE):
        raise NoLens(f"there is no lens here for its camera_model {model[:40]!r}")
    missing = [key for key in ("w", "h") if key not in values]
    if missing:
        raise NoLens(f"it does not say its image size ({' and '.join(missing)})")
    width, height = values["w"], values["h"]
    raster: dict[str, Any] = {
        "width": width,
        "height": height,
        "pixel_origin": "corner",
        **_focal(values, width, height),
    }
    radial = {key: values.get(key, 0.0) for key in _DISTORTION}
    if model == _FISHEYE:
        if radial.pop("p1") or radial.pop("p2"):
            raise NoLens(f"{_FISHEYE} has no p1 and p2")
        return KannalaBrandt(**raster, **radial)
    if radial.pop("k4"):
        raise NoLens("k4 of a perspective lens is of r^8 here and in nerfstudio, which OpenCV's lens has not")
    return OpenCV(**raster, **radial) if any(radial.values()) else Pinhole(**raster)


def _described(entry: Entry) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in (*_LENS_KEYS, *_DISTORTION):
        found = entry.find(key)
        if found is not None:
            values[key] = (
                found.text()
                if key == "camera_model"
                else found.whole()
                if key in ("w", "h")
                else found.number()
            )
    return values


def _focal(values: dict[str, Any], width: int, height: int) -> dict[str, float]:
    """Focal lengths and principal point; a field of view alone is about the middle of the image, as Blender's are."""
    if "fl_x" in values:
        if "cx" not in values or "cy" not in values:
            raise NoLens("it has fl_x but no principal point (cx and cy)")
        focal_x = values["fl_x"]
        return {"fx": focal_x, "fy": values.get("fl_y", focal_x), "cx": values["cx"], "cy": values["cy"]}
    if "camera_angle_x" not in values:
        raise NoLens("it has neither fl_x nor camera_angle_x")
    focal_x = _of_angle(values["camera_angle_x"], width)
    focal_y = _of_angle(values["camera_angle_y"], height) if "camera_angle_y" in values else focal_x
    return {
        "fx": focal_x,
        "fy": focal_y,
        "cx": values.get("cx", width / 2),
        "cy": values.get("cy", height / 2),
    }


def _of_angle(angle: float, size: int) -> float:
    if not 0 < angle < math.pi:
        raise NoLens(f"a field of view must lie between 0 and pi radians, got {angle:g}")
    return size / 2 / math.tan(angle / 2)


def write_nerfstudio(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The same with every digit, and the unit under "unit"; images are named as in a folder of clips. Times are lost.

    Raises:
        ValueError: if the lens is none that nerfstudio has.
    """
    lens = None if camera is None else lens_to_write("nerfstudio", camera, pixel_origin="corner")
    content = {} if lens is None else _lens_keys(lens)
    bottom = [0.0, 0.0, 0.0, 1.0]
    content["unit"] = poses.unit
    content["frames"] = [
        {"file_path": f"frames/frame_{index:05d}.png", "transform_matrix": [*matrix, bottom]}
        for index, matrix in enumerate(matrices_in_axes(poses, "opengl").tolist())
    ]
    return (json.dumps(content, indent=1) + "\n").encode()


def _lens_keys(lens: CameraModel) -> dict[str, Any]:
    values = lens.to_dict()
    keys = {
        "w": lens.width,
        "h": lens.height,
        "fl_x": values["fx"],
        "fl_y": values["fy"],
        "cx": values["cx"],
        "cy": values["cy"],
    }
    if isinstance(lens, Pinhole):
        return {"camera_model": "PINHOLE", **keys}
    if isinstance(lens, KannalaBrandt):
        return {"camera_model": _FISHEYE, **keys, **{key: values[key] for key in ("k1", "k2", "k3", "k4")}}
    if isinstance(lens, OpenCV) and not (values["k4"] or values["k5"] or values["k6"]):
        return {
            "camera_model": "OPENCV",
            **keys,
            **{key: values[key] for key in ("k1", "k2", "k3", "p1", "p2")},
        }
    raise ValueError(
        f"format 'nerfstudio' has no lens like {lens.model!r} with these parameters; it has pinholes, OpenCV's without k4 "
        "to k6, and the Kannala-Brandt fisheye."
    )


def recognise_nerfstudio(path: Path) -> str | None:
    """JSON with a transform_matrix, or a folder with transforms.json."""
    if path.is_dir():
        return f"a folder with {_FILE}" if recognise_nerfstudio(path / _FILE) else None
    return (
        "JSON with a transform_matrix for each frame" if '"transform_matrix"' in json_glimpse(path) else None
    )


FORMATS = {
    "nerfstudio": PoseFormat(
        about="nerfstudio's transforms.json: 4 x 4 camera-to-world, OpenGL camera axes, with its lens",
        read=read_nerfstudio,
        write=write_nerfstudio,
        recognise=recognise_nerfstudio,
        options=("undo_applied_transform",),
        axes="opengl",
    ),
}
