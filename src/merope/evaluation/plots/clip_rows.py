"""A row for each clip: its path from above at the left, frames of it at the right (Figure 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merope.evaluation.plots.bev import draw_paths_on, recovered_path, unit_words
from merope.evaluation.plots.canvas import add_legend, equal_metres, legend_handles, new_figure, plain_text
from merope.evaluation.plots.strips import draw_strip_on, read_strip, strip_ratio
from merope.evaluation.runs.run import RunClip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAJECTORIES = ("original", "left", "right")
"""Figure 5's three commands, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipRow:
    """One row of the picture."""

    clip: RunClip
    title: str
    color: str
    """Of the recovered path."""
    words: str = ""
    """Below the title, such as the clip's flags."""


def scene_and_trajectory(clip_id: str) -> tuple[str, str]:
    """The two parts of CASE/TRAJECTORY, or of CASE-left and its like; an id of one part is a scene of its own."""
    scene, slash, trajectory = clip_id.rpartition("/")
    if slash:
        return scene, trajectory
    scene, dash, trajectory = clip_id.rpartition("-")
    if dash and trajectory in TRAJECTORIES:
        return scene, trajectory
    return clip_id, ""


def by_scene(clips: Sequence[RunClip]) -> dict[str, list[RunClip]]:
    """Clips of each scene, original, left and right first; scenes in the order in which they come."""
    scenes: dict[str, list[RunClip]] = {}
    for clip in clips:
        scenes.setdefault(scene_and_trajectory(clip.clip_id)[0], []).append(clip)

    def place(clip: RunClip) -> tuple[int, str]:
        trajectory = scene_and_trajectory(clip.clip_id)[1]
        known = trajectory in TRAJECTORIES
        return (TRAJECTORIES.index(trajectory) if known else len(TRAJECTORIES), trajectory)

    return {scene: sorted(own, key=place) for scene, own in scenes.items()}


def draw_clip_rows(rows: Sequence[ClipRow], *, num_frames: int = 4, title: str | None = None) -> "Figure":
    """Each clip's commanded path solid and recovered path dashed, from above, and beside it frames of the clip.

    Paths without metric scale are drawn after their s*. Frames are read one clip at a time; without any the paths stand
    beside each other in one row.

    Raises:
        ValueError: if there is no row.
    """
    if not rows:
        raise ValueError("draw_clip_rows needs at least one row, got none.")
    strips = [read_strip(row.clip, num_frames) for row in rows]
    if not any(strips):
        figure = new_figure(3.3 * len(rows) + 0.3, 4.0)
        for axes, row in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows, strict=True):
            _draw_path(axes, row)
            axes.set_title("\n".join(_lines(row)), fontsize=9)
    else:
        # As high as paths need, as wide as frames then are.
        height = 2.0
        width = min(strip_ratio(strips) * (height - 0.5), 9.0)
        figure = new_figure(2.5 + width, height * len(rows) + 0.7)
        grid = figure.subplots(len(rows), 2, squeeze=False, width_ratios=[2.3, width])
        for (path, frames), row, strip in zip(grid, rows, strips, strict=True):
            _draw_path(path, row)
            draw_strip_on(frames, strip, row.clip)
            frames.set_title("   ".join(_lines(row)), fontsize=9, loc="left")
    add_legend(figure, legend_handles(*figure.axes), loc="outside lower left")
    if title:
        figure.suptitle(plain_text(title, 80), fontsize=11, x=0.01, ha="left")
    return figure


def _lines(row: ClipRow) -> list[str]:
    return [plain_text(row.title, 60), *([plain_text(row.words, 80)] if row.words else [])]


def _draw_path(axes: Any, row: ClipRow) -> None:
    path = recovered_path(row.clip)
    up_to_scale = row.clip.recovered is not None and row.clip.recovered.scale != "metric"
    paths = {} if path is None else {"recovered (after s*)" if up_to_scale else "recovered": path}
    draw_paths_on(axes, row.clip.commanded, paths, [row.color] * len(paths))
    equal_metres(axes, narrowest=0.6)
    axes.locator_params(nbins=4)
    unit = unit_words(row.clip.commanded)
    axes.tick_params(labelsize=7)
    axes.set_xlabel(f"right ({unit})", fontsize=8, labelpad=1)
    axes.set_ylabel(f"ahead ({unit})", fontsize=8, labelpad=1)
