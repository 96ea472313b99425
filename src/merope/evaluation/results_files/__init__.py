"""Results as files: results.json, which reads back; results.csv for programs; results.md and results.tex for people."""

from collections.abc import Collection, Sequence
from pathlib import Path

from merope.evaluation.comparison import PairedComparison
from merope.evaluation.result import EvaluationResult
from merope.evaluation.results_files.csv_file import csv_text
from merope.evaluation.results_files.json_file import (
    NAME,
    Fidelity,
    ResultsFile,
    json_text,
    load_results,
    read_results,
)
from merope.evaluation.results_files.latex import latex_text
from merope.evaluation.results_files.markdown import markdown_text
from merope.evaluation.results_files.tables import tables_of
from merope.files import write_text_atomically

__all__ = ["Fidelity", "ResultsFile", "load_results", "read_results", "write_results"]


def write_results(
    folder: str | Path,
    results: Sequence[EvaluationResult],
    *,
    references: Collection[str] = (),
    comparisons: Sequence[PairedComparison] = (),
    fidelity: Fidelity | None = None,
) -> list[Path]:
    """Write results.json, results.csv, results.md and results.tex; the paths of what was written.

    ``references`` are labels of rows that do not compete, such as a noise floor. ``fidelity`` holds FID, KID, FVD and
    KVD by label (`merope fidelity`).

    Raises:
        ValueError: if there is no result, two carry one label, a reference is none of them, or a number is NaN.
    """
    folder = Path(folder)
    labels = [result.label for result in results]
    if not results or len(set(labels)) != len(labels):
        raise ValueError(f"results must hold at least one result, each with its own label, got {labels}.")
    strangers = set(references) - set(labels)
    if strangers:
        raise ValueError(
            f"references must be labels of results, got {', '.join(sorted(strangers))} beside {', '.join(labels)}."
        )
    tables = tables_of(results, references=references, fidelity=fidelity)
    texts = {
        NAME: json_text(results, references=references, comparisons=comparisons, fidelity=fidelity),
        "results.csv": csv_text(results, references=references),
        "results.md": markdown_text(tables, comparisons),
        "results.tex": latex_text(tables, comparisons),
    }
    for name, text in texts.items():
        write_text_atomically(folder / name, text)
    return [folder / name for name in texts]
