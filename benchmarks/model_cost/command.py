"""The command: guards, measurement, report. Exit status 0 reported, 2 refused, 3 reported as VOID."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import tyro

from merope.errors import MeropeError

from ..attention_cost.verdicts import busy_stretches, void_reasons
from ..measuring.guarded import REFUSED, VOID, device_for, guarded, progress
from ..measuring.guards import Load, Refused, busy_reasons, require_green, test_command, watch
from ..measuring.writing import banners
from .options import Options
from .report import target_lines, write_report
from .session import Session, num_steps

TESTS = ("tests/attention", "tests/adapters")


def check_model() -> str:
    """Run the tests of attention and adapters."""
    return require_green(test_command(*TESTS))


def main(
    arguments: Sequence[str] | None = None,
    *,
    look: Callable[[], Load] = watch,
    check_tests: Callable[[], str] = check_model,
) -> int:
    """Parse, guard, measure, report; the exit status. Tests put a quiet machine in place of ``look``."""
    try:
        options = tyro.cli(Options, args=arguments, prog="python benchmarks/model.py")
        device, threads = device_for(options.device), options.threads or torch.get_num_threads()
        print(options.size(device))

        def measure() -> dict[str, Any]:
            with progress(num_steps(options)) as step:
                return Session(options, step, device=device, threads=threads).run()

        results = guarded(
            measure,
            out=options.out,
            device=device,
            dtype=options.dtype,
            threads=threads,
            busy_ok=options.busy_ok,
            look=look,
            check_tests=None if options.trust_tests else check_tests,
        )
    except (Refused, MeropeError, ValueError, OSError) as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    results["void"] = void_reasons(results["branch"])
    results["busy"] = busy_reasons(results["idle"], _stretches(results))
    paths = write_report(options.out, results)
    for line in [*banners(results), *target_lines(results), *map(str, paths)]:
        print(line)
    return VOID if results["void"] else 0


def _stretches(results: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    for point in results["points"]:
        yield point["mode"], point["others_cores"]
    yield from busy_stretches(results["branch"])
