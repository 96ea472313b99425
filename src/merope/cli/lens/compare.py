"""``merope lens compare``: how far apart the rays of two lenses are."""

from json import dumps
from pathlib import Path
from typing import Annotated

import tyro

from merope.cli.lens_options import Calibration


def compare(
    one: Annotated[Path, tyro.conf.Positional],
    other: Annotated[Path, tyro.conf.Positional],
    *,
    radius: float | None = None,
    format: Calibration | None = None,
    other_format: Calibration | None = None,
    camera: str | None = None,
    other_camera: str | None = None,
    height: int | None = None,
    width: int | None = None,
    columns: int | None = None,
    rows: int | None = None,
    json: bool = False,
) -> None:
    """Print the angle between the rays of two lenses at the same pixels: median and largest, over a grid of them.

    Args:
        one: Calibration file.
        other: Calibration file of the lens to compare with it, for images of the same size.
        radius: Only pixels this near, in pixels, to the first lens's principal point.
        format: Format of the first file; without it the file must look like exactly one.
        other_format: Format of the second file.
        camera: Which camera of the first file, and of the second unless --other-camera names another.
        other_camera: Which camera of the second file.
        height: Height of the calibrated images in pixels, where a file does not say it.
        width: Width of the calibrated images in pixels, where a file does not say it.
        columns: Columns of the grid, from the centre of the first pixel to that of the last; by default all, at most 256.
        rows: Rows of the grid; by default all, at most 256.
        json: Print one JSON object.
    """
    from merope.data.lenses.calibration_files import read_calibration
    from merope.data.lenses.facts import compare_lenses

    first = read_calibration(one, format=format, camera=camera, height=height, width=width)
    second = read_calibration(
        other, format=other_format, camera=other_camera or camera, height=height, width=width
    )
    found = compare_lenses(first, second, radius_px=radius, columns=columns, rows=rows)
    if json:
        print(dumps({"one": first.to_dict(), "other": second.to_dict(), **found.to_dict()}, indent=2))
        return
    where = "" if radius is None else f" within {radius:g} pixels of the principal point"
    u, v = found.pixel_at_max
    print(f"{first.model} and {second.model}, {found.num_pixels} pixels with a ray in both{where}")
    print(f"median   {found.median_deg:.4f} degrees")
    print(f"largest  {found.max_deg:.4f} degrees, at pixel ({u:g}, {v:g})")
    if found.num_one_sided:
        print(f"left out {found.num_one_sided} pixels with a ray in one lens alone")
