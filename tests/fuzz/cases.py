"""Mutated files of one kind without end, the same for the same seed, and what became of them."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np

from merope.data.poses import table as pose_table
from merope.data.poses.formats import arrays
from tests.fuzz import binaries, binary_mutations, documents, places, texts
from tests.fuzz.noise import damaged
from tests.fuzz.outcome import Case, Expected, judge
from tests.fuzz.seeds import FILES, Seed, format_of, seeds_of


@dataclass
class Report:
    """Outcomes counted, and every case that went wrong."""

    outcomes: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)


def cases(kind: str, seed: int) -> Iterator[tuple[Seed, Case]]:
    """Planned mutations and damage in turn; every planned one comes once for a trajectory before any comes again."""
    rng = np.random.default_rng([seed, *kind.encode()])
    first = True
    while True:
        sources = seeds_of(kind)
        for source in (sources[place] for place in rng.permutation(len(sources))):
            plan = list(planned(kind, source, rng))
            for place in rng.permutation(len(plan)):
                yield source, plan[place]
                yield source, without_plan(kind, source, rng)
            if first:
                for case in places.mutations(source):
                    yield source, case
        first = False


def sample(kind: str, seed: int, *, damage: int) -> Iterator[tuple[Seed, Case]]:
    """Every planned mutation once, of a trajectory drawn for it, what may stand where a file should be, and damage."""
    rng = np.random.default_rng([seed, *kind.encode()])
    sources = seeds_of(kind)
    found: dict[str, list[tuple[Seed, Case]]] = {}
    for source in sources:
        for case in planned(kind, source, rng):
            found.setdefault(case.mutation, []).append((source, case))
    for same in found.values():
        yield same[int(rng.integers(len(same)))]
    yield from ((sources[0], case) for case in places.mutations(sources[0]))
    for place in rng.integers(len(sources), size=damage):
        yield sources[place], without_plan(kind, sources[place], rng)


def planned(kind: str, source: Seed, rng: np.random.Generator) -> Iterator[Case]:
    if kind in texts.TABLES:
        return texts.mutations(kind, source, rng)
    if kind in documents.DOCUMENTS:
        return documents.mutations(kind, source, rng)
    return binary_mutations.mutations(kind, source, rng)


def without_plan(kind: str, source: Seed, rng: np.random.Generator) -> Case:
    names = sorted(source.files)
    name = names[int(rng.integers(len(names)))]
    label, content = damaged(source.files[name], rng)
    files = {**source.files, name: content}
    return Case(f"{label} in {name}", files, _after_damage(kind, source, files))


def _after_damage(kind: str, source: Seed, files: dict[str, bytes]) -> Expected:
    if kind in texts.TABLES:
        return texts.expected(texts.meaning(kind, source, files))
    if kind in documents.DOCUMENTS:
        return documents.of_damage(kind, source, files)
    return binaries.of_damage(kind, source, files)


def run(kind: str, *, count: int, seed: int, scratch: Path) -> Report:
    """The first ``count`` cases of a kind, each in a folder of its own that is gone afterwards."""
    return run_cases(kind, islice(cases(kind, seed), count), seed=seed, scratch=scratch)


def run_cases(kind: str, some: Iterable[tuple[Seed, Case]], *, seed: int, scratch: Path) -> Report:
    """Read each case in a folder of its own, which is gone afterwards, and judge what came."""
    report = Report()
    with small_limits():
        for number, (source, case) in enumerate(some):
            root = scratch / f"case{number}"
            target = put(root, source, case)
            outcome, wrong = judge(case, target, format_of(kind))
            shutil.rmtree(root)
            report.outcomes[outcome] += 1
            if wrong is not None:
                report.defects.append(f"{kind}, case {number} of seed {seed} ({case.mutation}): {wrong}")
    return report


def put(root: Path, source: Seed, case: Case) -> Path:
    """Write a case's files and return what is to be read."""
    root.mkdir(parents=True)
    for name, content in case.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    if case.place is not None:
        case.place(root)
    return root / source.target


@contextmanager
def small_limits():
    """Bombs of a few megabytes do, where a gigabyte is the limit."""
    with (
        mock.patch.object(pose_table, "LARGEST_UNPACKED", binary_mutations.LIMIT),
        mock.patch.object(arrays, "LARGEST_UNPACKED", binary_mutations.LIMIT),
    ):
        yield


KINDS = tuple(FILES)
