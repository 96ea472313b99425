"""What two cameras apart do to logits and norms: what grows in colour, what is bounded in grey, names at the edge."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merope.encodings.measures import BASELINES, BOUNDED
from merope.evaluation.encodings.claims import ClaimsTable
from merope.evaluation.plots.canvas import COLORS, new_figure
from merope.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lower end of both axes: nothing there but a code that decays.
_BOTTOM = 0.3
# Share of an axis' height that a name takes.
_LINE = 0.04
_STYLES = ("-", "--", ":")


def plot_growth(path: str | Path, table: ClaimsTable) -> None:
    """Largest logit and largest norm ratio against the baseline, both axes logarithmic.

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    with atomic_path(path) as temporary:
        draw_growth(table).savefig(temporary, dpi=130)


def draw_growth(table: ClaimsTable) -> "Figure":
    """The figure that `plot_growth` saves."""
    logits = {row.name: row.measured.growth.logits for row in table.rows}
    norms = {row.name: row.measured.growth.norms for row in table.rows}
    grows = [row.name for row in table.rows if row.measured.growth.logit_slope >= BOUNDED]
    grows += [
        row.name for row in table.rows if row.measured.growth.norm_slope >= BOUNDED and row.name not in grows
    ]
    # Names need the height.
    figure = new_figure(12.5, max(5.4, 0.34 * len(table.rows)))
    for axes, curves, words in zip(
        figure.subplots(1, 2), (logits, norms), ("largest logit", "largest |U x| / |x|"), strict=True
    ):
        _draw_curves(axes, curves, grows)
        axes.set_ylabel(words)
        axes.set_xlabel("distance between the two cameras (m)")
        axes.grid(color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
    figure.suptitle(
        "In colour: grows as a power of the distance. "
        f"In grey: bounded, or slower than b^{BOUNDED:g}. Unit-variance features, raw metres.",
        fontsize=11,
    )
    return figure


def _draw_curves(axes: Any, curves: Mapping[str, tuple[float, ...]], grows: list[str]) -> None:
    top = 2 * max(10.0, *(value for values in curves.values() for value in values))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(BASELINES[0], BASELINES[-1])
    axes.set_ylim(_BOTTOM, top)
    ends = {
        name: math.log(max(values[-1], _BOTTOM) / _BOTTOM) / math.log(top / _BOTTOM)
        for name, values in curves.items()
    }
    heights = _spread(ends)
    for name, values in curves.items():
        style: dict[str, Any] = {"color": "#999999", "lw": 1.0, "zorder": 2}
        if name in grows:
            place = grows.index(name)
            dashes = _STYLES[place // len(COLORS) % len(_STYLES)]
            style = {"color": COLORS[place % len(COLORS)], "ls": dashes, "lw": 1.8, "zorder": 3}
        if name == "merope":
            style = {"color": "#111111", "lw": 2.4, "zorder": 4}
        axes.plot(BASELINES, [max(value, 1e-3) for value in values], label=name, **style)
        color = "#666666" if style["color"] == "#999999" else style["color"]
        axes.annotate(
            name,
            (1, ends[name]),
            xycoords="axes fraction",
            xytext=(1.08, heights[name]),
            textcoords="axes fraction",
            color=color,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": style["color"],
                "lw": 0.6,
                "relpos": (0, 0.5),
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )


def _spread(ends: Mapping[str, float]) -> dict[str, float]:
    """Heights of names, in the order of the lines' ends, a line of text apart and as near to them as that allows.

    Neighbours too close become one group around its mean, again and again until no two groups meet.
    """
    line = min(_LINE, 1 / max(1, len(ends)))
    groups: list[list[str]] = []
    lows: list[float] = []
    for name in sorted(ends, key=lambda name: ends[name]):
        groups.append([name])
        lows.append(_lowest(groups[-1], ends, line))
        while len(groups) > 1 and lows[-1] < lows[-2] + line * len(groups[-2]):
            last = groups.pop()
            lows.pop()
            groups[-1] += last
            lows[-1] = _lowest(groups[-1], ends, line)
    return {
        name: low + place * line
        for group, low in zip(groups, lows, strict=True)
        for place, name in enumerate(group)
    }


def _lowest(group: list[str], ends: Mapping[str, float], line: float) -> float:
    """Height of a group's first name, within the axis."""
    length = line * (len(group) - 1)
    middle = sum(ends[name] for name in group) / len(group)
    return min(max(middle - length / 2, 0.0), 1.0 - length)
