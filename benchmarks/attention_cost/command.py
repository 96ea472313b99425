"""The command: guards, measurement, report. Exit status 0 reported, 2 refused, 3 reported as VOID."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
import tyro

from merope.errors import MeropeError
from merope.evaluation.plots.canvas import new_figure

from ..measuring.guarded import REFUSED, VOID, device_for, guarded, progress
from ..measuring.guards import Load, Refused, busy_reasons, require_green, test_command, watch
from .options import Options
from .report import banners, target_lines, write_report
from .session import Session, num_steps
from .verdicts import busy_stretches, void_reasons

TESTS = ("tests/attention",)


def check_operation() -> str:
    """Run the operation's tests."""
    return require_green(test_command(*TESTS))


def main(
    arguments: Sequence[str] | None = None,
    *,
    look: Callable[[], Load] = watch,
    check_tests: Callable[[], str] = check_operation,
) -> int:
    """Parse, guard, measure, report; the exit status. Tests put a quiet machine in place of ``look``."""
    try:
        options = tyro.cli(Options, args=arguments, prog="python benchmarks/attention.py")
        device, threads = device_for(options.device), options.threads or torch.get_num_threads()
        if options.sweeps:
            # The plots come last; that they cannot be drawn is said first.
            new_figure(1, 1)
        results = guarded(
            lambda: _measured(options, device, threads),
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
    shape = options.resolved_shape
    results |= {
        "shape": {**asdict(shape), "text": str(shape)},
        "quick": options.quick,
        "directions": options.resolved_directions,
    }
    results["void"] = void_reasons(results)
    results["busy"] = busy_reasons(results["idle"], busy_stretches(results))
    paths = write_report(options.out, results)
    for line in [*banners(results), *target_lines(results), *map(str, paths)]:
        print(line)
    return VOID if results["void"] else 0


def _measured(options: Options, device: str, threads: int) -> dict[str, Any]:
    if options.shape == "large" and not options.quick:
        print(f"large: {', '.join(options.resolved_directions)}; this takes hours on a CPU.")
    with progress(num_steps(options, device=device, threads=threads)) as step:
        return Session(options, step, device=device, threads=threads).run()
