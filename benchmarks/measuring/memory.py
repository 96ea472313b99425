"""Peak memory above what was held before, in a process of its own.

Resident memory of the process (its high-water mark, reset before the run) counts everything that was touched; beside it
stands what torch's allocator handed out, which is exact and blind to the scratch memory of other libraries.
"""

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .guards import REPOSITORY

# Freed memory goes back to the system at once, so that the high-water mark is of the run alone.
_ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}


class MemoryFailed(Exception):
    """The process that measured memory did not come to an end."""


def measured_apart(module: str, job: dict[str, Any], *, what: str) -> dict[str, Any]:
    """Run ``python -m MODULE JOB`` and read the JSON object in its last line.

    Raises:
        MemoryFailed: if the process fails, with ``what`` and the end of what it said.
    """
    ran = subprocess.run(
        [sys.executable, "-m", module, json.dumps(job)],
        env={
            **os.environ,
            **_ALLOCATOR,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise MemoryFailed(f"the memory of {what} could not be measured: {ran.stderr.strip()[-800:]}")
    return json.loads(ran.stdout.strip().splitlines()[-1])


def weigh(run: Callable[[], object], *, device: str) -> dict[str, Any]:
    """Bytes above what is held now: ``peak``, ``allocated`` and ``how`` the peak was read. ``run`` has run before."""
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        return {"peak": peak, "allocated": peak, "how": "torch.cuda.max_memory_allocated"}
    before = resident()
    how = "VmHWM" if _reset_high_water() else "ru_maxrss, warm-up and compilation included"
    result = run()
    peak = (_status("VmHWM") if how == "VmHWM" else _maxrss()) - before
    del result
    return {"peak": max(peak, 0), "allocated": _allocated(run), "how": how}


def resident() -> int:
    """Bytes of the process that are in memory now, after what was freed went back to the system."""
    gc.collect()
    _trim()
    return _status("VmRSS")


def _allocated(run: Callable[[], object]) -> int:
    """Most bytes that torch's CPU allocator had handed out at once during a run."""
    from torch.profiler import ProfilerActivity, profile

    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return peak_of(
        [(event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"]
    )


def peak_of(events: list[tuple[float, int]]) -> int:
    """The highest running sum of bytes taken (positive) and given back (negative), in the order of their times."""
    current = peak = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        current += size
        peak = max(peak, current)
    return peak


def _trim() -> None:
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        # Another C library: what was freed may still count as resident.
        return


def _reset_high_water() -> bool:
    """Set VmHWM to what is resident now; False where the system does not let one."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def _maxrss() -> int:
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
