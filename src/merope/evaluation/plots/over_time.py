"""Errors of every frame, over time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from merope.evaluation.metrics.paper import Aligned, center_errors, rotation_errors_rad
from merope.evaluation.plots.canvas import cycle, new_figure
from merope.geometry.poses import Poses

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_errors(
    commanded: Poses, recovered: Mapping[str, Poses], *, first_generated: int | None = None
) -> "Figure":
    """Rotation error and scaled centre error of every frame; given frames are shaded."""
    figure = new_figure(6.4, 4.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for (label, poses), color in zip(recovered.items(), cycle(len(recovered)), strict=True):
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
