"""What an evaluation hands back: every number with unit and protocol, every exclusion counted, no bare NaN."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.bootstrap import Interval, mean_interval, pooled_auc_interval
from merope.evaluation.finite_json import finite_json
from merope.evaluation.metrics.pairs import PairCounts
from merope.evaluation.protocol import AUC_THRESHOLDS_DEG, FLAGS, GAUGE, GENERATED, SPECS, Metric
from merope.files import write_text_atomically

FORMAT = "merope-evaluation-1"
"""What files of results say of themselves; another number is another layout."""
FrameSet = Literal["all", "generated"]
POOLED = {
    f"auc_{threshold}{suffix}": (threshold, suffix != "")
    for threshold in AUC_THRESHOLDS_DEG
    for suffix in ("", "_oriented")
}
"""Metrics that are pooled over the pairs of all clips, with threshold in degrees and whether direction counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The metrics of one clip over one set of frames; a value is None where it is undefined.

    ``reasons`` says why, by metric key. ``pairs`` holds the counts the AUC is pooled from.
    """

    values: dict[str, float | None]
    reasons: dict[str, str] = field(default_factory=dict)
    pairs: PairCounts

    def __getitem__(self, key: str) -> Metric:
        """One metric with unit and protocol; AUC is that of this clip's own pairs."""
        if key not in SPECS:
            raise KeyError(f"no metric {key!r}; there are {', '.join(SPECS)}")
        spec = SPECS[key]
        return Metric(
            value=self.values.get(key), unit=spec.unit, protocol=spec.protocol, reason=self.reasons.get(key)
        )

    def to_dict(self) -> dict[str, Any]:
        """Values, reasons and pair counts as JSON types."""
        return {
            "values": dict(self.values),
            "reasons": dict(self.reasons),
            "num_pairs": self.pairs.num_pairs,
            "num_pairs_with_vanishing_translation": self.pairs.num_vanishing,
            "pairs_below_deg": list(self.pairs.below),
            "pairs_below_deg_oriented": list(self.pairs.below_oriented),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipResult:
    """The evaluation of one clip.

    ``all`` covers every frame, the given prefix included (the paper's T); ``generated`` only the frames from
    ``first_generated`` on, None where that was not given. ``flags`` maps each raised flag to its words.
    ``commanded_digest`` (`digest_of_command`) tells two commands apart when runs are compared.
    """

    clip_id: str
    num_frames: int
    num_registered: int
    first_generated: int | None
    angle_method: str
    unit: str
    all: Scores
    generated: Scores | None
    flags: dict[str, str]
    commanded_digest: str | None = None

    def __getattr__(self, name: str) -> float | None:
        # Only reached for names that are no field: result.rot_deg reads result.all.values["rot_deg"].
        if name in SPECS:
            return self.all.values.get(name)
        raise AttributeError(f"ClipResult has no attribute {name!r}")

    @property
    def reversed(self) -> bool:
        """Whether s* <= 0: the recovered motion runs against the command, which rot, tr and AUC cannot see."""
        return "reversed" in self.flags

    def scores(self, frames: FrameSet) -> Scores | None:
        """The scores over all frames, or over generated ones where there are such."""
        return self.all if frames == "all" else self.generated

    def to_dict(self) -> dict[str, Any]:
        """JSON types only, no NaN."""
        return {
            "clip_id": self.clip_id,
            "num_frames": self.num_frames,
            "num_registered": self.num_registered,
            "first_generated": self.first_generated,
            "angle_method": self.angle_method,
            "commanded_unit": self.unit,
            "commanded_digest": self.commanded_digest,
            "flags": dict(self.flags),
            "all_frames": self.all.to_dict(),
            "generated_frames": None if self.generated is None else self.generated.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One metric over the clips: mean (pooled for AUC), median over clips, bootstrap interval, exclusions.

    ``excluded`` counts the clips that the figure leaves out, by reason; numbers of one clip, which stand in
    brackets in its own reason, are left out of these.
    """

    metric: Metric
    median: float | None
    interval: Interval | None
    num_clips: int
    num_excluded: int
    excluded: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        interval = self.interval
        return {
            "value": self.metric.value,
            "unit": self.metric.unit,
            "median_over_clips": self.median,
            "interval": None if interval is None else [interval.low, interval.high],
            "num_clips": self.num_clips,
            "num_excluded": self.num_excluded,
            "excluded": dict(self.excluded),
            "reason": self.metric.reason,
            "protocol": self.metric.protocol,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """Scores over a set of clips, with the protocol and settings they were made under.

    ``num_expected`` is how many clips there should have been, where that is known: a mean over 98 of 100 says so.
    ``verdict`` is what a benchmark says of the run. ``settings`` are JSON types; they come back from a file as
    they went.

    Raises:
        ValueError: if a clip id comes twice, more clips came than were expected, or a count or seed is negative.
    """

    clips: tuple[ClipResult, ...]
    label: str = "estimate"
    on_failure: str = "error"
    num_skipped: int = 0
    seed: int = 0
    num_resamples: int = 1000
    settings: dict[str, Any] = field(default_factory=dict)
    num_expected: int | None = None
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        repeated = [clip for clip, times in Counter(clip.clip_id for clip in self.clips).items() if times > 1]
        if repeated:
            raise ValueError(
                f"clips must have ids of their own, and {len(repeated)} came more than once, such as {repeated[0]!r}. "
                "Drop the repeats: a clip that counts twice changes every mean."
            )
        if self.num_skipped < 0 or self.seed < 0 or self.num_resamples < 1:
            raise ValueError(
                "num_skipped and seed must be 0 or more and num_resamples 1 or more, got "
                f"{self.num_skipped}, {self.seed} and {self.num_resamples}."
            )
        came = len(self.clips) + self.num_skipped
        if self.num_expected is not None and came > self.num_expected:
            raise ValueError(
                f"num_expected must count every clip that came, skipped ones included: {self.num_expected} were "
                f"expected and {came} came."
            )

    @property
    def expected(self) -> int:
        """How many clips there should be: ``num_expected``, or those that came, skipped ones included."""
        return len(self.clips) + self.num_skipped if self.num_expected is None else self.num_expected

    @property
    def num_missing(self) -> int:
        """Clips that were expected and did not come at all."""
        return self.expected - len(self.clips) - self.num_skipped

    def unit_of(self, key: str) -> str:
        """The unit of a metric; "commanded unit" is said by its name where all clips share it."""
        unit = SPECS[key].unit
        units = {clip.unit for clip in self.clips}
        return units.pop() if unit == "commanded unit" and len(units) == 1 else unit

    def clip(self, clip_id: str) -> ClipResult:
        """The clip of this id.

        Raises:
            KeyError: if there is none.
        """
        for clip in self.clips:
            if clip.clip_id == clip_id:
                return clip
        raise KeyError(f"{self.label} has no clip {clip_id!r}")

    def summary(self, frames: FrameSet = "all") -> dict[str, Summary]:
        """Mean, median, interval and exclusions of every metric; empty for "generated" where no clip has it."""
        scores = [clip.scores(frames) for clip in self.clips]
        present = [score for score in scores if score is not None]
        if not present:
            return {}
        return {key: self._summarise(key, present) for key in SPECS}

    def _summarise(self, key: str, scores: list[Scores]) -> Summary:
        spec = SPECS[key]
        values = [score.values.get(key) for score in scores]
        defined = sorted(value for value in values if value is not None)
        why = [
            score.reasons.get(key, "not computed")
            for score, value in zip(scores, values, strict=True)
            if value is None
        ]
        interval, value = None, None
        if key in POOLED:
            threshold, oriented = POOLED[key]
            pooled = sum((score.pairs for score in scores[1:]), start=scores[0].pairs)
            value = pooled.auc_percent(threshold, oriented=oriented)
            counts = [score.pairs for score in scores]
            interval = pooled_auc_interval(
                counts, threshold, oriented=oriented, seed=self.seed, num_resamples=self.num_resamples
            )
        elif defined:
            value = math.fsum(defined) / len(defined)
            interval = mean_interval(defined, seed=self.seed, num_resamples=self.num_resamples)
        return Summary(
            metric=Metric(
                value=value,
                unit=self.unit_of(key),
                protocol=spec.protocol,
                reason="; ".join(sorted(set(why))) or None,
            ),
            median=_median(defined),
            interval=interval,
            num_clips=len(defined),
            num_excluded=len(why),
            excluded=dict(sorted(Counter(without_numbers(reason) for reason in why).items())),
        )

    @property
    def flag_counts(self) -> dict[str, int]:
        """How many clips carry each flag, zeros included."""
        return {flag: sum(flag in clip.flags for clip in self.clips) for flag in FLAGS}

    @property
    def success_rate(self) -> float:
        """Share of clips whose camera was recovered, skipped ones counted as failures; 0 where no clip came."""
        total = len(self.clips) + self.num_skipped
        return (len(self.clips) - self.flag_counts["failed"]) / max(total, 1)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types: protocol, settings, summaries, flags, and every clip."""
        generated = self.summary("generated")
        return {
            "format": FORMAT,
            "label": self.label,
            "protocol": {
                "gauge": GAUGE,
                "generated_frames": GENERATED,
                "on_failure": self.on_failure,
                "interval": f"95 % percentile bootstrap over clips, {self.num_resamples} resamples, seed {self.seed}",
                "seed": self.seed,
                "num_resamples": self.num_resamples,
            },
            "settings": dict(self.settings),
            "num_clips": len(self.clips),
            "num_skipped": self.num_skipped,
            "num_expected": self.num_expected,
            "success_rate": self.success_rate,
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "metrics": {key: summary.to_dict() for key, summary in self.summary().items()},
            "metrics_generated_frames": {key: summary.to_dict() for key, summary in generated.items()}
            or None,
            "flags": self.flag_counts,
            "flag_meanings": dict(FLAGS),
            "clips": [clip.to_dict() for clip in self.clips],
        }

    def to_json(self) -> str:
        """`to_dict` as text; `read_results` takes it too.

        Raises:
            ValueError: if a number is NaN or infinite, which JSON has no word for.
        """
        return finite_json(self.to_dict())

    def write_json(self, path: str | Path) -> None:
        """Write `to_json` to ``path`` in one step."""
        write_text_atomically(path, self.to_json() + "\n")

    def table(self) -> str:
        """A plain-text table: value, interval, median, unit and exclusions of each metric, then the flags in words."""
        from merope.evaluation.result_table import table_text

        return table_text(self)


def without_numbers(reason: str) -> str:
    """A reason without what stands in brackets, so that clips which share it can be counted."""
    return re.sub(r"\s*\([^()]*(\([^()]*\)[^()]*)*\)", "", reason)


def _median(ordered: list[float]) -> float | None:
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def format_value(value: float | None, digits: int) -> str:
    """A number for a table; a dash where it is undefined."""
    return "-" if value is None else f"{value:.{digits}f}"
