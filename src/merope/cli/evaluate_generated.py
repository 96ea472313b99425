"""The part of ``merope evaluate`` that recovers cameras from generated clips."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from merope.cli.extras import require
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.poses.table import ReadOptions
    from merope.evaluation.runs.generated import GeneratedScores


def evaluate_generated(
    folder: Path,
    *,
    estimator: Literal["network", "colmap", "poses"],
    estimates: Path | None,
    format: str,
    options: "ReadOptions",
    weights: Path | None,
    on_failure: Literal["worst", "skip", "error"],
    method: Literal["atan2", "acos"],
    scale: Literal["metric", "up_to_scale"] | None,
    seed: int,
    out: Path | None,
    json: bool,
) -> None:
    """Recover, score, print and write; see `merope.cli.evaluate.evaluate` for what the arguments mean."""
    if (estimator == "poses") != (estimates is not None):
        raise UsageError("--estimator poses and --estimates FOLDER belong together.")
    if estimator == "colmap":
        require("pycolmap", purpose="--estimator colmap")
    from merope.data.clips.generated import find_generated, not_generated
    from merope.errors import MeropeError
    from merope.evaluation.estimators import ColmapEstimator, NetworkEstimator, ResampledNetworkEstimator
    from merope.evaluation.runs.generated import estimates_in, score_generated, write_recovered

    clips = find_generated(folder)
    absent = not_generated(folder)
    if absent and on_failure != "skip":
        raise MeropeError(
            f"{len(absent)} of {len(clips) + len(absent)} clips of {folder} were not generated: {', '.join(absent[:5])}"
            f"{', ...' if len(absent) > 5 else ''}. Run the same `merope generate` again, or leave them out by "
            "--on-failure skip."
        )
    settings: dict[str, Any] = {"generated": folder.name, "not_generated": absent}
    chosen: Any
    if estimator == "network":
        from merope.cli.street import WEIGHTS

        network = NetworkEstimator.load(weights or WEIGHTS / "estimator.safetensors")
        chosen = ResampledNetworkEstimator(network)
        settings["estimator_summary"] = network.summary
    elif estimator == "colmap":
        chosen = ColmapEstimator()
    else:
        assert estimates is not None
        chosen = estimates_in(estimates, format=format, options=options)
    scores = score_generated(
        clips,
        chosen,
        label=f"{folder.resolve().name}, {estimator}",
        on_failure=on_failure,
        method=method,
        scale=scale,
        seed=seed,
        settings=settings,
    )
    if out is not None:
        from merope.evaluation.report.page import write_report

        shown = next((clip for clip in clips if clip.clip_id in scores.recovered), None)
        write_report(
            out,
            [scores.result],
            title=f"Cameras of {folder.resolve().name}, recovered and scored",
            commanded=None if shown is None else shown.commanded,
            recovered=None if shown is None else {scores.result.label: scores.recovered[shown.clip_id].poses},
            first_generated=None if shown is None else shown.prefix_frames or None,
            align_scale=shown is not None and scores.recovered[shown.clip_id].scale != "metric",
            notes=(*scores.notes, *_not_whole(scores)),
        )
        write_recovered(out / "recovered", scores.recovered)
    if json:
        print(scores.result.to_json())
        return
    for note in scores.notes:
        print(note)
    if absent:
        print(f"left out, since they were not generated: {', '.join(absent)}", file=sys.stderr)
    print(scores.result.table())
    for line in _not_whole(scores):
        print(line, file=sys.stderr)
    if out is not None:
        print(f"\nwritten to {out}: report.html, bev.png, metrics.json, recovered")


def _not_whole(scores: "GeneratedScores") -> list[str]:
    """A line for every clip without a camera, or with one for some of its frames only."""
    return [
        *(f"not recovered: {clip}: {reason}" for clip, reason in sorted(scores.failed.items())),
        *(f"recovered in part: {clip}: {words}" for clip, words in sorted(scores.partial.items())),
    ]
