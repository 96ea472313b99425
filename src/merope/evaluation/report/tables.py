"""The tables of metrics: the paper's two with FID and FVD, what those cannot see, trajectory errors."""

from collections.abc import Mapping, Sequence
from html import escape

from merope.evaluation.protocol import GENERATED, SPECS
from merope.evaluation.report.markup import bullets, column, metric_column, paragraph, section, table
from merope.evaluation.result import Summary
from merope.evaluation.results_files import Fidelity
from merope.evaluation.results_files.layout import Cell, Column, ResultsTable, Row
from merope.evaluation.results_files.tables import tables_of
from merope.evaluation.runs.run import ScoredRun

TITLES = {
    "driving": "Camera control, driving (the paper's Table 2)",
    "panshot": "Camera control, lenses (the paper's Table 4)",
    "beside": "What those cannot see",
    "trajectory": "Trajectory errors, as in visual odometry",
}
_GENERATED = "-generated"
_SECTIONS = (
    (
        "Camera control",
        "control",
        ("driving", "panshot"),
        "Best in bold, second underlined where three or more compete, rows by CamMC from worst to best; references and rows "
        "with † do not compete. Below each value: the 95 % interval over clips, and the median over clips.",
    ),
    (
        "Beside the paper's figures",
        "beside",
        ("beside", "trajectory"),
        "The paper's metrics take the scale out of a path, and tr and AUC its direction. These keep both.",
    ),
    (
        "Generated frames only",
        "generated",
        tuple(name + _GENERATED for name in TITLES),
        GENERATED[0].upper() + GENERATED[1:] + ".",
    ),
)


def metric_sections(runs: Sequence[ScoredRun], fidelity: Fidelity | None) -> list[str]:
    """The sections of tables, over all frames and over generated ones, laid out as in results.md and results.tex."""
    references = [run.label for run in runs if run.reference]
    laid_out = {
        found.name: found
        for found in tables_of([run.result for run in runs], references=references, fidelity=fidelity)
    }
    summaries = {
        "": {run.label: run.result.summary("all") for run in runs},
        _GENERATED: {run.label: run.result.summary("generated") for run in runs},
    }
    parts = []
    for title, anchor, names, lead in _SECTIONS:
        tables = [
            metric_table(laid_out[name], summaries[_GENERATED if name.endswith(_GENERATED) else ""])
            for name in names
            if name in laid_out
        ]
        if tables:
            parts.append(section(title, paragraph(lead), *tables, anchor=anchor))
    return parts


def metric_table(laid_out: ResultsTable, summaries: Mapping[str, Mapping[str, Summary]]) -> str:
    """One table with its protocol below; intervals, medians and exclusions stand under each value."""
    name = laid_out.name.removesuffix(_GENERATED)
    title = TITLES[name] + (", generated frames only" if laid_out.name.endswith(_GENERATED) else "")
    head = [column("Method"), *(_head(found) for found in laid_out.columns)]
    bodies = [[_row(row, laid_out.columns, summaries.get(row.label, {})) for row in laid_out.rows]]
    if laid_out.references:
        apart = f'<tr class="apart"><td colspan="{len(head)}">references, which do not compete</td></tr>'
        bodies.append(
            [
                apart,
                *(_row(row, laid_out.columns, summaries.get(row.label, {})) for row in laid_out.references),
            ]
        )
    said = paragraph(laid_out.caption) + bullets([escape(note) for note in laid_out.notes])
    return (
        f'<div data-table="{escape(laid_out.name)}">'
        + table(title, head, bodies, kind="metrics")
        + f'<div class="fine">{said}</div></div>'
    )


def _head(found: Column) -> str:
    if found.key in SPECS:
        return metric_column(SPECS[found.key].in_unit(found.unit))
    return (
        f'<th scope="col">{escape(found.heading)} <span class="arrow" aria-hidden="true">{found.arrow}</span>'
        '<span class="unseen"> (lower is better)</span></th>'
    )


def _row(row: Row, columns: Sequence[Column], summaries: Mapping[str, Summary]) -> str:
    mark = "" if row.problem is None else ' <span class="problem">†</span><small>not comparable</small>'
    cells = "".join(
        _cell(cell, found, summaries.get(found.key)) for cell, found in zip(row.cells, columns, strict=True)
    )
    return f'<tr data-run="{escape(row.label)}"><th scope="row">{escape(row.label)}{mark}</th>{cells}</tr>'


def _cell(cell: Cell, found: Column, summary: Summary | None) -> str:
    tag = {"best": "b", "second": "u", "none": "span"}[cell.mark]
    below, hint = [], ""
    if summary is not None:
        interval, digits = summary.interval, found.digits
        if interval is not None:
            below.append(f"{interval.low:.{digits}f} to {interval.high:.{digits}f}")
        if summary.median is not None and summary.num_clips > 1:
            below.append(f"median {summary.median:.{digits}f}")
        if summary.num_excluded:
            below.append(f"{summary.num_excluded} left out")
        if summary.metric.reason:
            hint = f' title="{escape(summary.metric.reason)}"'
    small = f"<small>{'<br>'.join(below)}</small>" if below else ""
    return (
        f'<td data-metric="{escape(found.key)}"{hint}>'
        f'<{tag} class="value">{escape(cell.text) or "-"}</{tag}>{small}</td>'
    )
