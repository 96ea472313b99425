"""The two panels of Theorem 1: what descent gives up, and the frontier with the encodings beside it."""

from pathlib import Path
from typing import Any

import numpy as np

from merope.evaluation.encodings.trilemma import EncodingPlace, Trilemma
from merope.evaluation.plots.canvas import COLORS, new_figure
from merope.files import atomic_path

# Places below are drawn here: rounding on one axis, blindness on the other.
_EXACT, _BLIND = 1e-5, 1e-5
# Half the width of those two bands, as a factor.
_BAND = 2.2
# Of |U^T U - I|: above, norms change; the learned operators are float32.
_KEEPS_NORMS = 1e-5
# Ratio of heights that a line of text takes on the logarithmic axis.
_LINE = 1.5
# Of the relative distance to every per-token form.
_PER_TOKEN = 1e-6


def plot_trilemma(path: str | Path, result: Trilemma) -> None:
    """Draw ``result``; the format follows the ending of ``path`` (png, svg, pdf).

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    figure = new_figure(12.5, 5.6)
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    _draw_descent(left, result)
    _draw_frontier(right, result)
    for axes in (left, right):
        axes.grid(color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)


def _draw_descent(axes: Any, result: Trilemma) -> None:
    styles = {"violation": "-", "translation": "--", "rotation": ":"}
    words = {
        "violation": "violation of relative dependence",
        "translation": "sensitivity to translation",
        "rotation": "sensitivity to rotation",
    }
    for color, dim in zip(COLORS, result.config.dims, strict=False):
        free = [d for d in result.descents if d.dim == dim and d.demanded is None]
        for quantity, style in styles.items():
            values = np.array([[getattr(place, quantity) for place in d.places] for d in free])
            axes.plot(free[0].steps, np.median(values, axis=0), style, color=color, lw=1.6)
            axes.fill_between(
                free[0].steps, values.min(axis=0), values.max(axis=0), color=color, alpha=0.12, lw=0
            )
        axes.plot([], [], color=color, lw=3, label=f"d = {dim}")
    for quantity, style in styles.items():
        axes.plot([], [], style, color="#444444", label=words[quantity])
    axes.set_yscale("log")
    axes.set_xlabel("step of gradient descent on the violation alone")
    axes.set_ylabel("|·| / √d over poses never trained on")
    axes.set_title(f"Orthogonal per-token operators, {result.config.seeds} starts each", fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc="lower left")


def _draw_frontier(axes: Any, result: Trilemma) -> None:
    for color, dim in zip(COLORS, result.config.dims, strict=False):
        ends = [d.places[-1] for d in result.descents if d.dim == dim]
        axes.scatter(
            [max(p.violation, _EXACT) for p in ends],
            [max(p.translation, _BLIND) for p in ends],
            s=16,
            color=color,
            alpha=0.7,
            linewidths=0,
            label=f"found by descent, d = {dim}",
        )
    curve = [place for _, place in result.three_sphere]
    axes.plot(
        [p.violation for p in curve],
        [p.translation for p in curve],
        color="#888888",
        lw=1,
        label="rotations of a 3-sphere, d = 4, any radius",
    )
    axes.axvspan(_EXACT / _BAND, _EXACT * _BAND, color="#000000", alpha=0.06, lw=0)
    axes.axhspan(_BLIND / _BAND, _BLIND * _BAND, color="#000000", alpha=0.06, lw=0)
    axes.text(_EXACT, 3.4, "exact", ha="center", va="center", fontsize=8, color="#666666")
    axes.text(1e-3, _BLIND, "blind", ha="center", va="center", fontsize=8, color="#666666")
    heights = {entry.name: max(entry.place.translation, _BLIND) for entry in result.encodings}
    labels = _spread(heights)
    exact = [entry for entry in result.encodings if entry.place.violation < _EXACT]
    for entry in result.encodings:
        x, y = entry.place.violation, heights[entry.name]
        if entry in exact:
            # Side by side within the band, where there is no abscissa.
            x = _EXACT * _BAND ** (0.7 * (2 * (exact.index(entry) + 0.5) / len(exact) - 1))
            beside = (_EXACT * _BAND * 1.3, labels[entry.name])
        else:
            beside = (0.35 * x, 1.5 * y)
        axes.scatter([x], [y], s=70, marker=_marker(entry), facecolors="none", edgecolors="#111111", zorder=3)
        axes.annotate(
            entry.name,
            (x, y),
            xytext=beside,
            fontsize=8,
            va="center",
            arrowprops={"arrowstyle": "-", "color": "#bbbbbb", "lw": 0.6},
        )
    for marker, words in (
        ("o", "encoding: per token, keeps norms"),
        ("s", "encoding: per token, changes norms"),
        ("*", "encoding: not per token, keeps norms"),
        ("X", "encoding: not per token, changes norms"),
    ):
        axes.scatter([], [], s=60, marker=marker, facecolors="none", edgecolors="#111111", label=words)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(_EXACT / _BAND, 3)
    axes.set_ylim(_BLIND / _BAND, 5)
    axes.set_xlabel(f"violation of exact relative dependence (grey: below {_EXACT:g})")
    axes.set_ylabel(f"sensitivity to translation (grey: below {_BLIND:g})")
    axes.set_title(f"Translations to {result.config.translation_range:g} m", fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _spread(heights: dict[str, float]) -> dict[str, float]:
    """Heights for labels on a logarithmic axis, in the same order, no two closer than a line of text."""
    order = sorted(heights, key=lambda name: heights[name])
    spread: dict[str, float] = {}
    below = 0.0
    for name in order:
        below = spread[name] = max(heights[name], below * _LINE)
    # Neighbours pushed up move down together, so that a group stays around its places.
    lift = {name: spread[name] / heights[name] for name in order}
    high = [name for name in order if heights[name] > 10 * _BLIND]
    if high:
        down = max(lift[name] for name in high) ** 0.5
        spread.update({name: spread[name] / down for name in high})
    return spread


def _marker(entry: EncodingPlace) -> str:
    """Circle and star keep norms, square and cross do not; circle and square factor per token."""
    keeps = entry.place.norm < _KEEPS_NORMS
    if entry.factor_residual < _PER_TOKEN:
        return "o" if keeps else "s"
    return "*" if keeps else "X"
