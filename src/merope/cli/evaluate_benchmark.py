"""The part of ``merope evaluate`` that holds rows against a named benchmark."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from merope.cli.evaluate_flags import ScoredFlags
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.evaluation.benchmarks.benchmark import Benchmark, ExpectedClip
    from merope.evaluation.result import EvaluationResult
    from merope.evaluation.runs.run import ScoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A benchmark and the clips that a complete run of it has."""

    benchmark: "Benchmark"
    expected: "tuple[ExpectedClip, ...]"

    def judged(self, run: "ScoredRun") -> "EvaluationResult":
        """The result with the benchmark's verdict, and how many clips there should be."""
        came = len(run.result.clips) + run.result.num_skipped
        expected = max(len(self.expected) or self.benchmark.num_clips, came)
        return replace(run.result, num_expected=expected, verdict=self.benchmark.verdict(run, self.expected))


def chosen_benchmark(scored: ScoredFlags) -> Judge | None:
    """What --benchmark and --split name; None without them.

    Raises:
        UsageError: if there is no such benchmark.
    """
    if scored.benchmark is None:
        return None
    from merope.evaluation.benchmarks.registry import find_benchmark

    try:
        benchmark = find_benchmark(scored.benchmark)
    except (KeyError, ValueError) as error:
        raise UsageError(str(error.args[0] if error.args else error)) from None
    return Judge(benchmark=benchmark, expected=benchmark.expected(scored.split))
