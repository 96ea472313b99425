"""Motions of a data set from above, by source (Figure 4): how many clips pass through each place, as a picture of tints.

Lines of hundreds of thousands of clips would be one blot. So clips are counted in a raster, and only the raster is drawn:
the file stays small, also as SVG, and a corridor that most clips keep to stands out from the area that few of them sweep.
"""

# Numba infers the types of these functions at each call.
# ruff: noqa: ANN001
# mypy: disable-error-code="no-untyped-def"

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Int32
from numba import njit

from merope.evaluation.plots.canvas import COLORS, new_figure
from merope.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CORRIDOR = 3.5
"""Metres to either side, a lane's width, that a clip keeps within to count as going forward."""
# Cells along the longer side of the picture.
_CELLS = 640
# Share of clips that may leave the picture on each of its sides.
_OUTSIDE = 0.002
# Inches of the longer side of one map.
_MAP = 5.6
# Inches that one column of the legend takes, of the names that sources have.
_LEGEND = 4.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Motions:
    """What the clips of one source do."""

    count: int
    """Clips."""
    lateral: float
    """Share of them that leave the corridor ahead: turns, and manoeuvres to the side."""

    def __str__(self) -> str:
        return f"{self.count:,} clips, {100 * self.lateral:.0f} % leave the corridor ahead"


def motions_by_source(
    paths: Float32[np.ndarray, "path point 3"], sources: Sequence[str], *, corridor: float = CORRIDOR
) -> dict[str, Motions]:
    """Clips of each source, and the share that goes further than ``corridor`` to a side of the first camera."""
    names = np.asarray(sources)
    leaves = np.abs(paths[:, :, 0]).max(axis=1) > corridor
    return {
        str(name): Motions(count=int((names == name).sum()), lateral=float(leaves[names == name].mean()))
        for name in np.unique(names)
    }


def plot_motions(
    path: str | Path,
    paths: Float32[np.ndarray, "path point 3"],
    sources: Sequence[str],
    *,
    unit: str = "m",
    corridor: float = CORRIDOR,
    title: str | None = None,
) -> dict[str, Motions]:
    """Draw motions from above: all sources in one map, then each by itself, equal metres on both axes.

    Every path starts at the first camera, which looks up the page; x is to its right, z ahead (OpenCV axes). A cell is
    the darker the more clips pass through it, on a logarithmic scale that runs from one clip to the most in any cell of
    that source. In the map of all it has the colour of the source of whose clips the larger share passes. Few clips (1 in
    500 on each side) may leave the picture. The format follows the ending of ``path`` (png, svg, pdf).

    Raises:
        ValueError: if there is no path, or not one source per path.
        MissingDependency: if matplotlib is not installed.
    """
    with atomic_path(path) as temporary:
        draw_motions(paths, sources, unit=unit, corridor=corridor, title=title).savefig(temporary, dpi=150)
    return motions_by_source(paths, sources, corridor=corridor)


def draw_motions(
    paths: Float32[np.ndarray, "path point 3"],
    sources: Sequence[str],
    *,
    unit: str = "m",
    corridor: float = CORRIDOR,
    title: str | None = None,
) -> "Figure":
    """The figure that `plot_motions` saves."""
    if len(paths) == 0 or len(paths) != len(sources):
        raise ValueError(
            f"each of at least one path needs its source; got {len(paths)} paths and {len(sources)} sources."
        )
    motions = motions_by_source(paths, sources, corridor=corridor)
    # Forward first, as colours go and from left to right.
    ordered = sorted(motions, key=lambda name: (motions[name].lateral, name))
    colors = {name: COLORS[place % len(COLORS)] for place, name in enumerate(ordered)}
    extent, cell = _view(paths)
    names = np.asarray(sources)
    counts = {name: _counts(paths[names == name], extent, cell) for name in ordered}
    pictures = {name: _tints(counts[name], colors[name]) for name in ordered}
    shown = {" and ".join(ordered): _mixed(counts, pictures), **pictures}
    width, height = extent[1] - extent[0], extent[3] - extent[2]
    scale = _MAP / max(width, height)
    # Not narrower than the legend.
    across = max(len(shown) * max(width * scale, 2.6) + 1.2, _LEGEND)
    figure = new_figure(across, height * scale + 1.5)
    # Maps keep their shape; the usual layout then cuts titles and writes the legend over labels.
    figure.set_layout_engine("compressed")
    maps = np.atleast_1d(figure.subplots(1, len(shown), sharex=True, sharey=True))
    for axes, (name, picture) in zip(maps, shown.items(), strict=True):
        axes.imshow(picture, extent=extent, origin="lower", interpolation="antialiased", zorder=2)
        _frame(axes, extent, corridor)
        axes.set_xlabel(f"right of the first camera ({unit})", fontsize=9)
        axes.set_title(name, fontsize=10)
    maps[0].set_ylabel(f"ahead of the first camera ({unit})", fontsize=9)
    _legend(figure, motions, colors, corridor, unit)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _view(paths: np.ndarray) -> tuple[tuple[float, float, float, float], float]:
    """Left, right, bottom and top of what is shown, and the side of a cell."""
    sides = []
    for axis in (0, 2):
        # Not of all clips: a few far out would leave the others a dot.
        low = np.quantile(paths[:, :, axis].min(axis=1), _OUTSIDE)
        high = np.quantile(paths[:, :, axis].max(axis=1), 1 - _OUTSIDE)
        sides.append([min(float(low), 0.0), max(float(high), 0.0)])
    spans = [high - low for low, high in sides]
    longest = max(*spans, 1e-3)
    out = []
    for (low, high), span in zip(sides, spans, strict=True):
        # A straight road is not drawn as a hair.
        pad = max(0.04 * longest, (0.3 * longest - span) / 2)
        out += [low - pad, high + pad]
    return (out[0], out[1], out[2], out[3]), max(out[1] - out[0], out[3] - out[2]) / _CELLS


def _counts(paths: np.ndarray, extent: tuple[float, float, float, float], cell: float) -> np.ndarray:
    """How many paths pass through each cell, [row, column] from the bottom left."""
    columns = max(1, round((extent[1] - extent[0]) / cell))
    rows = max(1, round((extent[3] - extent[2]) / cell))
    counts = np.zeros((rows, columns), dtype=np.int32)
    latest = np.full((rows, columns), -1, dtype=np.int32)
    _count(np.ascontiguousarray(paths), extent[0], extent[2], cell, counts, latest)
    return counts


def _tints(counts: Int32[np.ndarray, "row column"], color: str) -> np.ndarray:
    """An RGBA picture: from a light tint for one clip, over the colour itself, to a dark shade for the most."""
    base = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    depth = np.log1p(counts) / np.log1p(max(int(counts.max()), 1))
    stops = np.array([0.0, 0.5, 1.0])
    ramp = np.stack([base + 0.45 * (1 - base), base, 0.35 * base])
    picture = np.ones((*counts.shape, 4))
    for channel in range(3):
        picture[..., channel] = np.interp(depth, stops, ramp[:, channel])
    picture[..., 3] = np.where(counts > 0, 0.4 + 0.6 * depth, 0.0)
    return picture


def _mixed(counts: Mapping[str, np.ndarray], pictures: Mapping[str, np.ndarray]) -> np.ndarray:
    """All sources in one picture: a cell has the colour of those of whose clips the larger share passes there."""
    shares = np.stack([own / max(int(own.max()), 1) for own in counts.values()])
    # Squared, so that a clear majority is not a mixture.
    weights = shares**2 / np.maximum((shares**2).sum(axis=0), 1e-12)
    stack = np.stack(list(pictures.values()))
    picture = (weights[..., None] * stack).sum(axis=0)
    picture[..., 3] = stack[..., 3].max(axis=0)
    return picture


def _frame(axes: Any, extent: tuple[float, float, float, float], corridor: float) -> None:
    axes.set_xlim(extent[0], extent[1])
    axes.set_ylim(extent[2], extent[3])
    axes.set_aspect("equal", adjustable="box")
    axes.grid(color="#e4e4e4", lw=0.6)
    axes.set_axisbelow(True)
    for side in (-corridor, corridor):
        axes.axvline(side, color="#444444", lw=0.7, ls=(0, (4, 3)), zorder=3)
    axes.plot(0, 0, color="#111111", marker="^", ms=7, ls="none", zorder=4)
    axes.tick_params(labelsize=8)


def _legend(
    figure: "Figure", motions: Mapping[str, Motions], colors: Mapping[str, str], corridor: float, unit: str
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=color, label=f"{name}: {motions[name]}") for name, color in colors.items()
    ]
    handles.append(
        Line2D(
            [], [], color="#444444", lw=0.8, ls=(0, (4, 3)), label=f"corridor, {corridor:g} {unit} to a side"
        )
    )
    handles.append(
        Line2D([], [], color="#111111", marker="^", ls="none", label="first camera, looking up the page")
    )
    columns = 2 if figure.get_figwidth() >= 1.5 * _LEGEND else 1
    figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=8.5, ncols=columns)


@njit(cache=True, nogil=True, error_model="numpy")
def _count(paths, left, bottom, cell, counts, latest):
    """Walk along each path in steps of less than half a cell; a path counts once in a cell however often it comes back."""
    rows, columns = counts.shape
    for path in range(paths.shape[0]):
        for point in range(paths.shape[1]):
            before = max(point - 1, 0)
            x0, z0 = np.float64(paths[path, before, 0]), np.float64(paths[path, before, 2])
            dx, dz = paths[path, point, 0] - x0, paths[path, point, 2] - z0
            # No more than it takes to cross the picture.
            steps = min(int(2.0 * max(abs(dx), abs(dz)) / cell) + 1, 4 * (rows + columns))
            for step in range(1, steps + 1):
                column = np.floor((x0 + dx * step / steps - left) / cell)
                row = np.floor((z0 + dz * step / steps - bottom) / cell)
                if 0 <= row < rows and 0 <= column < columns:
                    i, j = int(row), int(column)
                    if latest[i, j] != path:
                        latest[i, j] = path
                        counts[i, j] += 1
