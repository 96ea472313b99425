"""Lens polynomials: where they stop being monotone, and their inverse below that."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

# Slopes below this are treated as this when a gradient is divided by them: at a fold the exact gradient
# of an inverse is infinite.
MIN_SLOPE = 1e-9
# No plane is searched further out: 89.4 degrees of a pinhole, several turns of a fisheye, and seventh powers
# stay within float32.
MAX_RADIUS = 100.0


def edge_tolerance(like: Tensor) -> float:
    """How far past the end of a lens's domain still counts as its end: the rounding of a round trip."""
    return 32 * torch.finfo(like.dtype).eps


@lru_cache(maxsize=1024)
def first_positive_root(*ascending: float) -> float:
    """Smallest positive real root of ``sum_i ascending[i] s^i``, infinity if there is none.

    Degenerate: a double root, where the polynomial touches zero without crossing, may be found or not.
    """
    roots = np.roots(ascending[::-1])
    real = roots.real[(np.abs(roots.imag) <= 1e-9 * np.abs(roots)) & (roots.real > 0)]
    return float(real.min()) if real.size else math.inf


def polynomial(argument: Tensor, coefficients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """``t + c_2 t^2 + c_3 t^3 + ...`` and its derivative; the coefficients begin with c_2."""
    value, slope = torch.zeros_like(argument), torch.zeros_like(argument)
    for power, c in reversed(list(enumerate(coefficients, start=2))):
        value, slope = argument * (c + value), argument * (power * c + slope)
    return argument * (1 + value), 1 + slope


def fold_of_polynomial(*coefficients: float) -> float:
    """Smallest positive argument at which :func:`polynomial` stops growing, infinity if it never does."""
    return first_positive_root(1.0, *(power * c for power, c in enumerate(coefficients, start=2)))


def invert_increasing(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    target: Tensor,
    upper: Tensor,
    *,
    max_steps: int = 100,
) -> Tensor:
    """The argument in [0, upper] at which an increasing function takes the value ``target``.

    ``function`` returns value and slope, is 0 at 0 and not below ``target`` at ``upper``. Newton's method
    kept inside a bracket, so it converges from anywhere; the gradient, with respect to ``target`` and to
    whatever ``function`` holds, is that of the implicit function.
    """
    with torch.no_grad():
        high = upper.expand_as(target).clone()
        precision = 4 * torch.finfo(target.dtype).eps
        # At the far end the slope may be zero and Newton slow, and it is where all that lies beyond is sent.
        at_end = function(high)[0] <= target
        low = torch.where(at_end, high, 0)
        argument = torch.where(at_end, high, torch.minimum(target, high))
        last = high.clone()
        for _ in range(max_steps):
            value, slope = function(argument)
            excess = value - target
            low, high = torch.where(excess <= 0, argument, low), torch.where(excess >= 0, argument, high)
            newton = argument - excess / slope.clamp(min=MIN_SLOPE)
            # Bisect where Newton leaves the bracket or no longer halves its step (near a fold); a step as small
            # as rounding is the end of it.
            step = (newton - argument).abs()
            trusted = (
                (newton >= low) & (newton <= high) & ((step <= last / 2) | (step <= precision * argument))
            )
            following = torch.where(trusted, newton, (low + high) / 2)
            last = (following - argument).abs()
            argument = following
            if bool((last <= precision * high).all()):
                break
    value, slope = function(argument)
    return argument - (value - target) / slope.detach().clamp(min=MIN_SLOPE)
