"""What two runs were scored with that is not the same: the first question when their numbers differ."""

import json
from typing import Any

from merope.evaluation.result import EvaluationResult

ABSENT = "(not given)"
"""Stands for a setting that one of two runs does not have."""
_MEASURED = frozenset(("projection_error",))


def settings_that_differ(a: EvaluationResult, b: EvaluationResult) -> dict[str, tuple[Any, Any]]:
    """Every field that differs between two runs, with the value of each; scores and labels apart.

    Covered are all ``settings`` (estimator, versions, hashes of weights, whatever the run put there; nested ones by
    names with dots), how failures count, angle method, units, numbers of frames and clips, the benchmark, and what
    the intervals were drawn with. `ABSENT` stands where one run lacks a setting. How far rotations in a file were from
    exact ones (``projection_error``) was measured, not set, and is left out.
    """
    facts_a, facts_b = _facts(a), _facts(b)
    names = [*facts_a, *(name for name in facts_b if name not in facts_a)]
    names = [name for name in names if _MEASURED.isdisjoint(name.split("."))]
    pairs = {name: (facts_a.get(name, ABSENT), facts_b.get(name, ABSENT)) for name in names}
    return {name: (one, other) for name, (one, other) in pairs.items() if not _same(one, other)}


def _same(one: Any, other: Any) -> bool:
    # True == 1 in Python, and a setting that changed its type has changed.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _facts(result: EvaluationResult) -> dict[str, Any]:
    clips = result.clips
    own = {
        "on_failure": result.on_failure,
        "angle_method": _only(clip.angle_method for clip in clips),
        "commanded_unit": _only(clip.unit for clip in clips),
        "num_frames": _only(clip.num_frames for clip in clips),
        "first_generated": _only(clip.first_generated for clip in clips),
        "num_clips": len(clips),
        "num_skipped": result.num_skipped,
        "num_expected": result.num_expected,
        "benchmark": None if result.verdict is None else result.verdict.benchmark,
        "not_comparable": [] if result.verdict is None else list(result.verdict.reasons),
        "num_resamples": result.num_resamples,
        "seed": result.seed,
    }
    ids = {clip.clip_id for clip in clips}
    # What is said clip by clip (notes, failures) is one field: hundreds of them would hide the others.
    stated = _flat(json.loads(json.dumps(result.settings)), "", ids)
    return {**own, **{name: value for name, value in stated.items() if name not in own or own[name] != value}}


def _only(values: Any) -> Any:
    """The value that all clips share, or the list of those there are."""
    found = sorted(set(values), key=lambda value: (value is not None, value))
    return found[0] if len(found) == 1 else found


def _flat(settings: dict[str, Any], prefix: str, ids: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and value and not ids.issuperset(value):
            found |= _flat(value, f"{prefix}{name}.", ids)
        else:
            found[prefix + name] = value
    return found
