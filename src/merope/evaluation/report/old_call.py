"""`write_report` for callers that still pass results and two paths."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from merope.evaluation.plots.bev import plot_bev
from merope.evaluation.result import EvaluationResult
from merope.evaluation.runs.run import ScoredRun
from merope.files import write_text_atomically
from merope.geometry.poses import Poses


def from_old_call(
    folder: Path,
    runs: Sequence[ScoredRun | EvaluationResult],
    *,
    commanded: Poses | None = None,
    recovered: Mapping[str, Poses] | None = None,
    references: Collection[str] = (),
    align_scale: bool = False,
    **_: Any,
) -> list[ScoredRun]:
    """Runs from results alone; writes metrics.json and bev.png as before."""
    old = [run for run in runs if isinstance(run, EvaluationResult)]
    if old:
        content = {"results": [result.to_dict() for result in old]}
        write_text_atomically(folder / "metrics.json", json.dumps(content, allow_nan=False))
        if commanded is not None and recovered:
            plot_bev(folder / "bev.png", commanded, recovered, align_scale=align_scale)
    return [
        run
        if isinstance(run, ScoredRun)
        else ScoredRun(label=run.label, clips=(), result=run, reference=run.label in references)
        for run in runs
    ]
