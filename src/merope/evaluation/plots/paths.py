"""Paths of camera poses from above, with their height and speed; PNG, SVG or PDF, without a display."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from merope.data.poses.facts import up_axis
from merope.evaluation.plots.canvas import COLORS, equal_metres, new_figure
from merope.files import atomic_path
from merope.geometry.poses import Poses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Up = Literal["auto", "x", "-x", "y", "-y", "z", "-z"]
Over = Literal["distance", "time", "frame"]

HEADINGS = 14
"""Arrowheads along the longest path; shorter ones have as many per metre."""

SMALLEST = "smallest extent"
"""The reason of a view that is not from above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The axes of a picture from above: world axes to the right, up the page and towards the viewer, as (index, sign)."""

    right: tuple[int, int]
    ahead: tuple[int, int]
    up: tuple[int, int]
    reason: str
    """Why up is up, for the title."""

    def of(self, vectors: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, "point 3"]:
        """Vectors along right, ahead and up."""
        return np.stack(
            [sign * vectors[:, index] for index, sign in (self.right, self.ahead, self.up)], axis=1
        )

    @property
    def words(self) -> str:
        """What the picture shows, for its title: a view from above only where up is known."""
        if self.reason == SMALLEST:
            return f"along {self.name(self.up)}, the smallest extent: no axis of the world is the cameras' up"
        return f"from above, up is {self.name(self.up)} ({self.reason})"

    @staticmethod
    def name(axis: tuple[int, int]) -> str:
        """Such as "-y"."""
        return ("" if axis[1] > 0 else "-") + "xyz"[axis[0]]


def choose_view(trajectories: Sequence[Poses], up: Up = "auto") -> View:
    """Which way is up in the pictures of these trajectories, and what lies to the right.

    "auto" takes the world axis that the cameras' own up is near to, as it is for cars, walkers and drones; where it is near
    to none, or to different ones, the path lies in the plane of its two largest extents. x points to the right, or y
    where x is up; the third axis follows so that the picture is seen from above.
    """
    if up != "auto":
        axis, reason = ("xyz".index(up[-1]), -1 if up[0] == "-" else 1), "as asked"
    else:
        own = {up_axis(poses.R_world_cam) for poses in trajectories}
        only = own.pop() if len(own) == 1 else None
        if only is not None:
            axis, reason = only, "up of the cameras"
        else:
            centers = np.concatenate([poses.center_world.numpy() for poses in trajectories])
            axis = (int(np.argmin(np.ptp(centers, axis=0))), 1)
            reason = SMALLEST
    right = 1 if axis[0] == 0 else 0
    # up x right: what is ahead for a viewer who looks down with right on the right.
    up_vector, right_vector = np.zeros(3), np.zeros(3)
    up_vector[axis[0]], right_vector[right] = axis[1], 1
    ahead = np.cross(up_vector, right_vector)
    index = int(np.abs(ahead).argmax())
    return View(right=(right, 1), ahead=(index, int(ahead[index])), up=axis, reason=reason)


def plot_paths(
    path: str | Path,
    trajectories: Mapping[str, Poses],
    *,
    up: Up = "auto",
    over: Over = "distance",
    fps: float | None = None,
    title: str | None = None,
) -> View:
    """Draw paths of one world from above, equal lengths on both axes, and beside it their heights and speeds.

    A path starts at a ring and ends at a square; arrowheads point where its cameras look. Heights are relative to each
    path's first camera. Speeds need times or ``fps``, poses a second; else the lengths of steps are drawn.
    The format follows the ending of ``path`` (png, svg, pdf). Returns the view that was chosen.

    Raises:
        ValueError: if there is nothing to draw, units differ, or ``over`` asks for times that are not there.
        MissingDependency: if matplotlib is not installed.
    """
    view = choose_view(list(trajectories.values()), up)
    figure = draw_paths(trajectories, view=view, over=over, fps=fps, title=title)
    from matplotlib import rc_context

    # Without a date and with names that are not drawn by lot, two drawings of the same paths are the same SVG file.
    with atomic_path(path) as temporary, rc_context({"svg.hashsalt": "merope"}):
        metadata = {"Date": None} if temporary.suffix.lower() == ".svg" else None
        figure.savefig(temporary, dpi=150, metadata=metadata)
    return view


def draw_paths(
    trajectories: Mapping[str, Poses],
    *,
    view: View,
    over: Over = "distance",
    fps: float | None = None,
    title: str | None = None,
) -> "Figure":
    """The figure that `plot_paths` saves."""
    units = {poses.unit for poses in trajectories.values()}
    if len(units) != 1:
        raise ValueError(
            f"trajectories to draw must be one or more, in one unit; got {', '.join(sorted(units)) or 'none'}. "
            "Say the unit of files that do not (--unit), or convert them."
        )
    unit = {"m": "m", "normalized": "normalized", "unknown": "units"}[units.pop()]
    origin = _origin(list(trajectories.values()))
    paths = {label: view.of(poses.center_world.numpy() - origin) for label, poses in trajectories.items()}
    everywhere = np.concatenate(list(paths.values()))[:, :2]
    across, along = np.ptp(everywhere, axis=0)
    # As wide as the path asks for beside a column of fixed width, inches.
    left = 1.0 + 4.6 * float(np.clip(across / max(along, 1e-9), 0.25, 1.25))
    figure = new_figure(left + 4.4, 5.6)
    grid = figure.add_gridspec(2, 2, width_ratios=[left, 4.4])
    above = figure.add_subplot(grid[:, 0])
    height = figure.add_subplot(grid[0, 1])
    speed = figure.add_subplot(grid[1, 1], sharex=height)
    timed = fps is not None or all(poses.times is not None for poses in trajectories.values())
    longest = max(poses.path_length for poses in trajectories.values())
    for number, (label, poses) in enumerate(trajectories.items()):
        color = COLORS[number % len(COLORS)]
        centers = paths[label]
        style: dict[str, Any] = {"color": color, "lw": 1.4, "ls": "-" if number < len(COLORS) else "--"}
        above.plot(centers[:, 0], centers[:, 1], label=label, **style)
        above.plot(*centers[0, :2], marker="o", ms=8, mfc="white", mew=1.6, color=color, ls="none", zorder=3)
        above.plot(*centers[-1, :2], marker="s", ms=6, color=color, ls="none", zorder=3)
        _draw_headings(above, view, centers, poses, color=color, spacing=longest / HEADINGS)
        clock = _clock(label, poses, over, fps)
        height.plot(clock, centers[:, 2] - centers[0, 2], **style)
        if len(poses) > 1:
            middles = (clock[1:] + clock[:-1]) / 2
            speed.plot(middles, _speed(poses, fps) if timed else poses.step_lengths.numpy(), **style)
    equal_metres(above)
    above.set_xlabel(_axis_label(view.right, origin, unit))
    above.set_ylabel(_axis_label(view.ahead, origin, unit))
    heights = f"{view.name(view.up)} from start" if view.reason == SMALLEST else "height above start"
    height.set_ylabel(f"{heights} ({unit})")
    height.tick_params(labelbottom=False)
    speed.set_ylabel(f"speed ({unit}/s)" if timed else f"step ({unit} a pose)")
    # With room above, or an even speed would lie on the frame.
    fastest = max((float(np.max(np.asarray(line.get_ydata()))) for line in speed.lines), default=0.0)
    speed.set_ylim(0, 1.1 * fastest or 1.0)
    speed.set_xlabel(
        {"distance": f"distance along the path ({unit})", "time": "time (s)", "frame": "pose"}[over]
    )
    for axes in (above, height, speed):
        axes.grid(color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
    if len(trajectories) > 1:
        figure.legend(frameon=False, loc="outside lower center", ncols=min(4, len(trajectories)), fontsize=9)
    figure.suptitle(f"{title}\n{view.words}" if title else view.words, fontsize=10)
    return figure


def _origin(trajectories: Sequence[Poses]) -> Float[np.ndarray, "3"]:
    """What is subtracted from all centres: the first one, in a world whose origin is far from the path; else nothing."""
    centers = np.concatenate([poses.center_world.numpy() for poses in trajectories])
    if np.abs(centers).max() > 10 * max(float(np.ptp(centers, axis=0).max()), 1e-9):
        return centers[0]
    return np.zeros(3)


def _axis_label(axis: tuple[int, int], origin: Float[np.ndarray, "3"], unit: str) -> str:
    index, sign = axis
    name = "xyz"[index]
    if origin.any():
        name = f"{name} {'-' if origin[index] >= 0 else '+'} {abs(origin[index]):.1f}"
    return f"{name} ({unit})" if sign > 0 else f"-({name}) ({unit})" if " " in name else f"-{name} ({unit})"


def _draw_headings(
    axes: Any,
    view: View,
    centers: Float[np.ndarray, "point 3"],
    poses: Poses,
    *,
    color: str,
    spacing: float,
) -> None:
    """Arrowheads on the path that point where the cameras look, at equal distances along it; none for looks up or down."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.path import Path as Outline
    from matplotlib.transforms import Affine2D

    arrowhead = Outline([(0, 1), (-0.55, -0.8), (0, -0.4), (0.55, -0.8), (0, 1)], closed=True)
    travelled = np.concatenate([[0.0], np.cumsum(poses.step_lengths.numpy())])
    wanted = np.arange(spacing / 2, travelled[-1], spacing) if spacing > 0 else np.zeros(1)
    chosen = np.unique(np.searchsorted(travelled, wanted).clip(0, len(poses) - 1))
    forward = view.of(poses.R_world_cam[:, :, 2].numpy())[:, :2]
    for index in chosen:
        right, ahead = forward[index]
        if np.hypot(right, ahead) > 0.1:
            turned = Affine2D().rotate(float(np.arctan2(-right, ahead)))
            axes.plot(
                *centers[index, :2],
                marker=MarkerStyle(arrowhead, transform=turned),
                ms=9,
                mec="white",
                mew=0.6,
                color=color,
                ls="none",
                zorder=2.5,
            )


def _clock(label: str, poses: Poses, over: str, fps: float | None) -> Float[np.ndarray, "time"]:
    if over == "distance":
        return np.concatenate([[0.0], np.cumsum(poses.step_lengths.numpy())])
    frames = np.arange(len(poses), dtype=np.float64)
    if over == "frame":
        return frames
    if fps is not None:
        return frames / fps
    if poses.times is None:
        raise ValueError(
            f"{label} has no times to draw over. Give the poses a second (--fps), a file of times (--times), or draw over "
            "the distance (--over distance)."
        )
    return (poses.times - poses.times[0]).numpy()


def _speed(poses: Poses, fps: float | None) -> Float[np.ndarray, "step"]:
    if fps is not None:
        return poses.step_lengths.numpy() * fps
    assert poses.times is not None
    return (poses.step_lengths / poses.times.diff()).numpy()
