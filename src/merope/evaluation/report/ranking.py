"""Which rows come where, and which values are best and second."""

import math
from collections.abc import Sequence
from typing import Literal

from merope.evaluation.result import EvaluationResult
from merope.evaluation.runs.run import ScoredRun

Place = Literal["best", "second", ""]


def worst_first(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Runs by CamMC from worst to best, as the paper's tables have them; without references."""
    rivals = [run for run in runs if not run.reference]
    return sorted(rivals, key=lambda run: -mean_cammc(run.result))


def mean_cammc(result: EvaluationResult) -> float:
    """Mean CamMC over clips; infinite where no clip has it."""
    values = [value for clip in result.clips if (value := clip.all.values.get("cammc")) is not None]
    return math.fsum(values) / len(values) if values else math.inf


def places(
    values: Sequence[float | None], better: Literal["lower", "higher", "one", "none"], digits: int
) -> list[Place]:
    """Which values are best and which second, as printed: values that print alike share a place.

    Nothing is best where there is nothing to compare it with: below two values.
    """
    costs = [None if value is None else _cost(round(value, digits), better) for value in values]
    known = sorted({cost for cost in costs if cost is not None})
    if better == "none" or sum(cost is not None for cost in costs) < 2:
        return [""] * len(values)
    names: dict[float, Place] = {known[0]: "best"}
    if len(known) > 1:
        names[known[1]] = "second"
    return ["" if cost is None else names.get(cost, "") for cost in costs]


def _cost(value: float, better: str) -> float:
    if better == "one":
        return abs(value - 1)
    return -value if better == "higher" else value
