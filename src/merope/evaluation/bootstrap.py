"""Bootstrap intervals over clips: how far a mean could move with other clips of the same kind."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from merope.evaluation.metrics.pairs import PairCounts


@dataclass(frozen=True, slots=True)
class Interval:
    """The central 95 % of resampled means."""

    low: float
    high: float


def mean_interval(values: Sequence[float], *, seed: int = 0, num_resamples: int = 1000) -> Interval | None:
    """Percentile bootstrap interval of a mean over clips; None below two clips.

    The same seed gives the same interval, whatever the order in which clips were scored.
    """
    if len(values) < 2:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return _percentiles(ordered[_draws(len(ordered), seed, num_resamples)].mean(axis=1))


def pooled_auc_interval(
    counts: Sequence[PairCounts],
    threshold_deg: int,
    *,
    oriented: bool,
    seed: int = 0,
    num_resamples: int = 1000,
) -> Interval | None:
    """The same for a pooled AUC: clips are drawn, their pairs are pooled; None below two clips."""
    if len(counts) < 2:
        return None
    rows = sorted(
        (sum((count.below_oriented if oriented else count.below)[:threshold_deg]), count.num_pairs)
        for count in counts
    )
    drawn = np.asarray(rows, dtype=np.float64)[_draws(len(rows), seed, num_resamples)].sum(axis=1)
    if (drawn[:, 1] == 0).any():
        return None
    return _percentiles(100.0 * drawn[:, 0] / (threshold_deg * drawn[:, 1]))


def _draws(num: int, seed: int, num_resamples: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, num, size=(num_resamples, num))


def _percentiles(samples: np.ndarray) -> Interval:
    low, high = np.percentile(samples, [2.5, 97.5])
    return Interval(float(low), float(high))
