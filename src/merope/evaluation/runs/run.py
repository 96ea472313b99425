"""What an evaluation looks at and a report shows: the clips of a run, with their scores."""

from collections.abc import Callable
from dataclasses import dataclass

from merope.cameras import CameraModel
from merope.data.clips.video import Frames
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.result import EvaluationResult
from merope.geometry.poses import Poses


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClip:
    """One clip: the command, and what was recovered from its frames or came in a file.

    ``recovered`` is None where recovery failed, and ``failure`` says why. Clips from pose files have no frames.
    """

    clip_id: str
    commanded: Poses
    recovered: Recovered | None
    failure: str | None = None
    first_generated: int | None = None
    fps: float | None = None
    lens: CameraModel | None = None
    frames: Callable[[], Frames] | None = None
    """Reads the frames that were measured; None where there are none."""
    nan_rows: tuple[int, ...] = ()
    """Frames whose row in the file of estimated poses is NaN; they are not registered."""
    unreliable: str | None = None
    """Why a second look at the clip disagrees; None where it agrees or there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """One row of the tables: the clips of one method, and their scores.

    A ``reference`` does not compete for the best value, such as an estimator's noise floor on true frames.
    """

    label: str
    clips: tuple[RunClip, ...]
    result: EvaluationResult
    reference: bool = False

    def __post_init__(self) -> None:
        if self.label != self.result.label:
            raise ValueError(
                f"label must be that of the result, got {self.label!r} and {self.result.label!r}."
            )
