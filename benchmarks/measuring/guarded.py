"""A measurement between its guards: green tests, a look at the machine before and after, and what it ran on."""

import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from merope.files import require_folder

from .guards import REPOSITORY, Load, Refused, require_idle

REFUSED = 2
"""Exit status of a command that reports nothing."""
VOID = 3
"""Exit status of a report whose comparison does not stand."""


def device_for(asked: str) -> str:
    """ "cpu" or "cuda" for "auto", "cpu" or "cuda".

    Raises:
        Refused: if a GPU is asked for and there is none.
    """
    has_gpu = torch.cuda.is_available()
    if asked == "cuda" and not has_gpu:
        raise Refused("--device cuda, and PyTorch sees no CUDA device.")
    return "cuda" if asked != "cpu" and has_gpu else "cpu"


def guarded(
    measure: Callable[[], dict[str, Any]],
    *,
    out: Path,
    device: str,
    dtype: str,
    threads: int,
    busy_ok: bool,
    look: Callable[[], Load],
    check_tests: Callable[[], str] | None,
) -> dict[str, Any]:
    """What ``measure`` found, on ``threads`` threads, with ``machine``, ``tests`` and ``idle`` beside it.

    ``check_tests`` None leaves the tests out; the report says so.

    Raises:
        Refused: if the machine does other work, or a test fails.
    """
    require_folder(out)
    idle = {"before": _look(look, busy_ok=busy_ok, refuse=True)}
    print(idle["before"]["text"])
    tests = None
    if check_tests is not None:
        print("running the tests of what is measured ...", flush=True)
        tests = check_tests()
        print(tests)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = measure()
    finally:
        torch.set_num_threads(before)
    idle["after"] = _look(look, busy_ok=busy_ok, refuse=False)
    described = {**machine(device), "device": device, "dtype": dtype, "threads": threads}
    return {"machine": described, "tests": tests, "idle": idle, **found}


def _look(look: Callable[[], Load], *, busy_ok: bool, refuse: bool) -> dict[str, Any]:
    try:
        load = look()
        if refuse:
            require_idle(load, busy_ok=busy_ok)
    except Refused as refusal:
        if refuse and not busy_ok:
            raise
        return {"busy": True, "cores": None, "text": str(refusal)}
    return {"busy": load.busy, "cores": load.cores, "text": str(load)}


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar of ``total`` steps; what is yielded is called with a line before each of them."""
    with tqdm(total=total, unit="step") as bar:

        def step(text: str) -> None:
            # The step before this one is done.
            bar.update(bool(bar.postfix))
            bar.set_postfix_str(text)

        yield step
        bar.update(1)


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
        "diffusers": _version("diffusers"),
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
