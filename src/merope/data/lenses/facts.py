"""A lens in numbers: fields of view, the share of pixels with a ray, and how far two lenses are apart."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras import CameraModel
from merope.data.lenses.calibrations.documents import read_lines
from merope.data.lenses.calibrations.raw import CalibrationError

# Places on the way from the principal point to an edge where a lens without a ray at the edge is looked at.
_STEPS = 1024
# Lenses that are inverted step by step take microseconds a pixel, and a raster has millions.
_GRID = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LensFacts:
    """A lens in numbers. Angles in degrees."""

    lens: dict[str, Any]
    """`CameraModel.to_dict`."""
    fov_x_deg: float
    """From the left to the right edge of the raster, along the row of the principal point."""
    fov_y_deg: float
    """From the upper to the lower edge, along the column of the principal point."""
    fov_diagonal_deg: float
    """Between opposite corners of the raster; the larger of both diagonals."""
    fov_x_centers_deg: float
    """The same from the centre of the first pixel to that of the last: half a pixel less at each end."""
    edges_without_ray: tuple[str, ...]
    """Which of horizontal, vertical, diagonal end where the lens does, not at the raster's edge."""
    share_with_ray: float
    """Share of the pixels whose centre has a ray, 0 to 1; by a grid of at most 256 x 256 of them."""
    max_off_axis_deg: float
    """Largest angle between the optical axis and the ray of a pixel's centre, on the same grid, corners included."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LensDifference:
    """Angles between the rays of two lenses at the same pixels, degrees."""

    median_deg: float
    max_deg: float
    pixel_at_max: tuple[float, float]
    """Where the largest angle is, in the first lens's pixel origin."""
    num_pixels: int
    """Pixels with a ray in both lenses, within the radius."""
    num_one_sided: int
    """Pixels within the radius with a ray in one lens alone; they are in none of the figures."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return asdict(self)


def lens_facts(lens: CameraModel) -> LensFacts:
    """Fields of view, coverage and reach of a lens that all views share.

    A field of view is the sum of the angles from the optical axis at both edges: beyond 180 degrees the angle between two
    rays would say less. For a crop that does not contain its principal point it is the angle between the rays. Where an edge
    has no ray, the last place before it that has one counts.

    Raises:
        ValueError: if the lens has parameters per view.
    """
    _require_one_lens(lens)
    first, last_u, last_v = _edges(lens)
    # A crop may not contain its principal point; then the nearest place of the raster stands in.
    cx = min(max(float(lens.cx), first), last_u)
    cy = min(max(float(lens.cy), first), last_v)
    corners = [(first, first), (last_u, last_v), (last_u, first), (first, last_v)]
    spans = {
        "horizontal": [_span(lens, (first, cy), (last_u, cy), (cx, cy))],
        "vertical": [_span(lens, (cx, first), (cx, last_v), (cx, cy))],
        "diagonal": [
            _span(lens, corners[0], corners[1], (cx, cy)),
            _span(lens, corners[2], corners[3], (cx, cy)),
        ],
    }
    centers = _span(lens, (first + 0.5, cy), (last_u - 0.5, cy), (cx, cy))
    rays, valid = lens.unproject(pixel_grid(lens))
    return LensFacts(
        lens=lens.to_dict(),
        fov_x_deg=spans["horizontal"][0][0],
        fov_y_deg=spans["vertical"][0][0],
        fov_diagonal_deg=max(angle for angle, _ in spans["diagonal"]),
        fov_x_centers_deg=centers[0],
        edges_without_ray=tuple(
            name for name, found in spans.items() if not all(whole for _, whole in found)
        ),
        share_with_ray=float(valid.double().mean()),
        max_off_axis_deg=float(torch.rad2deg(off_axis(rays[valid]).max())) if bool(valid.any()) else 0.0,
    )


def off_axis(dirs_cam: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch"]:
    """Angle from the optical axis, radians, exact near the axis and its back."""
    return torch.atan2(dirs_cam[..., :2].norm(dim=-1), dirs_cam[..., 2])


def pixel_grid(
    lens: CameraModel, *, columns: int | None = None, rows: int | None = None
) -> Float[Tensor, "pixel 2"]:
    """Evenly spaced places from the centre of the first pixel to that of the last, row by row, in the lens's pixel origin.

    Without ``columns`` or ``rows`` all of the raster's, but at most 256.

    Raises:
        ValueError: if there are no columns or rows.
    """
    columns = min(lens.width, _GRID) if columns is None else columns
    rows = min(lens.height, _GRID) if rows is None else rows
    if columns < 1 or rows < 1:
        raise ValueError(f"columns and rows must be at least 1, got {columns} and {rows}.")
    first = 0.5 if lens.pixel_origin == "corner" else 0.0
    u = torch.linspace(0, lens.width - 1, columns, dtype=torch.float64) + first
    v = torch.linspace(0, lens.height - 1, rows, dtype=torch.float64) + first
    return torch.stack(torch.meshgrid(u, v, indexing="xy"), -1).flatten(0, 1)


def compare_lenses(
    one: CameraModel,
    other: CameraModel,
    *,
    radius_px: float | None = None,
    columns: int | None = None,
    rows: int | None = None,
) -> LensDifference:
    """How far apart the rays of two lenses of one image size are, over a `pixel_grid`.

    With ``radius_px`` only over the pixels no further than that from the first lens's principal point. Whichever pixel
    origins the lenses count from, the same physical pixels are compared.

    Raises:
        ValueError: if the sizes differ, a lens has parameters per view, or no pixel has a ray in both.
    """
    for lens in (one, other):
        _require_one_lens(lens)
    if (one.height, one.width) != (other.height, other.width):
        raise ValueError(
            f"the lenses must be for images of one size; got height {one.height}, width {one.width} and height "
            f"{other.height}, width {other.width}. Bring one to the other's size with CameraModel.resize or crop."
        )
    pixels = pixel_grid(one, columns=columns, rows=rows)
    rays, valid = one.unproject(pixels)
    rays_other, valid_other = other.unproject(pixel_grid(other, columns=columns, rows=rows))
    within = torch.ones_like(valid)
    if radius_px is not None:
        center = torch.tensor([float(one.cx), float(one.cy)], dtype=torch.float64)
        within = (pixels - center).norm(dim=-1) <= radius_px
    both = valid & valid_other & within
    if not bool(both.any()):
        raise ValueError("no pixel has a ray in both lenses. A larger radius_px (--radius), or other lenses?")
    angles = angle_between(rays[both], rays_other[both])
    worst = int(angles.argmax())
    u, v = pixels[both][worst].tolist()
    return LensDifference(
        median_deg=float(torch.rad2deg(angles.quantile(0.5))),
        max_deg=float(torch.rad2deg(angles[worst])),
        pixel_at_max=(u, v),
        num_pixels=int(both.sum()),
        num_one_sided=int(((valid ^ valid_other) & within).sum()),
    )


def angle_between(
    one: Float[Tensor, "*batch 3"], other: Float[Tensor, "*batch 3"]
) -> Float[Tensor, "*batch"]:
    """Angle between vectors, radians, exact for small ones too."""
    return torch.atan2(torch.linalg.cross(one, other).norm(dim=-1), (one * other).sum(-1))


def _span(
    lens: CameraModel, start: tuple[float, float], end: tuple[float, float], middle: tuple[float, float]
) -> tuple[float, bool]:
    """Degrees between two places on the raster's edge by way of ``middle``, and whether both have a ray."""
    ends, whole = [], True
    for edge in (start, end):
        share = torch.linspace(0, 1, _STEPS + 1, dtype=torch.float64)[:, None]
        points = torch.tensor(middle).double() * (1 - share) + torch.tensor(edge).double() * share
        rays, valid = lens.unproject(points)
        last = _last_of_first_run(valid)
        whole = whole and last == _STEPS
        # Without any ray on the way, the placeholder of the first one: the axis.
        ends.append(rays[max(last, 0)])
    if not _inside(lens):
        # A part of an image that lies to one side of the axis sees less than half a turn.
        return math.degrees(float(angle_between(*ends))), whole
    return sum(math.degrees(float(off_axis(end))) for end in ends), whole


def _last_of_first_run(valid: Bool[Tensor, "step"]) -> int:
    """Index of the last True before the first False; -1 if there is none."""
    missing = (~valid).nonzero()
    return len(valid) - 1 if len(missing) == 0 else int(missing[0, 0]) - 1


def _edges(lens: CameraModel) -> tuple[float, float, float]:
    """The raster's outer edges: the first of both axes, the last column's and the last row's."""
    first = 0.0 if lens.pixel_origin == "corner" else -0.5
    return first, lens.width + first, lens.height + first


def _inside(lens: CameraModel) -> bool:
    first, last_u, last_v = _edges(lens)
    return first <= float(lens.cx) <= last_u and first <= float(lens.cy) <= last_v


def _require_one_lens(lens: CameraModel) -> None:
    if lens.view_shape:
        raise ValueError(
            f"the lens has parameters for each of {tuple(lens.view_shape)} views; take one view's lens."
        )


def read_pixels(path: str | Path) -> Float[Tensor, "pixel 2"]:
    """Pixels from the first two columns of a CSV file; a heading is left out, further columns are too.

    Raises:
        CalibrationError: if a line does not begin with two finite numbers, or there is none.
    """
    found: list[tuple[float, float]] = []
    for number, line in enumerate(read_lines(Path(path)), start=1):
        fields = line.split(",")
        try:
            u, v = float(fields[0]), float(fields[1])
            if not (math.isfinite(u) and math.isfinite(v)):
                raise ValueError
        except (ValueError, IndexError):
            if not line.strip() or (number == 1 and not found):
                continue
            raise CalibrationError(
                f"{path}, line {number} must begin with a pixel's u,v; got {line!r:.60}."
            ) from None
        found.append((u, v))
    if not found:
        raise CalibrationError(f"{path} holds no pixels; each line begins with u,v.")
    return torch.tensor(found, dtype=torch.float64)
