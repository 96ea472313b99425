"""Real calibrations, read plainly from their files; tests skip where these are missing."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from merope.cameras import (
    CameraModel,
    DoubleSphere,
    ExtendedUnified,
    Fisheye624,
    FTheta,
    KannalaBrandt,
    Mei,
    OCam,
    OpenCV,
    RadialPolynomial,
)
from tests.support.shared import shared_file

FOLDER = "data/fisheye"
CALIB = f"{FOLDER}/calib"


def numbers_after(text: str, key: str) -> list[float]:
    """The number, or the numbers in brackets, that follow ``key``."""
    found = re.search(rf"\b{key}:\s*(?:\[([^\]]*)\]|(\S+))", text)
    assert found, key
    return [float(number) for number in (found[1] or found[2]).split(",")]


def read_json(path: str) -> Any:
    return json.loads(shared_file(path).read_text())


def kannala_brandt(fx, fy, cx, cy, coefficients, *, height, width) -> CameraModel:
    named = dict(zip(("k1", "k2", "k3", "k4"), coefficients, strict=True))
    return KannalaBrandt(
        fx=fx, fy=fy, cx=cx, cy=cy, width=width, height=height, pixel_origin="center", **named
    )


def tumvi(model: str, camera: int) -> CameraModel:
    if model == "kb4":
        text = shared_file(f"{CALIB}/tumvi_kb4.yaml").read_text().split("cam1:")[camera]
        fx, fy, cx, cy = numbers_after(text, "intrinsics")
        return kannala_brandt(fx, fy, cx, cy, numbers_after(text, "distortion_coeffs"), height=512, width=512)
    lens = {"ds": DoubleSphere, "eucm": ExtendedUnified}[model]
    values = read_json(f"{CALIB}/tumvi_{model}.json")["value0"]["intrinsics"][camera]["intrinsics"]
    return lens(**values, width=512, height=512, pixel_origin="center")


def vi_car_pinhole() -> CameraModel:
    text = shared_file(f"{CALIB}/vi_car_cam0_pinhole.yaml").read_text()
    named = {key: numbers_after(text, key)[0] for key in ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2")}
    return OpenCV(**named, width=752, height=480, pixel_origin="center")


def mei(name: str) -> CameraModel:
    text = shared_file(f"{CALIB}/{name}.yaml").read_text()
    fx, fy, cx, cy = (numbers_after(text, key)[0] for key in ("gamma1", "gamma2", "u0", "v0"))
    named = {key: numbers_after(text, key)[0] for key in ("xi", "k1", "k2", "p1", "p2")}
    return Mei(fx=fx, fy=fy, cx=cx, cy=cy, width=752, height=480, pixel_origin="center", **named)


def surround_view_front() -> CameraModel:
    text = shared_file(f"{FOLDER}/surround_view_front.yaml").read_text()
    matrix, coefficients = (
        numbers_after(text.split(key)[1], "data") for key in ("camera_matrix", "dist_coeffs")
    )
    return kannala_brandt(matrix[0], matrix[4], matrix[2], matrix[5], coefficients, height=640, width=960)


def woodscape_front() -> CameraModel:
    values = read_json(f"{FOLDER}/woodscape_front.json")["intrinsic"]
    width, height = int(values["width"]), int(values["height"])
    return RadialPolynomial.from_pixels(
        **{f"k{i}_px": values[f"k{i}"] for i in (1, 2, 3, 4)},
        aspect_ratio=values["aspect_ratio"],
        cx=width / 2 - 0.5 + values["cx_offset"],
        cy=height / 2 - 0.5 + values["cy_offset"],
        width=width,
        height=height,
    )


def pyocam_fisheye_1() -> CameraModel:
    values = read_json(f"{FOLDER}/pyocam_fisheye_1.json")
    named = {key: values[key] for key in ("taylor_coefficient", "distortion_center", "stretch_matrix")}
    return OCam.from_pixels(**named, width=1032, height=778)


def f_theta(name: str) -> CameraModel:
    cx, cy, width, height, *coefficients, is_bw = np.load(
        shared_file(f"data/rds_hq/ftheta_{name}.npy"), allow_pickle=False
    ).tolist()
    return FTheta.from_pixels(
        coefficients,
        polynomial_of="radius" if is_bw else "angle",
        cx=cx,
        cy=cy,
        width=int(width),
        height=int(height),
    )


def aria(name: str) -> CameraModel:
    values = read_json(f"{FOLDER}/aria_adt/calibration.json")["cameras"][name]
    width, height = values["image_size_wh"]
    return Fisheye624.from_aria(
        values["projection_params"],
        width=width,
        height=height,
        valid_radius_px=values["valid_radius_px"],
        max_theta=values["max_solid_angle_rad"],
    )


# Names of the files of rays, and the lens that each was made for.
LENSES_OF_RAYS: dict[str, Callable[[], CameraModel]] = {
    "vi_car_cam0_pinhole": vi_car_pinhole,
    "vi_car_cam0_mei": lambda: mei("vi_car_cam0_mei"),
    "mynteye_left_mei": lambda: mei("mynteye_left_mei"),
    "tumvi_cam0_kb4": lambda: tumvi("kb4", 0),
    "tumvi_cam1_kb4": lambda: tumvi("kb4", 1),
    "tumvi_cam0_ds": lambda: tumvi("ds", 0),
    "tumvi_cam1_ds": lambda: tumvi("ds", 1),
    "tumvi_cam0_eucm": lambda: tumvi("eucm", 0),
    "tumvi_cam1_eucm": lambda: tumvi("eucm", 1),
    "surround_view_front": surround_view_front,
    "woodscape_front": woodscape_front,
    "pyocam_fisheye_1": pyocam_fisheye_1,
    "rds_hq_ftheta_front_wide_120fov": lambda: f_theta("front_wide_120fov"),
    "rds_hq_ftheta_cross_left_120fov": lambda: f_theta("cross_left_120fov"),
    "rds_hq_ftheta_front_tele_30fov": lambda: f_theta("front_tele_30fov"),
}
