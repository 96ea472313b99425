"""Plots of trajectories: from above, and metres recovered against metres commanded. Files only, no display."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from merope.errors import MissingDependency
from merope.evaluation.metrics.paper import (
    Aligned,
    center_errors,
    is_static,
    least_squares_scale,
    rotation_errors_rad,
)
from merope.files import atomic_path
from merope.geometry.poses import Poses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito: distinct for colour-blind readers, and in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_COMMANDED = "#222222"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A least-squares line of recovered on commanded metres, and the share of variance it explains."""

    slope: float
    intercept: float
    r_squared: float


def plot_bev(
    path: str | Path,
    commanded: Poses,
    recovered: Mapping[str, Poses],
    *,
    title: str | None = None,
    align_scale: bool = False,
) -> None:
    """Draw paths from above: commanded solid, recovered dashed, equal metres per pixel on both axes.

    Every path starts at the first camera, which looks up the page; x is to its right, z ahead (OpenCV axes).
    Heights are not drawn. ``align_scale`` multiplies each recovered path by its s* (Eq. 37), for estimates without
    metric scale; the legend then says so. The format follows the ending of ``path`` (png, svg, pdf).

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    with atomic_path(path) as temporary:
        draw_bev(commanded, recovered, title=title, align_scale=align_scale).savefig(temporary, dpi=150)


def draw_bev(
    commanded: Poses, recovered: Mapping[str, Poses], *, title: str | None = None, align_scale: bool = False
) -> "Figure":
    """The figure that `plot_bev` saves."""
    figure = new_figure(6.4, 5.6)
    axes = figure.add_subplot()
    unit = "m" if commanded.unit == "m" else f"{commanded.unit} units"
    start = commanded.rebase_to_first().center_world
    axes.plot(start[:, 0], start[:, 2], color=_COMMANDED, lw=2.2, label="commanded")
    for (label, poses), color in zip(recovered.items(), _cycle(len(recovered)), strict=True):
        aligned = Aligned.from_poses(commanded, poses)
        scale = least_squares_scale(aligned) if align_scale and not is_static(aligned.center_hat_rel) else 1.0
        centers = scale * aligned.center_hat_rel
        text = f"{label} (× s* = {scale:.3g})" if align_scale else label
        axes.plot(centers[:, 0], centers[:, 2], color=color, lw=1.8, ls="--", label=text)
        axes.plot(centers[-1, 0], centers[-1, 2], color=color, marker="o", ms=5)
    axes.plot(start[-1, 0], start[-1, 2], color=_COMMANDED, marker="o", ms=5)
    axes.plot(0, 0, color=_COMMANDED, marker="^", ms=9, ls="none")
    equal_metres(axes)
    axes.set_xlabel(f"right of the first camera ({unit})")
    axes.set_ylabel(f"ahead of the first camera ({unit})")
    axes.grid(color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    # Beside the axes: a straight road leaves no room inside them.
    figure.legend(frameon=False, loc="outside right upper")
    if title:
        axes.set_title(title, fontsize=11)
    return figure


def equal_metres(axes: Any) -> None:
    """Equal scale, and limits that keep a straight road from becoming a hair: at least a fifth as wide as long."""
    axes.set_aspect("equal", adjustable="box")
    spans = np.array([axes.get_xlim(), axes.get_ylim()])
    lengths = spans[:, 1] - spans[:, 0]
    half = np.maximum(lengths, max(lengths.max() / 5, 1e-3)) / 2
    middle = spans.mean(axis=1)
    axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
    axes.set_ylim(middle[1] - half[1], middle[1] + half[1])


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
    figure = new_figure(6.0, 5.6)
    axes = figure.add_subplot()
    lines = {}
    values = [value for side in (commanded, recovered) for points in side.values() for value in points]
    low, high = min(0.0, *values), max(values)
    axes.plot([low, high], [low, high], color="#999999", lw=1, label="1 m out per metre in")
    for (label, points), color in zip(commanded.items(), _cycle(len(commanded)), strict=True):
        x, y = np.asarray(points, dtype=np.float64), np.asarray(recovered[label], dtype=np.float64)
        line = lines[label] = fit_line(x, y)
        text = f"{label}: slope {line.slope:.3f}, R² {line.r_squared:.3f}"
        axes.scatter(x, y, s=22, color=color, alpha=0.75, linewidths=0, label=text)
        ends = np.array([x.min(), x.max()])
        axes.plot(ends, line.slope * ends + line.intercept, color=color, lw=1.4, ls="--")
    equal_metres(axes)
    axes.set_xlabel(f"commanded {quantity} (m)")
    axes.set_ylabel(f"recovered {quantity} (m)")
    axes.grid(color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    if title:
        axes.set_title(title, fontsize=11)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    return lines


def plot_curves(path: str | Path, logs: Mapping[str, Path]) -> None:
    """Training and held-out loss of runs against their steps, from their ``log.jsonl``; the worth of the cameras below.

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    figure = new_figure(6.4, 5.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for (label, log), color in zip(logs.items(), _cycle(len(logs)), strict=True):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        probes = [entry for entry in entries if "held_out" in entry]
        upper.plot(*_series(entries, "loss"), color=color, lw=1, alpha=0.7, label=f"{label}, training")
        upper.plot(
            *_series(probes, "held_out"), color=color, marker="o", ms=3, ls="--", label=f"{label}, held out"
        )
        lower.plot(*_series(probes, "control"), color=color, marker="o", ms=3, label=label)
    upper.set_ylabel("loss")
    upper.set_yscale("log")
    lower.set_ylabel("loss with another clip's\ncameras minus its own", fontsize=9)
    lower.set_xlabel("step")
    for axes in (upper, lower):
        axes.grid(color="#dddddd", lw=0.6, which="both")
        axes.legend(frameon=False, fontsize=9)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)


def _series(entries: Sequence[Mapping[str, float]], key: str) -> tuple[list[float], list[float]]:
    return [entry["step"] for entry in entries], [entry[key] for entry in entries]


def draw_errors(
    commanded: Poses, recovered: Mapping[str, Poses], *, first_generated: int | None = None
) -> "Figure":
    """Rotation error and scaled centre error of every frame; given frames are shaded."""
    figure = new_figure(6.4, 4.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for (label, poses), color in zip(recovered.items(), _cycle(len(recovered)), strict=True):
        aligned = Aligned.from_poses(commanded, poses)
        upper.plot(torch.rad2deg(rotation_errors_rad(aligned)), color=color, label=label)
        lower.plot(center_errors(aligned), color=color, label=label)
    upper.set_ylabel("rotation error (deg)")
    lower.set_ylabel(f"centre error after s* ({commanded.unit})", fontsize=9)
    lower.set_xlabel("frame")
    for axes in (upper, lower):
        axes.set_ylim(bottom=0)
        axes.grid(color="#dddddd", lw=0.6)
        if first_generated:
            axes.axvspan(0, first_generated - 0.5, color="#000000", alpha=0.06, lw=0)
    upper.legend(frameon=False, fontsize=9)
    return figure


def png_bytes(figure: "Figure", *, dpi: int = 130) -> bytes:
    """A figure as PNG, for inlining."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def new_figure(width: float, height: float) -> "Figure":
    """A figure on the Agg canvas, whatever backend the process has chosen; pyplot is never touched."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency.for_extra("matplotlib", extra="plot", purpose="plotting") from None
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _cycle(num: int) -> list[str]:
    return [COLORS[index % len(COLORS)] for index in range(num)]
