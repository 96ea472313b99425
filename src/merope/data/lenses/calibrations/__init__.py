"""Calibration file formats, a module for each family; `FORMATS` holds them all by name."""

from merope.data.lenses.calibrations import driving, fisheye_sets, lens_lists, opencv_yaml, slam
from merope.data.lenses.calibrations.raw import (
    Calibration,
    CalibrationError,
    CalibrationFormat,
    CalibrationRequest,
)

__all__ = ["FORMATS", "Calibration", "CalibrationError", "CalibrationFormat", "CalibrationRequest"]

FORMATS: dict[str, CalibrationFormat] = {
    **lens_lists.FORMATS,
    **slam.FORMATS,
    **opencv_yaml.FORMATS,
    **fisheye_sets.FORMATS,
    **driving.FORMATS,
}
