"""The clips that have to go through an estimator, one after another or shared out over processes."""

import os
import pickle
import platform
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
import torch

import merope
from merope.errors import MeropeError, MissingDependency
from merope.evaluation.estimators.base import PoseEstimator, Recovered, RecoveryFailed
from merope.evaluation.runs.kept import read_kept, write_kept
from merope.evaluation.runs.reliability import write_reliability
from merope.evaluation.runs.sources import ClipSource

Build = Callable[[], PoseEstimator]
"""Makes the estimator, once in every process; processes get it pickled, as `functools.partial` of a function is."""

_Done = tuple[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be done for one clip."""

    source: ClipSource
    path: Path
    key: dict[str, Any]
    recover: bool
    check: Path | None
    """Where to write whether a second look agrees; None to look once."""


def run_jobs(jobs: list[Job], build: Build, estimator: PoseEstimator, workers: int) -> Iterator[_Done]:
    """Do the jobs; name each clip when its file is there, or with an error in words where there is none.

    An error in one clip stops no other. No more processes start than there are jobs.

    Raises:
        MissingDependency: if the estimator lacks a package.
        MeropeError: if a process of the pool was killed.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        for job in jobs:
            with _one_thread():
                yield _do(estimator, job)
        return
    # One process imports torch, and the workers are forks of it: it has no threads and no device to lose.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with (
        _quiet_threads(),
        ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool,
    ):
        try:
            # Pickled here: on its way to another process a tensor would become a file descriptor and shared memory.
            yield from pool.map(_do_elsewhere, [pickle.dumps((build, job)) for job in jobs])
        except BrokenProcessPool:
            raise MeropeError(
                "a process that recovers cameras was killed, most often for want of memory. Clips that are done are kept; "
                f"run the same again, with fewer than {workers} workers (--workers) if it was memory."
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_BUILT: list[PoseEstimator] = []


def _end_with_parent() -> None:
    """Workers of a command that is killed end with it, rather than wait for ever for its next clip."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _do_elsewhere(pickled: bytes) -> _Done:
    """In a process of the pool, which serves one call of `run_jobs`: the estimator is built at its first clip."""
    build, job = pickle.loads(pickled)
    if not _BUILT:
        torch.set_num_threads(1)
        _BUILT.append(build())
    return _do(_BUILT[0], job)


def _do(estimator: PoseEstimator, job: Job) -> _Done:
    source = job.source
    if job.recover:
        outcome: Recovered | str
        try:
            outcome = estimator.estimate(source.frames(), source.lens, fps=source.fps)
        except RecoveryFailed as error:
            outcome = str(error)
        except MissingDependency:
            raise
        except Exception as error:
            return source.clip_id, _in_words(error)
        write_kept(job.path, key=job.key, outcome=outcome, versions=versions())
    if job.check is not None:
        kept = read_kept(job.path)
        if kept is not None and kept.recovered is not None:
            try:
                write_reliability(job.check, estimator, source, kept.recovered, key=job.key)
            except Exception as error:
                return source.clip_id, f"second look: {_in_words(error)}"
    return source.clip_id, None


def _in_words(error: Exception) -> str:
    if isinstance(error, MeropeError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"


def versions() -> dict[str, str]:
    """Versions that stand beside numbers."""
    return {
        "merope": merope.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for torch: sums of several come in another order, and differ in the last digit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """Processes that start within the block take one thread each for their matrix products."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
