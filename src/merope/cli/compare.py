"""``merope compare``: two evaluated runs held against each other, clip by clip."""

from dataclasses import replace
from difflib import get_close_matches
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.evaluation.result import EvaluationResult


def compare(
    a: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="A")],
    b: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="B")],
    *,
    metric: tuple[str, ...] = (),
    run_a: str | None = None,
    run_b: str | None = None,
    frames: Literal["all", "generated"] = "all",
    despite: tuple[Literal["commanded", "angle_method", "unit", "frames"], ...] = (),
    largest: int = 5,
    resamples: int = 1000,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Compare two evaluated runs on the clips that both have: is B better than A, by how much, and in how many clips?

    A and B are folders that `merope evaluate --out` wrote, or results.json files. Printed are both means, the mean of
    B - A per clip with a 95 % interval, in how many clips each is better, and the p-value of a sign test; then which
    settings differ between the runs, and which clips differ most. Clips that only one run has are named and left out.

    Args:
        a: Results of the run to compare with.
        b: Results of the run that may be better.
        metric: Metrics to show, by their names in results.csv, such as cammc or rot_deg; all of them by default.
        run_a: Label of the run in A, where its file holds several that compete.
        run_b: Label of the run in B.
        frames: Figures over all frames, or over generated ones alone.
        despite: Compare although clips differ in their command, angle method, unit or number of frames, which is
            refused otherwise.
        largest: How many of the clips that differ most to list for each --metric (for CamMC where none is named).
        resamples: How often clips are drawn for the intervals.
        seed: Seed of the draws.
        json: Print one JSON object, with the numbers of every clip.
    """
    if largest < 0 or resamples < 1:
        raise UsageError(
            f"--largest must be 0 or more and --resamples 1 or more, got {largest} and {resamples}."
        )
    from merope.evaluation.comparison import compare as compared
    from merope.evaluation.comparison_table import largest_text, settings_text
    from merope.evaluation.protocol import SPECS

    for name in metric:
        if name not in SPECS:
            close = get_close_matches(name, SPECS, n=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise UsageError(f"--metric must be among {', '.join(SPECS)}, got {name!r}{hint}")
    result_a, result_b = _run(a, run_a, flag="--run-a"), _run(b, run_b, flag="--run-b")
    if result_a.label == result_b.label:
        result_a = replace(result_a, label=f"{result_a.label} in {a}")
        result_b = replace(result_b, label=f"{result_b.label} in {b}")
    comparison = compared(
        result_a, result_b, frames=frames, despite=despite, seed=seed, num_resamples=resamples
    )
    if json:
        content = comparison.to_dict()
        if metric:
            content["metrics"] = {key: content["metrics"][key] for key in metric}
        print(dumps(content, indent=2, allow_nan=False))
        return
    print(comparison.table(metric or None))
    print(f"\n{settings_text(comparison)}")
    if largest:
        for key in metric or ("cammc",):
            print(f"\n{largest_text(comparison, key, largest)}")


def _run(path: Path, label: str | None, *, flag: str) -> "EvaluationResult":
    """The run of this label in a file, or the only one that competes."""
    from merope.errors import MeropeError
    from merope.evaluation.results_files import load_results

    found = load_results(path)
    runs = {result.label: result for result in found.results}
    if label is not None:
        if label not in runs:
            raise MeropeError(f"{path} has no run {label!r}; {flag} can be {_listed(runs)}.")
        return runs[label]
    rivals = [name for name in runs if name not in found.references] or list(runs)
    if len(rivals) > 1:
        raise UsageError(f"{path} holds several runs. Say which: {flag} {_listed(runs)}.")
    if not rivals:
        raise MeropeError(f"{path} holds no run. `merope evaluate RUN --out DIR` writes one.")
    return runs[rivals[0]]


def _listed(labels: dict[str, "EvaluationResult"]) -> str:
    return " or ".join(repr(label) for label in labels)
