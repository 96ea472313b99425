"""Matrices and coefficients as OpenCV's FileStorage and ROS's camera_info write them.

OpenCV has two lenses with four coefficients, its standard and its fisheye model, and a FileStorage does not say which one
the numbers are of. So there are two formats, and where a file fits both the caller has to name one.
"""

from pathlib import Path
from typing import Any

from merope.cameras import CameraModel, KannalaBrandt, OpenCV, Pinhole
from merope.data.lenses.calibrations.documents import (
    document_or_none,
    intrinsic_matrix,
    matrix_values,
    numbers,
    pixels,
    read_document,
)
from merope.data.lenses.calibrations.raw import (
    Calibration,
    CalibrationError,
    CalibrationFormat,
    CalibrationRequest,
)

_MATRIX = ("camera_matrix", "Camera_Matrix", "cameraMatrix", "K")
_COEFFICIENTS = (
    "dist_coeffs",
    "distortion_coefficients",
    "Distortion_Coefficients",
    "distCoeffs",
    "distortion_coeffs",
    "D",
)
# Coefficients beyond the eighth are of thin prisms and a tilted sensor.
_STANDARD = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
_STATED_STANDARD = ("plumb_bob", "rational_polynomial")
_STATED_FISHEYE = ("equidistant", "fisheye")


def read_opencv(path: Path, request: CalibrationRequest) -> Calibration:
    """A pinhole behind radial-tangential distortion; 4, 5, 8, 12 or 14 coefficients, those beyond the eighth zero."""
    affine, values, raster, name = _read(path, request, (0, 4, 5, 8, 12, 14), _STATED_STANDARD)
    if any(values[8:]):
        raise CalibrationError(
            f"{path} has coefficients of thin prisms or a tilted sensor ({values[8:]}), which are not supported."
        )
    coefficients: dict[str, Any] = dict(zip(_STANDARD, values, strict=False))
    lens: CameraModel = OpenCV(**affine, **coefficients, **raster) if values else Pinhole(**affine, **raster)
    return Calibration(lens=lens, name=name)


def read_opencv_fisheye(path: Path, request: CalibrationRequest) -> Calibration:
    """OpenCV's fisheye model, which is Kannala-Brandt's with four coefficients."""
    affine, values, raster, name = _read(path, request, (4,), _STATED_FISHEYE)
    coefficients: dict[str, Any] = dict(zip(("k1", "k2", "k3", "k4"), values, strict=True))
    return Calibration(lens=KannalaBrandt(**affine, **coefficients, **raster), name=name)


def _read(
    path: Path, request: CalibrationRequest, counts: tuple[int, ...], stated_models: tuple[str, ...]
) -> tuple[dict[str, Any], list[float], dict[str, Any], str]:
    content = read_document(path)
    matrix = _first(content, _MATRIX)
    if matrix is None:
        raise CalibrationError(f"{path} has no entry {', '.join(_MATRIX)}.")
    model = content.get("distortion_model")
    if model is not None and model not in stated_models:
        raise CalibrationError(
            f"{path} says that its distortion_model is {model!r}; this format reads {' and '.join(stated_models)}. "
            "Name another: format='opencv' or 'opencv-fisheye' (--format)."
        )
    name = str(content.get("camera_name", ""))
    request.choose(path, [name])
    affine = intrinsic_matrix(path, "camera_matrix", matrix_values(path, "camera_matrix", matrix, 3, 3))
    values = _first(content, _COEFFICIENTS)
    values = [] if values is None else numbers(path, "the distortion", _flat(values), counts)
    height, width = request.size(path, _stated_size(path, content))
    return affine, values, {"width": width, "height": height, "pixel_origin": "center"}, name


def _first(content: Any, names: tuple[str, ...]) -> Any:
    found = [content[name] for name in names if name in content] if isinstance(content, dict) else []
    return found[0] if found else None


def _flat(values: Any) -> Any:
    """The list of a row, a column, or a matrix with "data"."""
    values = values.get("data") if isinstance(values, dict) else values
    if isinstance(values, list) and any(isinstance(value, list) for value in values):
        return [item for value in values for item in (value if isinstance(value, list) else [value])]
    return values


def _stated_size(path: Path, content: dict[str, Any]) -> tuple[int, int] | None:
    for width, height in (("image_width", "image_height"), ("image_Width", "image_Height")):
        if width in content and height in content:
            return pixels(path, height, content[height]), pixels(path, width, content[width])
    for name in ("resolution", "image_size"):
        if name in content:
            across, down = numbers(path, name, _flat(content[name]), 2)
            return pixels(path, name, down), pixels(path, name, across)
    return None


def _shape(path: Path) -> tuple[int, str | None] | None:
    """How many coefficients a file of this family has, and which model it states; None for another file."""
    content = document_or_none(path)
    if _first(content, _MATRIX) is None:
        return None
    values = _flat(_first(content, _COEFFICIENTS))
    count = 0 if values is None else len(values) if isinstance(values, list) else -1
    model = content.get("distortion_model")
    return count, None if model is None else str(model)


def _recognise_standard(path: Path) -> str | None:
    shape = _shape(path)
    if shape is None or shape[0] not in (0, 4, 5, 8, 12, 14) or shape[1] not in (None, *_STATED_STANDARD):
        return None
    return f"camera_matrix and {shape[0]} coefficients" + (f", {shape[1]}" if shape[1] else "")


def _recognise_fisheye(path: Path) -> str | None:
    shape = _shape(path)
    if shape is None or shape[0] != 4 or shape[1] not in (None, *_STATED_FISHEYE):
        return None
    return "camera_matrix and 4 coefficients" + (f", {shape[1]}" if shape[1] else "")


FORMATS = {
    "opencv": CalibrationFormat(
        about="OpenCV's FileStorage YAML or ROS's camera_info of the standard model: camera_matrix, k1 k2 p1 p2 k3 ...",
        read=read_opencv,
        recognise=_recognise_standard,
    ),
    "opencv-fisheye": CalibrationFormat(
        about="the same of OpenCV's fisheye model: camera_matrix, k1 k2 k3 k4",
        read=read_opencv_fisheye,
        recognise=_recognise_fisheye,
    ),
}
