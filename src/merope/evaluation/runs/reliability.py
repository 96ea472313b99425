"""Whether an estimator agrees with itself on a clip, kept beside the recovered cameras; it marks clips and drops none."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from merope.cameras import CameraModel
from merope.evaluation.estimators.base import PoseEstimator, Recovered
from merope.evaluation.estimators.consistency import SecondPass, check_consistency, is_symmetric
from merope.evaluation.runs.sources import ClipSource
from merope.files import write_text_atomically

_FORMAT = "merope-reliability-1"
# The network was trained on travel forward in steps of its own frame rate: backwards, and over every second frame in
# turns, it disagrees with itself on clips that it recovers well (18 and 5 of 18 renders). In a mirror both hold.
_MIRRORED = ("network", "motion-network")


class _Knows:
    """An estimator that was asked once already: the first answer is the one at hand."""

    def __init__(self, estimator: PoseEstimator, first: Recovered) -> None:
        self.name = estimator.name
        self._estimator, self._first = estimator, [first]

    def identity(self) -> dict[str, Any]:
        return self._estimator.identity()

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        return self._first.pop() if self._first else self._estimator.estimate(frames, camera, fps=fps)


def write_reliability(
    path: str | Path,
    estimator: PoseEstimator,
    source: ClipSource,
    recovered: Recovered,
    *,
    key: Mapping[str, Any],
) -> None:
    """Recover the clip a second time (`check_consistency`) and write what came of it; ``key`` is that of the cameras.

    The second pass goes backwards, for the network through a mirror; where the lens is not symmetric there is none.
    """
    second: SecondPass = "mirrored" if estimator.name in _MIRRORED else "reversed"
    content: dict[str, Any] = {"format": _FORMAT, **key, "second_pass": second}
    if second == "mirrored" and not is_symmetric(source.lens):
        content |= {"unreliable": False, "reason": "not looked at twice: the lens is not symmetric"}
        content |= {"num_compared": 0}
    elif len(source.commanded) < 3:
        content |= {"unreliable": False, "reason": "too short to be looked at twice", "num_compared": 0}
    else:
        found = check_consistency(
            _Knows(estimator, recovered), source.frames(), source.lens, fps=source.fps, second_pass=second
        )
        content |= {
            "unreliable": found.unreliable,
            "reason": found.reason,
            "num_compared": found.num_compared,
            "rot_deg": found.rot_deg,
            "center_percent": found.center_percent,
            "scale": found.scale,
        }
    write_text_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_reliability(path: str | Path, *, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `write_reliability` found for the same cameras; None where there is nothing of the kind."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        return None
    if any(content.get(name) != value for name, value in key.items()):
        return None
    return {name: value for name, value in content.items() if name not in (*key, "format")}
