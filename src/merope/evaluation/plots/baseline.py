"""Errors of pairs of frames against the commanded distance between their cameras."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from merope.evaluation.metrics.pairs import direction_error_deg
from merope.evaluation.metrics.paper import Aligned, angle_of, least_squares_scale, moving
from merope.evaluation.plots.bev import unit_words
from merope.evaluation.plots.canvas import add_legend, grid_lines, legend_handles, new_figure
from merope.evaluation.runs.run import ScoredRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_BINS = 12
ALL_PAIRS_UP_TO = 121
"""Frames of a clip up to which every pair counts, 7 260 of them. Longer clips give pairs at some distances in time alone."""
_LAGS = 60
_STARTS = 120
# A median of fewer pairs says more about them than about the distance.
_MIN_PAIRS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PairErrors:
    """Pairs of frames: the commanded distance between their cameras, and three errors."""

    distance: Float[np.ndarray, "pair"]
    """In the commanded unit."""
    rotation_deg: Float[np.ndarray, "pair"]
    """Geodesic error of the relative rotation."""
    direction_deg: Float[np.ndarray, "pair"]
    """Angle between commanded and recovered translation, with its sign: 180 runs backwards."""
    length_percent: Float[np.ndarray, "pair"]
    """Recovered length after the clip's abs(s*), over the commanded one, minus 1, times 100."""


def pair_errors_by_distance(aligned: Iterable[Aligned]) -> PairErrors:
    """Errors of the pairs of all clips, those left out whose command or estimate does not move between the two frames.

    Clips of up to 121 frames give all T (T - 1) / 2 pairs. Longer ones give at most 60 distances in time, in geometric
    steps, from at most 120 evenly spaced first frames each, so that memory does not grow with T^2.
    """
    columns: list[list[np.ndarray]] = [[], [], [], []]
    for clip in aligned:
        i, j = _pairs(len(clip))
        step, step_hat = (
            clip.center_rel[j] - clip.center_rel[i],
            clip.center_hat_rel[j] - clip.center_hat_rel[i],
        )
        move = moving(step, clip.vanishing) & moving(step_hat, clip.vanishing)
        i, j, step, step_hat = i[move], j[move], step[move], step_hat[move]
        D = clip.R_hat_rel @ clip.R_rel.mT
        rotation = torch.rad2deg(angle_of(D[i].mT @ D[j]))
        # In the frame of camera i, as the paper's pairs.
        own = (clip.R_rel[i].mT @ step[..., None]).squeeze(-1)
        own_hat = (clip.R_hat_rel[i].mT @ step_hat[..., None]).squeeze(-1)
        direction = direction_error_deg(own, own_hat, oriented=True, vanishing=clip.vanishing)
        length = 100 * (abs(least_squares_scale(clip)) * step_hat.norm(dim=-1) / step.norm(dim=-1) - 1)
        for column, values in zip(columns, (step.norm(dim=-1), rotation, direction, length), strict=True):
            column.append(values.numpy().astype(np.float32))
    distance, rotation_deg, direction_deg, length_percent = (
        np.concatenate(column) if column else np.empty(0, dtype=np.float32) for column in columns
    )
    return PairErrors(
        distance=distance,
        rotation_deg=rotation_deg,
        direction_deg=direction_deg,
        length_percent=length_percent,
    )


def _pairs(num_frames: int) -> tuple[Tensor, Tensor]:
    if num_frames <= ALL_PAIRS_UP_TO:
        i, j = torch.triu_indices(num_frames, num_frames, offset=1)
        return i, j
    lags = np.unique(np.geomspace(1, num_frames - 1, _LAGS).round().astype(int))
    starts, ends = [], []
    for lag in lags:
        first = np.unique(np.linspace(0, num_frames - 1 - lag, _STARTS).round().astype(int))
        starts.append(first)
        ends.append(first + lag)
    return torch.as_tensor(np.concatenate(starts)), torch.as_tensor(np.concatenate(ends))


def log_bins(distances: Sequence[Float[np.ndarray, "_"]], num: int = NUM_BINS) -> Float[np.ndarray, "edge"]:
    """Edges of bins of equal width on a logarithmic scale, from the 1st percentile of all distances to the largest."""
    every = np.concatenate(list(distances)).astype(np.float64)
    low, high = float(np.quantile(every, 0.01)), float(every.max())
    return np.geomspace(low, max(high, 1.0001 * low) * (1 + 1e-6), num + 1)


def quartiles_by_bin(
    distance: Float[np.ndarray, "pair"], error: Float[np.ndarray, "pair"], edges: Float[np.ndarray, "edge"]
) -> Float[np.ndarray, "4 _"]:
    """Geometric middle of each bin, then first quartile, median and third quartile; bins of few pairs left out."""
    place = np.searchsorted(edges, distance, side="right") - 1
    columns = []
    for index, (left, right) in enumerate(pairwise(edges)):
        own = error[place == index]
        if len(own) >= _MIN_PAIRS:
            columns.append([np.sqrt(left * right), *np.quantile(own, [0.25, 0.5, 0.75])])
    return np.array(columns, dtype=np.float64).reshape(-1, 4).T


def draw_errors_by_baseline(runs: Sequence[ScoredRun], colors: Mapping[str, str]) -> "Figure | None":
    """Rotation, direction and length error of pairs of frames over their commanded distance; median and quartiles.

    None where no run has eight pairs that move about as far. ``colors`` are by label.
    """
    pairs = {
        run.label: pair_errors_by_distance(
            Aligned.from_poses(clip.commanded, clip.recovered.poses)
            for clip in run.clips
            if clip.recovered is not None
        )
        for run in runs
    }
    pairs = {label: found for label, found in pairs.items() if len(found.distance)}
    if not pairs:
        return None
    edges = log_bins([found.distance for found in pairs.values()])
    enough = any(np.histogram(found.distance, edges)[0].max() >= _MIN_PAIRS for found in pairs.values())
    if not enough:
        return None
    figure = new_figure(10.0, 3.9)
    rows = figure.subplots(1, 3)
    titles = ("rotation error (deg)", "direction error (deg)", "length error after |s*| (%)")
    for axes, title, name in zip(
        rows, titles, ("rotation_deg", "direction_deg", "length_percent"), strict=True
    ):
        for label, found in pairs.items():
            middle, low, median, high = quartiles_by_bin(found.distance, getattr(found, name), edges)
            axes.plot(middle, median, color=colors[label], marker="o", ms=3.5, lw=1.6, label=label)
            axes.fill_between(middle, low, high, color=colors[label], alpha=0.16, lw=0)
        _log_distances(axes, edges)
        axes.set_title(title, fontsize=10)
        if name == "length_percent":
            axes.axhline(0, color="#777777", lw=0.9)
        else:
            axes.set_ylim(bottom=0)
        grid_lines(axes)
    units = sorted({unit_words(clip.commanded) for run in runs for clip in run.clips})
    figure.supxlabel(f"commanded distance between the two cameras ({', '.join(units)})", fontsize=10)
    add_legend(figure, legend_handles(rows[0]), loc="outside upper center")
    return figure


def _log_distances(axes: Any, edges: Float[np.ndarray, "edge"]) -> None:
    """A logarithmic axis in plain numbers: 1, 2, 5, 10, or whole powers of ten where there are many of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    words = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(words)
    few = edges[-1] < 1000 * edges[0]
    axes.xaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)) if few else NullLocator())
    axes.xaxis.set_minor_formatter(words)
    axes.tick_params(axis="x", which="both", labelsize=8)
