"""A target and what was measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and what was measured."""

    what: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        side = "at least" if self.at_least else "at most"
        return f"{'PASS' if self.met else 'MISS'} {self.what}: {self.value:.3f} ({side} {self.limit:.2f})"
