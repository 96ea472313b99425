"""Calibrations that SLAM systems write: Kalibr, basalt, and camodocal (which VINS and KITTI-360 use).

All three count pixels from the centre of the first one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merope.cameras import (
    CameraModel,
    DoubleSphere,
    ExtendedUnified,
    KannalaBrandt,
    Mei,
    OpenCV,
    Pinhole,
    UnifiedCamera,
)
from merope.data.lenses.calibrations.documents import (
    document_or_none,
    entry,
    inverse,
    matrix_values,
    named,
    numbers,
    pixels,
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


def read_kalibr(path: Path, request: CalibrationRequest) -> Calibration:
    """A camera of Kalibr's camchain, with the IMU's place where the chain has it (T_cam_imu, or OpenVINS's T_imu_cam)."""
    content = read_document(path)
    name = request.choose(path, _kalibr_cameras(content))
    camera = content[name]
    width, height = (pixels(path, f"{name}.resolution", side) for side in _pair(path, camera, "resolution"))
    height, width = request.size(path, (height, width))
    kind = f"{camera.get('camera_model')}-{camera.get('distortion_model', 'none')}"
    # In the order of the file's intrinsics, all of which end in fu, fv, pu, pv.
    own = {"omni": ("xi",), "ds": ("xi", "alpha"), "eucm": ("alpha", "beta")}.get(kind.split("-")[0], ())
    values: dict[str, Any] = dict(
        zip(
            (*own, "fx", "fy", "cx", "cy"),
            numbers(path, f"{name}.intrinsics", entry(path, content, name, "intrinsics"), len(own) + 4),
            strict=True,
        )
    )
    raster: dict[str, Any] = {"width": width, "height": height, "pixel_origin": "center"}
    four = camera.get("distortion_coeffs", [])
    lens: CameraModel
    if kind == "pinhole-none":
        lens = Pinhole(**values, **raster)
    elif kind == "pinhole-radtan":
        lens = OpenCV(**values, **_coefficients(path, name, four, ("k1", "k2", "p1", "p2")), **raster)
    elif kind in ("pinhole-equidistant", "pinhole-equi"):
        lens = KannalaBrandt(**values, **_coefficients(path, name, four, ("k1", "k2", "k3", "k4")), **raster)
    elif kind == "omni-none":
        lens = UnifiedCamera(**values, **raster)
    elif kind == "omni-radtan":
        lens = Mei(**values, **_coefficients(path, name, four, ("k1", "k2", "p1", "p2")), **raster)
    elif kind == "ds-none":
        lens = DoubleSphere(**values, **raster)
    elif kind == "eucm-none":
        lens = ExtendedUnified(**values, **raster)
    else:
        raise CalibrationError(
            f"{path}: {name} is {kind}; of Kalibr's models pinhole-radtan, pinhole-equi, pinhole-none, omni-radtan, "
            "omni-none, ds-none and eucm-none are read."
        )
    T_imu_cam = None
    if "T_cam_imu" in camera:
        T_cam_imu = rigid(
            path, "T_cam_imu", matrix_values(path, f"{name}.T_cam_imu", camera["T_cam_imu"], 4, 4)
        )
        T_imu_cam = inverse(T_cam_imu)
    elif "T_imu_cam" in camera:
        T_imu_cam = rigid(
            path, "T_imu_cam", matrix_values(path, f"{name}.T_imu_cam", camera["T_imu_cam"], 4, 4)
        )
    return Calibration(lens=lens, name=name, T_body_cam=T_imu_cam, body=None if T_imu_cam is None else "imu")


def read_basalt(path: Path, request: CalibrationRequest) -> Calibration:
    """A camera of basalt's JSON, "cam0" and so on, with its place on the IMU."""
    content = entry(path, read_document(path), "value0")
    intrinsics = entry(path, content, "intrinsics")
    if not isinstance(intrinsics, list):
        raise CalibrationError(
            f"{path}: value0.intrinsics must be a list of cameras, got {intrinsics!r:.60}."
        )
    names = [f"cam{index}" for index in range(len(intrinsics))]
    index = names.index(request.choose(path, names))
    kind = entry(path, content, "intrinsics", index, "camera_type")
    values = entry(path, content, "intrinsics", index, "intrinsics")
    resolution = numbers(path, "resolution", entry(path, content, "resolution", index), 2)
    width, height = (pixels(path, "resolution", side) for side in resolution)
    height, width = request.size(path, (height, width))
    notes: tuple[str, ...] = ()
    raster: dict[str, Any] = {"width": width, "height": height, "pixel_origin": "center"}

    def read(*parameters: str) -> dict[str, Any]:
        names = ("fx", "fy", "cx", "cy", *parameters)
        found = named(path, f"intrinsics.{index}", values, *names)
        return dict(zip(names, found, strict=True)) | raster

    lens: CameraModel
    if kind == "ds":
        lens = DoubleSphere(**read("xi", "alpha"))
    elif kind == "eucm":
        lens = ExtendedUnified(**read("alpha", "beta"))
    elif kind == "ucm":
        lens = ExtendedUnified(**read("alpha"), beta=1.0)
    elif kind == "kb4":
        lens = KannalaBrandt(**read("k1", "k2", "k3", "k4"))
    elif kind == "pinhole":
        lens = Pinhole(**read())
    elif kind == "pinhole-radtan8":
        lens = OpenCV(**read("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"))
        if isinstance(values, Mapping) and "rpmax" in values:
            notes = ("The radius rpmax is left out: a lens here ends where its distortion folds.",)
    else:
        raise CalibrationError(
            f"{path}: {names[index]} is {kind!r}; of basalt's models ds, eucm, ucm, kb4, pinhole and pinhole-radtan8 are "
            "read."
        )
    T_imu_cam = None
    if "T_imu_cam" in content:
        place = entry(path, content, "T_imu_cam", index)
        xyzw = named(path, "T_imu_cam", place, "qx", "qy", "qz", "qw")
        T_imu_cam = rigid_from_quaternion(
            path, "T_imu_cam", xyzw, named(path, "T_imu_cam", place, "px", "py", "pz")
        )
    return Calibration(
        lens=lens,
        name=names[index],
        T_body_cam=T_imu_cam,
        body=None if T_imu_cam is None else "imu",
        notes=notes,
    )


def read_camodocal(path: Path, request: CalibrationRequest) -> Calibration:
    """The one camera of a camodocal file, whose model_type says which lens."""
    content = read_document(path)
    kind = entry(path, content, "model_type")
    name = str(content.get("camera_name", ""))
    request.choose(path, [name])
    width, height = (
        pixels(path, side, entry(path, content, side)) for side in ("image_width", "image_height")
    )
    height, width = request.size(path, (height, width))
    raster: dict[str, Any] = {"width": width, "height": height, "pixel_origin": "center"}

    def read(section: str, theirs: tuple[str, ...], ours: tuple[str, ...]) -> dict[str, Any]:
        return dict(zip(ours, named(path, section, entry(path, content, section), *theirs), strict=True))

    affine, radtan = ("fx", "fy", "cx", "cy"), ("k1", "k2", "p1", "p2")
    full = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")
    lens: CameraModel
    if kind == "PINHOLE":
        pinhole = read("projection_parameters", affine, affine)
        lens = OpenCV(**pinhole, **read("distortion_parameters", radtan, radtan), **raster)
    elif kind == "PINHOLE_FULL":
        pinhole = read("projection_parameters", affine, affine)
        lens = OpenCV(**pinhole, **read("distortion_parameters", full, full), **raster)
    elif kind == "MEI":
        sphere = read("mirror_parameters", ("xi",), ("xi",))
        plane = read("projection_parameters", ("gamma1", "gamma2", "u0", "v0"), affine)
        lens = Mei(**sphere, **plane, **read("distortion_parameters", radtan, radtan), **raster)
    elif kind == "KANNALA_BRANDT":
        theirs = ("mu", "mv", "u0", "v0", "k2", "k3", "k4", "k5")
        values = read("projection_parameters", theirs, (*affine, "k1", "k2", "k3", "k4"))
        lens = KannalaBrandt(**values, **raster)
    else:
        raise CalibrationError(
            f"{path}: model_type is {kind!r}; PINHOLE, PINHOLE_FULL, KANNALA_BRANDT and MEI are read."
        )
    return Calibration(lens=lens, name=name)


def _recognise_kalibr(path: Path) -> str | None:
    cameras = _kalibr_cameras(document_or_none(path))
    return f"{', '.join(cameras)} with camera_model and intrinsics" if cameras else None


def _recognise_basalt(path: Path) -> str | None:
    content = document_or_none(path)
    inner = content.get("value0") if isinstance(content, dict) else None
    cameras = inner.get("intrinsics") if isinstance(inner, dict) else None
    if isinstance(cameras, list) and all(isinstance(camera, dict) for camera in cameras):
        kinds = sorted({str(camera.get("camera_type")) for camera in cameras})
        return f"value0.intrinsics with camera_type {', '.join(kinds)}"
    return None


def _recognise_camodocal(path: Path) -> str | None:
    content = document_or_none(path)
    if isinstance(content, dict) and "model_type" in content and "projection_parameters" in content:
        return f"model_type {content['model_type']} with projection_parameters"
    return None


def _kalibr_cameras(content: Any) -> list[str]:
    if not isinstance(content, dict):
        return []
    return [
        name
        for name, camera in content.items()
        if isinstance(name, str)
        and isinstance(camera, dict)
        and {"camera_model", "intrinsics"} <= camera.keys()
    ]


def _pair(path: Path, camera: Any, name: str) -> list[float]:
    return numbers(path, name, entry(path, camera, name), 2)


def _coefficients(path: Path, name: str, values: Any, names: tuple[str, ...]) -> dict[str, Any]:
    found = numbers(path, f"{name}.distortion_coeffs", values, len(names))
    return dict(zip(names, found, strict=True))


FORMATS = {
    "kalibr": CalibrationFormat(
        about="Kalibr's camchain YAML (OpenVINS too): pinhole-radtan, pinhole-equi, omni, ds, eucm; with the IMU's place",
        read=read_kalibr,
        recognise=_recognise_kalibr,
    ),
    "basalt": CalibrationFormat(
        about="basalt's calibration JSON: ds, eucm, ucm, kb4, pinhole, pinhole-radtan8; with the IMU's place",
        read=read_basalt,
        recognise=_recognise_basalt,
    ),
    "camodocal": CalibrationFormat(
        about="camodocal's YAML, as VINS and KITTI-360 use it: MEI, KANNALA_BRANDT, PINHOLE, PINHOLE_FULL",
        read=read_camodocal,
        recognise=_recognise_camodocal,
    ),
}
