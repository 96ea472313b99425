"""The part of ``merope evaluate`` that holds rows against a named benchmark, and takes from it what the user left open."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from merope.cli.evaluate_flags import Estimator, RecoveryFlags, ScoredFlags
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.evaluation.benchmarks.benchmark import Benchmark, ExpectedClip
    from merope.evaluation.result import EvaluationResult
    from merope.evaluation.runs.run import ScoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A benchmark, the clips that a complete run of it has, and what came from it rather than from the command line."""

    benchmark: "Benchmark"
    expected: "tuple[ExpectedClip, ...]"
    taken: tuple[str, ...]
    overruled: tuple[str, ...]
    """Where the command line says something else than the benchmark."""

    def judged(self, run: "ScoredRun") -> "EvaluationResult":
        """The result with the benchmark's verdict, and how many clips there should be."""
        came = len(run.result.clips) + run.result.num_skipped
        expected = max(len(self.expected) or self.benchmark.num_clips, came)
        settings: dict[str, Any] = {
            "name": self.benchmark.name,
            "taken": list(self.taken),
            "overruled": list(self.overruled),
        }
        return replace(
            run.result,
            num_expected=expected,
            verdict=self.benchmark.verdict(run, self.expected),
            settings={**run.result.settings, "benchmark": settings},
        )

    def notes(self) -> list[str]:
        """What was taken from the benchmark, and what was not."""
        name = self.benchmark.name
        said = [f"taken from {name}: {', '.join(self.taken)}"] if self.taken else []
        if self.overruled:
            said.append(f"not as {name} has it: {', '.join(self.overruled)}")
        return said

    def table(self, rows: "Sequence[ScoredRun]") -> list[str]:
        """The benchmark's own columns, all rows under each other."""
        from merope.evaluation.protocol import SPECS
        from merope.evaluation.result import format_value
        from merope.evaluation.text_table import aligned

        keys = self.benchmark.metrics
        better = {"lower": "lower", "higher": "higher", "one": "near 1", "none": "-"}
        lines = [
            [
                self.benchmark.name,
                *(f"{SPECS[key].label} [{SPECS[key].unit}]" for key in keys),
                "clips",
                "comparable",
            ],
            ["better", *(better[SPECS[key].better] for key in keys), "", ""],
        ]
        for row in rows:
            summary, verdict = row.result.summary(), row.result.verdict
            answer = "-" if verdict is None else "yes" if verdict.comparable else "no"
            values = [format_value(summary[key].metric.value, SPECS[key].digits) for key in keys]
            lines.append([row.label, *values, f"{len(row.result.clips)}/{row.result.expected}", answer])
        return aligned(lines)


def settled(
    scored: ScoredFlags, recovery: RecoveryFlags, *, from_files: bool, num_poses: int = 0
) -> tuple[ScoredFlags, RecoveryFlags, Judge | None]:
    """The flags without open ends: what the user left open is the benchmark's, or without one the usual.

    ``num_poses`` is the length of the commanded pose file; one that is long enough is cut into clips. Folders hold clips.

    Raises:
        UsageError: if there is no such benchmark.
    """
    benchmark = _benchmark(scored.benchmark)
    if benchmark is None:
        return (
            replace(scored, on_failure=scored.on_failure or "worst"),
            replace(recovery, estimator=recovery.estimator or "network"),
            None,
        )
    taken, overruled = [], []

    def choose(flag: str, given: Any, own: Any, words: str) -> Any:
        if given is None:
            if own is not None:
                taken.append(words)
            return own
        if given != own:
            overruled.append(f"--{flag} {given} instead of {own}")
        return given

    if from_files:
        length = (
            benchmark.num_frames if num_poses >= benchmark.num_frames or scored.window is not None else None
        )
        first = benchmark.first_generated
        scored = replace(
            scored,
            window=choose("window", scored.window, length, f"clips of {length} frames (--window)"),
            first_generated=choose(
                "first-generated", scored.first_generated, first, f"{first} given frames (--first-generated)"
            ),
        )
    else:
        name = benchmark.estimator
        estimator = choose("estimator", recovery.estimator, name, f"estimator {name} (--estimator)")
        recovery = replace(recovery, estimator=cast(Estimator, estimator))
    failure = choose(
        "on-failure", scored.on_failure, "worst", "worst answers for clips without cameras (--on-failure)"
    )
    judge = Judge(
        benchmark=benchmark,
        expected=benchmark.expected(scored.split),
        taken=(*taken, "the columns of its table"),
        overruled=tuple(overruled),
    )
    return replace(scored, on_failure=failure), recovery, judge


def _benchmark(name: str | None) -> "Benchmark | None":
    if name is None:
        return None
    from merope.evaluation.benchmarks.registry import find_benchmark

    try:
        return find_benchmark(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
