"""Paired comparisons: what changes from one run to another, over the clips that both have."""

from collections.abc import Sequence
from html import escape

from merope.evaluation.comparison import PairedComparison, PairedMetric
from merope.evaluation.protocol import SPECS
from merope.evaluation.report.markup import bullets, column, paragraph, row_head, section, table
from merope.evaluation.result import format_value

# More pairs of runs than anybody reads.
MAX_COMPARISONS = 12


def comparisons_section(comparisons: Sequence[PairedComparison]) -> str:
    """A table for each pair of runs: both figures, difference with interval, wins and losses, sign test."""
    if not comparisons:
        return ""
    parts = [
        paragraph(
            "Differences are B minus A over the clips that both have; a win is a clip where B is better. Metrics whose best "
            "value is 1 are compared by their distance from 1. The interval is a 95 % paired bootstrap over clips, p is "
            "that of an exact two-sided sign test, not corrected for looking at several metrics."
        )
    ]
    parts += [_one(comparison) for comparison in comparisons[:MAX_COMPARISONS]]
    if len(comparisons) > MAX_COMPARISONS:
        parts.append(paragraph(f"{len(comparisons) - MAX_COMPARISONS} more are in results.json."))
    return section("Paired comparisons", *parts, anchor="comparisons")


def _one(comparison: PairedComparison) -> str:
    a, b = comparison.label_a, comparison.label_b
    frames = "all frames" if comparison.frames == "all" else "generated frames only"
    head = [
        column("Metric"),
        *(column(name, small) for name, small in (("A", a), ("B", b))),
        column("B - A", "95 % interval"),
        column("B wins"),
        column("A wins"),
        column("ties"),
        column("p", "sign test"),
    ]
    rows = [_row(metric) for metric in comparison.metrics.values() if metric.clips]
    caption = f"{a} (A) against {b} (B): {len(comparison.clip_ids)} clips, {frames}"
    remarks = [*comparison.notes]
    remarks += [
        f"{len(only)} clips of {label} alone are left out"
        for label, only in ((a, comparison.only_a), (b, comparison.only_b))
        if only
    ]
    remarks += [f"compared despite a difference in: {name}" for name in comparison.despite]
    if comparison.settings:
        remarks.append(f"settings that differ: {', '.join(comparison.settings)}")
    return table(caption, head, [rows], kind="paired") + bullets([escape(remark) for remark in remarks])


def _row(metric: PairedMetric) -> str:
    spec, interval = SPECS[metric.key], metric.interval
    digits = spec.digits
    difference = "-" if metric.difference is None else f"{metric.difference:+.{digits}f}"
    small = (
        ""
        if interval is None
        else f"<small>{interval.low:+.{digits}f} to {interval.high:+.{digits}f}</small>"
    )
    # Bold where the interval leaves zero out.
    clear = interval is not None and (interval.low > 0 or interval.high < 0)
    shown = f"<b>{difference}</b>" if clear else difference
    counts = "".join(
        f"<td>{'-' if count is None else count}</td>" for count in (metric.wins, metric.losses, metric.ties)
    )
    p = "-" if metric.p_value is None else f"{metric.p_value:.3g}"
    return (
        f"<tr>{row_head(spec.label)}<td>{format_value(metric.a, digits)}</td><td>{format_value(metric.b, digits)}</td>"
        f"<td>{shown}{small}</td>{counts}<td>{p}</td></tr>"
    )
