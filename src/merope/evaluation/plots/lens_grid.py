"""A row for each lens, frames across (Figure 6)."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from merope.cameras import CameraModel
from merope.data.lenses.facts import lens_facts, off_axis
from merope.evaluation.plots.canvas import new_figure, plain_text
from merope.evaluation.plots.strips import draw_strip_on, read_strip, strip_ratio
from merope.evaluation.runs.run import RunClip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a lens's name for people leaves out: where the image is, not how it bends.
_NOT_DISTORTION = {
    "model",
    "fx",
    "fy",
    "cx",
    "cy",
    "width",
    "height",
    "pixel_origin",
    "principal_point_outside",
    "max_theta",
}
_SYMBOLS = {"xi": "ξ", "alpha": "α", "beta": "β", "lambda_": "λ"}
_MODELS = {"kannala_brandt": "Kannala-Brandt", "opencv": "OpenCV", "unified": "unified (UCM)", "mei": "Mei"}


def clips_by_lens(clips: Sequence[RunClip], *, most: int = 6) -> list[RunClip]:
    """One clip with frames for each different lens, narrow to wide; of more than ``most`` some, spread evenly."""
    first: dict[str, tuple[float, RunClip]] = {}
    for clip in clips:
        if clip.lens is None or clip.frames is None:
            continue
        key = json.dumps(clip.lens.to_dict(), sort_keys=True)
        if key not in first:
            first[key] = (_width_rad(clip.lens), clip)
    ordered = [clip for _, clip in sorted(first.values(), key=lambda pair: pair[0])]
    if len(ordered) <= most:
        return ordered
    return [ordered[int(place)] for place in np.linspace(0, len(ordered) - 1, most).round()]


def lens_words(lens: CameraModel) -> str:
    """Field of view, model and distortion of a lens, a line each; coefficients that are zero bend nothing."""
    facts, values = lens_facts(lens), lens.to_dict()
    bends = [
        f"{_SYMBOLS.get(name, name)} = {value:.3g}"
        for name, value in values.items()
        if name not in _NOT_DISTORTION
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and value != 0
    ]
    name = str(values.get("model", type(lens).__name__))
    model = _MODELS.get(name, name.replace("_", " "))
    return f"{facts.fov_x_deg:.0f}° × {facts.fov_y_deg:.0f}°\n{model}" + (
        f"\n{', '.join(bends[:4])}" if bends else ""
    )


def draw_lens_grid(clips: Sequence[RunClip], *, num_frames: int = 5, title: str | None = None) -> "Figure":
    """Frames of one clip for each lens, the lens's field of view and distortion at the left.

    Raises:
        ValueError: if a clip has no lens or no frames.
    """
    if not clips or any(clip.lens is None or clip.frames is None for clip in clips):
        raise ValueError("draw_lens_grid needs clips with a lens and frames; choose them with clips_by_lens.")
    strips = [read_strip(clip, num_frames) for clip in clips]
    height = 8.4 / strip_ratio(strips)
    figure = new_figure(9.8, (height + 0.5) * len(clips) + 0.5)
    column = figure.subplots(len(clips), 1, squeeze=False)[:, 0]
    for axes, clip, strip in zip(column, clips, strips, strict=True):
        draw_strip_on(axes, strip, clip)
        assert clip.lens is not None
        axes.set_ylabel(lens_words(clip.lens), fontsize=8, rotation=0, ha="right", va="center", labelpad=6)
        axes.set_title(plain_text(clip.clip_id, 60), fontsize=8, loc="left")
    if title:
        figure.suptitle(plain_text(title, 80), fontsize=11, x=0.01, ha="left")
    return figure


def _width_rad(lens: CameraModel) -> float:
    """How wide a lens sees along its middle row, cheaply: enough to put lenses in order."""
    first = 0.5 if lens.pixel_origin == "corner" else 0.0
    row = first + (lens.height - 1) / 2
    share = torch.linspace(0, 1, 33, dtype=torch.float64)
    places = torch.stack([first + share * (lens.width - 1), torch.full_like(share, row)], dim=-1)
    rays, valid = lens.unproject(places)
    angles = torch.where(valid, off_axis(rays), 0.0)
    half = len(share) // 2
    return float(angles[:half].max() + angles[half:].max())
