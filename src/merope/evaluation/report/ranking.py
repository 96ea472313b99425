"""Which runs come first where not all can be drawn."""

import math
from collections.abc import Sequence

from merope.evaluation.result import EvaluationResult
from merope.evaluation.runs.run import ScoredRun


def worst_first(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Runs by CamMC from worst to best, as the paper's tables have them; without references."""
    rivals = [run for run in runs if not run.reference]
    return sorted(rivals, key=lambda run: -mean_cammc(run.result))


def mean_cammc(result: EvaluationResult) -> float:
    """Mean CamMC over clips; infinite where no clip has it."""
    values = [value for clip in result.clips if (value := clip.all.values.get("cammc")) is not None]
    return math.fsum(values) / len(values) if values else math.inf
