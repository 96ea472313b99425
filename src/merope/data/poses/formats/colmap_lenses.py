"""COLMAP's camera models and the lenses that are the same. COLMAP counts pixels from the image's corner."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from merope.cameras import (
    CameraModel,
    Equirectangular,
    ExtendedUnified,
    Fisheye624,
    KannalaBrandt,
    OpenCV,
    Pinhole,
)
from merope.data.poses.formats.file_lens import NoLens, lens_to_write


@dataclass(frozen=True, slots=True)
class ColmapCamera:
    """A line of cameras.txt."""

    model: str
    width: int
    height: int
    params: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Model:
    number: int
    """Its number in binary files."""
    params: tuple[str, ...]
    lens: Callable[..., CameraModel] | None = None
    """Made from parameters of these names; None where there is none here."""


_ONE_FOCAL, _TWO_FOCAL = ("f", "cx", "cy"), ("fx", "fy", "cx", "cy")
_FOUR = ("k1", "k2", "k3", "k4")
_MODELS = {
    "SIMPLE_PINHOLE": _Model(0, _ONE_FOCAL, Pinhole),
    "PINHOLE": _Model(1, _TWO_FOCAL, Pinhole),
    "SIMPLE_RADIAL": _Model(2, (*_ONE_FOCAL, "k1"), OpenCV),
    "RADIAL": _Model(3, (*_ONE_FOCAL, "k1", "k2"), OpenCV),
    "OPENCV": _Model(4, (*_TWO_FOCAL, "k1", "k2", "p1", "p2"), OpenCV),
    "OPENCV_FISHEYE": _Model(5, (*_TWO_FOCAL, *_FOUR), KannalaBrandt),
    "FULL_OPENCV": _Model(6, (*_TWO_FOCAL, "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"), OpenCV),
    "FOV": _Model(7, (*_TWO_FOCAL, "omega")),
    "SIMPLE_RADIAL_FISHEYE": _Model(8, (*_ONE_FOCAL, "k1"), KannalaBrandt),
    "RADIAL_FISHEYE": _Model(9, (*_ONE_FOCAL, "k1", "k2"), KannalaBrandt),
    "THIN_PRISM_FISHEYE": _Model(10, (*_TWO_FOCAL, "k1", "k2", "p1", "p2", "k3", "k4", "sx1", "sy1")),
    "RAD_TAN_THIN_PRISM_FISHEYE": _Model(
        11,
        (*_TWO_FOCAL, *(f"k{index}" for index in range(6)), "p0", "p1", *(f"s{index}" for index in range(4))),
        Fisheye624,
    ),
    "SIMPLE_DIVISION": _Model(12, (*_ONE_FOCAL, "k")),
    "DIVISION": _Model(13, (*_TWO_FOCAL, "k")),
    "SIMPLE_FISHEYE": _Model(14, _ONE_FOCAL, KannalaBrandt),
    "FISHEYE": _Model(15, _TWO_FOCAL, KannalaBrandt),
    "EUCM": _Model(16, (*_TWO_FOCAL, "alpha", "beta"), ExtendedUnified),
    "EQUIRECTANGULAR": _Model(17, ("w", "h")),
}
NUMBERS = {model.number: name for name, model in _MODELS.items()}
"""Names of the models by their numbers in binary files."""


def num_params(model: str) -> int | None:
    """How many parameters a model has; None where it is unknown."""
    return len(_MODELS[model].params) if model in _MODELS else None


def model_number(model: str) -> int:
    """The number of a model in binary files."""
    return _MODELS[model].number


def lens_of(camera: ColmapCamera) -> CameraModel:
    """The lens of a camera.

    Raises:
        NoLens: if there is none for this model.
        ValueError: if the lens refuses its parameters.
    """
    model = _MODELS.get(camera.model)
    if camera.model == "EQUIRECTANGULAR":
        return _panorama(camera)
    if model is None or model.lens is None:
        raise NoLens(f"there is no lens here for COLMAP's model {camera.model[:40]}")
    values = dict(zip(model.params, camera.params, strict=True))
    if "f" in values:
        values["fx"] = values["fy"] = values.pop("f")
    return model.lens(**values, width=camera.width, height=camera.height, pixel_origin="corner")


def _panorama(camera: ColmapCamera) -> CameraModel:
    if camera.params != (camera.width, camera.height):
        raise NoLens(
            f"its EQUIRECTANGULAR has parameters {camera.params}, which should be its size {camera.width} {camera.height}"
        )
    return Equirectangular.full_sphere(height=camera.height, width=camera.width)


def camera_to_write(format: str, camera: dict[str, Any] | None) -> ColmapCamera:
    """The camera of a lens.

    Raises:
        ValueError: if there is no lens, or COLMAP has none like it.
    """
    lens = lens_to_write(format, camera, pixel_origin="corner")
    name = _model_name(lens)
    if name is None:
        raise ValueError(
            f"format {format!r} has no camera model like {lens.model!r}; it has pinholes, OpenCV's lenses, the "
            "Kannala-Brandt and Project Aria's fisheye, the extended unified camera and whole panoramas."
        )
    values = {**lens.to_dict(), "w": lens.width, "h": lens.height}
    params = tuple(float(values[param]) for param in _MODELS[name].params)
    return ColmapCamera(name, lens.width, lens.height, params)


def _model_name(lens: CameraModel) -> str | None:
    if isinstance(lens, Pinhole):
        return "PINHOLE"
    if isinstance(lens, KannalaBrandt):
        return "OPENCV_FISHEYE"
    if isinstance(lens, OpenCV):
        values = lens.to_dict()
        return "FULL_OPENCV" if any(values[key] for key in ("k3", "k4", "k5", "k6")) else "OPENCV"
    if isinstance(lens, ExtendedUnified):
        return "EUCM"
    if isinstance(lens, Fisheye624):
        return "RAD_TAN_THIN_PRISM_FISHEYE"
    if isinstance(lens, Equirectangular):
        whole = Equirectangular.full_sphere(height=lens.height, width=lens.width)
        return "EQUIRECTANGULAR" if lens == whole else None
    return None
