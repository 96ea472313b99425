"""Lenses in and out of pose files: one lens for all frames, or a sentence that says why there is none."""

from collections.abc import Callable
from typing import Any

from merope.cameras import CameraModel
from merope.cameras.base import PixelOrigin


class NoLens(Exception):
    """Why a file's description of its camera cannot be a lens here."""


def lens_or_note(make: Callable[[], CameraModel]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The lens as RawPoses carries it, or None and the sentence that says why; a wrong lens does not cost the poses.

    ``make`` raises `NoLens`, or the ValueError of a lens that refuses its parameters.
    """
    try:
        return make().to_dict(), ()
    # Numbers of any size reach the lens's own arithmetic.
    except (NoLens, ValueError, OverflowError, RuntimeError) as reason:
        return None, (f"the file's lens is left out: {reason}",)


def lens_to_write(format: str, camera: dict[str, Any] | None, *, pixel_origin: PixelOrigin) -> CameraModel:
    """The lens that a writer was given, counted from the format's pixel origin; for a format that cannot do without.

    Raises:
        ValueError: if there is none, or the description is no lens, or is one per frame.
    """
    if camera is None:
        raise ValueError(
            f"format {format!r} needs a lens and none was given. Pass camera=CameraModel.to_dict() to write_poses "
            "(merope poses convert: --lens FILE)."
        )
    lens = CameraModel.from_dict(camera)
    if lens.view_shape:
        raise ValueError(
            f"format {format!r} is written with one lens for all frames; this one has parameters of shape "
            f"{list(lens.view_shape)}."
        )
    return lens.with_pixel_origin(pixel_origin)
