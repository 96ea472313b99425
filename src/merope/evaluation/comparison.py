"""Two runs held against each other clip by clip: differences, intervals and sign tests over the clips that both have."""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from merope.errors import MeropeError
from merope.evaluation.agreement import MUST_AGREE, require_agreement
from merope.evaluation.bootstrap import Interval, paired_auc_interval, paired_mean_interval
from merope.evaluation.protocol import SPECS
from merope.evaluation.result import POOLED, EvaluationResult, FrameSet, Scores, without_numbers
from merope.evaluation.settings_differences import settings_that_differ
from merope.evaluation.sign_test import sign_test_p

__all__ = ["TIES", "PairedComparison", "PairedMetric", "compare", "settings_that_differ"]

TIES = "a tie: closer than half a step of the last printed digit, or than 1e-9 of the value"
"""When neither run is better, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedMetric:
    """One metric of runs A and B over the clips where both have it.

    ``a`` and ``b`` are means over these clips (AUC: pooled over their pairs), ``difference`` is B - A with its paired
    bootstrap ``interval``. Of a metric that should be 1, such as s*, all this is of its distance from 1. ``wins`` are
    clips where B is better, ``losses`` those where A is, ``ties`` those where the printed digits cannot show a
    difference: less than half a step of the last one, or 1e-9 of the value. ``p_value`` is that of the sign test.
    None where no clip has the metric, or where neither direction is better.
    """

    key: str
    unit: str
    a: float | None
    b: float | None
    difference: float | None
    interval: Interval | None
    wins: int | None
    losses: int | None
    ties: int | None
    p_value: float | None
    clips: dict[str, tuple[float, float]]
    """By clip id, what was compared: A's number and B's."""
    excluded: dict[str, int]
    """Clips of both runs where one lacks the metric, counted by reason."""

    @property
    def better(self) -> str | None:
        """ "a" or "b", whichever figure is better; None where they are equal or no direction is better."""
        if self.a is None or self.b is None or self.difference is None:
            return None
        if SPECS[self.key].better == "none" or _tie(self.key, self.a, self.b):
            return None
        return "b" if _sign(self.key) * self.difference > 0 else "a"

    @property
    def differences(self) -> dict[str, float]:
        """B - A of every clip, by clip id."""
        return {clip: b - a for clip, (a, b) in self.clips.items()}

    def largest(self, count: int) -> list[str]:
        """The ids of the clips that differ most, largest difference first, ties left out; equal ones by id."""
        gaps = {clip: abs(b - a) for clip, (a, b) in self.clips.items() if not _tie(self.key, a, b)}
        return sorted(gaps, key=lambda clip: (-gaps[clip], clip))[:count]

    def to_dict(self, *, with_clips: bool = True) -> dict[str, Any]:
        """JSON types only; without the numbers of every clip where the clips themselves stand beside it."""
        interval = self.interval
        return {
            "unit": self.unit,
            "a": self.a,
            "b": self.b,
            "difference": self.difference,
            "interval": None if interval is None else [interval.low, interval.high],
            "better": self.better,
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.ties,
            "sign_test_p": self.p_value,
            "num_clips": len(self.clips),
            "excluded": dict(self.excluded),
            **({"clips": {clip: list(pair) for clip, pair in self.clips.items()}} if with_clips else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """What changes from run A to run B, over the clips that both have.

    Clips of one run alone are in ``only_a`` and ``only_b``. ``despite`` names what should agree and does not, where
    the caller accepted that; ``notes`` say what could not be checked.
    """

    label_a: str
    label_b: str
    frames: FrameSet
    metrics: dict[str, PairedMetric]
    clip_ids: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    expected_a: int
    expected_b: int
    settings: dict[str, tuple[Any, Any]]
    """Settings that differ, A's value and B's."""
    despite: tuple[str, ...]
    notes: tuple[str, ...]
    seed: int
    num_resamples: int

    def to_dict(self, *, with_clips: bool = True) -> dict[str, Any]:
        """JSON types only; without the numbers of every clip where the clips themselves stand beside it."""
        return {
            "a": self.label_a,
            "b": self.label_b,
            "frames": self.frames,
            "protocol": (
                "difference is b - a over the clips that both have, AUC pooled over their pairs; metrics that should be 1 "
                f"by their distance from it; 95 % paired percentile bootstrap over clips, {self.num_resamples} resamples, "
                f"seed {self.seed}; exact two-sided sign test, ties left out, not corrected for looking at several metrics; "
                f"{TIES}"
            ),
            "num_clips": len(self.clip_ids),
            "num_expected": [self.expected_a, self.expected_b],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "metrics": {key: metric.to_dict(with_clips=with_clips) for key, metric in self.metrics.items()},
            "settings_that_differ": {name: list(pair) for name, pair in self.settings.items()},
            "despite": list(self.despite),
            "notes": list(self.notes),
        }

    def table(self, metrics: Collection[str] | None = None) -> str:
        """A plain-text table, of the named metrics or of all that a clip has."""
        from merope.evaluation.comparison_table import comparison_text

        return comparison_text(self, metrics)


def compare(
    a: EvaluationResult,
    b: EvaluationResult,
    *,
    frames: FrameSet = "all",
    despite: Collection[str] = (),
    seed: int = 0,
    num_resamples: int = 1000,
) -> PairedComparison:
    """Compare two runs on the clips that both have: B - A per clip, its mean with interval, and a sign test.

    Clips that only one has are named and left out. Resamples draw clips, with the same draws for both runs; for AUC
    the pairs of the drawn clips are pooled. ``despite`` accepts differences that are refused otherwise, by their
    names in `MUST_AGREE`.

    Raises:
        ValueError: if ``despite`` has another name.
        MeropeError: if the runs share no clip, or clips differ in what must agree.
    """
    unknown = set(despite) - MUST_AGREE.keys()
    if unknown:
        raise ValueError(
            f"despite must name some of {', '.join(MUST_AGREE)}, got {', '.join(sorted(unknown))}."
        )
    sides_a, sides_b = ({clip.clip_id: clip for clip in run.clips} for run in (a, b))
    shared = sorted(sides_a.keys() & sides_b.keys())
    if not shared:
        raise MeropeError(
            f"{a.label} and {b.label} share no clip: the first has {_named(sides_a)}, the second {_named(sides_b)}. Clips "
            "are matched by their ids."
        )
    pairs = [(sides_a[clip], sides_b[clip]) for clip in shared]
    broken = require_agreement(a.label, b.label, pairs, despite)
    notes = []
    unchecked = sum(one.commanded_digest is None or other.commanded_digest is None for one, other in pairs)
    if unchecked:
        notes.append(
            f"{unchecked} clip(s) have no digest of their command: that both runs followed the same one is untested"
        )
    scored = [
        (one.clip_id, left, right)
        for one, other in pairs
        if (left := one.scores(frames)) is not None and (right := other.scores(frames)) is not None
    ]
    if not scored:
        raise MeropeError(
            f"{a.label} and {b.label} have no figures over generated frames. Compare all frames, or score them with the "
            "number of given frames."
        )
    if len(scored) < len(pairs):
        notes.append(
            f"{len(pairs) - len(scored)} clip(s) have no figures over generated frames in one of the runs"
        )
    if len(scored) == 1:
        notes.append("one clip: no interval; --window cuts a long drive into clips")
    units = {
        key: a.unit_of(key) if a.unit_of(key) == b.unit_of(key) else spec.unit for key, spec in SPECS.items()
    }
    return PairedComparison(
        label_a=a.label,
        label_b=b.label,
        frames=frames,
        metrics={key: _paired(key, unit, scored, seed, num_resamples) for key, unit in units.items()},
        clip_ids=tuple(clip for clip, _, _ in scored),
        only_a=tuple(sorted(sides_a.keys() - sides_b.keys())),
        only_b=tuple(sorted(sides_b.keys() - sides_a.keys())),
        expected_a=a.expected,
        expected_b=b.expected,
        settings=settings_that_differ(a, b),
        despite=broken,
        notes=tuple(notes),
        seed=seed,
        num_resamples=num_resamples,
    )


def _paired(
    key: str, unit: str, scored: list[tuple[str, Scores, Scores]], seed: int, num_resamples: int
) -> PairedMetric:
    spec = SPECS[key]
    clips: dict[str, tuple[float, float]] = {}
    both: list[tuple[Scores, Scores]] = []
    excluded: Counter[str] = Counter()
    for clip, one, other in scored:
        left, right = one.values.get(key), other.values.get(key)
        if left is None or right is None:
            excluded[_why(key, one, other)] += 1
            continue
        clips[clip] = (abs(left - 1), abs(right - 1)) if spec.better == "one" else (left, right)
        both.append((one, other))
    a, b, interval = _figures(key, list(clips.values()), both, seed, num_resamples)
    ties = sum(_tie(key, *pair) for pair in clips.values())
    directed = bool(clips) and spec.better != "none"
    wins = sum(
        _sign(key) * (right - left) > 0 and not _tie(key, left, right) for left, right in clips.values()
    )
    losses = len(clips) - ties - wins
    return PairedMetric(
        key=key,
        unit=unit,
        a=a,
        b=b,
        difference=None if a is None or b is None else b - a,
        interval=interval,
        wins=wins if directed else None,
        losses=losses if directed else None,
        ties=ties if directed else None,
        p_value=sign_test_p(losses, wins) if directed else None,
        clips=clips,
        excluded=dict(sorted(excluded.items())),
    )


def _figures(
    key: str,
    values: list[tuple[float, float]],
    both: list[tuple[Scores, Scores]],
    seed: int,
    num_resamples: int,
) -> tuple[float | None, float | None, Interval | None]:
    if not values:
        return None, None, None
    if key not in POOLED:
        a, b = (math.fsum(column) / len(values) for column in zip(*values, strict=True))
        gaps = [right - left for left, right in values]
        return a, b, paired_mean_interval(gaps, seed=seed, num_resamples=num_resamples)
    threshold, oriented = POOLED[key]
    sides = [[scores.pairs for scores in side] for side in zip(*both, strict=True)]
    a, b = (sum(side[1:], start=side[0]).auc_percent(threshold, oriented=oriented) for side in sides)
    interval = paired_auc_interval(
        sides[0], sides[1], threshold, oriented=oriented, seed=seed, num_resamples=num_resamples
    )
    return a, b, interval


def _sign(key: str) -> int:
    """+1 where more is better, -1 where less is; a distance from 1 should be small."""
    return 1 if SPECS[key].better == "higher" else -1


def _tie(key: str, left: float, right: float) -> bool:
    # Two ways to the same pose, or files of it with fewer digits, differ by rounding; nobody wins by that.
    unseen = 0.5 * 10.0 ** -SPECS[key].digits
    return abs(right - left) < unseen or math.isclose(left, right, rel_tol=1e-9)


def _why(key: str, one: Scores, other: Scores) -> str:
    lacking = [name for name, scores in (("A", one), ("B", other)) if scores.values.get(key) is None]
    reasons = {
        without_numbers(scores.reasons.get(key, "not computed"))
        for scores in (one, other)
        if scores.values.get(key) is None
    }
    return f"{' and '.join(sorted(reasons))} (in {' and '.join(lacking)})"


def _named(clips: Collection[str]) -> str:
    ids = sorted(clips)
    more = f" and {len(ids) - 2} more" if len(ids) > 2 else ""
    return ", ".join(repr(clip) for clip in ids[:2]) + more if ids else "none"
