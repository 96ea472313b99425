"""Lenses from the calibration files of other programs and data sets: `read_calibration` and the registry of formats.

The formats themselves are in `calibrations`. Each lens says where its pixel (0, 0) is: the centre of the first pixel in all
of these formats but two, this project's own (which states it) and UCPE's (the raster's corner).
"""

from pathlib import Path

from merope.cameras import CameraModel
from merope.data.lenses.calibrations import (
    FORMATS,
    Calibration,
    CalibrationError,
    CalibrationFormat,
    CalibrationRequest,
)

__all__ = [
    "CALIBRATIONS",
    "Calibration",
    "CalibrationError",
    "CalibrationFormat",
    "CalibrationRequest",
    "load_calibration",
    "read_calibration",
    "recognise_calibration",
]

CALIBRATIONS = FORMATS
"""Every format by its name."""


def read_calibration(
    path: str | Path,
    *,
    format: str | None = None,
    camera: str | None = None,
    height: int | None = None,
    width: int | None = None,
) -> CameraModel:
    """The lens of one camera in a calibration file.

    ``format`` is a key of `CALIBRATIONS`; without it the file must look like exactly one of them. ``camera`` names one of a
    file with several. ``height`` and ``width`` are the size of the calibrated images, for formats that do not hold it.

    Raises:
        CalibrationError: if the file is missing, damaged, of another format or of more than one, does not have the camera,
            or holds no possible lens; or the image size is missing or another.
        MissingDependency: if the format needs an optional package.
        ValueError: if there is no format of this name.
    """
    return load_calibration(path, format=format, camera=camera, height=height, width=width).lens


def load_calibration(
    path: str | Path,
    *,
    format: str | None = None,
    camera: str | None = None,
    height: int | None = None,
    width: int | None = None,
) -> Calibration:
    """`read_calibration` with the camera's name, and its place on vehicle, IMU or device where the file has it."""
    path = Path(path)
    if not path.exists():
        raise CalibrationError(f"{path} does not exist.")
    if path.is_dir():
        raise CalibrationError(f"{path} is a folder; name the calibration file in it.")
    kind = CALIBRATIONS[_settled(path, format)]
    request = CalibrationRequest(camera=camera, height=height, width=width)
    try:
        return kind.read(path, request)
    # Numbers of any size reach the lens's own arithmetic.
    except (ValueError, TypeError, KeyError, OverflowError, RuntimeError) as error:
        raise CalibrationError(f"{path}: {error}") from None


def recognise_calibration(path: str | Path) -> dict[str, str]:
    """The formats that a file looks like, each with the reason in a few words."""
    found = {name: kind.recognise(Path(path)) for name, kind in CALIBRATIONS.items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def _settled(path: Path, format: str | None) -> str:
    if format is not None:
        if format not in CALIBRATIONS:
            offered = "; ".join(f"{name}: {kind.about}" for name, kind in CALIBRATIONS.items())
            raise ValueError(f"format must be one of {', '.join(CALIBRATIONS)}, got {format!r}. {offered}.")
        return format
    fitting = recognise_calibration(path)
    if len(fitting) == 1:
        return next(iter(fitting))
    if fitting:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in fitting.items())
        raise CalibrationError(
            f"{path} may be {' or '.join(fitting)} ({reasons}). Name one: format= (--format)."
        )
    raise CalibrationError(
        f"{path} looks like no calibration file that is known here. Name the format if it is one: format= (--format), "
        f"one of {', '.join(CALIBRATIONS)}."
    )
