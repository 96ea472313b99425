"""`score_run`: clips with their commands and recovered cameras become one row of the tables."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from merope.evaluation.metrics.paper import AngleMethod
from merope.evaluation.runs.run import RunClip, ScoredRun
from merope.evaluation.scoring import ClipPair, OnFailure, evaluate_clips


def score_run(
    clips: Iterable[RunClip],
    *,
    label: str,
    on_failure: OnFailure = "worst",
    method: AngleMethod = "atan2",
    scale: Literal["metric", "up_to_scale"] | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    num_expected: int | None = None,
    reference: bool = False,
) -> ScoredRun:
    """Score every clip of a run (`evaluate_clips`); the order of the clips changes nothing.

    Settings of the result say, beside those that are given, what the estimator notes of all clips and of some, and why
    clips failed. Clips that a second look doubts are flagged ``unreliable``; no number hangs on that. ``num_expected`` is
    how many clips there should have been, where that is known.

    Raises:
        ValueError: if there are no clips, two have one name, a clip failed under ``on_failure="error"``, or all failed and
            are skipped.
    """
    chosen = sorted(clips, key=_in_order)
    result = evaluate_clips(
        (
            ClipPair(
                clip_id=clip.clip_id,
                commanded=clip.commanded,
                estimated=clip.recovered,
                first_generated=clip.first_generated,
                nan_rows=clip.nan_rows,
                # Cameras that were recovered from frames have a world of their own; files may share one.
                same_world=clip.frames is None,
            )
            for clip in chosen
        ),
        label=label,
        on_failure=on_failure,
        method=method,
        scale=scale,
        seed=seed,
        settings={**_said(chosen), **(settings or {})},
    )
    doubts = {clip.clip_id: clip.unreliable for clip in chosen if clip.unreliable is not None}
    result = replace(
        result,
        num_expected=num_expected,
        clips=tuple(
            replace(clip, flags={**clip.flags, "unreliable": doubts[clip.clip_id]})
            if clip.clip_id in doubts
            else clip
            for clip in result.clips
        ),
    )
    return ScoredRun(label=label, clips=tuple(chosen), result=result, reference=reference)


def _in_order(clip: RunClip) -> list[tuple[int, str]]:
    """By name, numbers in it by their value: frames 8 come before frames 16."""
    parts = re.split(r"(\d+)", clip.clip_id)
    return [(int(part) if place % 2 else 0, part) for place, part in enumerate(parts)]


def not_whole(run: ScoredRun) -> list[str]:
    """A line for every clip without a camera, or with one for some of its frames only."""
    failed = [f"not recovered: {clip.clip_id}: {clip.failure}" for clip in run.clips if clip.failure]
    partial = [
        f"recovered in part: {clip.clip_id}: {clip.flags[flag]}"
        for clip in run.result.clips
        for flag in ("partial_registration", "nan_rows")
        if flag in clip.flags
    ]
    return failed + partial


def _said(clips: Sequence[RunClip]) -> dict[str, Any]:
    """Notes of the estimator on all clips, on single ones, and why clips failed."""
    found = {clip.clip_id: clip.recovered.notes for clip in clips if clip.recovered is not None}
    sets = [set(notes) for notes in found.values()]
    shared = sorted(set.intersection(*sets)) if sets else []
    own = {name: [note for note in notes if note not in shared] for name, notes in found.items()}
    return {
        "estimator_notes": shared,
        "estimator_notes_by_clip": {name: notes for name, notes in own.items() if notes},
        "recovery_failed": {clip.clip_id: clip.failure for clip in clips if clip.failure is not None},
    }
