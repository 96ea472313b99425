"""COLMAP's text files: cameras.txt and images.txt."""

import math
from pathlib import Path

from merope.data.poses.formats.colmap_lenses import ColmapCamera, num_params
from merope.data.poses.formats.colmap_model import ColmapImage, ColmapModel, Number
from merope.data.poses.table import PoseFileError, read_lines


def read_cameras(path: Path) -> dict[int, ColmapCamera]:
    """CAMERA_ID MODEL WIDTH HEIGHT PARAMS... a line."""
    cameras: dict[int, ColmapCamera] = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        place = f"{path}, line {number}"
        if len(fields) < 5:
            raise PoseFileError(
                f"{place} should be CAMERA_ID MODEL WIDTH HEIGHT PARAMS...; got {line[:60]!r}."
            )
        identity = _number(place, fields[0], int)
        wanted = num_params(fields[1])
        if wanted is not None and len(fields) != 4 + wanted:
            raise PoseFileError(f"{place}: {fields[1]} has {wanted} parameters, got {len(fields) - 4}.")
        if identity in cameras:
            raise PoseFileError(f"{place}: there is a camera {identity} already.")
        width, height = (_number(place, field, int) for field in fields[2:4])
        params = tuple(_number(place, field, float) for field in fields[4:])
        cameras[identity] = ColmapCamera(fields[1], width, height, params)
    return cameras


def read_images(path: Path) -> list[ColmapImage]:
    """Two lines an image: IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME, and its points in threes or nothing."""
    images: list[ColmapImage] = []
    lines = iter(enumerate(read_lines(path), start=1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"line {number}"
        fields = line.split(maxsplit=9)
        if len(fields) != 10:
            raise PoseFileError(
                f"{path}, {place} should be IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME; got {line[:60]!r}."
            )
        where = f"{path}, {place}"
        values = [_number(where, field, float) for field in fields[1:8]]
        images.append(
            ColmapImage(
                place=place,
                identity=_number(where, fields[0], int),
                quaternion_wxyz=tuple(values[:4]),
                offset=tuple(values[4:]),
                camera=_number(where, fields[8], int),
                name=fields[9].rstrip(),
            )
        )
        points = next(lines, (0, ""))
        if len(points[1].split()) % 3:
            raise PoseFileError(
                f"{path}, line {points[0]} should hold the points of {images[-1].name}, three numbers each, or nothing; got "
                f"{points[1][:60]!r}. Each image takes two lines, the second of which may be empty."
            )
    return images


def write_model(model: ColmapModel) -> dict[str, bytes]:
    """cameras.txt, images.txt and an empty points3D.txt."""
    cameras = ["# CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]"]
    for identity, camera in model.cameras.items():
        params = " ".join(map(repr, camera.params))
        cameras.append(f"{identity} {camera.model} {camera.width} {camera.height} {params}")
    images = [
        "# IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME",
        "# POINTS2D[] as X Y POINT3D_ID (none)",
    ]
    for image in model.images:
        numbers = " ".join(map(repr, (*image.quaternion_wxyz, *image.offset)))
        images += [f"{image.identity} {numbers} {image.camera} {image.name}", ""]
    points = ["# POINT3D_ID X Y Z R G B ERROR TRACK[]"]
    return {
        "cameras.txt": ("\n".join(cameras) + "\n").encode(),
        "images.txt": ("\n".join(images) + "\n").encode(),
        "points3D.txt": ("\n".join(points) + "\n").encode(),
    }


def _number(where: str, field: str, kind: type[Number]) -> Number:
    try:
        # What Python reads beyond that, 1_000 and the digits of other scripts, no writer of models means.
        if "_" in field or not field.isascii():
            raise ValueError(field)
        value = kind(field)
    except ValueError:
        wanted = "whole number" if kind is int else "number"
        raise PoseFileError(f"{where}: {field[:40]!r} is no {wanted}.") from None
    if kind is float and not math.isfinite(value):
        raise PoseFileError(f"{where} holds a value that is not finite. Remove images without a pose.")
    return value
