"""What ``merope evaluate`` prints and writes, whichever way the rows came about."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from merope.cli.evaluate_flags import WrittenFlags

if TYPE_CHECKING:
    from merope.cli.evaluate_benchmark import Judge
    from merope.evaluation.comparison import PairedComparison
    from merope.evaluation.protocol import Metric
    from merope.evaluation.runs.run import ScoredRun

# With more rows their pairs are too many to read in a terminal; files have them all.
_MAX_PAIRS_SHOWN = 3
_ENDINGS = (".txt", ".csv", ".json", ".npy", ".npz", ".tum", ".kitti")


def unique_labels(paths: Sequence[Path]) -> list[str]:
    """Names of rows: the last part of each path, more of it where two would be alike, a number where nothing helps.

    Files lose the endings of pose files, unless another file differs by its ending alone.
    """
    # Links keep the names that their users gave them.
    whole = [Path(os.path.abspath(path)) for path in paths]
    names = [path.name or str(path) for path in whole]
    short = [_without_ending(path) or name for path, name in zip(whole, names, strict=True)]
    short = [
        name if short.count(label) > 1 and names.count(name) == 1 else label
        for name, label in zip(names, short, strict=True)
    ]
    labels = short
    for depth in range(2, 5):
        doubled = {label for label in labels if labels.count(label) > 1}
        labels = [
            "/".join((*path.parts[-depth:-1], last)) if label in doubled else label
            for path, last, label in zip(whole, short, labels, strict=True)
        ]
    seen: dict[str, int] = {}
    for place, label in enumerate(labels):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] > 1:
            labels[place] = f"{label} ({seen[label]})"
    return labels


def _without_ending(path: Path) -> str:
    if path.is_dir():
        return path.name
    name = path.name.removesuffix(".gz")
    return name.removesuffix(next((ending for ending in _ENDINGS if name.endswith(ending)), ""))


def present(
    runs: Sequence["ScoredRun"],
    written: WrittenFlags,
    *,
    title: str,
    notes: Sequence[str],
    after: Sequence[str] = (),
    hint: str = "",
    judge: "Judge | None" = None,
    beside: Sequence[str] = (),
) -> None:
    """Compare, write and print rows; ``notes`` stand above the tables and at the report's settings, ``after`` below.

    Printed comparisons have the paper's metrics, or the benchmark's, and those named in ``beside``. ``hint`` follows a
    sentence about rows that cannot be compared. The ``judge`` of a benchmark adds its verdicts, and its own table.
    """
    from merope.evaluation.protocol import SPECS
    from merope.evaluation.runs.scored import not_whole

    columns = [key for key, spec in SPECS.items() if spec.paper]
    if judge is not None:
        runs = [run if run.reference else replace(run, result=judge.judged(run)) for run in runs]
        notes = [*judge.notes(), *notes]
        columns = list(judge.benchmark.metrics)
    columns += [key for key in beside if key not in columns]
    fidelity, missing = _fidelity(written.fidelity, runs)
    comparisons, refused = compared(runs)
    remarks = [*(line + hint for line in refused), *missing]
    broken = [line for run in runs for line in not_whole(run)]
    paths: list[str] = []
    if written.out is not None:
        from merope.evaluation.report.page import write_report

        write_report(
            written.out,
            runs,
            title=title,
            notes=(*after, *remarks, *broken),
            history=notes,
            comparisons=comparisons,
            fidelity=fidelity,
        )
        paths = sorted(entry.name for entry in written.out.iterdir() if not entry.name.startswith("."))
    if written.json:
        from merope.evaluation.results_files.json_file import json_text

        references = [run.label for run in runs if run.reference]
        results = [run.result for run in runs]
        print(json_text(results, references=references, comparisons=comparisons, fidelity=fidelity))
        return
    for note in notes:
        print(note)
    for run in runs:
        print()
        print(run.result.table())
        for key, metric in (fidelity or {}).get(run.label, {}).items():
            print(
                f"{key.upper()}: {'-' if metric.value is None else f'{metric.value:.4g}'} ({metric.protocol})"
            )
    if comparisons:
        _print_comparisons(comparisons, written, columns)
    for line in (*after, *remarks):
        print(f"\n{line}")
    for line in broken:
        print(line, file=sys.stderr)
    if judge is not None:
        print()
        print("\n".join(judge.table(runs)))
    for run in runs:
        _print_verdict(run)
    if paths:
        print(f"\nwritten to {written.out}: {', '.join(paths)}")


def compared(runs: Sequence["ScoredRun"]) -> tuple[list["PairedComparison"], list[str]]:
    """All pairs of rows that compete, and why some cannot be compared."""
    from merope.errors import MeropeError
    from merope.evaluation.comparison import compare

    done, refused = [], []
    for one, other in combinations([run for run in runs if not run.reference], 2):
        try:
            done.append(compare(one.result, other.result))
        except MeropeError as error:
            refused.append(f"not compared clip by clip: {error}")
    return done, refused


def _print_comparisons(
    comparisons: Sequence["PairedComparison"], written: WrittenFlags, columns: Sequence[str]
) -> None:
    shown = comparisons if len(comparisons) <= _MAX_PAIRS_SHOWN else []
    for comparison in shown:
        print()
        print(comparison.table(columns))
    if not shown:
        where = f"{written.out}/results.json" if written.out is not None else "the files that --out writes"
        print(f"\n{len(comparisons)} pairs of rows are compared in {where}")


def _print_verdict(run: "ScoredRun") -> None:
    verdict = run.result.verdict
    if verdict is None:
        return
    used = f"{verdict.num_used} of {verdict.num_expected} clips"
    if verdict.comparable:
        print(f"\n{run.label}: comparable with other runs of {verdict.benchmark} ({used})")
        return
    # The reasons stand above the row's own tables.
    print(f"\nNOT COMPARABLE with other runs of {verdict.benchmark}: {run.label} ({used})")


def _fidelity(
    path: Path | None, runs: Sequence["ScoredRun"]
) -> tuple[Mapping[str, Mapping[str, "Metric"]] | None, list[str]]:
    """The distances of the rows, and a sentence about rows and entries that found no partner."""
    if path is None:
        return None, []
    from merope.evaluation.fidelity import read_fidelity

    rows = read_fidelity(path)
    labels = {run.label for run in runs}
    without = [run.label for run in runs if run.label not in rows and not run.reference]
    extra = [label for label in rows if label not in labels]
    said = []
    if without:
        entries = ", ".join(extra) if extra else "no others"
        said.append(
            f"{path.name} has no distances for {', '.join(without)}; it has {entries}. --labels names rows as they stand "
            "there."
        )
    return {label: row for label, row in rows.items() if label in labels}, said
