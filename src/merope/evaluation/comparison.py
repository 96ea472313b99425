"""Two runs held against each other clip by clip: differences, intervals and sign tests over the clips that both have."""

from dataclasses import dataclass
from typing import Any

from merope.evaluation.result import EvaluationResult, FrameSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """What changes from run A to run B, clip by clip."""

    label_a: str
    label_b: str

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {"a": self.label_a, "b": self.label_b}


def compare(
    a: EvaluationResult,
    b: EvaluationResult,
    *,
    frames: FrameSet = "all",
    seed: int = 0,
    num_resamples: int = 1000,
) -> PairedComparison:
    """Compare two runs on the clips that both have."""
    return PairedComparison(label_a=a.label, label_b=b.label)
