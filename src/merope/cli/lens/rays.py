"""``merope lens rays``: the rays of pixels, as text."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from merope.cli.lens_options import Calibration
from merope.cli.usage import UsageError


def rays(
    file: Annotated[Path, tyro.conf.Positional],
    *,
    format: Calibration | None = None,
    camera: str | None = None,
    height: int | None = None,
    width: int | None = None,
    columns: int = 9,
    rows: int = 9,
    pixel: tuple[tuple[float, float], ...] = (),
    pixels: Path | None = None,
    pixel_origin: Literal["center", "corner"] = "center",
) -> None:
    """Print the rays of pixels as CSV: u, v and the unit ray x, y, z in the camera's axes (x right, y down, z forward).

    By default on a grid from the centre of the first pixel to that of the last. A pixel without a ray has no line; how many
    there were is said on the error stream.

    Args:
        file: Calibration file. docs/lenses.md lists the formats.
        format: Its format; without it the file must look like exactly one.
        camera: Which camera, in a file of several.
        height: Height of the calibrated images in pixels, where the file does not say it.
        width: Width of the calibrated images in pixels, where the file does not say it.
        columns: Columns of the grid.
        rows: Rows of the grid.
        pixel: Pixels in place of the grid: u v u v ...
        pixels: CSV file with u,v first in each line, in place of the grid; a heading is left out.
        pixel_origin: Where pixel (0, 0) is, of the pixels given and printed: the centre of the first pixel, or the raster's
            corner.
    """
    if pixel and pixels is not None:
        raise UsageError("--pixel and --pixels both name the pixels; leave one out.")
    import torch

    from merope.data.lenses.calibration_files import read_calibration
    from merope.data.lenses.facts import pixel_grid, read_pixels

    lens = read_calibration(file, format=format, camera=camera, height=height, width=width)
    lens = lens.with_pixel_origin(pixel_origin)
    if pixel:
        places = torch.tensor(pixel, dtype=torch.float64)
    elif pixels is not None:
        places = read_pixels(pixels)
    else:
        places = pixel_grid(lens, columns=columns, rows=rows)
    dirs_cam, valid = lens.unproject(places)
    print("u,v,x,y,z")
    for row in torch.cat((places, dirs_cam), -1)[valid].tolist():
        print(",".join(f"{value:.12g}" for value in row))
    missing = int((~valid).sum())
    if missing:
        print(f"{missing} of {len(places)} pixels have no ray in this lens", file=sys.stderr)
