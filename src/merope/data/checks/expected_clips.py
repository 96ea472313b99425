"""Which clips a data set should have: a split, or a text file of names, held against those that are there."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from merope.data.poses.table import read_text
from merope.data.selection.splits import Split, SplitError, read_split

COMPARABLE = 0.99
"""Share of the expected clips below which results are not comparable with those on all of them: videos disappear from the
sites that hold them, and a set of which more is missing is another set."""


@dataclass(frozen=True)
class ExpectedClips:
    """Names of clips: "SOURCE/ID", or "ID" of any source. A clip and its windows "ID@00049" stand for each other."""

    names: tuple[str, ...]
    """Each once, in the order of the file."""
    split: Split | None = None
    """The split that they are from; its clips are in the same order."""

    def __len__(self) -> int:
        return len(self.names)

    def may_hold(self, clip_id: str) -> bool:
        """Whether a clip of this name, of whatever source, can be one of them."""
        return not self._by_tail.keys().isdisjoint(_with_clip(clip_id))

    def places(self, source: str, clip_id: str, *, opened: bool = True) -> list[int]:
        """Numbers of the names that a clip answers to. One that could not be ``opened`` may have lost its source."""
        found = [place for name in _with_clip(clip_id) for place in self._by_name[f"{source}/{name}"]]
        found += [place for name in _with_clip(clip_id) for place in self._by_name[name]]
        if not found and not opened:
            found = [place for name in _with_clip(clip_id) for place in self._by_tail[name]]
        return sorted(set(found))

    @cached_property
    def _by_name(self) -> defaultdict[str, list[int]]:
        return _index((name, place) for place, full in enumerate(self.names) for name in _with_clip(full))

    @cached_property
    def _by_tail(self) -> defaultdict[str, list[int]]:
        tails = (
            ("/".join(parts[start:]), place)
            for place, full in enumerate(self.names)
            for parts in [full.split("/")]
            for start in range(len(parts))
        )
        return _index((name, place) for tail, place in tails for name in _with_clip(tail))


def read_expected(path: str | Path) -> ExpectedClips:
    """The names in a split, or in a text file with one on each line; empty lines and those after # are passed over.

    Raises:
        FileNotFoundError: if there is no such file.
        SplitError: if it names nothing, or one clip twice.
    """
    path = Path(path)
    text = read_text(path)
    if text.lstrip().startswith("{"):
        split = read_split(path)
        if not split.clips:
            raise SplitError(f"{path} names no clips.")
        return ExpectedClips(tuple(f"{clip.source}/{clip.clip_id}" for clip in split.clips), split)
    names = [line.strip() for line in text.splitlines()]
    names = [name for name in names if name and not name.startswith("#")]
    if not names:
        raise SplitError(
            f"{path} names no clips: it has to be a split, or a text file with a name on each line."
        )
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SplitError(f"{path} names {name} twice.")
        seen.add(name)
    return ExpectedClips(tuple(names))


def _with_clip(name: str) -> tuple[str, ...]:
    """A name and, of a window, that of its clip."""
    clip, at, _ = name.rpartition("@")
    return (name, clip) if at else (name,)


def _index(pairs: Iterable[tuple[str, int]]) -> defaultdict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for name, place in pairs:
        found[name].append(place)
    return found
