"""Cameras recovered from frames, each clip once: kept in files that later calls use again, in one process or several."""

import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

import merope
from merope.errors import MeropeError
from merope.evaluation.estimators.base import PoseEstimator, Recovered, RecoveryFailed
from merope.evaluation.runs.kept import Kept, read_kept, write_kept, write_manifest
from merope.evaluation.runs.reliability import read_reliability, write_reliability
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.sources import ClipSource
from merope.files import write_text_atomically

Build = Callable[[], PoseEstimator]
"""Makes the estimator, once in every process; processes get it pickled, as `functools.partial` of a function is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The clips of a run with their cameras, and what it took."""

    clips: tuple[RunClip, ...]
    """In the order of the sources; those of other shares are absent."""
    num_reused: int
    """Clips whose cameras were there already, from the same frames by the same estimator."""
    num_recovered: int
    """Clips that went through the estimator, those that failed among them."""
    estimator: dict[str, Any]
    """The estimator's identity."""
    reliability: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By clip, whether a second look agrees: ``unreliable`` and ``reason``, and how far apart both are."""

    @property
    def words(self) -> str:
        """How many were recovered now and how many were there, for a reader."""
        parts = [f"{self.num_recovered} recovered now"]
        if self.num_reused:
            parts.append(f"{self.num_reused} reused from an earlier run")
        return f"{len(self.clips)} clip{'' if len(self.clips) == 1 else 's'}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Share:
    """One of ``of`` parts of the clips, counted from 1: each machine takes every ``of``-th clip."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"a share is K/N with K from 1 to N, got {self.number}/{self.of}.")

    @classmethod
    def parse(cls, text: str) -> "Share":
        """Read "K/N".

        Raises:
            ValueError: if the text is something else.
        """
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if found is None:
            raise ValueError(f"a share is K/N, such as 1/4 for the first of four, got {text!r}.")
        return cls(int(found[1]), int(found[2]))

    def take(self, sources: Sequence[ClipSource]) -> list[ClipSource]:
        """This share's clips."""
        return list(sources[self.number - 1 :: self.of])


def recover_clips(
    sources: Sequence[ClipSource],
    build: Build,
    folder: str | Path,
    *,
    workers: int = 1,
    again: bool = False,
    share: Share | None = None,
    reliability: str | Path | None = None,
    progress: bool = True,
) -> Recovery:
    """Recover the cameras of every clip into ``folder/CLIP_ID.txt``, unless that file has them already.

    A file is used again where the estimator's identity, the frames' sha256, lens and frame rate are what it says,
    failures too; ``again`` recovers all anew. Cameras come out of the file in every case, so that numbers are the same to
    the last bit. Files of sister folders serve as well: the same frames under another label. Each file is written when its
    clip is done. With a folder for ``reliability`` every clip is looked at twice, and what came of it is kept there.
    With ``workers`` clips are shared out over processes; each computes on one CPU thread, and so does a single one, so that
    their number changes no digit.

    Raises:
        ValueError: if two clips have one name, or ``workers`` is below 1.
        MeropeError: if a clip's frames cannot be read. An estimator's own errors pass through.
    """
    if workers < 1:
        raise ValueError(f"workers must be 1 or more, got {workers}.")
    names = [source.clip_id for source in sources]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"clips are told apart by name, and {twice[:3]} came more than once.")
    folder = Path(folder)
    if share is not None:
        sources = share.take(sources)
    estimator = build()
    identity = json.loads(json.dumps(estimator.identity()))
    files = {source.clip_id: folder / f"{source.clip_id}.txt" for source in sources}
    with ThreadPoolExecutor(workers) as pool:
        keys = dict(zip(files, pool.map(lambda source: _key(source, identity), sources), strict=True))
    kept: dict[str, Kept] = {}
    for source in [] if again else sources:
        found = _find(folder, source, keys[source.clip_id])
        if found is not None:
            kept[source.clip_id] = found
    reused = set(kept)
    checks: dict[str, Path] = {}
    if reliability is not None:
        checks = {source.clip_id: Path(reliability) / f"{source.clip_id}.json" for source in sources}
    jobs = []
    for source in sources:
        name = source.clip_id
        failed = name in kept and kept[name].recovered is None
        unchecked = (
            name in checks
            and not failed
            and (again or read_reliability(checks[name], key=keys[name]) is None)
        )
        if name not in kept or unchecked:
            job = _Job(
                source=source,
                path=files[name],
                key=keys[name],
                recover=name not in kept,
                check=checks[name] if unchecked else None,
            )
            jobs.append(job)
    with tqdm(total=len(sources), desc="recovering", unit="clip", disable=not progress) as bar:
        bar.update(len(sources) - len(jobs))
        for clip_id in _run(jobs, build, estimator, workers):
            done = read_kept(files[clip_id])
            if done is None:
                raise MeropeError(f"{files[clip_id]} is gone; does another process write to {folder}?")
            kept[clip_id] = done
            bar.update()
    found_twice = {name: read_reliability(path, key=keys[name]) for name, path in checks.items()}
    if sources and share is None:
        write_manifest(folder, files)
    return Recovery(
        clips=tuple(_clip(source, kept[source.clip_id]) for source in sources),
        num_reused=len(reused),
        num_recovered=len(sources) - len(reused),
        estimator=identity,
        reliability={name: found for name, found in found_twice.items() if found is not None},
    )


def label_folder(label: str) -> str:
    """A label as the name of a folder, on any system."""
    return re.sub(r"[^A-Za-z0-9_@+=.-]+", "-", label).strip(".-") or "run"


def _key(source: ClipSource, identity: dict[str, Any]) -> dict[str, Any]:
    return {
        "estimator": identity,
        "frames": {
            "sha256": source.frames_sha256(),
            "count": len(source.commanded),
            "height": source.lens.height,
            "width": source.lens.width,
        },
        "lens": json.loads(json.dumps(source.lens.to_dict())),
        "fps": source.fps,
    }


def _find(folder: Path, source: ClipSource, key: dict[str, Any]) -> Kept | None:
    """What was kept of these very frames, here or under another label, which is copied."""
    own = folder / f"{source.clip_id}.txt"
    found = read_kept(own)
    if found is not None and found.key == key:
        return found
    for other in sorted(folder.parent.glob(f"*/{source.clip_id}.txt")) if folder.parent.is_dir() else []:
        found = read_kept(other) if other != own else None
        if found is not None and found.key == key:
            write_text_atomically(own, other.read_text(encoding="utf-8"))
            return found
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What is to be done for one clip."""

    source: ClipSource
    path: Path
    key: dict[str, Any]
    recover: bool
    check: Path | None
    """Where to write whether a second look agrees; None to look once."""


def _run(jobs: list[_Job], build: Build, estimator: PoseEstimator, workers: int) -> Iterator[str]:
    """Do the jobs and name each clip when its file is there."""
    workers = min(workers, len(jobs))
    if workers <= 1:
        for job in jobs:
            with _one_thread():
                yield _recover(estimator, job)
        return
    with _quiet_threads(), ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(_recover_elsewhere, [(build, job) for job in jobs])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_BUILT: list[PoseEstimator] = []


def _recover_elsewhere(given: tuple[Build, _Job]) -> str:
    """In a process of the pool, which serves one call of `recover_clips`: the estimator is built at its first clip."""
    build, job = given
    if not _BUILT:
        torch.set_num_threads(1)
        _BUILT.append(build())
    return _recover(_BUILT[0], job)


def _recover(estimator: PoseEstimator, job: _Job) -> str:
    source = job.source
    if job.recover:
        outcome: Recovered | str
        try:
            outcome = estimator.estimate(source.frames(), source.lens, fps=source.fps)
        except RecoveryFailed as error:
            outcome = str(error)
        write_kept(job.path, key=job.key, outcome=outcome, versions=versions())
    if job.check is not None:
        kept = read_kept(job.path)
        if kept is not None and kept.recovered is not None:
            write_reliability(job.check, estimator, source, kept.recovered, key=job.key)
    return source.clip_id


def _clip(source: ClipSource, kept: Kept) -> RunClip:
    return RunClip(
        clip_id=source.clip_id,
        commanded=source.commanded,
        recovered=kept.recovered,
        failure=kept.failure,
        first_generated=source.first_generated,
        fps=source.fps,
        lens=source.lens,
        frames=source.frames,
    )


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
