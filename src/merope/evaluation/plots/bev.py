"""Commanded and recovered paths from above."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from merope.evaluation.metrics.paper import Aligned, is_static, least_squares_scale
from merope.evaluation.plots.canvas import (
    COMMANDED,
    add_legend,
    cycle,
    equal_metres,
    grid_lines,
    legend_handles,
    new_figure,
    plain_text,
)
from merope.evaluation.runs.run import RunClip, ScoredRun
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
    colors: Mapping[str, str] | None = None,
) -> None:
    """Draw paths from above: commanded solid, recovered dashed, equal metres per pixel on both axes.

    Every path starts at the first camera, which looks up the page; x is to its right, z ahead (OpenCV axes).
    Heights are not drawn. ``align_scale`` multiplies each recovered path by its s* (Eq. 37), for estimates without
    metric scale; the legend then says so. ``colors`` are by label, those of the canvas by default.
    The format follows the ending of ``path`` (png, svg, pdf).

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    with atomic_path(path) as temporary:
        figure = draw_bev(commanded, recovered, title=title, align_scale=align_scale, colors=colors)
        figure.savefig(temporary, dpi=150)


def draw_bev(
    commanded: Poses,
    recovered: Mapping[str, Poses],
    *,
    title: str | None = None,
    align_scale: bool = False,
    colors: Mapping[str, str] | None = None,
) -> "Figure":
    """The figure that `plot_bev` saves."""
    figure = new_figure(6.4, 5.6)
    axes = figure.add_subplot()
    paths = {}
    for label, poses in recovered.items():
        centers, scale = path_from_first(commanded, poses, align_scale=align_scale)
        paths[f"{label} (× s* = {scale:.3g})" if align_scale else label] = centers
    own = cycle(len(paths)) if colors is None else [colors[label] for label in recovered]
    draw_paths_on(axes, commanded, paths, own)
    equal_metres(axes)
    unit = unit_words(commanded)
    axes.set_xlabel(f"right of the first camera ({unit})")
    axes.set_ylabel(f"ahead of the first camera ({unit})")
    # Beside the axes: a straight road leaves no room inside them.
    add_legend(figure, legend_handles(axes), loc="outside right upper", most=1, length=30)
    if title:
        axes.set_title(plain_text(title, 60), fontsize=11)
    return figure


def draw_bevs(
    runs: Sequence[ScoredRun], clip_ids: Sequence[str], colors: Mapping[str, str], *, columns: int = 3
) -> "Figure":
    """Several clips from above, each with the paths of all runs that recovered it.

    Paths without metric scale are drawn after their s*, and the legend says of which runs. ``colors`` are by label.

    Raises:
        ValueError: if no run holds one of the clips.
    """
    by_id = {run.label: {clip.clip_id: clip for clip in run.clips} for run in runs}
    columns = min(columns, len(clip_ids))
    rows = -(-len(clip_ids) // columns)
    figure = new_figure(3.3 * columns + 0.4, 3.3 * rows + 0.9)
    grid = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axes, clip_id in zip(grid, clip_ids, strict=False):
        clips = {label: clips[clip_id] for label, clips in by_id.items() if clip_id in clips}
        if not clips:
            raise ValueError(f"no run holds clip {clip_id!r}; choose from the clips of the runs.")
        commanded = next(iter(clips.values())).commanded
        paths, own = {}, []
        for label, clip in clips.items():
            if clip.recovered is None:
                continue
            up_to_scale = clip.recovered.scale != "metric"
            text = f"{label} (after s*)" if up_to_scale else label
            paths[text], _ = path_from_first(commanded, clip.recovered.poses, align_scale=up_to_scale)
            own.append(colors[label])
        draw_paths_on(axes, commanded, paths, own)
        equal_metres(axes, narrowest=0.5)
        axes.tick_params(labelsize=8)
        axes.set_title(plain_text(clip_id), fontsize=9)
        unit = unit_words(commanded)
        axes.set_xlabel(f"right ({unit})", fontsize=8)
        axes.set_ylabel(f"ahead ({unit})", fontsize=8)
    for axes in grid[len(clip_ids) :]:
        axes.set_axis_off()
    add_legend(figure, legend_handles(*grid))
    return figure


def draw_paths_on(
    axes: Any, commanded: Poses, paths: Mapping[str, Float[np.ndarray, "view 3"]], colors: Sequence[str]
) -> None:
    """The command as a solid line from a triangle, each recovered path dashed, a dot at the end of each."""
    start = commanded.rebase_to_first().center_world
    # Wide and light, so that a recovered path that follows it closely stays visible on it.
    axes.plot(start[:, 0], start[:, 2], color=COMMANDED, lw=3.6, alpha=0.5, label="commanded")
    for (label, centers), color in zip(paths.items(), colors, strict=True):
        axes.plot(centers[:, 0], centers[:, 2], color=color, lw=1.8, ls="--", label=label)
        axes.plot(centers[-1, 0], centers[-1, 2], color=color, marker="o", ms=5)
    axes.plot(start[-1, 0], start[-1, 2], color=COMMANDED, marker="o", ms=5)
    axes.plot(0, 0, color=COMMANDED, marker="^", ms=8, ls="none")
    grid_lines(axes)


def path_from_first(
    commanded: Poses, recovered: Poses, *, align_scale: bool
) -> tuple[Float[np.ndarray, "view 3"], float]:
    """Recovered centres in the frame of their first camera, and the factor on them: s* (Eq. 37), or 1."""
    aligned = Aligned.from_poses(commanded, recovered)
    scale = least_squares_scale(aligned) if align_scale and not is_static(aligned.center_hat_rel) else 1.0
    return (scale * aligned.center_hat_rel).numpy(), scale


def recovered_path(clip: RunClip) -> Float[np.ndarray, "view 3"] | None:
    """What is drawn of a clip's recovered path: as it is where it is metric, or else after s*; None where there is none."""
    if clip.recovered is None:
        return None
    align = clip.recovered.scale != "metric"
    return path_from_first(clip.commanded, clip.recovered.poses, align_scale=align)[0]


def unit_words(poses: Poses) -> str:
    """The unit of a path, for the label of an axis."""
    return "m" if poses.unit == "m" else f"{poses.unit} units"
