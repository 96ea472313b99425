"""The command: guards, measurement, report. Exit status 0 reported, 2 refused, 3 reported as VOID."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import tyro
from tqdm import tqdm

from merope.errors import MeropeError
from merope.evaluation.plots import new_figure
from merope.files import require_folder

from .guards import REPOSITORY, Load, Refused, require_green, require_idle, watch
from .options import Options
from .report import banners, target_lines, write_report
from .session import Session, num_steps
from .verdicts import busy_reasons, void_reasons

REFUSED = 2
VOID = 3


def main(
    arguments: Sequence[str] | None = None,
    *,
    look: Callable[[], Load] = watch,
    check_tests: Callable[[], str] = require_green,
) -> int:
    """Parse, guard, measure, report; the exit status. Tests put a quiet machine in place of ``look``."""
    try:
        options = tyro.cli(Options, args=arguments, prog="python benchmarks/attention.py")
        device, threads = _resources(options)
        require_folder(options.out)
        if options.sweeps:
            # The plots come last; that they cannot be drawn is said first.
            new_figure(1, 1)
        idle = {"before": _look(look, options)}
        print(idle["before"]["text"])
        tests = None
        if not options.trust_tests:
            print("running the operation's tests ...", flush=True)
            tests = check_tests()
            print(tests)
        results = _measured(options, device, threads)
        idle["after"] = _look(look, options, refuse=False)
    except (Refused, MeropeError, ValueError, OSError) as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    shape = options.resolved_shape
    results = {
        "shape": {**asdict(shape), "text": str(shape)},
        "quick": options.quick,
        "directions": options.resolved_directions,
        "machine": {**machine(device), "device": device, "dtype": options.dtype, "threads": threads},
        "tests": tests,
        "idle": idle,
        **results,
    }
    results["void"] = void_reasons(results)
    results["busy"] = busy_reasons(results)
    paths = write_report(options.out, results)
    for line in [*banners(results), *target_lines(results), *map(str, paths)]:
        print(line)
    return VOID if results["void"] else 0


def _resources(options: Options) -> tuple[str, int]:
    has_gpu = torch.cuda.is_available()
    if options.device == "cuda" and not has_gpu:
        raise Refused("--device cuda, and PyTorch sees no CUDA device.")
    device = "cuda" if options.device != "cpu" and has_gpu else "cpu"
    return device, options.threads or torch.get_num_threads()


def _look(look: Callable[[], Load], options: Options, *, refuse: bool = True) -> dict[str, Any]:
    try:
        load = look()
        if refuse:
            require_idle(load, busy_ok=options.busy_ok)
    except Refused as refusal:
        if refuse and not options.busy_ok:
            raise
        return {"busy": True, "cores": None, "text": str(refusal)}
    return {"busy": load.busy, "cores": load.cores, "text": str(load)}


def _measured(options: Options, device: str, threads: int) -> dict[str, Any]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    if options.shape == "large" and not options.quick:
        print(f"large: {', '.join(options.resolved_directions)}; this takes hours on a CPU.")
    try:
        with tqdm(total=num_steps(options, device=device, threads=threads), unit="step") as bar:

            def step(text: str) -> None:
                # Called before each step: the one before it is done.
                bar.update(bool(bar.postfix))
                bar.set_postfix_str(text)

            found = Session(options, step, device=device, threads=threads).run()
            bar.update(1)
            return found
    finally:
        torch.set_num_threads(before)


def machine(device: str) -> dict[str, Any]:
    """What the numbers were measured on and with."""
    commit, changes = (
        _git("rev-parse", "HEAD"),
        _git("status", "--porcelain", "--untracked-files=no"),
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "commit": commit,
        "uncommitted": bool(changes),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        ran = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None
