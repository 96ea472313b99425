"""Film strips: a few frames of a clip, small enough for a page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from merope.evaluation.plots.canvas import new_figure, plain_text
from merope.evaluation.runs.run import RunClip, ScoredRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Picture = UInt8[np.ndarray, "_ _ 3"]
WIDTH_PX = 320
"""Frames are made no wider than this for a page."""
GAP = 0.03
"""White between frames, as a share of their width."""
# A row of frames that are not there is low.
_NO_RATIO = 8.0


def shown_frames(num_frames: int, num: int = 4) -> list[int]:
    """Frame numbers spread evenly from the first to the last: 0, 16, 32, 48 of 49, as in Figure 5."""
    if num_frames < 1 or num < 1:
        raise ValueError(f"num_frames and num must be at least 1, got {num_frames} and {num}.")
    places = np.linspace(0, num_frames - 1, min(num, num_frames)).round().astype(int)
    return [int(place) for place in places]


def read_strip(clip: RunClip, num: int = 4, *, width_px: int = WIDTH_PX) -> dict[int, Picture]:
    """Small copies of a few frames of a clip by frame number; empty where it has none.

    The clip's frames are read once and let go, only the small copies stay.
    """
    if clip.frames is None:
        return {}
    frames = clip.frames()
    if not len(frames):
        return {}
    return {index: made_small(frames[index], width_px) for index in shown_frames(len(frames), num)}


def made_small(picture: Picture, width_px: int = WIDTH_PX) -> Picture:
    """The picture no wider than ``width_px``, averaged over areas; small ones stay as they are."""
    height, width = picture.shape[:2]
    if width <= width_px:
        return picture
    size = (width_px, max(1, round(height * width_px / width)))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))


def draw_strip_on(axes: Any, strip: Mapping[int, Picture], clip: RunClip, *, fontsize: float = 8) -> None:
    """Frames side by side, below each its number and whether it was given; words where a clip's frames are gone."""
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if not strip:
        axes.set_xticks([])
        if clip.frames is not None:
            axes.text(0.5, 0.5, "frames could not be read", fontsize=fontsize, ha="center", va="center")
        return
    pictures = list(strip.values())
    height, width = pictures[0].shape[:2]
    gap = max(1, round(GAP * width))
    joined = np.full((height, (width + gap) * len(pictures) - gap, 3), 255, dtype=np.uint8)
    for place, picture in enumerate(pictures):
        joined[:, place * (width + gap) : place * (width + gap) + width] = picture
    # One image for each row: an axes for each frame takes most of the time that a figure takes. Pixels of tiny models
    # stay pixels.
    axes.imshow(joined, interpolation="nearest" if width < 128 else "antialiased")
    first = clip.first_generated or 0
    axes.set_xticks(
        [place * (width + gap) + width / 2 for place in range(len(pictures))],
        [f"t = {index}" + (", given" if index < first else "") for index in strip],
        fontsize=fontsize,
    )
    axes.tick_params(axis="x", length=0, pad=2)


def strip_ratio(strips: Iterable[Mapping[int, Picture]]) -> float:
    """Width over height of the widest strip."""
    ratios = []
    for strip in strips:
        for picture in list(strip.values())[:1]:
            height, width = picture.shape[:2]
            ratios.append((len(strip) * (1 + GAP) - GAP) * width / height)
    return max(ratios, default=_NO_RATIO)


def draw_film_strips(runs: Sequence[ScoredRun], clip_id: str, *, num_frames: int = 4) -> "Figure":
    """The same frames of one clip from every run that has them, a row each: what was shown under one command.

    A noise floor's frames are true ones, so that its row is what the command looks like.

    Raises:
        ValueError: if no run has frames of the clip.
    """
    rows = [
        (run.label, clip)
        for run in runs
        for clip in run.clips
        if clip.clip_id == clip_id and clip.frames is not None
    ]
    if not rows:
        raise ValueError(f"no run has frames of clip {clip_id!r}; choose from the clips of the runs.")
    strips = [read_strip(clip, num_frames) for _, clip in rows]
    height = 8.4 / strip_ratio(strips)
    figure = new_figure(8.6, (height + 0.5) * len(rows) + 0.5)
    column = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, (label, clip), strip in zip(column, rows, strips, strict=True):
        draw_strip_on(axes, strip, clip)
        axes.set_title(plain_text(label, 80), fontsize=9, loc="left")
    figure.suptitle(plain_text(clip_id, 80), fontsize=11, x=0.01, ha="left")
    return figure
