"""COLMAP's binary files: cameras.bin and images.bin, little-endian."""

import struct
from pathlib import Path
from typing import Any

from merope.data.poses.formats.colmap_lenses import NUMBERS, ColmapCamera, model_number, num_params
from merope.data.poses.formats.colmap_model import ColmapImage, ColmapModel
from merope.data.poses.table import PoseFileError, packed_bytes

_COUNT = struct.Struct("<Q")
_CAMERA = struct.Struct("<IiQQ")
_IMAGE = struct.Struct("<I7dI")
# A point of an image is x, y and the id of its 3D point.
_POINT_BYTES = 24


class _Reader:
    """Takes values off the front of a file's content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # As they are: a count of images can begin like a gzip file.
        self._content = packed_bytes(path)
        self._at = 0

    def take(self, layout: struct.Struct, place: str) -> tuple[Any, ...]:
        """The next values."""
        return layout.unpack(self._bytes(layout.size, place))

    def name(self, place: str) -> str:
        """The next text, which ends with a zero byte."""
        end = self._content.find(b"\0", self._at)
        if end < 0:
            raise self._cut(place)
        raw = self._bytes(end - self._at, place)
        self._at += 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise PoseFileError(f"{self.path}, {place}: the name is not UTF-8.") from None

    def skip(self, count: int, place: str) -> None:
        """Pass over bytes."""
        self._bytes(count, place)

    def end(self) -> None:
        """Refuse bytes that are left."""
        left = len(self._content) - self._at
        if left:
            raise PoseFileError(f"{self.path} has {left} bytes after its last entry: it is damaged.")

    def _bytes(self, count: int, place: str) -> bytes:
        if count > len(self._content) - self._at:
            raise self._cut(place)
        self._at += count
        return self._content[self._at - count : self._at]

    def _cut(self, place: str) -> PoseFileError:
        return PoseFileError(f"{self.path} ends within {place}: it is cut short, or no file of COLMAP.")


def read_cameras(path: Path) -> dict[int, ColmapCamera]:
    """Cameras by their ids."""
    reader = _Reader(path)
    (count,) = reader.take(_COUNT, "its count")
    cameras: dict[int, ColmapCamera] = {}
    for index in range(count):
        place = f"camera {index}"
        identity, number, width, height = reader.take(_CAMERA, place)
        name = NUMBERS.get(number)
        wanted = None if name is None else num_params(name)
        if name is None or wanted is None:
            # Without the count of its parameters nothing behind it can be found.
            raise PoseFileError(
                f"{path}, {place} has the unknown model {number}. Convert the model to text with COLMAP."
            )
        if identity in cameras:
            raise PoseFileError(f"{path}, {place}: there is a camera {identity} already.")
        params = reader.take(struct.Struct(f"<{wanted}d"), place)
        cameras[identity] = ColmapCamera(name, width, height, params)
    reader.end()
    return cameras


def read_images(path: Path) -> list[ColmapImage]:
    """The registered images."""
    reader = _Reader(path)
    (count,) = reader.take(_COUNT, "its count")
    images: list[ColmapImage] = []
    for index in range(count):
        place = f"image {index}"
        identity, *values, camera = reader.take(_IMAGE, place)
        name = reader.name(place)
        (num_points,) = reader.take(_COUNT, place)
        reader.skip(num_points * _POINT_BYTES, place)
        images.append(
            ColmapImage(
                place=place,
                identity=identity,
                quaternion_wxyz=tuple(values[:4]),
                offset=tuple(values[4:]),
                camera=camera,
                name=name,
            )
        )
    reader.end()
    return images


def write_model(model: ColmapModel) -> dict[str, bytes]:
    """cameras.bin, images.bin and a points3D.bin without points."""
    cameras = [_COUNT.pack(len(model.cameras))]
    for identity, camera in model.cameras.items():
        cameras.append(_CAMERA.pack(identity, model_number(camera.model), camera.width, camera.height))
        cameras.append(struct.pack(f"<{len(camera.params)}d", *camera.params))
    images = [_COUNT.pack(len(model.images))]
    for image in model.images:
        images.append(_IMAGE.pack(image.identity, *image.quaternion_wxyz, *image.offset, image.camera))
        images.append(image.name.encode() + b"\0" + _COUNT.pack(0))
    return {
        "cameras.bin": b"".join(cameras),
        "images.bin": b"".join(images),
        "points3D.bin": _COUNT.pack(0),
    }
