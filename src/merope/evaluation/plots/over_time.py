"""Errors of every frame: median and quartiles over the clips of each run."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from merope.evaluation.metrics.paper import Aligned, center_errors, rotation_errors_rad
from merope.evaluation.plots.bev import unit_words
from merope.evaluation.plots.canvas import add_legend, grid_lines, legend_handles, new_figure
from merope.evaluation.runs.run import ScoredRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_errors_over_time(runs: Sequence[ScoredRun], colors: Mapping[str, str]) -> "Figure":
    """Rotation error, and centre error after each clip's s*, of every frame: median over clips, quartiles as a band.

    A frame counts in the clips that have it, so that clips of different lengths go together. Frames that were given in
    all clips are shaded. Clips without a recovered camera are left out. ``colors`` are by label.
    """
    figure = new_figure(5.6, 4.9)
    upper, lower = figure.subplots(2, 1, sharex=True)
    units = set()
    for run in runs:
        aligned = [
            Aligned.from_poses(clip.commanded, clip.recovered.poses)
            for clip in run.clips
            if clip.recovered is not None
        ]
        if not aligned:
            continue
        units |= {unit_words(clip.commanded) for clip in run.clips}
        for axes, error in ((upper, _rotation_deg), (lower, center_errors)):
            low, middle, high = quartiles_over_clips(aligned, error)
            frames = np.arange(len(middle))
            axes.plot(frames, middle, color=colors[run.label], lw=1.8, label=run.label)
            axes.fill_between(frames, low, high, color=colors[run.label], alpha=0.18, lw=0)
    upper.set_ylabel("rotation error (deg)")
    lower.set_ylabel(f"centre error after s* ({', '.join(sorted(units))})")
    lower.set_xlabel("frame")
    given = [clip.first_generated or 0 for run in runs for clip in run.clips]
    for axes in (upper, lower):
        axes.set_ylim(bottom=0)
        grid_lines(axes)
        if given and min(given) > 0:
            axes.axvspan(0, min(given) - 0.5, color="#000000", alpha=0.07, lw=0, label="given frames")
    add_legend(figure, legend_handles(upper))
    return figure


def quartiles_over_clips(
    aligned: Sequence[Aligned], error: Callable[[Aligned], Float[torch.Tensor, "view"]]
) -> tuple[
    Float[np.ndarray, "frame"],
    Float[np.ndarray, "frame"],
    Float[np.ndarray, "frame"],
]:
    """First quartile, median and third quartile of an error over clips, for each frame of the longest clip."""
    table = np.full((len(aligned), max(len(clip) for clip in aligned)), np.nan)
    for row, clip in zip(table, aligned, strict=True):
        row[: len(clip)] = error(clip).numpy()
    low, middle, high = np.nanquantile(table, [0.25, 0.5, 0.75], axis=0)
    return low, middle, high


def _rotation_deg(aligned: Aligned) -> Float[torch.Tensor, "view"]:
    return torch.rad2deg(rotation_errors_rad(aligned))
