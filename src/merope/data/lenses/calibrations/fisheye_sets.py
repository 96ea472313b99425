"""Calibrations of fisheye data sets and tools: WoodScape, py-OCamCalib, RDS-HQ (f-theta and pinhole), Aria.

All of them count pixels from the centre of the first one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merope.cameras import CameraModel, Fisheye624, FTheta, OCam, Pinhole, RadialPolynomial
from merope.data.lenses.calibrations.documents import (
    array_or_none,
    document_or_none,
    entry,
    matrix_values,
    named,
    numbers,
    pixels,
    read_array,
    read_document,
    rigid,
    rigid_from_quaternion,
)
from merope.data.lenses.calibrations.raw import (
    Calibration,
    CalibrationError,
    CalibrationFormat,
    CalibrationRequest,
)


def read_woodscape(path: Path, request: CalibrationRequest) -> Calibration:
    """The one camera of a WoodScape file: a polynomial of the angle in pixels, and its place on the vehicle (ISO 8855)."""
    content = read_document(path)
    values = entry(path, content, "intrinsic")
    if entry(path, content, "intrinsic", "model") != "radial_poly":
        raise CalibrationError(
            f"{path}: the model must be 'radial_poly', got {values['model']!r:.60}: WoodScape has no other."
        )
    order = numbers(path, "intrinsic.poly_order", [values.get("poly_order", 4)], 1)
    if order != [4]:
        raise CalibrationError(f"{path}: poly_order must be 4, got {values['poly_order']!r:.60}.")
    name = str(content.get("name", ""))
    request.choose(path, [name])
    stated = (
        pixels(path, "intrinsic.height", entry(path, values, "height")),
        pixels(path, "intrinsic.width", entry(path, values, "width")),
    )
    height, width = request.size(path, stated)
    k1, k2, k3, k4, cx_offset, cy_offset, aspect_ratio = named(
        path, "intrinsic", values, "k1", "k2", "k3", "k4", "cx_offset", "cy_offset", "aspect_ratio"
    )
    T_vehicle_cam = None
    if "extrinsic" in content:
        xyzw = numbers(path, "extrinsic.quaternion", entry(path, content, "extrinsic", "quaternion"), 4)
        offset = numbers(path, "extrinsic.translation", entry(path, content, "extrinsic", "translation"), 3)
        T_vehicle_cam = rigid_from_quaternion(path, "extrinsic", xyzw, offset)
    return Calibration(
        lens=RadialPolynomial.from_pixels(
            k1_px=k1,
            k2_px=k2,
            k3_px=k3,
            k4_px=k4,
            cx=width / 2 - 0.5 + cx_offset,
            cy=height / 2 - 0.5 + cy_offset,
            height=height,
            width=width,
            pixel_origin="center",
            aspect_ratio=aspect_ratio,
        ),
        name=name,
        T_body_cam=T_vehicle_cam,
        body=None if T_vehicle_cam is None else "vehicle (x forward, y left, z up)",
    )


def read_ocam(path: Path, request: CalibrationRequest) -> Calibration:
    """The one camera of a py-OCamCalib file, which does not hold the image size."""
    content = read_document(path)
    coefficients = entry(path, content, "taylor_coefficient")
    name = str(content.get("camera_name", ""))
    request.choose(path, [name])
    height, width = request.size(path)
    stretch = matrix_values(path, "stretch_matrix", entry(path, content, "stretch_matrix"), 2, 2)
    lens = OCam.from_pixels(
        taylor_coefficient=numbers(path, "taylor_coefficient", coefficients, range(2, 8)),
        distortion_center=numbers(path, "distortion_center", entry(path, content, "distortion_center"), 2),
        stretch_matrix=[stretch[:2], stretch[2:]],
        height=height,
        width=width,
        pixel_origin="center",
    )
    return Calibration(lens=lens, name=name)


def read_rds_hq(path: Path, request: CalibrationRequest) -> Calibration:
    """A camera of RDS-HQ: f-theta [cx, cy, W, H, p0 .. p5, is_bw], or pinhole [fx, fy, cx, cy, W, H].

    is_bw 1: the angle is the polynomial of the radius in pixels; 0: the radius is the polynomial of the angle.
    """
    array = read_array(path)
    if array.shape not in ((11,), (6,)):
        raise CalibrationError(
            f"{path} must hold 11 numbers (f-theta) or 6 (pinhole), got shape {list(array.shape)}."
        )
    values = numbers(path, "the array", array.tolist(), len(array))
    request.choose(path, [path.stem])
    lens: CameraModel
    if len(values) == 6:
        fx, fy, cx, cy, across, down = values
        height, width = request.size(path, (pixels(path, "H", down), pixels(path, "W", across)))
        lens = Pinhole(fx=fx, fy=fy, cx=cx, cy=cy, height=height, width=width, pixel_origin="center")
    else:
        cx, cy, across, down, *polynomial, backward = values
        height, width = request.size(path, (pixels(path, "H", down), pixels(path, "W", across)))
        if backward not in (0, 1):
            raise CalibrationError(f"{path}: the last number, is_bw, must be 0 or 1, got {backward:g}.")
        lens = FTheta.from_pixels(
            polynomial,
            polynomial_of="radius" if backward else "angle",
            cx=cx,
            cy=cy,
            height=height,
            width=width,
            pixel_origin="center",
        )
    return Calibration(lens=lens, name=path.stem)


def read_aria(path: Path, request: CalibrationRequest) -> Calibration:
    """A camera of an Aria device, FISHEYE624 with its 15 parameters, and its place on the device."""
    cameras = entry(path, read_document(path), "cameras")
    if not isinstance(cameras, Mapping):
        raise CalibrationError(f"{path}: cameras must be an object with a name for each camera.")
    name = request.choose(path, [str(key) for key in cameras])
    camera = entry(path, cameras, name)
    model = entry(path, camera, "model")
    if model != "FISHEYE624":
        raise CalibrationError(f"{path}: {name} is {model!r:.60}; FISHEYE624 is read.")
    size = numbers(path, f"{name}.image_size_wh", entry(path, camera, "image_size_wh"), 2)
    width, height = (pixels(path, f"{name}.image_size_wh", side) for side in size)
    height, width = request.size(path, (height, width))
    parameters = numbers(path, f"{name}.projection_params", entry(path, camera, "projection_params"), 15)
    # Where the calibration holds, which is less than where the equations do.
    limits = {
        ours: named(path, name, camera, theirs)[0]
        for ours, theirs in (("valid_radius_px", "valid_radius_px"), ("max_theta", "max_solid_angle_rad"))
        if theirs in camera
    }
    T_device_cam = None
    if "T_device_camera" in camera:
        values = matrix_values(path, f"{name}.T_device_camera", camera["T_device_camera"], 4, 4)
        T_device_cam = rigid(path, f"{name}.T_device_camera", values)
    return Calibration(
        lens=Fisheye624.from_aria(parameters, height=height, width=width, pixel_origin="center", **limits),
        name=name,
        T_body_cam=T_device_cam,
        body=None if T_device_cam is None else "device",
    )


def _recognise_woodscape(path: Path) -> str | None:
    content = document_or_none(path)
    values = content.get("intrinsic") if isinstance(content, dict) else None
    return "intrinsic.model radial_poly" if _is(values, "model", "radial_poly") else None


def _recognise_ocam(path: Path) -> str | None:
    content = document_or_none(path)
    if isinstance(content, dict) and {"taylor_coefficient", "distortion_center"} <= content.keys():
        return "taylor_coefficient and distortion_center"
    return None


def _recognise_rds_hq(path: Path) -> str | None:
    array = array_or_none(path)
    if array is None or array.shape not in ((11,), (6,)):
        return None
    return f"an array of {len(array)} numbers, {'f-theta' if len(array) == 11 else 'pinhole'}"


def _recognise_aria(path: Path) -> str | None:
    content = document_or_none(path)
    cameras = content.get("cameras") if isinstance(content, dict) else None
    if not isinstance(cameras, dict):
        return None
    found = [name for name, camera in cameras.items() if _is(camera, "model", "FISHEYE624")]
    return f"FISHEYE624 cameras {', '.join(found)}" if found else None


def _is(content: Any, key: str, value: str) -> bool:
    return isinstance(content, dict) and content.get(key) == value


FORMATS = {
    "woodscape": CalibrationFormat(
        about="WoodScape's JSON: radial_poly; with the place on the vehicle",
        read=read_woodscape,
        recognise=_recognise_woodscape,
    ),
    "ocam": CalibrationFormat(
        about="py-OCamCalib's JSON: taylor_coefficient; needs height and width",
        read=read_ocam,
        recognise=_recognise_ocam,
    ),
    "rds-hq": CalibrationFormat(
        about="RDS-HQ's npy of 11 numbers (f-theta) or 6 (pinhole)",
        read=read_rds_hq,
        recognise=_recognise_rds_hq,
    ),
    "aria": CalibrationFormat(
        about="JSON of an Aria device: FISHEYE624 cameras; with the place on the device",
        read=read_aria,
        recognise=_recognise_aria,
    ),
}
