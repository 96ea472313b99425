"""Commanded and recovered paths from above."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from merope.evaluation.metrics.paper import Aligned, is_static, least_squares_scale
from merope.evaluation.plots.canvas import COMMANDED, cycle, equal_metres, new_figure
from merope.files import atomic_path
from merope.geometry.poses import Poses

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    axes.plot(start[:, 0], start[:, 2], color=COMMANDED, lw=2.2, label="commanded")
    for (label, poses), color in zip(recovered.items(), cycle(len(recovered)), strict=True):
        aligned = Aligned.from_poses(commanded, poses)
        scale = least_squares_scale(aligned) if align_scale and not is_static(aligned.center_hat_rel) else 1.0
        centers = scale * aligned.center_hat_rel
        text = f"{label} (× s* = {scale:.3g})" if align_scale else label
        axes.plot(centers[:, 0], centers[:, 2], color=color, lw=1.8, ls="--", label=text)
        axes.plot(centers[-1, 0], centers[-1, 2], color=color, marker="o", ms=5)
    axes.plot(start[-1, 0], start[-1, 2], color=COMMANDED, marker="o", ms=5)
    axes.plot(0, 0, color=COMMANDED, marker="^", ms=9, ls="none")
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
