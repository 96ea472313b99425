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
from merope.evaluation.finite_json import finite_json, place_of_nan
from merope.evaluation.metrics.pairs import MAX_THRESHOLD_DEG, PairCounts
from merope.evaluation.protocol import Metric
from merope.evaluation.result import FORMAT, ClipResult, EvaluationResult, Scores

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
    return finite_json(content) + "\n"


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
        content = parse_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise MeropeError(f"{path} is not JSON: {error}.") from None
    _require_version(content, path)
    if (place := place_of_nan(content)) is not None:
        raise MeropeError(
            f"{path} must hold finite numbers, and {place} is not one. An undefined value is null; write the file again."
        )
    try:
        documents = _of(list, content.get("results", [content]), "results")
        results = tuple(_result(_of(dict, document, "a result")) for document in documents)
        references = tuple(_of(str, label, "a reference") for label in content.get("references", []))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise MeropeError(
            f"{path} says that it is {FORMAT}, but not all of it can be read: {what}. Write it again with `merope evaluate`."
        ) from None
    labels = [result.label for result in results]
    if len(set(labels)) != len(labels):
        raise MeropeError(f"{path} has two runs of one label among {', '.join(labels)}. Rename one of them.")
    return ResultsFile(results=results, references=references)


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
    protocol, verdict = _of(dict, document["protocol"], "protocol"), document["verdict"]
    return EvaluationResult(
        clips=tuple(_clip(clip) for clip in _of(list, document["clips"], "clips")),
        label=_of(str, document["label"], "label"),
        on_failure=_of(str, protocol["on_failure"], "on_failure"),
        num_skipped=_of(int, document["num_skipped"], "num_skipped"),
        seed=_of(int, protocol["seed"], "seed"),
        num_resamples=_of(int, protocol["num_resamples"], "num_resamples"),
        settings=_of(dict, document["settings"], "settings"),
        num_expected=_of(int, document["num_expected"], "num_expected", or_null=True),
        verdict=None if verdict is None else _verdict(verdict),
    )


def _verdict(document: dict[str, Any]) -> Verdict:
    reasons = _of(list, document["reasons"], "reasons")
    return Verdict(
        benchmark=_of(str, document["benchmark"], "benchmark"),
        num_expected=_of(int, document["num_expected"], "num_expected"),
        num_used=_of(int, document["num_used"], "num_used"),
        reasons=tuple(_of(str, reason, "a reason") for reason in reasons),
    )


def _clip(document: dict[str, Any]) -> ClipResult:
    generated = document["generated_frames"]
    return ClipResult(
        clip_id=_of(str, document["clip_id"], "clip_id"),
        num_frames=_of(int, document["num_frames"], "num_frames"),
        num_registered=_of(int, document["num_registered"], "num_registered"),
        first_generated=_of(int, document["first_generated"], "first_generated", or_null=True),
        angle_method=_of(str, document["angle_method"], "angle_method"),
        unit=_of(str, document["commanded_unit"], "commanded_unit"),
        commanded_digest=_of(str, document["commanded_digest"], "commanded_digest", or_null=True),
        all=_scores(document["all_frames"]),
        generated=None if generated is None else _scores(generated),
        flags=_words(document["flags"], "flags"),
    )


def _scores(document: dict[str, Any]) -> Scores:
    values = _of(dict, document["values"], "values")
    for key, value in values.items():
        _of((int, float), value, key, or_null=True)
    counts = [document["pairs_below_deg"], document["pairs_below_deg_oriented"]]
    for count in counts:
        if len(_of(list, count, "pairs_below_deg")) != MAX_THRESHOLD_DEG:
            raise TypeError(f"pairs_below_deg must hold {MAX_THRESHOLD_DEG} counts, got {len(count)}")
        for number in count:
            _of(int, number, "pairs_below_deg")
        if count != sorted(count) or count[0] < 0 or count[-1] > _of(int, document["num_pairs"], "num_pairs"):
            raise ValueError("pairs_below_deg must grow from 0 or more to num_pairs at most")
    return Scores(
        values=values,
        reasons=_words(document["reasons"], "reasons"),
        pairs=PairCounts(
            num_pairs=_of(int, document["num_pairs"], "num_pairs"),
            num_vanishing=_of(
                int, document["num_pairs_with_vanishing_translation"], "num_pairs_with_vanishing_translation"
            ),
            below=tuple(counts[0]),
            below_oriented=tuple(counts[1]),
        ),
    )


def _words(document: Any, name: str) -> dict[str, str]:
    return {key: _of(str, text, f"{name}.{key}") for key, text in _of(dict, document, name).items()}


_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number", (int, float): "a number"}


def _of(kind: Any, value: Any, name: str, *, or_null: bool = False) -> Any:
    """The value if it is of this kind; JSON's true and false are no numbers."""
    if (or_null and value is None) or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{name} must be {_KINDS[kind]}{' or null' * or_null}, got {str(value)[:60]!r}")
