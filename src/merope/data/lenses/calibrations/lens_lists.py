"""Lenses in JSON: this project's own, and UCPE's lists of fields of view."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merope.cameras import UnifiedCamera
from merope.data.lenses.calibrations.documents import document_or_none, entry, number, read_document
from merope.data.lenses.calibrations.raw import (
    Calibration,
    CalibrationError,
    CalibrationFormat,
    CalibrationRequest,
)
from merope.data.lenses.files import read_lens
from merope.errors import MeropeError


def read_merope(path: Path, request: CalibrationRequest) -> Calibration:
    """This project's JSON, as `CameraModel.to_dict` gives it; it states its pixel origin."""
    request.choose(path, [""])
    try:
        lens = read_lens(path)
    except RecursionError:
        raise CalibrationError(f"{path} is no lens: it is nested too deeply.") from None
    except MeropeError as error:
        raise CalibrationError(str(error)) from None
    request.size(path, (lens.height, lens.width))
    return Calibration(lens=lens, name="")


def read_ucpe(path: Path, request: CalibrationRequest) -> Calibration:
    """An entry of UCPE's lists, by its number: x_fov, the horizontal field of view in degrees, and xi of a unified camera.

    Square pixels, the axis in the raster's middle, pixels counted from the raster's corner.
    """
    entries = _entries(read_document(path))
    if not entries:
        raise CalibrationError(f"{path} has no entries with x_fov and xi.")
    index = request.choose(path, [str(index) for index in entries])
    lens = entries[int(index)]
    fov_x_deg, xi = (
        number(path, f"entry {index}, {name}", entry(path, lens, name)) for name in ("x_fov", "xi")
    )
    height, width = request.size(path)
    return Calibration(
        lens=UnifiedCamera.from_fov(
            fov_x_deg=fov_x_deg, xi=xi, height=height, width=width, pixel_origin="corner"
        ),
        name=index,
    )


def _entries(content: Any) -> dict[int, Any]:
    """The entries that have a lens, by their number in the list; a single object is entry 0."""
    listed = content if isinstance(content, list) else [content]
    return {
        i: item
        for i, item in enumerate(listed)
        if isinstance(item, Mapping) and {"x_fov", "xi"} <= item.keys()
    }


def _recognise_merope(path: Path) -> str | None:
    content = document_or_none(path)
    if isinstance(content, dict) and isinstance(content.get("model"), str) and "pixel_origin" in content:
        return f"a {content['model']} lens with its pixel_origin"
    return None


def _recognise_ucpe(path: Path) -> str | None:
    entries = _entries(document_or_none(path))
    return f"{len(entries)} entries with x_fov and xi" if entries else None


FORMATS = {
    "merope": CalibrationFormat(
        about="this project's lens JSON, CameraModel.to_dict",
        read=read_merope,
        recognise=_recognise_merope,
    ),
    "ucpe": CalibrationFormat(
        about="UCPE's JSON list of entries with x_fov (degrees) and xi, by number; needs height and width",
        read=read_ucpe,
        recognise=_recognise_ucpe,
    ),
}
