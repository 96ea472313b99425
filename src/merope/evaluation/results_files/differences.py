"""A paired comparison as rows for tables in files."""

from merope.evaluation.comparison import TIES, PairedComparison
from merope.evaluation.comparison_table import p_text
from merope.evaluation.protocol import SPECS

PAIRED_HEADER = ["Metric", "Scale", "A", "B", "B - A", "95 % interval", "B / A / ties", "p", "clips"]


def paired_rows(comparison: PairedComparison) -> list[list[str]]:
    """A row for each metric that a clip of both runs has; columns as in `PAIRED_HEADER`."""
    rows = []
    for key, metric in comparison.metrics.items():
        if metric.a is None or metric.b is None or metric.difference is None:
            continue
        spec, interval = SPECS[key], metric.interval
        digits = spec.digits
        name = f"|{spec.label} - 1|" if spec.better == "one" else f"{spec.label} ({metric.unit})"
        rows.append(
            [
                name if spec.unit != "1" or spec.better == "one" else spec.label,
                "no scale" if spec.scale_rule == "none" else spec.scale_rule,
                f"{metric.a:.{digits}f}",
                f"{metric.b:.{digits}f}",
                f"{metric.difference:+.{digits}f}",
                "-" if interval is None else f"{interval.low:+.{digits}f} to {interval.high:+.{digits}f}",
                "-" if metric.wins is None else f"{metric.wins} / {metric.losses} / {metric.ties}",
                p_text(metric.p_value),
                str(len(metric.clips)),
            ]
        )
    return rows


def paired_caption(comparison: PairedComparison) -> str:
    """Which runs over which clips, and what the columns are."""
    # A word of its own comes first: a label such as "# 1" would begin a heading in Markdown.
    used = len(comparison.clip_ids)
    frames = "all frames" if comparison.frames == "all" else "generated frames alone"
    left_out = len(comparison.only_a) + len(comparison.only_b)
    rest = f"; {left_out} clips that only one has are left out" if left_out else ""
    broken = (
        f" Compared despite differences in: {', '.join(comparison.despite)}." if comparison.despite else ""
    )
    return (
        f"Paired: {comparison.label_b} (B) against {comparison.label_a} (A), clip by clip over the {used} clips of "
        f"both{rest}; {frames}. Intervals: 95 % paired bootstrap over clips, {comparison.num_resamples} resamples, seed "
        f"{comparison.seed}. p: exact two-sided sign test, ties left out, not corrected for several metrics. B / A / ties: "
        f"clips where B is better, A is, neither ({TIES}).{broken}"
    )
