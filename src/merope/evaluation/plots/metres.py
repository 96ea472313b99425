"""Recovered against commanded metres: points, a line for each method, its slope and R^2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from merope.evaluation.plots.canvas import (
    add_legend,
    cycle,
    equal_metres,
    grid_lines,
    legend_handles,
    new_figure,
    plain_text,
)
from merope.evaluation.runs.run import ScoredRun
from merope.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The slope through commands of nearly one length is noise over nothing.
_SPREAD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A least-squares line of recovered on commanded metres, and the share of variance it explains."""

    slope: float
    intercept: float
    r_squared: float


def fit_line(commanded: Float[np.ndarray, "point"], recovered: Float[np.ndarray, "point"]) -> Line:
    """Ordinary least squares of recovered on commanded, with intercept; R^2 is 1 - residual / total variance.

    Raises:
        ValueError: below two points, or where all commanded values are the same.
    """
    x, y = np.asarray(commanded, dtype=np.float64), np.asarray(recovered, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise ValueError(
            f"commanded and recovered must be two lists of equal length >= 2, got {x.shape} and {y.shape}."
        )
    spread = ((x - x.mean()) ** 2).sum()
    if spread == 0:
        raise ValueError(
            "commanded metres are all the same: no line can be fitted. Vary the commanded scale."
        )
    slope = ((x - x.mean()) * (y - y.mean())).sum() / spread
    intercept = y.mean() - slope * x.mean()
    total = ((y - y.mean()) ** 2).sum()
    residual = ((y - slope * x - intercept) ** 2).sum()
    return Line(
        slope=float(slope),
        intercept=float(intercept),
        r_squared=float(1 - residual / total) if total > 0 else 0.0,
    )


def plot_metres(
    path: str | Path,
    commanded: Mapping[str, Sequence[float]],
    recovered: Mapping[str, Sequence[float]],
    *,
    title: str | None = None,
    quantity: str = "distance travelled",
) -> dict[str, Line]:
    """Scatter recovered against commanded metres, one colour per label, each with its line, slope and R^2.

    The thin grey line is the ideal: one metre out for each metre in. Returns the fitted lines by label.

    Raises:
        ValueError: if the labels differ, or a line cannot be fitted.
        MissingDependency: if matplotlib is not installed.
    """
    if commanded.keys() != recovered.keys():
        raise ValueError(f"labels must agree, got {sorted(commanded)} and {sorted(recovered)}.")
    lines = {
        label: fit_line(np.asarray(commanded[label]), np.asarray(recovered[label])) for label in commanded
    }
    colors = dict(zip(commanded, cycle(len(commanded)), strict=True))
    figure = draw_metres(commanded, recovered, colors, title=title, quantity=quantity)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    return lines


def draw_metres(
    commanded: Mapping[str, Sequence[float]],
    recovered: Mapping[str, Sequence[float]],
    colors: Mapping[str, str],
    *,
    title: str | None = None,
    quantity: str = "distance travelled",
) -> "Figure":
    """The figure that `plot_metres` saves. Points alone where all commands are within a tenth: no line is drawn there."""
    figure = new_figure(5.2, 5.2)
    axes = figure.add_subplot()
    values = [value for side in (commanded, recovered) for points in side.values() for value in points]
    low, high = min(0.0, *values), max(values)
    axes.plot([low, high], [low, high], color="#999999", lw=1, label="1 m out per metre in")
    for label, points in commanded.items():
        x, y = np.asarray(points, dtype=np.float64), np.asarray(recovered[label], dtype=np.float64)
        color, text = colors[label], label
        if len(x) >= 2 and float(np.ptp(x)) > _SPREAD * float(np.abs(x).max()):
            line = fit_line(x, y)
            text = f"{text}: slope {line.slope:.3f}, R² {line.r_squared:.3f}"
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, line.slope * ends + line.intercept, color=color, lw=1.4, ls="--")
        axes.scatter(x, y, s=22, color=color, alpha=0.75, linewidths=0, label=text)
    equal_metres(axes)
    axes.set_xlabel(f"commanded {quantity} (m)")
    axes.set_ylabel(f"recovered {quantity} (m)")
    grid_lines(axes)
    # Below the axes: labels may be long, and points lie along the diagonal or anywhere.
    add_legend(figure, legend_handles(axes), length=60)
    if title:
        axes.set_title(plain_text(title, 60), fontsize=11)
    return figure


def metres_of(run: ScoredRun) -> tuple[list[float], list[float]]:
    """Path lengths, commanded and recovered, of a run's clips that are metric on both sides; of no others."""
    pairs = [
        (float(clip.commanded.path_length), float(clip.recovered.poses.path_length))
        for clip in run.clips
        if clip.recovered is not None and clip.recovered.scale == "metric" and clip.commanded.unit == "m"
    ]
    return [commanded for commanded, _ in pairs], [recovered for _, recovered in pairs]
