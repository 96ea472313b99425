"""Frames by their times: how even they are, stretches without a gap, and the frames of a lower rate."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from merope.data.clips.video import RATE_SLACK

GAP = 1.5
"""Frame periods from one frame to the next beyond which frames are missing between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTiming:
    """Seconds from each frame of a clip to the next."""

    dt_min: float
    dt_mean: float
    dt_max: float

    @classmethod
    def of(cls, times: Float[np.ndarray, "time"]) -> "FrameTiming | None":
        """The steps between these times, None where there is but one."""
        if len(times) < 2:
            return None
        steps = np.diff(times)
        return cls(dt_min=float(steps.min()), dt_mean=float(steps.mean()), dt_max=float(steps.max()))


def steady_rate(times: Float[np.ndarray, "time"]) -> float:
    """Frames per second between gaps: what the mean of all steps says unless frames are missing.

    A step longer than `GAP` times the median is a gap. Steps that alternate between 8 and 9 frames of a recording keep
    their mean.

    Raises:
        ValueError: if there are fewer than two times, or they do not increase.
    """
    steps = np.diff(times)
    if len(steps) == 0 or not (steps > 0).all():
        raise ValueError(f"a frame rate needs two or more times that increase; got {len(times)} times.")
    return float(1 / steps[steps <= GAP * np.median(steps)].mean())


def stretches(times: Float[np.ndarray, "time"], *, fps: float) -> list[range]:
    """Frame numbers of the stretches within which time goes on and no step is longer than `GAP` periods of ``fps``."""
    steps = np.diff(times)
    starts = [0, *(np.flatnonzero((steps > GAP / fps) | (steps <= 0)) + 1).tolist(), len(times)]
    return [range(start, stop) for start, stop in pairwise(starts)]


def frames_at_rate(
    times: Float[np.ndarray, "time"], *, fps: float, rate: float
) -> tuple[list[int], Float[np.ndarray, "out"]]:
    """Numbers of the frames nearest to every 1 / ``rate`` s from the first on, none twice, and those moments.

    ``fps`` is the frames' own rate, at most a thousandth below ``rate``: where both agree to that, all frames are taken,
    and the moments are their own.
    """
    if abs(fps / rate - 1) <= RATE_SLACK:
        return list(range(len(times))), times
    moments = times[0] + np.arange(int((times[-1] - times[0]) * rate) + 2) / rate
    places = np.interp(moments, times, np.arange(len(times)))
    # A frame stands for the half period after it too, the last like the others.
    places += np.maximum(moments - times[-1], 0) * fps
    # Half-way between two frames the even one is taken, whichever way the last digit of a time was rounded.
    numbers = np.rint(np.round(places, 6)).astype(int)
    numbers, first = np.unique(numbers, return_index=True)
    inside = numbers < len(times)
    return numbers[inside].tolist(), moments[first][inside]
