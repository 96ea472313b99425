"""Mean and covariance of any number of features in bounded memory: blocks that are centred first and then merged."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
from jaxtyping import Float, Float64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Number, mean and scatter of features, in float64.

    ``scatter`` is the sum of (x - mean)(x - mean)^T. It is never formed as a difference of raw second moments, which
    loses as many digits as the mean is larger than the spread.
    """

    count: int
    mean: Float64[np.ndarray, "feature"]
    scatter: Float64[np.ndarray, "feature feature"]

    @classmethod
    def of(cls, features: Float[np.ndarray, "sample feature"]) -> Self:
        """Two passes over the features of one block: their mean, then the scatter about it.

        Raises:
            ValueError: if there are none, or one is not finite.
        """
        if not features.size:
            raise ValueError(f"features must be at least one row and column; got {features.shape}.")
        exact = features.astype(np.float64)
        if not np.isfinite(exact).all():
            row = int(np.flatnonzero(~np.isfinite(exact).all(axis=1))[0])
            raise ValueError(
                f"features must be finite; those of sample {row} are not. Check the network and its weights."
            )
        mean = exact.mean(axis=0)
        centred = exact - mean
        return cls(count=len(exact), mean=mean, scatter=centred.T @ centred)

    def merged(self, other: Self) -> Self:
        """The moments of both blocks together (Chan, Golub and LeVeque 1979).

        Associative up to rounding: for equal digits merge equal blocks in an equal order, as `merge_blocks` does.
        """
        count = self.count + other.count
        step = other.mean - self.mean
        return type(self)(
            count=count,
            mean=self.mean + step * (other.count / count),
            scatter=self.scatter
            + other.scatter
            + np.outer(step, step) * (self.count * (other.count / count)),
        )

    def covariance(self, divisor: str = "N - 1") -> Float64[np.ndarray, "feature feature"]:
        """The scatter over N - 1 (as torchmetrics does for FID) or over N (as cd-fvd and StyleGAN-V do for FVD).

        Raises:
            ValueError: if there are fewer than two samples, or the divisor is another.
        """
        if self.count < 2:
            raise ValueError(f"a covariance needs at least 2 samples; got {self.count}.")
        if divisor not in ("N - 1", "N"):
            raise ValueError(f"divisor must be 'N - 1' or 'N'; got {divisor!r}.")
        return self.scatter / (self.count - 1 if divisor == "N - 1" else self.count)


def merge_blocks(blocks: Iterable[Moments]) -> Moments:
    """Blocks merged one after another, in the order given: that order alone decides the last digits.

    Whoever computed a block, and beside how many others, changes nothing, as long as the blocks are the same.

    Raises:
        ValueError: if there is no block.
    """
    pending = iter(blocks)
    first = next(pending, None)
    if first is None:
        raise ValueError("there must be at least one block of features; got none.")
    return reduce(Moments.merged, pending, first)
