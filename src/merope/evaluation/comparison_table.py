"""A paired comparison as the text that the command line prints."""

import json
from collections.abc import Collection
from typing import Any

from merope.evaluation.agreement import MUST_AGREE
from merope.evaluation.bootstrap import Interval
from merope.evaluation.comparison import TIES, PairedComparison, PairedMetric
from merope.evaluation.protocol import SPECS
from merope.evaluation.result import format_value
from merope.evaluation.text_table import aligned, wrapped

_NAMED_CLIPS = 10
_LONGEST_SETTING = 60


def comparison_text(comparison: PairedComparison, metrics: Collection[str] | None = None) -> str:
    """The table that `PairedComparison.table` returns."""
    chosen = [
        metric
        for key, metric in comparison.metrics.items()
        if (metric.clips if metrics is None else key in metrics)
    ]
    lines = [line for text in heading(comparison) for line in wrapped(text)]
    lines += ["", *aligned([_HEADER, *(_row(metric) for metric in chosen)], left=(0, 1, 2, 7))]
    for metric in chosen:
        for reason, count in metric.excluded.items():
            lines += wrapped(f"{_name(metric)}: {count} clip(s) left out: {reason}")
    return "\n".join(lines)


def heading(comparison: PairedComparison) -> list[str]:
    """Which runs, over which clips, and how the columns were computed."""
    used = len(comparison.clip_ids)
    which = "all frames" if comparison.frames == "all" else "generated frames alone"
    lines = [
        f"A: {comparison.label_a}",
        f"B: {comparison.label_b}",
        f"over the {used} clip(s) that both have ({used} of {comparison.expected_a} of A, {used} of "
        f"{comparison.expected_b} of B), {which}",
        "B - A: mean over clips, AUC pooled over the pairs of all clips; what should be 1 counts by its distance from 1",
        f"95% interval: paired bootstrap over clips, {comparison.num_resamples} resamples, seed {comparison.seed}; p: exact "
        "two-sided sign test without ties, "
        "not corrected for looking at several metrics; B/A/ties: clips where B is better, A is, neither; unclear: the "
        f"interval holds 0, or there is none; {TIES}",
    ]
    for run, clips in (("A", comparison.only_a), ("B", comparison.only_b)):
        if clips:
            more = f" and {len(clips) - _NAMED_CLIPS} more" if len(clips) > _NAMED_CLIPS else ""
            lines.append(
                f"left out, only {run} has them: {len(clips)} clip(s): {', '.join(clips[:_NAMED_CLIPS])}{more}"
            )
    lines += [f"warning: compared although not all clips {MUST_AGREE[name]}" for name in comparison.despite]
    lines += [f"note: {note}" for note in comparison.notes]
    return lines


_HEADER = ["metric", "unit", "scale", "A", "B", "B - A", "95% interval", "better"]
_HEADER += ["B/A/ties", "p", "clips"]


def _row(metric: PairedMetric) -> list[str]:
    spec = SPECS[metric.key]
    digits = spec.digits
    wins = "-" if metric.wins is None else f"{metric.wins}/{metric.losses}/{metric.ties}"
    return [
        _name(metric),
        metric.unit,
        spec.scale_rule,
        format_value(metric.a, digits),
        format_value(metric.b, digits),
        "-" if metric.difference is None else f"{metric.difference:+.{digits}f}",
        _interval(metric.interval, digits),
        _better(metric),
        wins,
        p_text(metric.p_value),
        str(len(metric.clips)),
    ]


def _name(metric: PairedMetric) -> str:
    spec = SPECS[metric.key]
    return f"|{spec.label} - 1|" if spec.better == "one" else spec.label


def _interval(interval: Interval | None, digits: int) -> str:
    return "-" if interval is None else f"{interval.low:+.{digits}f} .. {interval.high:+.{digits}f}"


def _better(metric: PairedMetric) -> str:
    if metric.better is None:
        return "-"
    clear = metric.interval is not None and metric.interval.excludes_zero
    return metric.better.upper() + ("" if clear else ", unclear")


def p_text(p_value: float | None) -> str:
    """A p-value for a table."""
    if p_value is None:
        return "-"
    return "<0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def settings_text(comparison: PairedComparison) -> str:
    """The settings that differ, one a line."""
    if not comparison.settings:
        return "settings that differ: none"
    rows = [["setting", "A", "B"]]
    rows += [[name, _short(a), _short(b)] for name, (a, b) in comparison.settings.items()]
    return "\n".join(["settings that differ:", *aligned(rows, left=(0, 1, 2), indent="  ")])


def largest_text(comparison: PairedComparison, key: str, count: int) -> str:
    """The clips whose metric differs most between the runs."""
    metric = comparison.metrics[key]
    digits, name = SPECS[key].digits, _name(metric)
    clips = metric.largest(count)
    if not clips:
        return f"clips that differ most, by {name}: none differs"
    rows = [["clip", "A", "B", "B - A"]]
    for clip in clips:
        a, b = metric.clips[clip]
        rows.append([clip, f"{a:.{digits}f}", f"{b:.{digits}f}", f"{b - a:+.{digits}f}"])
    return "\n".join([f"clips that differ most, by {name}:", *aligned(rows, indent="  ")])


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_SETTING else text[: _LONGEST_SETTING - 3] + "..."
