"""AC3D's camera files (camera_info JSON): image size, pixel intrinsics and world-to-camera matrices of every frame."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from merope.cameras import CameraModel, Pinhole
from merope.data.poses.formats.file_lens import NoLens, lens_or_note, lens_to_write
from merope.data.poses.formats.inversion import offsets_of_centers
from merope.data.poses.formats.json_entries import Entry, json_glimpse, read_json
from merope.data.poses.formats.raw import PoseFormat, RawPoses
from merope.data.poses.table import PoseFileError, ReadOptions
from merope.geometry.poses import Poses


def read_ac3d(path: Path, options: ReadOptions) -> RawPoses:
    """imH, imW, intrinsics [T, 3, 3] in pixels and w2c [T, 3, 4]; a ``metric_scale`` says that lengths are metres."""
    content = read_json(path)
    matrices = content["w2c"].items()
    intrinsics = content["intrinsics"].items()
    if len(matrices) != len(intrinsics):
        raise PoseFileError(
            f"{path} has {len(matrices)} matrices in w2c and {len(intrinsics)} in intrinsics; it needs one of each a frame."
        )
    camera, notes = _lens(content, intrinsics)
    scale = content.find("metric_scale")
    if scale is not None:
        notes += (
            f"lengths were brought to metres by a depth model (metric_scale {scale.number():.6g}), not measured",
        )
    return RawPoses(
        matrices=np.stack([matrix.matrix() for matrix in matrices]),
        places=tuple(matrix.place for matrix in matrices),
        unit=None if scale is None else "m",
        camera=camera,
        notes=notes,
    )


def _lens(content: Entry, intrinsics: list[Entry]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    height, width = content["imH"].whole(), content["imW"].whole()
    values = np.stack([entry.numbers(3, 3) for entry in intrinsics])

    def pinhole() -> CameraModel:
        differing = (values != values[0]).any(axis=(1, 2))
        if differing.any():
            raise NoLens(
                f"{intrinsics[int(np.argmax(differing))].place} differs from {intrinsics[0].place}, and poses here "
                "share one lens"
            )
        matrix = values[0]
        if np.abs(matrix[[0, 1, 2, 2, 2], [1, 0, 0, 1, 2]] - [0, 0, 0, 0, 1]).max() > 1e-9:
            raise NoLens(f"{intrinsics[0].place} is no matrix fx 0 cx, 0 fy cy, 0 0 1")
        # These are RealEstate10K's fractions of the image times its size, so they count from the image's corner.
        return Pinhole(
            fx=float(matrix[0, 0]),
            fy=float(matrix[1, 1]),
            cx=float(matrix[0, 2]),
            cy=float(matrix[1, 2]),
            width=width,
            height=height,
            pixel_origin="corner",
        )

    return lens_or_note(pinhole)


def write_ac3d(poses: Poses, camera: dict[str, Any] | None) -> bytes:
    """The same with every digit; poses in metres say so by a metric_scale of 1. Times are lost.

    Raises:
        ValueError: without a lens, or with one that is no pinhole.
    """
    lens = lens_to_write("ac3d", camera, pixel_origin="corner")
    if not isinstance(lens, Pinhole):
        raise ValueError("format 'ac3d' holds pinholes alone; got another lens. Undistort the images first.")
    R_cam_world = poses.R_world_cam.mT.numpy()
    offsets = offsets_of_centers(R_cam_world, poses.center_world.numpy())
    matrices = np.concatenate([R_cam_world, offsets[:, :, None]], axis=2).tolist()
    plain = lens.to_dict()
    matrix = [[plain["fx"], 0.0, plain["cx"]], [0.0, plain["fy"], plain["cy"]], [0.0, 0.0, 1.0]]
    content: dict[str, Any] = {
        "imH": lens.height,
        "imW": lens.width,
        "intrinsics": [matrix] * len(poses),
        "w2c": matrices,
    }
    if poses.unit == "m":
        content["metric_scale"] = 1.0
    return (json.dumps(content, indent=1) + "\n").encode()


def recognise_ac3d(path: Path) -> str | None:
    """JSON with imH and imW, which no other format has."""
    text = json_glimpse(path)
    found = all(f'"{key}"' in text for key in ("imH", "imW", "intrinsics"))
    return "JSON with imH, imW and intrinsics" if found else None


FORMATS = {
    "ac3d": PoseFormat(
        about="AC3D's camera_info JSON: imH, imW, intrinsics in pixels, w2c; metres where it has a metric_scale",
        read=read_ac3d,
        write=write_ac3d,
        recognise=recognise_ac3d,
        direction="world-to-camera",
    ),
}
