"""COLMAP's sparse models: a folder of cameras and images, in text or binary files.

World-to-camera, quaternions w x y z, OpenCV camera axes, a scale of the reconstruction's own.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from merope.cameras import CameraModel
from merope.data.poses.formats import colmap_binary, colmap_text
from merope.data.poses.formats.choosing import chosen_camera
from merope.data.poses.formats.colmap_lenses import ColmapCamera, camera_to_write, lens_of
from merope.data.poses.formats.colmap_model import ColmapImage, ColmapModel
from merope.data.poses.formats.file_lens import NoLens, lens_or_note
from merope.data.poses.formats.inversion import offsets_of_centers
from merope.data.poses.formats.raw import PoseFormat, RawPoses
from merope.data.poses.formats.recognition import first_bytes, first_lines
from merope.data.poses.formats.stamped import matrices_of
from merope.data.poses.table import PoseFileError, ReadOptions
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion, quaternion_to_matrix

_MEANING = "images hold QW QX QY QZ"


def read_colmap(path: Path, options: ReadOptions) -> RawPoses:
    """The images of a model, sorted by name; those of one camera where the options name a CAMERA_ID.

    ``path`` is the folder, or its images.txt or images.bin where it has both.
    """
    images_file = _images_file(path)
    is_text = images_file.suffix == ".txt"
    images = sorted(
        (colmap_text if is_text else colmap_binary).read_images(images_file), key=lambda image: image.name
    )
    if not images:
        raise PoseFileError(f"{images_file} holds no images: none was registered.")
    for before, after in pairwise(images):
        if before.name == after.name:
            raise PoseFileError(
                f"{images_file}, {after.place} has the name {after.name!r} of {before.place}. Remove one."
            )
    if options.camera is not None:
        ids = sorted({image.camera for image in images})
        chosen = chosen_camera(path, options, [str(identity) for identity in ids])
        images = [image for image in images if str(image.camera) == chosen]
    places = tuple(image.place for image in images)
    quaternions = np.array([image.quaternion_wxyz for image in images])[:, [1, 2, 3, 0]]
    offsets = np.array([image.offset for image in images])
    if not np.isfinite(offsets).all():
        place = places[int(np.argmin(np.isfinite(offsets).all(axis=1)))]
        raise PoseFileError(
            f"{images_file}, {place} holds a value that is not finite. Remove images without a pose."
        )
    cameras_file = images_file.with_name("cameras" + images_file.suffix)
    if cameras_file.exists():
        cameras = (colmap_text if is_text else colmap_binary).read_cameras(cameras_file)
        camera, notes = lens_or_note(lambda: _shared_lens(cameras_file, cameras, images))
    else:
        camera, notes = None, (f"there is no lens: {cameras_file} does not exist",)
    return RawPoses(
        matrices=matrices_of(images_file, places, offsets, quaternions, meaning=_MEANING),
        places=places,
        names=tuple(image.name for image in images),
        camera=camera,
        notes=notes,
    )


def _images_file(path: Path) -> Path:
    if not path.is_dir():
        if path.name in ("images.txt", "images.bin"):
            return path
        raise PoseFileError(
            f"{path} is no model of COLMAP: name its folder, or the images.txt or images.bin in it."
        )
    found = [path / name for name in ("images.txt", "images.bin") if (path / name).exists()]
    if len(found) == 1:
        return found[0]
    if found:
        raise PoseFileError(f"{path} holds a model as text and as binary; name {found[0]} or {found[1]}.")
    below = sorted(
        str(file.parent) for pattern in ("*/images.*", "*/*/images.*") for file in path.glob(pattern)
    )
    hint = f" There are models in {', '.join(dict.fromkeys(below))}." if below else ""
    raise PoseFileError(f"{path} holds no images.txt and no images.bin.{hint}")


def _shared_lens(path: Path, cameras: dict[int, ColmapCamera], images: list[ColmapImage]) -> CameraModel:
    used: list[ColmapCamera] = []
    for image in images:
        if image.camera not in cameras:
            raise PoseFileError(f"{path} has no camera {image.camera}, which {image.name} was taken with.")
        used.append(cameras[image.camera])
        if used[-1] != used[0]:
            raise NoLens(
                f"{image.name} (camera {image.camera}) has another than {images[0].name} (camera {images[0].camera}), "
                "and poses here share one lens; camera=ID (--camera ID) takes the images of one camera"
            )
    return lens_of(used[0])


def _model(format: str, poses: Poses, camera: dict[str, Any] | None) -> ColmapModel:
    quaternions = matrix_to_quaternion(poses.R_world_cam.mT)
    offsets = offsets_of_centers(quaternion_to_matrix(quaternions).numpy(), poses.center_world.numpy())
    images = [
        ColmapImage(
            place=f"image {index}",
            identity=index + 1,
            quaternion_wxyz=(w, x, y, z),
            offset=tuple(offset),
            camera=1,
            name=f"frame_{index:05d}.png",
        )
        for index, ((x, y, z, w), offset) in enumerate(
            zip(quaternions.tolist(), offsets.tolist(), strict=True)
        )
    ]
    return ColmapModel({1: camera_to_write(format, camera)}, images)


def write_text(poses: Poses, camera: dict[str, Any] | None) -> dict[str, bytes]:
    """A model in text files, with every digit; times and unit are lost.

    Raises:
        ValueError: without a lens, or with one that COLMAP has not.
    """
    return colmap_text.write_model(_model("colmap", poses, camera))


def write_binary(poses: Poses, camera: dict[str, Any] | None) -> dict[str, bytes]:
    """The same in binary files."""
    return colmap_binary.write_model(_model("colmap-binary", poses, camera))


def recognise_text(path: Path) -> str | None:
    """A folder with images.txt and cameras.txt, or such a file with lines of ten fields."""
    if path.is_dir():
        found = (path / "images.txt").is_file() and (path / "cameras.txt").is_file()
        return "a folder with images.txt and cameras.txt" if found else None
    if path.name != "images.txt":
        return None
    rows = [line.split(maxsplit=9) for line in first_lines(path) if line.strip() and line[0] != "#"]
    return "COLMAP's images.txt" if rows and len(rows[0]) == 10 else None


def recognise_binary(path: Path) -> str | None:
    """A folder with images.bin and cameras.bin, or such a file that begins with a count and a rotation."""
    if path.is_dir():
        found = (path / "images.bin").is_file() and (path / "cameras.bin").is_file()
        return "a folder with images.bin and cameras.bin" if found else None
    return "COLMAP's images.bin" if path.name == "images.bin" and len(first_bytes(path, 72)) == 72 else None


FORMATS = {
    "colmap": PoseFormat(
        about="a folder of COLMAP's, cameras and images as .txt or .bin: world-to-camera, with its lens; written as text",
        read=read_colmap,
        write=write_text,
        recognise=recognise_text,
        options=("camera",),
        direction="world-to-camera",
    ),
    "colmap-binary": PoseFormat(
        about="the same, written as binary files",
        read=read_colmap,
        write=write_binary,
        recognise=recognise_binary,
        options=("camera",),
        direction="world-to-camera",
    ),
}
