"""`write_report`: one HTML file that can be mailed, with tables, plots, flags in words and the protocol."""

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from merope.evaluation.plots.bev import draw_bev
from merope.evaluation.plots.canvas import png_bytes
from merope.evaluation.plots.over_time import draw_errors
from merope.evaluation.protocol import FLAGS, GAUGE, GENERATED, SPECS, Metric, MetricSpec
from merope.evaluation.report.style import STYLE
from merope.evaluation.result import EvaluationResult, FrameSet, Summary, format_value
from merope.evaluation.runs.run import ScoredRun
from merope.files import atomic_path, write_text_atomically
from merope.geometry.poses import Poses

_ARROWS = {"lower": " ↓", "higher": " ↑", "one": " → 1", "none": ""}
# Per-clip tables beyond this many rows are for metrics.json.
_MAX_CLIP_ROWS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportImage:
    """A picture for the report: a PNG, JPEG or SVG file, or an MP4, with its caption."""

    path: Path
    caption: str


def write_report(
    folder: str | Path,
    runs: Sequence[ScoredRun | EvaluationResult],
    *,
    title: str = "Camera control, measured",
    notes: Sequence[str] = (),
    images: Sequence[ReportImage] = (),
    comparisons: Sequence[Any] = (),
    fidelity: Mapping[str, Mapping[str, Metric]] | None = None,
    commanded: Poses | None = None,
    recovered: Mapping[str, Poses] | None = None,
    first_generated: int | None = None,
    align_scale: bool = False,
    references: Collection[str] = (),
) -> Path:
    """Write ``report.html``, ``metrics.json`` and, with trajectories, ``bev.png`` into ``folder``.

    One row per run in the tables; a reference does not compete for the best value. ``images`` and ``notes`` are
    shown as given. The HTML holds everything it shows and asks no other machine for anything. Returns its path.

    Raises:
        ValueError: if there is no run, or two carry the same label.
        MissingDependency: if trajectories are given and matplotlib is not installed.
    """
    scored = [run for run in runs if isinstance(run, ScoredRun)]
    results = [run.result if isinstance(run, ScoredRun) else run for run in runs]
    references = [*references, *(run.label for run in scored if run.reference)]
    shown = [run for run in scored if run.clips and run.clips[0].recovered is not None]
    if shown and commanded is None:
        clip = shown[0].clips[0]
        commanded, first_generated = clip.commanded, clip.first_generated
        recovered = {
            run.label: run.clips[0].recovered.poses for run in shown if run.clips[0].recovered is not None
        }
    labels = [result.label for result in results]
    if not results or len(set(labels)) != len(labels):
        raise ValueError(f"results must hold at least one result, each with its own label, got {labels}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"title": title, "results": [result.to_dict() for result in results]}
    write_text_atomically(folder / "metrics.json", json.dumps(content, indent=2, allow_nan=False) + "\n")

    sections = [_intro(results, notes), _table_section("Results", results, "all", references)]
    figures = [_inline_file(image) for image in images]
    if commanded is not None and recovered:
        bev = png_bytes(draw_bev(commanded, recovered, align_scale=align_scale))
        with atomic_path(folder / "bev.png") as temporary:
            temporary.write_bytes(bev)
        errors = draw_errors(commanded, recovered, first_generated=first_generated)
        figures.append(
            _figure(
                _data_uri(bev, "image/png"), "From above: commanded path solid, recovered dashed, in metres."
            )
        )
        figures.append(
            _figure(
                _data_uri(png_bytes(errors), "image/png"),
                "Error of every frame; frames that were given are shaded.",
            )
        )
    if figures:
        sections.append(f'<section><h2>Pictures</h2><div class="figures">{"".join(figures)}</div></section>')
    if any(result.summary("generated") for result in results):
        sections.append(
            _table_section("Generated frames only", results, "generated", references, lead=GENERATED)
        )
    sections += [_flags(results), _clips(results), _protocol(results)]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><main><h1>{escape(title)}</h1>\n" + "\n".join(sections) + "\n</main></body></html>\n"
    )
    write_text_atomically(folder / "report.html", page)
    return folder / "report.html"


def _intro(results: Sequence[EvaluationResult], notes: Sequence[str]) -> str:
    rows = []
    for result in results:
        total = len(result.clips) + result.num_skipped
        frames = sorted({clip.num_frames for clip in result.clips})
        span = str(frames[0]) if len(frames) == 1 else f"{frames[0]} to {frames[-1]}"
        skipped = f", {result.num_skipped} skipped" if result.num_skipped else ""
        rows.append(
            f"<li><b>{escape(result.label)}</b>: {total} clip{'s' if total > 1 else ''} of {span} frames, "
            f"camera recovered in {100 * result.success_rate:.0f} %{skipped}.</li>"
        )
    rows += [f"<li>{escape(note)}</li>" for note in notes]
    return f'<ul class="intro">{"".join(rows)}</ul>'


def _table_section(
    title: str,
    results: Sequence[EvaluationResult],
    frames: FrameSet,
    references: Collection[str],
    lead: str = "",
) -> str:
    summaries = {result.label: result.summary(frames) for result in results}
    present = {label: summary for label, summary in summaries.items() if summary}
    head = f"<h2>{escape(title)}</h2>" + (f"<p>{escape(lead[0].upper() + lead[1:])}.</p>" if lead else "")
    paper = {key: spec for key, spec in SPECS.items() if spec.paper}
    beside = {key: spec for key, spec in SPECS.items() if not spec.paper}
    return (
        f"<section>{head}{_metric_table(present, paper, references, 'The metrics of the paper')}"
        f"{_metric_table(present, beside, references, 'What those cannot see')}</section>"
    )


def _metric_table(
    summaries: Mapping[str, Mapping[str, Summary]],
    specs: Mapping[str, MetricSpec],
    references: Collection[str],
    caption: str,
) -> str:
    head = "".join(
        f'<th title="{escape(spec.protocol)}">{escape(spec.label)}{_ARROWS[spec.better]}'
        f"<small>{escape(spec.unit)}</small></th>"
        for spec in specs.values()
    )
    rivals = [summary for label, summary in summaries.items() if label not in references]
    best = {key: _best([summary[key] for summary in rivals], spec) for key, spec in specs.items()}
    body = []
    for label, summary in summaries.items():
        cells = "".join(
            _cell(summary[key], spec, None if label in references else best[key])
            for key, spec in specs.items()
        )
        body.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _best(column: Sequence[Summary], spec: MetricSpec) -> float | None:
    """The value to print bold: only where there is something to compare."""
    values = [summary.metric.value for summary in column if summary.metric.value is not None]
    if len(column) < 2 or not values or spec.better == "none":
        return None
    if spec.better == "one":
        return min(values, key=lambda value: abs(value - 1))
    return min(values) if spec.better == "lower" else max(values)


def _cell(summary: Summary, spec: MetricSpec, best: float | None) -> str:
    value, interval = summary.metric.value, summary.interval
    text = format_value(value, spec.digits)
    if value is not None and value == best:
        text = f"<b>{text}</b>"
    below = []
    if interval is not None:
        below.append(f"{interval.low:.{spec.digits}f} to {interval.high:.{spec.digits}f}")
    if summary.median is not None and summary.num_clips > 1:
        below.append(f"median {summary.median:.{spec.digits}f}")
    if summary.num_excluded:
        below.append(f"{summary.num_excluded} excluded")
    reason = f' title="{escape(summary.metric.reason)}"' if summary.metric.reason else ""
    return f"<td{reason}>{text}<small>{'<br>'.join(below)}</small></td>"


def _flags(results: Sequence[EvaluationResult]) -> str:
    items = []
    for result in results:
        raised = {flag: count for flag, count in result.flag_counts.items() if count}
        for flag, count in raised.items():
            # The words of the first clip are the most concrete ones there are.
            example = next(clip for clip in result.clips if flag in clip.flags)
            items.append(
                f"<li><b>{escape(result.label)}</b>: {count} of {len(result.clips)} clip(s) "
                f"<code>{escape(flag)}</code>: {escape(FLAGS[flag])}."
                f"<br><small>{escape(example.clip_id)}: {escape(example.flags[flag])}</small></li>"
            )
    text = f"<ul>{''.join(items)}</ul>" if items else "<p>No clip was flagged.</p>"
    return f"<section><h2>Flags</h2>{text}</section>"


def _clips(results: Sequence[EvaluationResult]) -> str:
    keys = ("rot_deg", "tr_percent", "auc_3", "auc_10", "cammc", "scale")
    head = "".join(
        f"<th>{escape(SPECS[key].label)}<small>{escape(SPECS[key].unit)}</small></th>" for key in keys
    )
    tables = []
    for result in results:
        rows = []
        for clip in result.clips[:_MAX_CLIP_ROWS]:
            cells = "".join(
                f"<td>{format_value(clip.all.values[key], SPECS[key].digits)}</td>" for key in keys
            )
            words = escape("; ".join(clip.flags.values()))
            flags = ", ".join(clip.flags) or "-"
            rows.append(
                f'<tr><th scope="row">{escape(clip.clip_id)}</th><td>{clip.num_frames}</td>{cells}'
                f'<td class="words" title="{words}">{escape(flags)}</td></tr>'
            )
        more = len(result.clips) - _MAX_CLIP_ROWS
        rest = f"<p>{more} more clips are in metrics.json.</p>" if more > 0 else ""
        tables.append(
            f"<details><summary>{escape(result.label)}: every clip</summary>"
            f'<div class="scroll"><table><thead><tr><th>clip</th><th>frames</th>{head}<th>flags</th></tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table></div>{rest}</details>"
        )
    return f"<section><h2>Clips</h2>{''.join(tables)}</section>"


def _protocol(results: Sequence[EvaluationResult]) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{escape(spec.label)}</th><td>{escape(spec.unit)}</td>"
        f'<td class="words">{escape(spec.protocol)}</td></tr>'
        for spec in SPECS.values()
    )
    first = results[0]
    settings = "".join(
        f"<li><b>{escape(result.label)}</b>: <code>{escape(json.dumps(result.settings))}</code></li>"
        for result in results
    )
    return (
        "<section><h2>Protocol</h2>"
        f"<p>Gauge: {escape(GAUGE)}. Intervals: 95 % percentile bootstrap over clips, {first.num_resamples} resamples, "
        f"seed {first.seed}. Clips without a recovered camera: on_failure = {escape(first.on_failure)}.</p>"
        f'<div class="scroll"><table><thead><tr><th>metric</th><th>unit</th><th>protocol</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div><ul>{settings}</ul></section>"
    )


_MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".mp4": "video/mp4",
}


def _inline_file(image: ReportImage) -> str:
    media = _MEDIA.get(image.path.suffix.lower())
    if media is None:
        raise ValueError(f"report images must end in {', '.join(_MEDIA)}, got {image.path.name}.")
    return _figure(_data_uri(image.path.read_bytes(), media), image.caption)


def _data_uri(content: bytes, media: str) -> str:
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def _figure(uri: str, caption: str) -> str:
    if uri.startswith("data:video"):
        shown = f'<video src="{uri}" controls loop muted playsinline></video>'
    else:
        shown = f'<img src="{uri}" alt="{escape(caption)}">'
    return f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>"
