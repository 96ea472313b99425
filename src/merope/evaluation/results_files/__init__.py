"""Results as files: results.json, which reads back; results.csv for programs; results.md and results.tex for people."""

from collections.abc import Collection, Sequence
from pathlib import Path

from merope.evaluation.comparison import PairedComparison
from merope.evaluation.result import EvaluationResult
from merope.evaluation.results_files.json_file import NAME, Fidelity, json_text, read_results
from merope.files import write_text_atomically

__all__ = ["Fidelity", "read_results", "write_results"]


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
        ValueError: if there is no result, two carry one label, or a number is NaN.
    """
    folder = Path(folder)
    labels = [result.label for result in results]
    if not results or len(set(labels)) != len(labels):
        raise ValueError(f"results must hold at least one result, each with its own label, got {labels}.")
    texts = {
        NAME: json_text(results, references=references, comparisons=comparisons, fidelity=fidelity),
    }
    for name, text in texts.items():
        write_text_atomically(folder / name, text)
    return [folder / name for name in texts]
