"""The table of one evaluation that the command line prints."""

from merope.evaluation.protocol import FLAGS, GAUGE, SPECS
from merope.evaluation.result import EvaluationResult, format_value


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


def _span(numbers: list[int]) -> str:
    if not numbers:
        return "0"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
