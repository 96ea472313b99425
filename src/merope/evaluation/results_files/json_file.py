"""results.json: every clip, setting and figure of one or several runs, and back.

The layout, ``"format": "merope-evaluation-1"``:

- ``references``: labels of runs that do not compete, such as a noise floor.
- ``results``: a list with an object for each run: ``format`` again; ``label``; ``protocol`` (gauge, on_failure, seed and
  num_resamples of the intervals); ``settings``, as the run gave them; ``num_clips``, ``num_skipped``, ``num_expected`` (null
  where unknown); ``verdict`` (null, or benchmark, num_expected, num_used, reasons); ``metrics`` and
  ``metrics_generated_frames``, by metric the value, unit, median over clips, 95 % interval, clips used and left out with
  reasons, and protocol; ``flags``, how many clips carry each; ``clips``.
- each of ``clips``: ``clip_id``, ``num_frames``, ``num_registered``, ``first_generated``, ``angle_method``,
  ``commanded_unit``, ``commanded_digest``, ``flags`` (flag to words), ``all_frames`` and ``generated_frames`` (null, or like
  the other): ``values`` by metric, null where undefined; ``reasons`` for those; ``num_pairs``,
  ``num_pairs_with_vanishing_translation``, and the pairs below 1, 2, ..., 10 degrees in ``pairs_below_deg`` and
  ``pairs_below_deg_oriented``.
- ``comparisons``: paired comparisons of two runs, as `PairedComparison.to_dict` has them without the numbers of each clip.
- ``fidelity``: null, or by label and measure (fid, kid, fvd, kvd) the value, unit, reason and protocol.

Figures over clips are written for the reader of the file. They follow from ``clips``, and reading takes them from there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from merope.data.foreign_files.strict_json import parse_json
from merope.errors import MeropeError
from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.comparison import PairedComparison
from merope.evaluation.metrics.pairs import PairCounts
from merope.evaluation.protocol import Metric
from merope.evaluation.result import FORMAT, ClipResult, EvaluationResult, Scores, place_of_nan, strict_json

Fidelity = Mapping[str, Mapping[str, Metric]]
NAME = "results.json"


def json_text(
    results: Sequence[EvaluationResult],
    *,
    references: Collection[str] = (),
    comparisons: Sequence[PairedComparison] = (),
    fidelity: Fidelity | None = None,
) -> str:
    """The text of results.json.

    Raises:
        ValueError: if a number is NaN or infinite.
    """
    measures = None
    if fidelity is not None:
        measures = {
            label: {key: asdict(metric) for key, metric in row.items()} for label, row in fidelity.items()
        }
    content = {
        "format": FORMAT,
        "references": [result.label for result in results if result.label in references],
        "results": [result.to_dict() for result in results],
        "comparisons": [comparison.to_dict(with_clips=False) for comparison in comparisons],
        "fidelity": measures,
    }
    return strict_json(content) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsFile:
    """What a results.json holds: the runs, and the labels of those that do not compete."""

    results: tuple[EvaluationResult, ...]
    references: tuple[str, ...]


def read_results(path: str | Path) -> tuple[EvaluationResult, ...]:
    """The runs in a results.json, or in the folder that has one; also what `EvaluationResult.to_json` wrote.

    Raises:
        MeropeError: as `load_results`.
        FileNotFoundError: if there is no such file.
    """
    return load_results(path).results


def load_results(path: str | Path) -> ResultsFile:
    """The same, and which of the runs are references.

    Raises:
        MeropeError: if the file is of another version or of no evaluation, or something in it is missing or wrong.
        FileNotFoundError: if there is no such file.
    """
    path = Path(path)
    if path.is_dir():
        path = path / NAME
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MeropeError(f"{path} is not JSON: {error}.") from None
    _require_version(content, path)
    if (place := place_of_nan(content)) is not None:
        raise MeropeError(
            f"{path} must hold finite numbers, and {place} is not one. An undefined value is null; write the file again."
        )
    documents = content.get("results", [content])
    try:
        results = tuple(_result(document) for document in documents)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise MeropeError(
            f"{path} says that it is {FORMAT}, but not all of it can be read: {what}. Write it again with `merope evaluate`."
        ) from None
    labels = [result.label for result in results]
    if len(set(labels)) != len(labels):
        raise MeropeError(f"{path} has two runs of one label among {', '.join(labels)}. Rename one of them.")
    return ResultsFile(results=results, references=tuple(content.get("references", ())))


def _require_version(content: Any, path: Path) -> None:
    found = content.get("format") if isinstance(content, dict) else None
    if found == FORMAT:
        return
    if isinstance(found, str) and found.startswith("merope-evaluation-"):
        raise MeropeError(
            f"{path} is {found}, and this version of merope reads {FORMAT}. Score the run again with `merope evaluate`, or "
            "read the file with the version of merope that wrote it."
        )
    raise MeropeError(
        f'{path} is not a file of evaluation results: it has no "format": "{FORMAT}". `merope evaluate RUN --out DIR` '
        "writes one, DIR/results.json."
    )


def _result(document: dict[str, Any]) -> EvaluationResult:
    protocol, verdict = document["protocol"], document["verdict"]
    return EvaluationResult(
        clips=tuple(_clip(clip) for clip in document["clips"]),
        label=document["label"],
        on_failure=protocol["on_failure"],
        num_skipped=document["num_skipped"],
        seed=protocol["seed"],
        num_resamples=protocol["num_resamples"],
        settings=document["settings"],
        num_expected=document["num_expected"],
        verdict=None
        if verdict is None
        else Verdict(
            benchmark=verdict["benchmark"],
            num_expected=verdict["num_expected"],
            num_used=verdict["num_used"],
            reasons=tuple(verdict["reasons"]),
        ),
    )


def _clip(document: dict[str, Any]) -> ClipResult:
    generated = document["generated_frames"]
    return ClipResult(
        clip_id=document["clip_id"],
        num_frames=document["num_frames"],
        num_registered=document["num_registered"],
        first_generated=document["first_generated"],
        angle_method=document["angle_method"],
        unit=document["commanded_unit"],
        commanded_digest=document["commanded_digest"],
        all=_scores(document["all_frames"]),
        generated=None if generated is None else _scores(generated),
        flags=document["flags"],
    )


def _scores(document: dict[str, Any]) -> Scores:
    for key, value in document["values"].items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{key} must be a number or null, got {value!r}")
    return Scores(
        values=document["values"],
        reasons=document["reasons"],
        pairs=PairCounts(
            num_pairs=document["num_pairs"],
            num_vanishing=document["num_pairs_with_vanishing_translation"],
            below=tuple(document["pairs_below_deg"]),
            below_oriented=tuple(document["pairs_below_deg_oriented"]),
        ),
    )
