"""Peak memory of one column above its inputs, in a process of its own."""

import json
import sys
from dataclasses import asdict
from typing import Any

from ..measuring.memory import measured_apart, weigh
from .shapes import Shape


def weighed_apart(
    column: str, shape: Shape, scope: str, direction: str, *, dtype: str, device: str, threads: int
) -> dict[str, Any]:
    """Bytes of one column: ``peak``, ``allocated``, ``geometry`` and ``how`` the peak was read.

    Raises:
        MemoryFailed: if the process fails, with the end of what it said.
    """
    job = {
        "column": column,
        "shape": asdict(shape),
        "scope": scope,
        "direction": direction,
        "dtype": dtype,
        "device": device,
        "threads": threads,
    }
    return measured_apart("benchmarks.attention_cost.memory", job, what=f"{column} ({scope}, {direction})")


def measure_here(job: dict[str, Any]) -> dict[str, Any]:
    """The measurement itself: one run to warm up, one for the peak, one under the profiler."""
    import torch

    from .columns import Column
    from .scopes import make_case

    torch.set_num_threads(job["threads"])
    case = make_case(
        Column.from_name(job["column"]),
        Shape(**job["shape"]),
        job["scope"],
        job["direction"],
        dtype=getattr(torch, job["dtype"]),
        device=job["device"],
    )
    case.run()
    return {**weigh(case.run, device=job["device"]), "geometry": case.geometry_bytes}


if __name__ == "__main__":
    print(json.dumps(measure_here(json.loads(sys.argv[1]))))
