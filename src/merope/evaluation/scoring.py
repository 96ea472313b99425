"""Score recovered trajectories against commanded ones: `evaluate_clip` and `evaluate_clips`."""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

import merope
from merope.evaluation.command_digest import digest_of_command
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.flags.find import find_flags
from merope.evaluation.flags.standing import chord_problem, stands
from merope.evaluation.metrics import paper as metrics
from merope.evaluation.metrics.pairs import PairCounts, count_pairs_from
from merope.evaluation.metrics.paper import Aligned, AngleMethod
from merope.evaluation.metrics.trajectory_errors import TrajectoryErrors
from merope.evaluation.protocol import AUC_THRESHOLDS_DEG, FLAGS, SPECS
from merope.evaluation.result import ClipResult, EvaluationResult, Scores
from merope.geometry.poses import Poses

OnFailure = Literal["error", "worst", "skip"]
_BESIDE_SCALE = ("scale", "metres_ratio", "scale_error_percent")
_TRAJECTORY = tuple(key for key, spec in SPECS.items() if "trajectory" in spec.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPair:
    """One clip to score. ``estimated`` is None where recovery failed; ``clip_id`` must be unique in a set.

    ``nan_rows`` are the frames whose row in the estimate's file was not finite. ``same_world`` is False for cameras that an
    estimator recovered from frames, in a world of its own.
    """

    clip_id: str
    commanded: Poses
    estimated: Poses | Recovered | None
    first_generated: int | None = None
    nan_rows: tuple[int, ...] = ()
    same_world: bool = True


def evaluate_clip(
    commanded: Poses,
    estimated: Poses | Recovered,
    *,
    clip_id: str = "clip",
    first_generated: int | None = None,
    method: AngleMethod = "atan2",
    scale: Literal["metric", "up_to_scale"] | None = None,
    nan_rows: Sequence[int] = (),
    same_world: bool = True,
) -> ClipResult:
    """All metrics of appendix B.2 for one clip, beside them what those cannot see, and evo's trajectory errors.

    Eqs. 35-45 as printed. tr% uses the least-squares scale s*, CamMC and TransErr the max-norms of Eq. 38, trajectory
    errors the alignment in their name. Everything is computed in float64, whatever came in.
    ``first_generated`` is the number of given frames: it adds the same figures over generated frames alone.
    ``method="acos"`` takes the paper's arccosine instead of the exact atan2. ``scale`` says whether estimated
    centres are metric (then the metric scale error is defined); without it, `Recovered` says, or metric is
    taken where both units are metres. ``nan_rows`` are frames whose row was not finite, for the flag of that name.
    ``same_world=False`` says that the estimate's world is its own, as that of cameras recovered from frames always is: then
    the error without alignment, ``ate_none``, is undefined.

    Undefined values are None with a reason: tr% where the command has no end-to-end chord (below 1e-6 of its
    path, or 1 cm for metres), scale figures where the command stands still or the estimate has no metric scale,
    aligned trajectory errors on a straight or still path.

    Raises:
        ValueError: if the lengths differ, or fewer than two poses came.
    """
    recovered = estimated if isinstance(estimated, Recovered) else None
    poses = recovered.poses if recovered is not None else estimated
    assert isinstance(poses, Poses)
    if scale is None:
        scale = recovered.scale if recovered is not None else "metric"
        if commanded.unit != "m" or poses.unit != "m":
            scale = "up_to_scale"
    aligned = Aligned.from_poses(commanded, poses)
    num_registered = len(poses) if recovered is None else int(recovered.registered.sum())

    problem = chord_problem(commanded)

    errors = TrajectoryErrors.of(commanded, poses)
    firsts = (0,) if first_generated is None else (0, first_generated)
    scores = [
        _score(
            aligned,
            errors,
            pairs,
            first=first,
            method=method,
            metric=scale == "metric",
            same_world=same_world,
            problem=problem,
            still=stands(commanded),
        )
        for first, pairs in zip(firsts, count_pairs_from(aligned, firsts, method=method), strict=True)
    ]
    return ClipResult(
        clip_id=clip_id,
        num_frames=len(commanded),
        num_registered=num_registered,
        first_generated=first_generated,
        angle_method=method,
        unit=commanded.unit,
        all=scores[0],
        generated=None if first_generated is None else scores[1],
        flags=find_flags(commanded, poses, aligned, recovered=recovered, scale=scale, nan_rows=nan_rows),
        commanded_digest=digest_of_command(commanded),
    )


def _score(
    aligned: Aligned,
    errors: TrajectoryErrors,
    pairs: PairCounts,
    *,
    first: int,
    method: AngleMethod,
    metric: bool,
    same_world: bool,
    problem: str | None,
    still: bool,
) -> Scores:
    ratio = metrics.metres_ratio(aligned) if metric and not still else None
    values: dict[str, float | None] = {
        "rot_deg": metrics.rot_deg(aligned, first=first, method=method),
        "tr_percent": None if problem else metrics.tr_percent(aligned, first=first),
        "cammc": metrics.cammc(aligned, first=first),
        "rot_err_rad": metrics.rot_err_rad(aligned, first=first, method=method),
        "trans_err": metrics.trans_err(aligned, first=first),
        **_auc_values(pairs),
        "scale": None if still else metrics.least_squares_scale(aligned),
        "metres_ratio": ratio,
        "scale_error_percent": None if ratio is None else abs(ratio - 1) * 100,
    }
    reasons = {"tr_percent": f"the command {problem}"} if problem else {}
    if not metric:
        reasons |= dict.fromkeys(("metres_ratio", "scale_error_percent"), "the estimate has no metric scale")
    if still:
        reasons |= dict.fromkeys(_BESIDE_SCALE, f"the command {problem or 'stands still'}")
    trajectory, undefined = errors.values(first=first, metric=metric, same_world=same_world)
    return Scores(values=values | trajectory, reasons=reasons | undefined, pairs=pairs)


def _auc_values(pairs: PairCounts) -> dict[str, float | None]:
    return {
        f"auc_{threshold}{suffix}": pairs.auc_percent(threshold, oriented=oriented)
        for suffix, oriented in (("", False), ("_oriented", True))
        for threshold in AUC_THRESHOLDS_DEG
    }


def evaluate_clips(
    clips: Iterable[ClipPair],
    *,
    label: str = "estimate",
    on_failure: OnFailure = "error",
    method: AngleMethod = "atan2",
    scale: Literal["metric", "up_to_scale"] | None = None,
    seed: int = 0,
    num_resamples: int = 1000,
    settings: dict[str, Any] | None = None,
) -> EvaluationResult:
    """Score a set of clips: means and medians over clips, AUC pooled over the pairs of all clips.

    ``on_failure`` decides about clips without an estimate: "error" names the first and stops, "worst" scores
    it as the worst possible answer, "skip" leaves it out; the success rate counts it in every case.
    Results do not depend on the order of the clips. ``seed`` is that of the bootstrap intervals.

    Raises:
        ValueError: if there are no clips, an id comes twice, or a clip failed under "error".
    """
    if on_failure not in ("error", "worst", "skip"):
        raise ValueError(f"on_failure must be 'error', 'worst' or 'skip', got {on_failure!r}.")
    results: list[ClipResult] = []
    seen: set[str] = set()
    num_skipped = 0
    for clip in clips:
        if clip.clip_id in seen:
            raise ValueError(
                f"clip_id {clip.clip_id!r} came twice; every clip counts once. Drop the duplicate."
            )
        seen.add(clip.clip_id)
        if clip.estimated is not None:
            results.append(
                evaluate_clip(
                    clip.commanded,
                    clip.estimated,
                    clip_id=clip.clip_id,
                    first_generated=clip.first_generated,
                    method=method,
                    scale=scale,
                    nan_rows=clip.nan_rows,
                    same_world=clip.same_world,
                )
            )
        elif on_failure == "error":
            raise ValueError(
                f"clip {clip.clip_id!r} has no estimated trajectory. Pass on_failure='worst' to score it as the "
                "worst possible answer, or 'skip' to leave it out and have it counted."
            )
        elif on_failure == "skip":
            num_skipped += 1
        else:
            results.append(worst_clip(clip, method=method))
    if not results:
        raise ValueError(
            "there is nothing to score: "
            + (f"all {num_skipped} clips failed and were skipped." if num_skipped else "no clips came.")
        )
    return EvaluationResult(
        clips=tuple(results),
        label=label,
        on_failure=on_failure,
        num_skipped=num_skipped,
        seed=seed,
        num_resamples=num_resamples,
        settings={
            "angle_method": method,
            "versions": {
                "merope": merope.__version__,
                "torch": torch.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
            **(settings or {}),
        },
    )


def worst_clip(clip: ClipPair, *, method: AngleMethod = "atan2") -> ClipResult:
    """The score of a clip whose recovery failed, under ``on_failure="worst"``.

    Rotations count as 180 degrees off from frame 2 on, max-normalised centres as opposite the command and at
    full length, no pair is correct, and tr% is that of an estimate that does not move. Scales and trajectory errors
    have no worst value: they are undefined.
    """
    commanded = clip.commanded
    half_turn = torch.diag(torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64))
    standing = Poses(
        R_world_cam=torch.cat([commanded.R_world_cam[:1], commanded.R_world_cam[1:] @ half_turn]),
        center_world=commanded.center_world[:1].expand(len(commanded), 3),
        unit=commanded.unit,
    )
    base = evaluate_clip(
        commanded, standing, clip_id=clip.clip_id, first_generated=clip.first_generated, method=method
    )
    reach = 1 + metrics.max_normalised(Aligned.from_poses(commanded, standing).center_rel).norm(dim=-1)

    def worst(scores: Scores, first: int) -> Scores:
        trans = reach[max(first, 1) :]
        values = dict(scores.values) | {
            # A half turn is 2 sqrt(2) away from any rotation in Frobenius norm.
            "cammc": float((8 + trans.square()).sqrt().sum()),
            "trans_err": float(trans.sum()),
            **dict.fromkeys((*_BESIDE_SCALE, *_TRAJECTORY)),
        }
        reasons = scores.reasons | dict.fromkeys(
            (*_BESIDE_SCALE, *_TRAJECTORY), "no trajectory was recovered"
        )
        pairs = PairCounts.none_below(scores.pairs.num_pairs)
        return Scores(values=values | _auc_values(pairs), reasons=reasons, pairs=pairs)

    return ClipResult(
        clip_id=clip.clip_id,
        num_frames=base.num_frames,
        num_registered=0,
        first_generated=base.first_generated,
        angle_method=method,
        unit=base.unit,
        all=worst(base.all, 0),
        generated=None if base.generated is None else worst(base.generated, clip.first_generated or 0),
        flags={"failed": FLAGS["failed"]},
        commanded_digest=base.commanded_digest,
    )
