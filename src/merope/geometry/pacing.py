"""Where along its path a camera is at every frame: eased shares of the whole, and a curve's parameter by arc length."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Easing = Literal["linear", "smooth"]
"""linear: constant speed. smooth: at rest at both ends."""

MAX_FRAMES = 10_000_000
"""More than these are a mistake in a unit of time, and their poses would fill the memory."""

# Panels of one piece of a curve, and nodes of Gauss-Legendre quadrature in each: lengths to 1e-12 of the whole.
_PANELS = 32
_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(8))
# Halvings of a panel until its ends are neighbouring numbers.
_HALVINGS = 52


def shares(num_frames: int, easing: Easing = "linear") -> Float[Tensor, "time"]:
    """The share of its path that a camera has behind it at each frame, from 0 to 1.

    "linear" is constant speed. "smooth" starts and ends at rest without a jerk, 10 t^3 - 15 t^4 + 6 t^5, and is 1.875 times
    as fast in the middle.

    Raises:
        ValueError: if there are fewer than two frames, or no such easing.
    """
    if isinstance(num_frames, bool) or not isinstance(num_frames, int) or not 2 <= num_frames <= MAX_FRAMES:
        raise ValueError(
            f"num_frames must be a whole number of at least 2, a first and a last one, and at most {MAX_FRAMES}; got "
            f"{num_frames}."
        )
    time = torch.arange(num_frames, dtype=torch.float64) / (num_frames - 1)
    if easing == "linear":
        return time
    if easing == "smooth":
        return smooth_step(time)
    raise ValueError(f"easing must be 'linear' or 'smooth'; got {easing!r}.")


def smooth_step(share: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """10 t^3 - 15 t^4 + 6 t^5: from 0 to 1 with no speed and no acceleration at either end."""
    return share**3 * (10 - 15 * share + 6 * share**2)


def smooth_step_slope(share: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The derivative of `smooth_step`."""
    return 30 * (share * (1 - share)) ** 2


def frame_times(num_frames: int, fps: float) -> Float[Tensor, "time"]:
    """Seconds of frames from 0 on.

    Raises:
        ValueError: if ``fps`` is not positive.
    """
    if not 0 < fps < float("inf"):
        raise ValueError(f"fps must be > 0; got {fps}.")
    return torch.arange(num_frames, dtype=torch.float64) / fps


def moments(times: Float[Tensor, "time"], fps: float) -> Float[Tensor, "out"]:
    """Every 1 / ``fps`` s from the first of these times on, up to the last, which rounding of 1e-6 s does not lose.

    Raises:
        ValueError: if ``fps`` is not positive, or would be more than `MAX_FRAMES` frames.
    """
    if not 0 < fps < float("inf"):
        raise ValueError(f"fps must be > 0; got {fps}.")
    first, last = float(times[0]), float(times[-1])
    steps = (last - first + 1e-6) * fps
    if not steps < MAX_FRAMES:
        raise ValueError(
            f"{last - first:.3g} s at {fps:g} frames a second are more than {MAX_FRAMES} frames. Are the times in seconds "
            "(--time-unit)?"
        )
    return (first + frame_times(int(steps) + 1, fps)).clamp(max=last)


class ArcLength:
    """Length along a curve with a parameter in [0, num_pieces], smooth within each piece of length 1.

    ``speed`` gives the length of the curve's derivative at parameters of any shape. Lengths are integrals of it by
    Gauss-Legendre quadrature on 32 panels a piece.
    """

    def __init__(self, speed: Callable[[Tensor], Tensor], num_pieces: int = 1) -> None:
        self._speed = speed
        self._bounds = torch.arange(num_pieces * _PANELS + 1, dtype=torch.float64) / _PANELS
        panels = self._integral(self._bounds[:-1], self._bounds[1:])
        self._lengths = torch.cat([torch.zeros(1, dtype=torch.float64), panels.cumsum(0)])

    @property
    def pieces(self) -> Float[Tensor, "piece"]:
        """The length of each piece."""
        return self._lengths[::_PANELS].diff()

    @property
    def total(self) -> float:
        """The length of the whole curve."""
        return float(self._lengths[-1])

    def parameter(self, lengths: Float[Tensor, "place"]) -> Float[Tensor, "place"]:
        """The parameters at these lengths from the start; by bisection, so that a speed of zero does no harm."""
        panel = torch.searchsorted(self._lengths, lengths, right=True) - 1
        panel = panel.clamp(0, len(self._bounds) - 2)
        start, rest = self._bounds[panel], lengths - self._lengths[panel]
        low, high = start, self._bounds[panel + 1]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            beyond = self._integral(start, middle) > rest
            low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
        # The ends themselves, which no halving reaches.
        place = torch.where(lengths >= self._lengths[-1], self._bounds[-1], (low + high) / 2)
        return torch.where(lengths <= 0, 0.0, place)

    def _integral(self, start: Tensor, end: Tensor) -> Tensor:
        half = (end - start)[:, None] / 2
        nodes = (start + end)[:, None] / 2 + half * _NODES
        return (half * _WEIGHTS * self._speed(nodes)).sum(-1)
