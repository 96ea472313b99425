"""What was evaluated and how, in words: the run table, the protocol, the noise floor, a benchmark's verdict, settings."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from merope.evaluation.protocol import GAUGE, SPECS, ScaleRule
from merope.evaluation.report.markup import bullets, column, paragraph, row_head, section, table
from merope.evaluation.result import EvaluationResult, format_value
from merope.evaluation.runs.run import ScoredRun

_SCALE_WORDS: dict[ScaleRule, str] = {
    "none": "no scale enters",
    "least squares (Eq. 37)": "recovered centres times the least-squares scale s* of the clip",
    "max norm (Eq. 38)": "each trajectory divided by its own largest distance from its first frame",
    "as recovered": "recovered metres as they are; metric estimators only",
    "SE(3)": "after the best rigid motion, no scale",
    "Sim(3)": "after the best rigid motion and scale",
}
_FAILURE_WORDS = {
    "worst": "count as the worst possible answer",
    "skip": "are left out and counted",
    "error": "would have stopped the evaluation",
}
# Settings of a run with thousands of failed clips would be the whole page.
_MAX_SETTINGS = 20_000


def verdict_banner(runs: Sequence[ScoredRun]) -> str:
    """A benchmark's verdict: a banner with the reasons for each run that is not comparable, a line for those that are."""
    parts = []
    for run in runs:
        verdict = run.result.verdict
        if verdict is None:
            continue
        used = f"{verdict.num_used} of {verdict.num_expected} clips"
        if verdict.comparable:
            parts.append(
                f'<p class="good"><b>{escape(run.label)}</b>: comparable with other results on '
                f"{escape(verdict.benchmark)}, {used}.</p>"
            )
        else:
            parts.append(
                f'<div class="banner" role="note"><p><b>Not comparable</b> with results on '
                f"{escape(verdict.benchmark)}: <b>{escape(run.label)}</b>, {used}.</p>"
                f"{bullets([escape(reason) for reason in verdict.reasons])}</div>"
            )
    return "\n".join(parts)


def protocol_section(runs: Sequence[ScoredRun]) -> str:
    """What was evaluated, run by run, and how."""
    head = [
        column("Run"),
        *map(column, ("clips used", "frames", "given frames", "camera recovered", "scale")),
        column("estimator", words=True),
    ]
    rows = [_run_row(run) for run in runs]
    items = {
        "Frames": _frames_words(runs),
        "Gauge": escape(GAUGE[0].upper() + GAUGE[1:] + "."),
        "Scale": _scale_words(),
        "Over clips": _average_words(runs[0].result),
        "Clips without a camera": escape(_failure_words(runs)),
        "Noise floor": escape(_floor_words(runs)),
        "Estimator": _estimator_words(runs),
    }
    words = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in items.items() if text)
    return section(
        "What was evaluated, and how",
        table("Runs", head, [rows]),
        f"<dl>{words}</dl>",
        anchor="protocol",
    )


def metrics_section() -> str:
    """Every number's unit, scale treatment and definition."""
    rows = [
        f'<tr>{row_head(spec.label)}<td class="words">{escape(spec.unit)}</td>'
        f'<td class="words">{escape(spec.scale_rule)}</td><td class="words">{escape(spec.protocol)}</td></tr>'
        for spec in SPECS.values()
    ]
    head = [column(name, words=True) for name in ("metric", "unit", "scale", "protocol")]
    return section(
        "Metrics",
        paragraph("Equations are those of the paper's appendix B.2."),
        table("What each number means", head, [rows]),
        anchor="metrics",
    )


def settings_section(runs: Sequence[ScoredRun], history: Sequence[str] = ()) -> str:
    """How the rows came about, and everything that each run was made with, as results.json has it."""
    parts = [bullets([escape(line) for line in history])]
    for run in runs:
        text = json.dumps(run.result.settings, indent=1, ensure_ascii=False, default=str)
        if len(text) > _MAX_SETTINGS:
            text = text[:_MAX_SETTINGS] + "\n... the rest is in results.json"
        parts.append(f"<details><summary>{escape(run.label)}</summary><pre>{escape(text)}</pre></details>")
    return section("Settings", *parts, anchor="settings")


def on_true_clips(runs: Sequence[ScoredRun]) -> bool:
    """Whether all runs are an estimator's answers on true frames, so that nothing but the estimator is measured."""
    return bool(runs) and all("true_clips" in run.result.settings for run in runs)


def estimator_identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's settings say of its estimator; with a name where there is one, empty for poses from files."""
    found = settings.get("estimator_identity", settings.get("estimator"))
    if isinstance(found, Mapping):
        return dict(found)
    return {"name": found} if isinstance(found, str) else {}


def _facts(identity: Mapping[str, Any]) -> str:
    """An estimator's identity as a list of terms; what is empty is left out."""
    rows = []
    for key, value in identity.items():
        if value is None or value in ({}, [], ""):
            continue
        rows.append(f"<dt>{escape(key.replace('_', ' '))}</dt><dd>{_fact(value)}</dd>")
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{escape(str(key))} <code>{_fact(each)}</code>" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(_fact(each) for each in value)
    if value is None:
        return "none"
    return escape(value if isinstance(value, str) else json.dumps(value))


def _run_row(run: ScoredRun) -> str:
    result = run.result
    used = len(result.clips)
    skipped = f"<small>{result.num_skipped} skipped</small>" if result.num_skipped else ""
    missing = f"<small>{result.num_missing} did not come</small>" if result.num_missing else ""
    frames = span([clip.num_frames for clip in result.clips])
    given = span([clip.first_generated or 0 for clip in result.clips])
    scales = sorted({clip.recovered.scale for clip in run.clips if clip.recovered is not None})
    scale = ", ".join(scales).replace("_", " ") or "-"
    name = estimator_identity(result.settings).get("name", "poses from files")
    kind = "<small>reference</small>" if run.reference else ""
    return (
        f'<tr><th scope="row">{escape(run.label)}{kind}</th><td>{used} of {result.expected}{skipped}{missing}</td>'
        f"<td>{frames}</td><td>{given}</td><td>{100 * result.success_rate:.0f} %{_matched(result)}</td>"
        f"<td>{escape(scale)}</td>"
        f'<td class="words">{escape(str(name))}</td></tr>'
    )


def _matched(result: EvaluationResult) -> str:
    """Of pose files, how many commanded poses have an estimate."""
    commanded, matched = (result.settings.get(key) for key in ("num_commanded", "num_with_estimate"))
    return f"<small>{matched} of {commanded} poses</small>" if commanded and matched is not None else ""


def span(numbers: Sequence[int]) -> str:
    """Numbers from the least to the most: 49, or 25 to 49."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    return str(low) if low == high else f"{low} to {high}"


def _frames_words(runs: Sequence[ScoredRun]) -> str:
    clips = [clip for run in runs for clip in run.result.clips]
    given = any(clip.first_generated for clip in clips)
    text = f"T counts all frames of a clip, {span([clip.num_frames for clip in clips])} here"
    if given:
        text += (
            ", the given prefix included; figures over generated frames alone stand in tables of their own"
        )
    pairs = "Pairs are all T (T - 1) / 2 of a clip."
    return escape(f"{text}. {pairs}")


def _scale_words() -> str:
    items = []
    for rule, words in _SCALE_WORDS.items():
        labels = [spec.label for spec in SPECS.values() if spec.scale_rule == rule]
        if labels:
            items.append(f"<b>{escape(rule)}</b> ({escape(words)}): {escape(', '.join(labels))}")
    return "Treatments of scale are never mixed in one number:" + bullets(items)


def _average_words(result: EvaluationResult) -> str:
    angles = sorted({clip.angle_method for clip in result.clips})
    return escape(
        "Means over clips, AUC pooled over the pairs of all clips. Intervals: 95 % percentile bootstrap over clips, "
        f"{result.num_resamples} resamples, seed {result.seed}. Angles by {', '.join(angles)}. A clip for which a metric is "
        "undefined is left out of its mean and counted below the value."
    )


def _failure_words(runs: Sequence[ScoredRun]) -> str:
    rules = sorted({run.result.on_failure for run in runs})
    counts = ", ".join(
        f"{run.label}: {run.result.flag_counts['failed'] + run.result.num_skipped}" for run in runs
    )
    return f"They {' or '.join(_FAILURE_WORDS[rule] for rule in rules)}. {counts}."


def _floor_words(runs: Sequence[ScoredRun]) -> str:
    if on_true_clips(runs):
        return "These are true frames with their true cameras: every error here is the estimator's own."
    references = [run for run in runs if run.reference]
    if references:
        measured = []
        for run in references:
            values = {
                key: summary.metric.value
                for key, summary in run.result.summary().items()
                if key in ("rot_deg", "tr_percent", "cammc")
            }
            numbers = ", ".join(
                f"{SPECS[key].label} {format_value(value, SPECS[key].digits)}"
                for key, value in values.items()
            )
            measured.append(f"{run.label}: {numbers}")
        return (
            "The estimator's own error on true frames, below which differences between methods mean nothing. "
            + "; ".join(measured)
            + "."
        )
    if not any(estimator_identity(run.result.settings) for run in runs):
        return (
            "None was measured. These poses came from files: score what the same estimator finds on true frames, to know "
            "how much of these errors is its own."
        )
    return (
        "None was measured, so nobody knows how much of these errors is the estimator's own. Measure it by scoring "
        "true frames with true poses: merope evaluate RUN... --floor CLIPS."
    )


def _estimator_words(runs: Sequence[ScoredRun]) -> str:
    """Each different identity once, with the runs that it recovered."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        identity = estimator_identity(run.result.settings)
        if identity:
            key = json.dumps(identity, sort_keys=True, default=str, ensure_ascii=False)
            groups.setdefault(key, []).append(run.label)
    if not groups:
        return escape("None ran: poses came from files.")
    items = []
    for text, labels in groups.items():
        notes = sorted(
            {
                str(note)
                for run in runs
                if run.label in labels
                for note in run.result.settings.get("estimator_notes", ())
            }
        )
        said = "".join(f"<small>{escape(note)}</small><br>" for note in notes)
        items.append(f"{escape(', '.join(labels))}:{_facts(json.loads(text))}{said}")
    warning = (
        "" if len(groups) == 1 else escape("Runs were recovered by different estimators: compare with care.")
    )
    return warning + bullets(items)
