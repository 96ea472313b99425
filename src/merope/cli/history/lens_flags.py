"""Flags that name the lens of a pose file which has none."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from merope.cli.lens_options import Calibration, flags_of_lens

if TYPE_CHECKING:
    from merope.cameras import CameraModel


@dataclass(frozen=True, kw_only=True)
class LensFlags:
    """A lens in a calibration file of any kind."""

    lens: Path | None = None
    """File with the lens, for pose files that hold none."""
    lens_format: Calibration | None = None
    """Format of that file; by default the one that it looks like. `merope lens info` lists them."""
    lens_camera: str | None = None
    """Which camera, in a lens file of several."""
    height: int | None = None
    """Rows of the frames, pixels, where the lens file does not say."""
    width: int | None = None
    """Columns of the frames, pixels, where the lens file does not say."""

    def given(self) -> "CameraModel | None":
        """The lens that was named, if any."""
        from merope.data.lenses.calibration_files import read_calibration

        if self.lens is None:
            return None
        with flags_of_lens({"format": "lens-format", "camera": "lens-camera"}):
            return read_calibration(
                self.lens,
                format=self.lens_format,
                camera=self.lens_camera,
                height=self.height,
                width=self.width,
            )
