"""What stands in a table of several runs: order of the rows, best and second best, who does not compete. No markup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Mark = Literal["none", "best", "second"]
# With two rivals the second best is the worst.
FEWEST_FOR_SECOND = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One metric of a table. ``group`` stands over neighbours that share it: how the estimate's scale was treated.

    ``unit`` is that of the runs' clips where they share one.
    """

    key: str
    heading: str
    better: Literal["lower", "higher", "one", "none"]
    digits: int
    group: str
    unit: str = ""

    @property
    def arrow(self) -> str:
        """Which way is better."""
        return {"lower": "↓", "higher": "↑", "one": "→ 1", "none": ""}[self.better]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The numbers of one run by column key; None or nothing where undefined.

    A ``reference`` stands apart and does not compete; nor does a run with a ``problem``, the reason why its numbers
    are not comparable with the others'.
    """

    label: str
    values: Mapping[str, float | None]
    reference: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A number as it is printed; empty where undefined."""

    text: str
    mark: Mark = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run as it is printed."""

    label: str
    cells: tuple[Cell, ...]
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsTable:
    """A table ready for markup: rows that compete from worst to best, then those that stand apart."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    references: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> list[tuple[str, int]]:
        """What stands over the columns, each with how many neighbours share it."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.group:
                found[-1] = (column.group, found[-1][1] + 1)
            else:
                found.append((column.group, 1))
        return found


def lay_out(
    name: str,
    columns: Sequence[Column],
    entries: Sequence[Entry],
    *,
    caption: str = "",
    notes: Sequence[str] = (),
    order_by: str = "cammc",
) -> ResultsTable:
    """Order and mark the runs as the paper's tables do.

    Rows go from the highest ``order_by`` to the lowest; runs without it come first, equal ones keep their order. Best and
    second best are found among printed digits, so equal ones are all marked; second only where three or more compete.
    """
    rivals = [entry for entry in entries if not entry.reference and entry.problem is None]
    ranked = {column.key: _ranks(column, rivals) for column in columns}

    def row(entry: Entry) -> Row:
        cells = []
        for column in columns:
            value = entry.values.get(column.key)
            mark: Mark = "none"
            if value is not None and not entry.reference and entry.problem is None:
                mark = ranked[column.key].get(_rank(column, value), "none")
            cells.append(Cell(text=_printed(column, value), mark=mark))
        return Row(label=entry.label, cells=tuple(cells), problem=entry.problem)

    def worst_first(entry: Entry) -> float:
        value = entry.values.get(order_by)
        return float("-inf") if value is None else -value

    return ResultsTable(
        name=name,
        caption=caption,
        columns=tuple(columns),
        rows=tuple(row(entry) for entry in sorted(entries, key=worst_first) if not entry.reference),
        references=tuple(row(entry) for entry in entries if entry.reference),
        notes=tuple(notes),
    )


def _printed(column: Column, value: float | None) -> str:
    return "" if value is None else f"{value:.{column.digits}f}"


def _rank(column: Column, value: float) -> float:
    """Smaller is better, by what is printed."""
    seen = float(_printed(column, value))
    if column.better == "one":
        return round(abs(seen - 1), column.digits)
    return -seen if column.better == "higher" else seen


def _ranks(column: Column, rivals: Sequence[Entry]) -> dict[float, Mark]:
    values = [value for entry in rivals if (value := entry.values.get(column.key)) is not None]
    if len(values) < 2 or column.better == "none":
        return {}
    best, *others = sorted({_rank(column, value) for value in values})
    found: dict[float, Mark] = {best: "best"}
    if others and len(values) >= FEWEST_FOR_SECOND:
        found[others[0]] = "second"
    return found
