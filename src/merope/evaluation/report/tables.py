"""The tables of metrics: the paper's two, what those cannot see, trajectory errors, FID and FVD."""

from collections.abc import Mapping, Sequence
from html import escape

from merope.evaluation.protocol import GENERATED, SPECS, Metric, MetricGroup, MetricSpec
from merope.evaluation.report.markup import (
    bullets,
    column,
    metric_column,
    paragraph,
    row_head,
    section,
    table,
)
from merope.evaluation.report.ranking import Place, places, worst_first
from merope.evaluation.result import Summary, format_value
from merope.evaluation.results_files import Fidelity
from merope.evaluation.runs.run import ScoredRun

CAPTIONS: dict[MetricGroup, str] = {
    "driving": "Camera control, driving (the paper's Table 2)",
    "panshot": "Camera control, lenses (the paper's Table 4)",
    "beside": "What those cannot see",
    "trajectory": "Trajectory errors, as in visual odometry",
}
FIDELITY_NAMES = {"fid": "FID", "kid": "KID", "fvd": "FVD", "kvd": "KVD"}
_FIDELITY_DIGITS = {"fid": 2, "kid": 4, "fvd": 2, "kvd": 4}
# The columns of the paper's Table 2.
_IN_DRIVING = ("fid", "fvd")


def metric_sections(runs: Sequence[ScoredRun], fidelity: Fidelity | None) -> list[str]:
    """The sections of tables over all frames, and over generated frames where those are known."""
    legend = (
        "Best in bold, second underlined, rows by CamMC from worst to best; references do not compete. Below each value: "
        "the 95 % interval over clips, and the median over clips."
    )
    # Resampling takes its time: once for all tables.
    every = {run.label: run.result.summary("all") for run in runs}
    parts = [
        section(
            "Camera control",
            paragraph(legend),
            *(group_table(runs, group, every, fidelity=fidelity) for group in ("driving", "panshot")),
            anchor="control",
        ),
        section(
            "Beside the paper's figures",
            paragraph(
                "The paper's metrics remove the scale of a path, and three of them its direction. These keep them."
            ),
            *(group_table(runs, group, every) for group in ("beside", "trajectory")),
            anchor="beside",
        ),
        _fidelity_section(runs, fidelity),
    ]
    summaries = {run.label: run.result.summary("generated") for run in runs}
    generated = [run for run in runs if summaries[run.label]]
    if generated:
        parts.append(
            section(
                "Generated frames only",
                paragraph(GENERATED[0].upper() + GENERATED[1:] + "."),
                *(
                    group_table(generated, group, summaries, suffix=", generated frames only")
                    for group in CAPTIONS
                ),
                anchor="generated",
            )
        )
    return parts


def group_table(
    runs: Sequence[ScoredRun],
    group: MetricGroup,
    summaries: Mapping[str, Mapping[str, Summary]],
    *,
    fidelity: Fidelity | None = None,
    suffix: str = "",
) -> str:
    """One table: a row for each run from worst to best by CamMC, references in a group of their own below."""
    specs = {key: spec for key, spec in SPECS.items() if group in spec.groups}
    rivals, references = worst_first(runs), [run for run in runs if run.reference]
    shown = {key: spec for key, spec in specs.items() if all(key in summaries[run.label] for run in runs)}
    if not shown:
        return ""
    ranked = {
        key: places([summaries[run.label][key].metric.value for run in rivals], spec.better, spec.digits)
        for key, spec in shown.items()
    }
    extra = [
        key
        for key in _IN_DRIVING
        if group == "driving" and fidelity and any(key in fidelity.get(run.label, {}) for run in runs)
    ]
    ranked_extra = {
        key: places(
            [_fidelity_value(fidelity, run.label, key) for run in rivals], "lower", _FIDELITY_DIGITS[key]
        )
        for key in extra
    }
    bodies = []
    for own, competing in ((rivals, True), (references, False)):
        rows = []
        for number, run in enumerate(own):
            cells = [
                _cell(key, summaries[run.label][key], spec, ranked[key][number] if competing else "")
                for key, spec in shown.items()
            ]
            cells += [
                _fidelity_cell(
                    key,
                    (fidelity or {}).get(run.label, {}).get(key),
                    ranked_extra[key][number] if competing else "",
                )
                for key in extra
            ]
            rows.append(f"<tr>{row_head(run.label)}{''.join(cells)}</tr>")
        if rows and not competing:
            width = 1 + len(shown) + len(extra)
            rows.insert(
                0, f'<tr class="apart"><td colspan="{width}">references, which do not compete</td></tr>'
            )
        bodies.append(rows)
    head = [
        column("Method"),
        *(metric_column(spec) for spec in shown.values()),
        *(_fidelity_column(key) for key in extra),
    ]
    return table(CAPTIONS[group] + suffix, head, bodies, kind="metrics")


def _cell(key: str, summary: Summary, spec: MetricSpec, place: Place) -> str:
    value, interval = summary.metric.value, summary.interval
    below = []
    if interval is not None:
        below.append(f"{interval.low:.{spec.digits}f} to {interval.high:.{spec.digits}f}")
    if summary.median is not None and summary.num_clips > 1:
        below.append(f"median {summary.median:.{spec.digits}f}")
    if summary.num_excluded:
        below.append(f"{summary.num_excluded} left out")
    reason = f' title="{escape(summary.metric.reason)}"' if summary.metric.reason else ""
    small = f"<small>{'<br>'.join(below)}</small>" if below else ""
    return f'<td data-metric="{escape(key)}"{reason}>{_marked(format_value(value, spec.digits), place)}{small}</td>'


def _marked(text: str, place: Place) -> str:
    tag = {"best": "b", "second": "u", "": "span"}[place]
    return f'<{tag} class="value">{escape(text)}</{tag}>'


def _fidelity_section(runs: Sequence[ScoredRun], fidelity: Fidelity | None) -> str:
    if not fidelity:
        return ""
    keys = [key for key in FIDELITY_NAMES if any(key in row for row in fidelity.values())]
    references = {run.label for run in runs if run.reference}
    labels = [run.label for run in runs if run.label in fidelity]
    labels += [label for label in fidelity if label not in labels]
    rivals = [label for label in labels if label not in references]
    ranked = {
        key: dict(
            zip(
                rivals,
                places(
                    [_fidelity_value(fidelity, label, key) for label in rivals],
                    "lower",
                    _FIDELITY_DIGITS[key],
                ),
                strict=True,
            )
        )
        for key in keys
    }
    rows = [
        f"<tr>{row_head(label)}"
        + "".join(_fidelity_cell(key, fidelity[label].get(key), ranked[key].get(label, "")) for key in keys)
        + "</tr>"
        for label in labels
    ]
    protocols = []
    for key in keys:
        for protocol in sorted({row[key].protocol for row in fidelity.values() if key in row}):
            protocols.append(f"<b>{FIDELITY_NAMES[key]}</b>: {escape(protocol)}")
    lead = "Figures of different protocols must not be compared: resizing alone moves FVD by half."
    return section(
        "FID and FVD",
        paragraph(lead),
        table(
            "How much the videos look like real ones",
            [column("Method"), *map(_fidelity_column, keys)],
            [rows],
            kind="metrics",
        ),
        bullets(protocols),
        anchor="fidelity",
    )


def _fidelity_column(key: str) -> str:
    return (
        f'<th scope="col">{FIDELITY_NAMES[key]} <span class="arrow" aria-hidden="true">↓</span>'
        '<span class="unseen"> (lower is better)</span></th>'
    )


def _fidelity_value(fidelity: Fidelity | None, label: str, key: str) -> float | None:
    metric = (fidelity or {}).get(label, {}).get(key)
    return None if metric is None else metric.value


def _fidelity_cell(key: str, metric: Metric | None, place: Place) -> str:
    value = None if metric is None else metric.value
    words = (
        metric.reason
        if metric is not None and metric.reason
        else metric.protocol
        if metric
        else "not measured"
    )
    text = format_value(value, _FIDELITY_DIGITS[key])
    return f'<td data-metric="{key}" title="{escape(words)}">{_marked(text, place)}</td>'
