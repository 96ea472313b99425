"""A check of data sets and caches of latents: every clip is opened, and all that can be said is in one report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from merope.data.caches.latent_cache import is_latent_cache
from merope.data.checks.cache_checking import CacheChecker
from merope.data.checks.checking import CheckConfig, ClipCheck, check_clip
from merope.data.checks.expected_clips import ExpectedClips
from merope.data.checks.report import CheckReport, report_of
from merope.data.clips.clip import Clip, ClipError
from merope.data.clips.folder import incomplete_clips
from merope.data.datasets import ClipSet, open_dataset
from merope.errors import CheckpointMismatch
from merope.recipes.ahead import ahead

# How many clips it is of, and what checks them.
_Job = tuple[int, Callable[[], list[ClipCheck]]]


def check_data(
    folders: Sequence[str | Path],
    config: CheckConfig,
    *,
    reader: str = "folder",
    options: Mapping[str, Any] | None = None,
    source: str | None = None,
    expected: ExpectedClips | None = None,
    workers: int = 2,
    progress: bool = True,
) -> CheckReport:
    """Check folders one after another: caches of latents, or data sets of the kind ``reader``.

    With ``expected`` only clips that are expected are opened. ``source`` goes before what clips say. ``workers`` threads
    decode; the report does not depend on how many.

    Raises:
        ValueError: if no folder is given, or ``workers`` is not positive.
        FileNotFoundError: if a folder is not there, or holds a cache that is not finished.
        MeropeError: if a folder as a whole is neither a cache nor such a data set.
    """
    if not folders:
        raise ValueError("folders must name at least one folder of clips or cache of latents.")
    if workers < 1:
        raise ValueError(f"workers must be positive; got {workers}.")
    jobs: list[_Job] = []
    problems: list[str] = []
    notes: list[str] = []
    caches: list[CacheChecker] = []
    there = 0
    for folder in folders:
        place = str(folder)
        if is_latent_cache(folder):
            checker = CacheChecker(folder, config, place=place)
            caches.append(checker)
            problems += checker.problems()
            notes += checker.notes
            there += len(checker.cache)
            jobs += _cache_jobs(checker, expected)
        else:
            clips = open_dataset(reader, folder, **(options or {}))
            notes += [f"{place}: {note}" for note in clips.notes]
            there += len(clips)
            jobs += _set_jobs(clips, config, source, expected, place)
            if reader == "folder":
                jobs.append((0, partial(_incomplete, Path(folder), source or clips.source, expected, place)))
    notes += _apart(caches)
    found: list[ClipCheck] = []
    with tqdm(total=sum(count for count, _ in jobs), desc="check", unit="clip", disable=not progress) as bar:
        for count, checked in ahead(_run, jobs, workers=workers, count=2 * workers):
            found += checked
            bar.update(count)
    if expected is not None:
        found = [
            one for one in found if expected.places(one.source, one.clip_id, opened=one.frames is not None)
        ]
    looked_at = sum(not any(finding.kind == "missing" for finding in one.findings) for one in found)
    return report_of(
        found,
        config,
        problems=problems,
        notes=notes,
        expected=expected,
        not_expected=0 if expected is None else there - looked_at,
    )


def _run(job: _Job) -> tuple[int, list[ClipCheck]]:
    count, check = job
    return count, check()


def _set_jobs(
    clips: ClipSet, config: CheckConfig, source: str | None, expected: ExpectedClips | None, place: str
) -> Iterator[_Job]:
    for number, clip_id in enumerate(clips.ids):
        if expected is None or expected.may_hold(clip_id):
            yield 1, partial(_check_one, clips, number, config, source, place)


def _check_one(
    clips: ClipSet, number: int, config: CheckConfig, source: str | None, place: str
) -> list[ClipCheck]:
    clip: Clip | ClipError
    try:
        clip = clips[number]
    except ClipError as error:
        clip = error
    found = check_clip(clip, config, place=place)
    if source is None:
        return [found]
    return [replace(found, source=source)]


def _cache_jobs(checker: CacheChecker, expected: ExpectedClips | None) -> Iterator[_Job]:
    cache = checker.cache
    for shard, (_, numbers) in enumerate(checker.shards()):
        wanted = [
            number
            for number in numbers
            if expected is None or expected.places(cache.sources[number], cache.clip_ids[number])
        ]
        if wanted:
            yield len(wanted), partial(checker.check_shard, shard, wanted)


def _incomplete(root: Path, source: str, expected: ExpectedClips | None, place: str) -> list[ClipCheck]:
    """Folders with frames, a lens or else of a clip that has no poses."""
    return [
        ClipCheck(place=place, source=source, clip_id=clip_id).with_finding(
            "missing", "there is no poses.json"
        )
        for clip_id in incomplete_clips(root)
        if expected is None or expected.may_hold(clip_id)
    ]


def _apart(caches: Sequence[CacheChecker]) -> list[str]:
    """A note for each cache that cannot be trained on together with the first."""
    notes = []
    for other in caches[1:]:
        first = caches[0]
        try:
            first.cache.description.require_same(
                other.cache.description, here=first.place, there=other.place, apart=("dtype", "windows")
            )
        except CheckpointMismatch as error:
            notes.append(str(error))
    return notes
