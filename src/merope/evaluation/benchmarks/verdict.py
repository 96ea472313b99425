"""Whether a run's numbers may stand beside those of a named benchmark."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a benchmark says of a run. Without ``reasons`` the run is comparable with others of that benchmark."""

    benchmark: str
    num_expected: int
    num_used: int
    reasons: tuple[str, ...]
    """Why the run is not comparable, each a sentence; empty where it is."""

    @property
    def comparable(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "benchmark": self.benchmark,
            "comparable": self.comparable,
            "num_expected": self.num_expected,
            "num_used": self.num_used,
            "reasons": list(self.reasons),
        }
