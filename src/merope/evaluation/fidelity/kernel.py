"""The kernel distance of KID and KVD: an unbiased squared maximum mean discrepancy, which small sets can have too."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64

from merope.evaluation.fidelity.features import FeatureSet

# Rows whose kernel with as many others is in memory at once.
_ROWS = 1024
DEGREE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDistance:
    """A kernel distance with its uncertainty; that is None where it cannot be estimated."""

    value: float
    uncertainty: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sums:
    """Sums of a kernel over pairs of one set or two: all of them, and what each clip takes part in."""

    total: float
    by_clip: Float64[np.ndarray, "clip"]
    within_clip: Float64[np.ndarray, "clip"]


def kernel_distance(real: FeatureSet, generated: FeatureSet) -> KernelDistance:
    """The squared maximum mean discrepancy over all pairs, with k(x, y) = (x.y / d + 1)^3 (Bińkowski et al. 2018).

    The mean of k over pairs of different real features, plus that of generated ones, minus twice that of mixed pairs.
    Its expectation does not depend on N, and it may be below 0 where the sets are alike. The uncertainty is a standard
    error by the jackknife that leaves one clip out, of either set: frames of one clip are no independent samples. Where
    the sets are alike it is too large rather than too small.

    Raises:
        ValueError: if the numbers of features differ, or a set has fewer than two samples.
    """
    _require_two(real, generated)
    own = [_own_sums(each) for each in (real, generated)]
    across = _sums_across(real, generated)
    counts = [len(real), len(generated)]
    value = _discrepancy(own[0].total, own[1].total, across[0].sum(), counts[0], counts[1])
    variance: float | None = 0.0
    for side, features in enumerate((real, generated)):
        num_clips = len(features.sizes)
        if num_clips < 2 or counts[side] - max(features.sizes) < 2:
            variance = None
            break
        # Pairs of the other clips: all but those with one of this clip's features on either side.
        left = own[side].total - 2 * own[side].by_clip + own[side].within_clip
        mixed = across[0].sum() - across[side]
        others = own[1 - side].total
        without = np.array(
            [
                _discrepancy(kept, others, both, counts[side] - size, counts[1 - side])
                for kept, both, size in zip(left, mixed, features.sizes, strict=True)
            ]
        )
        assert variance is not None
        variance += (num_clips - 1) / num_clips * float(((without - without.mean()) ** 2).sum())
    return KernelDistance(value=value, uncertainty=None if variance is None else variance**0.5)


def kernel_distance_of_subsets(
    real: FeatureSet, generated: FeatureSet, *, num_subsets: int = 100, subset_size: int = 1000, seed: int = 0
) -> KernelDistance:
    """The mean of `kernel_distance` over random subsets, and its standard deviation over them, as torchmetrics has it.

    The draws are those that torchmetrics makes after ``torch.manual_seed(seed)``; the state of torch's own generator is
    not touched. The standard deviation says how much one subset scatters. It is no standard error of the mean: subsets
    overlap, and more of them do not make the sets larger.

    Raises:
        ValueError: if a subset is larger than a set or smaller than 2, or there are no subsets.
    """
    _require_two(real, generated)
    if num_subsets < 1 or not 2 <= subset_size <= min(len(real), len(generated)):
        raise ValueError(
            f"subset_size must be from 2 to the smaller set's {min(len(real), len(generated))} samples, num_subsets at "
            f"least 1; got {subset_size} and {num_subsets}. Without subsets all pairs are taken (kernel_distance)."
        )
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(num_subsets):
        x, y = (
            each.rows(torch.randperm(len(each), generator=generator)[:subset_size].numpy())
            for each in (real, generated)
        )
        values.append(
            _discrepancy(
                _without_diagonal(x), _without_diagonal(y), _kernel(x, y).sum(), subset_size, subset_size
            )
        )
    return KernelDistance(value=float(np.mean(values)), uncertainty=float(np.std(values)))


def _discrepancy(own_real: float, own_generated: float, across: float, count: int, count_other: int) -> float:
    """The unbiased estimate from sums over ordered pairs."""
    return float(
        own_real / (count * (count - 1))
        + own_generated / (count_other * (count_other - 1))
        - 2 * across / (count * count_other)
    )


def _kernel(
    x: Float64[np.ndarray, "left feature"], y: Float64[np.ndarray, "right feature"]
) -> Float64[np.ndarray, "left right"]:
    return (x @ y.T / x.shape[1] + 1) ** DEGREE


def _without_diagonal(x: Float64[np.ndarray, "sample feature"]) -> float:
    kernel = _kernel(x, x)
    return float(kernel.sum() - np.trace(kernel))


def _own_sums(features: FeatureSet) -> _Sums:
    rows = np.zeros(len(features))
    for start, x in features.chunks(_ROWS):
        at = slice(start, start + len(x))
        rows[at] -= (np.einsum("sf,sf->s", x, x) / x.shape[1] + 1) ** DEGREE
        for _, y in features.chunks(_ROWS):
            rows[at] += _kernel(x, y).sum(axis=1)
    within = [
        _without_diagonal(features.block(number).astype(np.float64)) for number in range(len(features.sizes))
    ]
    return _Sums(total=float(rows.sum()), by_clip=_by_clip(features, rows), within_clip=np.array(within))


def _sums_across(
    real: FeatureSet, generated: FeatureSet
) -> tuple[Float64[np.ndarray, "clip"], Float64[np.ndarray, "other_clip"]]:
    """Sums of the kernel between the sets, by clip of the one and of the other."""
    of_real, of_generated = np.zeros(len(real)), np.zeros(len(generated))
    for start, x in real.chunks(_ROWS):
        for other, y in generated.chunks(_ROWS):
            kernel = _kernel(x, y)
            of_real[start : start + len(x)] += kernel.sum(axis=1)
            of_generated[other : other + len(y)] += kernel.sum(axis=0)
    return _by_clip(real, of_real), _by_clip(generated, of_generated)


def _by_clip(features: FeatureSet, rows: Float64[np.ndarray, "sample"]) -> Float64[np.ndarray, "clip"]:
    return np.add.reduceat(rows, np.cumsum((0, *features.sizes[:-1])))


def _require_two(real: FeatureSet, generated: FeatureSet) -> None:
    if real.dimension != generated.dimension:
        raise ValueError(
            f"both sets must have features of one network; got {real.dimension} and {generated.dimension} numbers each."
        )
    if min(len(real), len(generated)) < 2:
        raise ValueError(
            f"a kernel distance needs at least 2 samples of each set; got {len(real)} and {len(generated)}."
        )
