"""The benchmark that a command line names, and numbers that it may give."""

from typing import TYPE_CHECKING

from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.evaluation.benchmarks.benchmark import Benchmark


def named_benchmark(name: str) -> "Benchmark":
    """The benchmark of that name.

    Raises:
        UsageError: if there is none.
    """
    from merope.evaluation.benchmarks.registry import find_benchmark

    try:
        return find_benchmark(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def require_positive(**counts: int) -> None:
    """Raise before any work where a flag's count is not at least 1.

    Raises:
        UsageError: naming the flag.
    """
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"--{name} must be at least 1; got {count}.")
