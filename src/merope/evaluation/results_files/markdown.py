"""results.md: tables that read as text and render on pages."""

import re
from collections.abc import Sequence

from merope.evaluation.comparison import PairedComparison
from merope.evaluation.results_files.differences import PAIRED_HEADER, paired_caption, paired_rows
from merope.evaluation.results_files.layout import Cell, ResultsTable, Row


def markdown_text(tables: Sequence[ResultsTable], comparisons: Sequence[PairedComparison] = ()) -> str:
    """The tables one after another, each under its caption and over its notes."""
    parts = [_table(table) for table in tables]
    for comparison in comparisons:
        rows = [PAIRED_HEADER, *paired_rows(comparison)]
        lines = [_line([escape_markdown(cell) for cell in row]) for row in rows]
        lines.insert(1, _rule(len(PAIRED_HEADER)))
        parts.append("\n".join([escape_markdown(paired_caption(comparison)), "", *lines]))
    return "\n\n".join(parts) + "\n"


def _table(table: ResultsTable) -> str:
    head = ["Method"]
    for column in table.columns:
        name = f"{escape_markdown(column.heading)} {column.arrow}".rstrip()
        head.append(f"{name}<br>{escape_markdown(column.group)}")
    lines = [escape_markdown(table.caption), "", _line(head), _rule(len(head))]
    lines += [_row(row) for row in table.rows]
    lines += [_row(row, reference=True) for row in table.references]
    if table.notes:
        lines += ["", *(f"- {escape_markdown(note)}" for note in table.notes)]
    return "\n".join(lines)


def _row(row: Row, *, reference: bool = False) -> str:
    label = escape_markdown(row.label) + (" †" if row.problem else "")
    return _line([f"*{label}*" if reference else label, *(_cell(cell) for cell in row.cells)])


def _cell(cell: Cell) -> str:
    text = cell.text or "-"
    return {"best": f"**{text}**", "second": f"<u>{text}</u>", "none": text}[cell.mark]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(width: int) -> str:
    return "|---|" + "---:|" * (width - 1)


def escape_markdown(text: str) -> str:
    """Text that renders as it is, in a cell too."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]~$])", r"\\\1", plain)
