"""What an evaluation hands back: every number with unit and protocol, every exclusion counted, no bare NaN."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from merope.evaluation.bootstrap import Interval, mean_interval, pooled_auc_interval
from merope.evaluation.metrics.pairs import PairCounts
from merope.evaluation.protocol import AUC_THRESHOLDS_DEG, FLAGS, GAUGE, GENERATED, SPECS, Metric
from merope.files import write_text_atomically

FrameSet = Literal["all", "generated"]
_POOLED = {f"auc_{threshold}{suffix}" for threshold in AUC_THRESHOLDS_DEG for suffix in ("", "_oriented")}


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

    def __getattr__(self, name: str) -> float | None:
        # Only reached for names that are no field: result.rot_deg reads result.all.values["rot_deg"].
        if name in SPECS:
            return self.all.values.get(name)
        raise AttributeError(f"ClipResult has no attribute {name!r}")

    @property
    def reversed(self) -> bool:
        """Whether s* <= 0: the recovered motion runs against the command, which rot, tr and AUC cannot see."""
        return "reversed" in self.flags

    def to_dict(self) -> dict[str, Any]:
        """JSON types only, no NaN."""
        return {
            "clip_id": self.clip_id,
            "num_frames": self.num_frames,
            "num_registered": self.num_registered,
            "first_generated": self.first_generated,
            "commanded_unit": self.unit,
            "flags": dict(self.flags),
            "all_frames": self.all.to_dict(),
            "generated_frames": None if self.generated is None else self.generated.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One metric over the clips: mean (pooled for AUC), median over clips, bootstrap interval, exclusions."""

    metric: Metric
    median: float | None
    interval: Interval | None
    num_clips: int
    num_excluded: int

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
            "reason": self.metric.reason,
            "protocol": self.metric.protocol,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """Scores over a set of clips, with the protocol and settings they were made under."""

    clips: tuple[ClipResult, ...]
    label: str = "estimate"
    on_failure: str = "error"
    num_skipped: int = 0
    seed: int = 0
    num_resamples: int = 1000
    settings: dict[str, Any] = field(default_factory=dict)

    def summary(self, frames: FrameSet = "all") -> dict[str, Summary]:
        """Mean, median, interval and exclusions of every metric; empty for "generated" where no clip has it."""
        scores = [clip.all if frames == "all" else clip.generated for clip in self.clips]
        present = [score for score in scores if score is not None]
        if not present:
            return {}
        return {key: self._summarise(key, present) for key in SPECS}

    def _summarise(self, key: str, scores: list[Scores]) -> Summary:
        spec = SPECS[key]
        values = [score.values.get(key) for score in scores]
        defined = sorted(value for value in values if value is not None)
        reasons = sorted({score.reasons[key] for score in scores if key in score.reasons})
        interval, value = None, None
        if key in _POOLED:
            threshold, oriented = int(key.split("_")[1]), key.endswith("oriented")
            pooled = sum((score.pairs for score in scores[1:]), start=scores[0].pairs)
            value = pooled.auc_percent(threshold, oriented=oriented)
            counts = [score.pairs for score in scores]
            interval = pooled_auc_interval(
                counts, threshold, oriented=oriented, seed=self.seed, num_resamples=self.num_resamples
            )
        elif defined:
            value = sum(defined) / len(defined)
            interval = mean_interval(defined, seed=self.seed, num_resamples=self.num_resamples)
        return Summary(
            metric=Metric(
                value=value, unit=spec.unit, protocol=spec.protocol, reason="; ".join(reasons) or None
            ),
            median=_median(defined),
            interval=interval,
            num_clips=len(defined),
            num_excluded=len(values) - len(defined),
        )

    @property
    def flag_counts(self) -> dict[str, int]:
        """How many clips carry each flag, zeros included."""
        return {flag: sum(flag in clip.flags for clip in self.clips) for flag in FLAGS}

    @property
    def success_rate(self) -> float:
        """Share of clips whose camera was recovered, skipped ones counted as failures."""
        total = len(self.clips) + self.num_skipped
        return (len(self.clips) - self.flag_counts["failed"]) / total

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types: protocol, settings, summaries, flags, and every clip."""
        generated = self.summary("generated")
        return {
            "label": self.label,
            "protocol": {
                "gauge": GAUGE,
                "generated_frames": GENERATED,
                "on_failure": self.on_failure,
                "interval": f"95 % percentile bootstrap over clips, {self.num_resamples} resamples, seed {self.seed}",
            },
            "settings": dict(self.settings),
            "num_clips": len(self.clips),
            "num_skipped": self.num_skipped,
            "success_rate": self.success_rate,
            "metrics": {key: summary.to_dict() for key, summary in self.summary().items()},
            "metrics_generated_frames": {key: summary.to_dict() for key, summary in generated.items()}
            or None,
            "flags": self.flag_counts,
            "flag_meanings": dict(FLAGS),
            "clips": [clip.to_dict() for clip in self.clips],
        }

    def to_json(self) -> str:
        """`to_dict` as text; refuses NaN and infinity rather than writing them."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def write_json(self, path: str | Path) -> None:
        """Write `to_json` to ``path`` in one step."""
        write_text_atomically(path, self.to_json() + "\n")

    def table(self) -> str:
        """A plain-text table: value, interval, median, unit and exclusions of each metric, then the flags in words."""
        return table_text(self)


def _median(ordered: list[float]) -> float | None:
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def table_text(result: EvaluationResult) -> str:
    """The table that `EvaluationResult.table` returns."""
    summaries = {"all": result.summary("all"), "generated": result.summary("generated")}
    header = ["metric", "unit", "value", "95% interval", "median", "clips"]
    if summaries["generated"]:
        header.insert(3, "generated only")
    rows = [header]
    for key, summary in summaries["all"].items():
        spec, interval = SPECS[key], summary.interval
        row = [
            spec.label,
            spec.unit,
            format_value(summary.metric.value, spec.digits),
            "-" if interval is None else f"{interval.low:.{spec.digits}f} .. {interval.high:.{spec.digits}f}",
            format_value(summary.median, spec.digits),
            f"{summary.num_clips}" + (f" ({summary.num_excluded} excluded)" if summary.num_excluded else ""),
        ]
        if summaries["generated"]:
            row.insert(3, format_value(summaries["generated"][key].metric.value, spec.digits))
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    frames = sorted({clip.num_frames for clip in result.clips})
    total = len(result.clips) + result.num_skipped
    about = [
        f"{result.label}: {total} clip{'s' if total != 1 else ''} of {_span(frames)} frames; "
        f"poses recovered for {100 * result.success_rate:.0f} %"
        + (f"; {result.num_skipped} skipped" if result.num_skipped else ""),
        f"gauge: {GAUGE}",
        "",
    ]
    excluded = [
        f"{SPECS[key].label}: {summary.num_excluded} clip(s) excluded: {summary.metric.reason}"
        for key, summary in summaries["all"].items()
        if summary.num_excluded and summary.metric.reason
    ]
    flagged = [
        f"{flag}: {count} clip(s): {FLAGS[flag]}" for flag, count in result.flag_counts.items() if count
    ]
    return "\n".join(about + lines + (["", *excluded, *flagged] if excluded or flagged else []))


def format_value(value: float | None, digits: int) -> str:
    """A number for a table; a dash where it is undefined."""
    return "-" if value is None else f"{value:.{digits}f}"


def _span(numbers: list[int]) -> str:
    if not numbers:
        return "0"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
