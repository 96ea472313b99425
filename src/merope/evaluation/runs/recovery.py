"""Cameras recovered from frames, each clip once: kept in files that later calls use again, in one process or several."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from merope.errors import MeropeError
from merope.evaluation.runs.jobs import Build, Job, run_jobs
from merope.evaluation.runs.kept import Kept, read_kept, write_manifest
from merope.evaluation.runs.reliability import read_reliability
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.sources import ClipSource
from merope.files import write_text_atomically

_MOST_NAMED = 5
# Where the command line keeps what was recovered from true clips, so that no label may have it.
NOISE_FLOOR_FOLDER = "noise-floor"


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
    outdated: dict[str, int] = field(default_factory=dict)
    """Of those, how many had cameras that were not taken, by what is different now: estimator, frames, lens, fps."""
    reliability: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By clip, whether a second look agrees: ``unreliable`` and ``reason``, and how far apart both are."""

    @property
    def words(self) -> str:
        """How many were recovered now and how many were there, for a reader."""
        parts = [f"{self.num_recovered} recovered now"]
        if self.outdated:
            why = ", ".join(f"other {what} than before in {count}" for what, count in self.outdated.items())
            parts[0] += f" ({why})"
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
        MeropeError: if frames could not be read, or the estimator had an error, in words by clip. All others were
            recovered first and are kept.
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
    outdated: Counter[str] = Counter()
    for source in [] if again else sources:
        found, differences = _find(folder, source, keys[source.clip_id])
        outdated.update(differences)
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
            job = Job(
                source=source,
                path=files[name],
                key=keys[name],
                recover=name not in kept,
                check=checks[name] if unchecked else None,
            )
            jobs.append(job)
    with tqdm(total=len(sources), desc="recovering", unit="clip", disable=not progress) as bar:
        bar.update(len(sources) - len(jobs))
        errors: dict[str, str] = {}
        for clip_id, error in run_jobs(jobs, build, estimator, workers):
            bar.update()
            if error is not None:
                errors[clip_id] = error
                continue
            done = read_kept(files[clip_id])
            if done is None:
                raise MeropeError(f"{files[clip_id]} is gone; does another process write to {folder}?")
            kept[clip_id] = done
    if errors:
        raise MeropeError(_in_words(errors, len(sources), folder))
    found_twice = {name: read_reliability(path, key=keys[name]) for name, path in checks.items()}
    if sources and share is None:
        write_manifest(folder, files)
    return Recovery(
        clips=tuple(
            _clip(source, kept[source.clip_id], found_twice.get(source.clip_id)) for source in sources
        ),
        num_reused=len(reused),
        num_recovered=len(sources) - len(reused),
        estimator=identity,
        outdated=dict(outdated),
        reliability={name: found for name, found in found_twice.items() if found is not None},
    )


def label_folder(label: str) -> str:
    """A label as the name of a folder, on any system; what other labels could be called too ends in a hash of its own."""
    name = re.sub(r"[^A-Za-z0-9_@+=.-]+", "-", label).strip(".-")
    if name and name == label != NOISE_FLOOR_FOLDER:
        return name
    return f"{name or 'run'}-{hashlib.sha256(label.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"


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


def _find(folder: Path, source: ClipSource, key: dict[str, Any]) -> tuple[Kept | None, list[str]]:
    """What was kept of these very frames, here or under another label, which is copied; else what is different now."""
    own = folder / f"{source.clip_id}.txt"
    found = read_kept(own)
    if found is not None and found.key == key:
        return found, []
    differences = [] if found is None else [name for name in key if found.key[name] != key[name]]
    for sister in sorted(folder.parent.iterdir()) if folder.parent.is_dir() else []:
        other = sister / f"{source.clip_id}.txt"
        try:
            found = read_kept(other) if sister != folder else None
        except (MeropeError, OSError):
            # Another run's, which is told when that run is scored.
            continue
        if found is not None and found.key == key:
            write_text_atomically(own, other.read_text(encoding="utf-8"))
            return found, []
    return None, differences


def _in_words(errors: dict[str, str], num_clips: int, folder: Path) -> str:
    named = [f"  {clip_id}: {error}" for clip_id, error in list(errors.items())[:_MOST_NAMED]]
    more = len(errors) - len(named)
    return "\n".join(
        [
            f"{len(errors)} of {num_clips} clips stopped with an error, which says nothing about their cameras; what was "
            f"recovered of the others is kept in {folder}, and the same call goes on from there:",
            *named,
            *([f"  and {more} more"] if more else []),
        ]
    )


def _clip(source: ClipSource, kept: Kept, second_look: dict[str, Any] | None) -> RunClip:
    return RunClip(
        clip_id=source.clip_id,
        commanded=source.commanded,
        recovered=kept.recovered,
        failure=kept.failure,
        first_generated=source.first_generated,
        fps=source.fps,
        lens=source.lens,
        frames=source.frames,
        unreliable=second_look["reason"] if second_look is not None and second_look["unreliable"] else None,
    )
