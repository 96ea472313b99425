"""Attention in tiles cut into jobs, and jobs given to threads.

Each thread runs a job from the first product to the last, so that its buffers stay in its core's cache; threads within
each operation would wait for each other fifty times per query camera.
"""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch

from merope.attention.tile_walk import TileCall, TileWalk, numbers_in_hand

# Bytes of one thread's buffers, if a single head needs no more.
_CACHE = 16 * 2**20
# Multiplications from which on threads pay for their start.
_WORTH_THREADS = 2**28
# Above this many threads Python's own lock is what they wait for; cores beyond share the operations.
_MOST_WORKERS = 8
# Query cameras of one job, at least.
_FEWEST_CAMERAS = 2


@dataclass(frozen=True)
class Job:
    """Some heads of a clip, seen from some query cameras."""

    clip: int
    heads: slice
    cameras: range


def run_in_parallel(
    work: Callable[[TileWalk], None], call: TileCall, memory_budget: int, *, backward: bool = False
) -> None:
    """``work`` on every clip, head and query camera, on as many threads as torch may use.

    A backward pass sums over query cameras, so its jobs have all of them.
    """
    threads = torch.get_num_threads() if _products(call, backward) > _WORTH_THREADS else 1
    jobs, workers = _jobs(call, memory_budget, threads, backward)
    inference = torch.is_inference_mode_enabled()  # A thread outside may not write what was made inside.

    def drain() -> None:
        walk = TileWalk(call)
        with torch.inference_mode(inference), torch.no_grad():
            while True:
                try:
                    job = jobs.popleft()
                except IndexError:
                    return
                walk.start(job.clip, job.heads, job.cameras)
                work(walk)

    if workers == 1:
        drain()
        return
    each = threads // workers

    def help_out() -> None:
        torch.set_num_threads(each)
        drain()

    helping: list[Future[None]] = []
    failures: list[BaseException | None] = []
    try:
        # While Python shuts down nobody helps any more, and the caller does it all.
        with suppress(RuntimeError):
            helping += (_helpers().submit(help_out) for _ in range(workers - 1))
        torch.set_num_threads(each)
        drain()
    finally:
        try:
            # Of what raises here the helpers take up nothing more; who has not begun never will.
            jobs.clear()
            failures += (helper.exception() for helper in helping if not helper.cancel())
        finally:
            # Threads that torch has yet to meet begin with the last count set, too.
            torch.set_num_threads(threads)
    for failure in failures:
        if failure is not None:
            raise failure


@cache
def _helpers() -> ThreadPoolExecutor:
    """Threads that wait for the next call: new ones are slow to get a core that OpenMP's threads still spin on."""
    return ThreadPoolExecutor(_MOST_WORKERS - 1, thread_name_prefix="merope-tiles")


# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=_helpers.cache_clear)


def _products(call: TileCall, backward: bool) -> int:
    batch, heads, keys, channels = call.key.shape
    return (8 if backward else 4) * batch * heads * call.plan.num_queries * keys * channels


def _jobs(call: TileCall, memory_budget: int, threads: int, backward: bool) -> tuple[deque[Job], int]:
    """How the call is cut, and for how many threads."""
    batch, heads = call.key.shape[:2]
    cameras = call.plan.num_query_cameras
    per_head = (2 if backward else 1) * numbers_in_hand(call) * call.key.element_size()
    shares = 1 if backward else max(1, cameras // _FEWEST_CAMERAS)
    workers = min(threads, batch * heads * shares, max(1, memory_budget // per_head), _MOST_WORKERS)
    most = max(1, min(heads, min(memory_budget // workers, _CACHE) // per_head))
    # Heads that one thread must do one after the other, with so many at once; of equals, the most at once.
    step = min(range(1, most + 1), key=lambda step: (-(-batch * -(-heads // step) // workers) * step, -step))
    groups = [
        (clip, slice(first, min(first + step, heads)))
        for clip in range(batch)
        for first in range(0, heads, step)
    ]
    # One core is often slower than another: what comes last is cut small, so that they end together.
    num_whole = len(groups) - workers if workers > 1 else len(groups)
    jobs = deque[Job]()
    for number, group in enumerate(groups):
        cuts = (
            [cameras * share // shares for share in range(shares + 1)]
            if number >= num_whole
            else [0, cameras]
        )
        jobs.extend(Job(*group, range(first, last)) for first, last in pairwise(cuts))
    return jobs, workers
