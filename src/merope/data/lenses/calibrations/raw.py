"""What a reader of one calibration format hands over, and what a format is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from merope.cameras import CameraModel
from merope.errors import MeropeError


class CalibrationError(MeropeError):
    """A calibration file cannot be read as asked; the message names the file and what mends it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """One camera of a calibration file: its lens, and where it sits where the file says so."""

    lens: CameraModel
    name: str
    """The camera's name in the file; empty where the file holds one camera without a name."""
    T_body_cam: Float[Tensor, "4 4"] | None = None
    """Takes points from the camera's OpenCV axes to the body's own axes, metres, float64. None where the file has none."""
    body: str | None = None
    """What ``T_body_cam`` leads to, with its axes: "vehicle (x forward, y left, z up)", "imu", "camera P0"."""
    notes: tuple[str, ...] = ()
    """What a user should know of this file, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """What the caller adds to a file: which camera, and the image size that some formats leave out."""

    camera: str | None = None
    height: int | None = None
    width: int | None = None

    def choose(self, path: Path, names: Sequence[str]) -> str:
        """The name of the wanted camera; a file of one needs no choice.

        Raises:
            CalibrationError: if there are several and none is named, or the named one is not among them.
        """
        if not names:
            raise CalibrationError(f"{path} holds no camera.")
        if self.camera is None and len(names) == 1:
            return names[0]
        if self.camera not in names and list(names) == [""]:
            raise CalibrationError(
                f"{path} holds one camera, which has no name; got camera={self.camera!r}. Leave it out (--camera)."
            )
        if self.camera is None or self.camera not in names:
            wanted = "" if self.camera is None else f", none called {self.camera!r}"
            several = f"{len(names)} cameras" if len(names) > 1 else "one camera"
            raise CalibrationError(
                f"{path} holds {several}{wanted}: {', '.join(names)}. Name one: camera={names[0]!r} (--camera {names[0]})."
            )
        return self.camera

    def size(self, path: Path, stated: tuple[int, int] | None = None) -> tuple[int, int]:
        """Height and width of the images in pixels: the file's, else the caller's.

        Raises:
            CalibrationError: if neither says it, or they contradict each other.
        """
        given = None if self.height is None or self.width is None else (self.height, self.width)
        if stated is None:
            if given is None:
                raise CalibrationError(
                    f"{path} does not say how large the images are. Give both: height=, width= (--height, --width), in "
                    "pixels of the images that were calibrated."
                )
            return given
        if (self.height, self.width) != (None, None) and (
            (self.height or stated[0], self.width or stated[1]) != stated
        ):
            raise CalibrationError(
                f"{path} is for images of height {stated[0]}, width {stated[1]}; got height {self.height}, width "
                f"{self.width}. Leave them out, and bring the lens to another size with CameraModel.resize or crop."
            )
        return stated


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFormat:
    """A file format of lenses: how to recognise it, how to read it, and what its numbers mean by its definition."""

    about: str
    """What the file is and holds."""
    read: Callable[[Path, CalibrationRequest], Calibration]
    """The lens of one camera of a file. Raises CalibrationError for what is not this format or needs a choice: the message
    names the entry and what mends it."""
    recognise: Callable[[Path], str | None]
    """Why a file looks like this format, in a few words, or None; it never raises for what is none."""
