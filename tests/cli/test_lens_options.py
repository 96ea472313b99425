"""Errors about a calibration file name the flags of the command that reads it."""

import pytest

from merope.cli.lens_options import flags_of_lens
from merope.data.lenses.calibration_files import CalibrationError, read_calibration
from merope.errors import MeropeError

_ROW = "707.0912 0 601.8873 0 0 707.0912 183.1104 0 0 0 1 0"


def test_errors_of_a_calibration_file_name_the_flags_of_the_command(tmp_path):
    calibration = tmp_path / "calib.txt"
    calibration.write_text(f"P0: {_ROW}\nP1: {_ROW}\n")
    renamed = {name: f"lens-{name}" for name in ("format", "camera", "height", "width")}
    with pytest.raises(MeropeError, match=r"\(--lens-camera P0\)"), flags_of_lens(renamed):
        read_calibration(calibration)
    with pytest.raises(CalibrationError, match=r"\(--lens-height, --lens-width\)"), flags_of_lens(renamed):
        read_calibration(calibration, camera="P0")
    with pytest.raises(MeropeError, match=r"\(--height, --width\)"), flags_of_lens({"camera": "lens-camera"}):
        read_calibration(calibration, camera="P0")
