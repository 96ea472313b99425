"""Peak memory of one method, in a process of its own: what is held between steps, and the peak of a step above it."""

import json
import sys
from dataclasses import asdict
from typing import Any

import torch

from ..attention_cost.columns import Column
from ..measuring.memory import measured_apart, weigh
from .methods import Method
from .sizes import ModelSize
from .steps import Mode, make_runs


def weighed_apart(
    method: Method, column: Column | None, size: ModelSize, mode: Mode, **settings: Any
) -> dict[str, Any]:
    """Bytes of a method: ``held``, ``peak`` above it, ``allocated`` above it by torch's count, and ``how``.

    ``settings`` are those of `make_runs`, with the dtype by name.

    Raises:
        MemoryFailed: if the process fails, with the end of what it said.
    """
    job = {
        "method": method,
        "column": None if column is None else column.name,
        "size": asdict(size),
        "mode": mode,
        "threads": torch.get_num_threads(),
        "settings": settings,
    }
    return measured_apart("benchmarks.model_cost.memory", job, what=f"{method} ({mode})")


def measure_here(job: dict[str, Any]) -> dict[str, Any]:
    """The measurement itself."""
    torch.set_num_threads(job["threads"])
    settings = {**job["settings"], "dtype": getattr(torch, job["settings"]["dtype"])}
    column = None if job["column"] is None else Column.from_name(job["column"])
    runs = make_runs(ModelSize(**job["size"]), {job["method"]: column}, job["mode"], **settings)
    run = runs[job["method"]]
    # AdamW makes its state in the first step, compilers their code, numba its own.
    for _ in range(2):
        run()
    return {"held": run.held(), **weigh(run, device=settings["device"])}


if __name__ == "__main__":
    print(json.dumps(measure_here(json.loads(sys.argv[1]))))
