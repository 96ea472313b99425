"""The table of one evaluation that the command line prints."""

from merope.evaluation.bootstrap import Interval
from merope.evaluation.protocol import FLAGS, GAUGE, SPECS, MetricGroup
from merope.evaluation.result import EvaluationResult, Summary, format_value
from merope.evaluation.text_table import aligned, wrapped

GROUPS: dict[MetricGroup, str] = {
    "driving": "the paper's metrics for driving",
    "panshot": "the paper's metrics for PanShot",
    "beside": "what those cannot see",
    "trajectory": "errors of the whole path, as visual odometry has them",
}
"""What each table of metrics is called, in the order of the tables."""
# The words of a flag are as long as a few lines, with what an estimator or a file put there.
_LONGEST_EXAMPLE = 600


def metrics_of(group: MetricGroup) -> list[str]:
    """The metrics of a table in the order of its columns; CamMC, by which rows are ordered, is the last as in the paper."""
    keys = [key for key, spec in SPECS.items() if group in spec.groups]
    return sorted(keys, key=lambda key: key == "cammc")


def table_text(result: EvaluationResult) -> str:
    """The table that `EvaluationResult.table` returns."""
    everything, generated = result.summary("all"), result.summary("generated")
    prose = [*_about(result), *_reading(result, bool(generated))]
    lines = [line for text in prose for line in wrapped(text)]
    for group, title in GROUPS.items():
        keys = metrics_of(group)
        if not everything or not any(_present(everything[key]) for key in keys):
            continue
        header = ["metric", "unit", "better", "scale", "value", "95% interval", "median", "clips"]
        if generated:
            header += ["generated only", "95% interval", "clips"]
        rows = [_row(key, everything[key], result) for key in keys]
        if generated:
            rows = [
                [*row, *_figures(key, generated[key], result, median=False)]
                for row, key in zip(rows, keys, strict=True)
            ]
        lines += ["", f"{group}: {title}", *aligned([header, *rows], left=(0, 1, 2, 3))]
    return "\n".join([*lines, *_exclusions(everything, generated), *_flagged(result)])


def _flagged(result: EvaluationResult) -> list[str]:
    """Each raised flag with its meaning, and the first clip that carries it with the numbers and the way out."""
    lines: list[str] = []
    for flag, count in result.flag_counts.items():
        if not count:
            continue
        lines += wrapped(f"{flag}: {_clips(count)}: {FLAGS[flag]}")
        example = next(clip for clip in result.clips if flag in clip.flags)
        words = example.flags[flag]
        if len(words) > _LONGEST_EXAMPLE:
            words = words[:_LONGEST_EXAMPLE].rsplit(" ", 1)[0] + " ..."
        own = "" if words == FLAGS[flag] else f": {words}"
        lines += wrapped(f"such as {example.clip_id}{own}", indent="  ")
    return ["", *lines] if lines else []


def _about(result: EvaluationResult) -> list[str]:
    """How many clips of how many frames a result rests on, of how many expected, and what a benchmark says of it."""
    frames = sorted({clip.num_frames for clip in result.clips})
    total = len(result.clips) + result.num_skipped
    counted = f"{total} clip{'s' if total != 1 else ''}"
    lines = [
        f"{result.label}: {counted} of {_span(frames)} frames; poses recovered for "
        f"{100 * result.success_rate:.0f} % of the clips"
        + matched_words(result)
        + (f"; {result.num_skipped} skipped" if result.num_skipped else "")
        + f"; {len(result.clips)} of {result.expected} expected clips are scored"
    ]
    if result.num_missing:
        lines.append(
            f"{_clips(result.num_missing)} missing: these figures are not comparable with those of all {result.expected}"
        )
    if result.verdict is not None:
        verdict = result.verdict
        word = "comparable" if verdict.comparable else "NOT COMPARABLE"
        lines.append(f"{verdict.benchmark}: {word}; {verdict.num_used} of {verdict.num_expected} clips")
        lines += [f"  {reason}" for reason in verdict.reasons]
    return lines


def matched_words(result: EvaluationResult) -> str:
    """Of pose files, how many commanded poses have an estimate; nothing for cameras recovered from frames."""
    commanded, matched = (result.settings.get(key) for key in ("num_commanded", "num_with_estimate"))
    if commanded is None or matched is None:
        return ""
    gaps = matched < commanded and not result.settings.get("num_not_registered")
    said = f"; {matched} of {commanded} commanded poses have an estimate"
    return said + (
        ", and RPE is between consecutive matched poses, whatever lies between them" if gaps else ""
    )


def _reading(result: EvaluationResult, generated: bool) -> list[str]:
    """How the columns came about."""
    methods = sorted({clip.angle_method for clip in result.clips})
    lines = [
        f"gauge: {GAUGE}",
        f"angles by {' and '.join(methods)}; value: mean over clips, AUC pooled over the pairs of all clips; median: over "
        "clips, for AUC of the clips' own AUC",
        f"95% interval: percentile bootstrap over clips, {result.num_resamples} resamples, seed {result.seed}; clips "
        f"without a camera: on_failure={result.on_failure}",
    ]
    if generated:
        given = sorted({clip.first_generated for clip in result.clips if clip.first_generated is not None})
        included = ", given ones included" if any(given) else ""
        lines.append(f"all frames count{included}; generated only: from frame {_span(given)} on")
    return lines


def _row(key: str, summary: Summary, result: EvaluationResult) -> list[str]:
    spec = SPECS[key]
    better = {"lower": "lower", "higher": "higher", "one": "near 1", "none": "-"}[spec.better]
    return [
        spec.label,
        result.unit_of(key),
        better,
        spec.scale_rule,
        *_figures(key, summary, result, median=True),
    ]


def _figures(key: str, summary: Summary, result: EvaluationResult, *, median: bool) -> list[str]:
    digits = SPECS[key].digits
    return [
        format_value(summary.metric.value, digits),
        interval_text(summary.interval, digits),
        *([format_value(summary.median, digits)] if median else []),
        f"{summary.num_clips}/{result.expected}",
    ]


def interval_text(interval: Interval | None, digits: int) -> str:
    """An interval for a table; a dash where there is none."""
    return "-" if interval is None else f"{interval.low:.{digits}f} .. {interval.high:.{digits}f}"


def _present(summary: Summary) -> bool:
    """Whether a clip has the metric or says why not."""
    return bool(summary.num_clips or summary.num_excluded)


def _exclusions(everything: dict[str, Summary], generated: dict[str, Summary]) -> list[str]:
    # Metrics that leave out as many clips for the same reason share a line.
    shared: dict[str, list[str]] = {}
    for key, summary in everything.items():
        for reason, count in summary.excluded.items():
            shared.setdefault(f"{count} excluded: {reason}", []).append(SPECS[key].label)
    for key, summary in generated.items():
        for reason, count in summary.excluded.items():
            if everything[key].excluded.get(reason) != count:
                name = f"{SPECS[key].label} (generated only)"
                shared.setdefault(f"{count} excluded: {reason}", []).append(name)
    lines = [line for text, names in shared.items() for line in wrapped(f"{', '.join(names)}: {text}")]
    return ["", *lines] if lines else []


def _clips(count: int) -> str:
    return f"{count} clip" if count == 1 else f"{count} clips"


def _span(numbers: list[int]) -> str:
    if not numbers:
        return "0"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
