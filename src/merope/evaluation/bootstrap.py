"""Bootstrap intervals over clips: how far a figure could move with other clips of the same kind.

Clips are drawn with replacement. The draws depend on their number, the seed and the number of resamples alone, so
all metrics of a run share them, and neither the order of clips nor the number of workers changes a digit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from merope.evaluation.metrics.pairs import PairCounts

# Entries of draws that are looked up at once: memory stays at tens of MB for any number of clips.
_BLOCK_ENTRIES = 2_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """The central 95 % of resampled figures."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside."""
        return self.low > 0 or self.high < 0


def mean_interval(values: Sequence[float], *, seed: int = 0, num_resamples: int = 1000) -> Interval | None:
    """Percentile bootstrap interval of a mean over clips, in whatever order they come; None below two clips."""
    return _mean_interval(np.sort(np.asarray(values, dtype=np.float64)), seed, num_resamples)


def paired_mean_interval(
    differences: Sequence[float], *, seed: int = 0, num_resamples: int = 1000
) -> Interval | None:
    """The same for the mean of differences B - A clip by clip: a drawn clip brings both its numbers.

    Draws go by place, so clips must come in an order of their own, such as that of their ids. Exchanging A and B then
    only turns the interval's sign.
    """
    return _mean_interval(np.asarray(differences, dtype=np.float64), seed, num_resamples)


def _mean_interval(values: np.ndarray, seed: int, num_resamples: int) -> Interval | None:
    if len(values) < 2:
        return None
    blocks = _blocks(len(values), seed, num_resamples)
    return _percentiles(np.concatenate([values[block].mean(axis=1) for block in blocks]))


def pooled_auc_interval(
    counts: Sequence[PairCounts],
    threshold_deg: int,
    *,
    oriented: bool,
    seed: int = 0,
    num_resamples: int = 1000,
) -> Interval | None:
    """The same for a pooled AUC in percent: clips are drawn, their pairs are pooled; None below two clips."""
    rows = sorted(_below_and_total(count, threshold_deg, oriented) for count in counts)
    drawn = _resampled_sums(rows, seed, num_resamples)
    if drawn is None or (drawn[:, 1] == 0).any():
        return None
    return _percentiles(_auc_percent(drawn, threshold_deg))


def paired_auc_interval(
    counts_a: Sequence[PairCounts],
    counts_b: Sequence[PairCounts],
    threshold_deg: int,
    *,
    oriented: bool,
    seed: int = 0,
    num_resamples: int = 1000,
) -> Interval | None:
    """Interval of the difference B - A of two pooled AUC on the same clips, in points of percent; None below two clips.

    A drawn clip brings its pairs to both. Draws go by place, as in `paired_mean_interval`.

    Raises:
        ValueError: if the two do not have as many clips.
    """
    rows = [
        (
            *_below_and_total(count_a, threshold_deg, oriented),
            *_below_and_total(count_b, threshold_deg, oriented),
        )
        for count_a, count_b in zip(counts_a, counts_b, strict=True)
    ]
    drawn = _resampled_sums(rows, seed, num_resamples)
    if drawn is None or (drawn[:, [1, 3]] == 0).any():
        return None
    return _percentiles(_auc_percent(drawn[:, 2:], threshold_deg) - _auc_percent(drawn[:, :2], threshold_deg))


def _below_and_total(count: PairCounts, threshold_deg: int, oriented: bool) -> tuple[int, int]:
    below = count.below_oriented if oriented else count.below
    return sum(below[:threshold_deg]), count.num_pairs


def _auc_percent(sums: np.ndarray, threshold_deg: int) -> np.ndarray:
    """Eq. 42 from columns (pairs below 1, 2, ... degrees added up, pairs)."""
    return 100.0 * sums[:, 0] / (threshold_deg * sums[:, 1])


def _resampled_sums(rows: Sequence[tuple[int, ...]], seed: int, num_resamples: int) -> np.ndarray | None:
    if len(rows) < 2:
        return None
    table = np.asarray(rows, dtype=np.float64)
    blocks = _blocks(len(rows), seed, num_resamples)
    return np.concatenate(
        [np.stack([column[block].sum(axis=1) for column in table.T], axis=1) for block in blocks]
    )


def _blocks(num: int, seed: int, num_resamples: int) -> list[np.ndarray]:
    draws = _draws(num, seed, num_resamples)
    step = max(1, _BLOCK_ENTRIES // num)
    return [draws[start : start + step] for start in range(0, num_resamples, step)]


@lru_cache(maxsize=4)
def _draws(num: int, seed: int, num_resamples: int) -> np.ndarray:
    draws = np.random.default_rng(seed).integers(0, num, size=(num_resamples, num)).astype(np.int32)
    draws.flags.writeable = False
    return draws


def _percentiles(samples: np.ndarray) -> Interval:
    low, high = np.percentile(samples, [2.5, 97.5])
    return Interval(float(low), float(high))
