"""A function in several processes that meet over gloo, and what each of them found."""

import multiprocessing
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run_together(work: Callable[..., Any], size: int, *arguments: Any) -> list[Any]:
    """What ``work(rank, size, *arguments)`` returns, by rank; a function of a module, in ``size`` processes of one group."""
    with tempfile.TemporaryDirectory(prefix="merope-tests-") as folder:
        # What is imported there takes longer than what is done: one process imports it for all.
        multiprocessing.set_forkserver_preload([work.__module__])
        mp.start_processes(_one, (size, folder, work, arguments), nprocs=size, start_method="forkserver")
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _one(rank: int, size: int, folder: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{Path(folder) / 'store'}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
    )
    torch.save(work(rank, size, *arguments), Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
