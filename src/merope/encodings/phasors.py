"""Expected rotary phasors: the mean of (cos, sin) of a phase that is only known to lie on a path.

A mean of points of the unit circle lies inside it, so attention under expected phasors contracts.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

# Below it the series to the eighth power is exact to 3e-18; above it sin(x) / x loses nothing.
_SERIES = 0.1


def log_frequencies(longest: float, shortest: float, count: int) -> Float[Tensor, " pair"]:
    """Angular frequencies of ``count`` log-spaced periods from ``longest`` down to ``shortest``, float64."""
    share = torch.arange(count, dtype=torch.float64) / max(count - 1, 1)
    return 2 * math.pi / longest * (longest / shortest) ** share


def expected_phasor(
    start: Float[Tensor, "*batch"], end: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Mean cosine and sine of a phase spread evenly from ``start`` to ``end``, radians.

    Equal to (sin end - sin start) / (end - start) and (cos start - cos end) / (end - start), written as the
    phasor of the middle times sinc of half the difference: values and gradients keep their digits where
    the ends meet, and a phase without spread gives a phasor of length one.
    """
    middle, length = (start + end) / 2, _sinc((end - start) / 2)
    return length * middle.cos(), length * middle.sin()


def path_phasor(
    knots: Float[Tensor, "*batch knot pair"],
) -> tuple[Float[Tensor, "*batch pair"], Float[Tensor, "*batch pair"]]:
    """Mean cosine and sine of phases along straight pieces between knots, every piece with equal weight.

    Two knots are `expected_phasor`.
    """
    cos, sin = expected_phasor(knots[..., :-1, :], knots[..., 1:, :])
    return cos.mean(-2), sin.mean(-2)


def _sinc(x: Tensor) -> Tensor:
    """sin(x) / x, smooth through zero, gradients of any order included."""
    squared = x * x
    series = 1 - squared / 6 * (1 - squared / 20 * (1 - squared / 42 * (1 - squared / 72)))
    small = x.detach().abs() < _SERIES
    divisor = torch.where(small, 1, x)
    return torch.where(small, series, divisor.sin() / divisor)
