"""What a data set is to the rest of the library: clips by number, opened one at a time, and the options of its reader."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from merope.data.clips.clip import Clip, ClipError
from merope.errors import MeropeError


@dataclass(frozen=True, kw_only=True, eq=False)
class ClipSet(ABC):
    """The clips of one data set under one root; nothing but names and small files is read before a clip is asked for.

    A kind of data set is a subclass with what `open_clip` needs as fields: paths and plain values, so that a set can be
    sent to other processes. ``clips[3]`` is a `Clip`, whose frames are decoded when they are asked for.
    """

    source: str
    """Name of the data set, which goes before the names of its clips."""
    ids: tuple[str, ...]
    """Names of the clips, unique, in the order of their numbers."""
    notes: tuple[str, ...] = ()
    """What a user should know of these clips, such as what was left out and why: a sentence each, without a full stop."""

    @abstractmethod
    def open_clip(self, clip_id: str) -> Clip:
        """The clip of this name. What goes wrong may be any MeropeError, OSError or ValueError: `clip` names the clip."""

    def clip(self, clip_id: str) -> Clip:
        """The clip of this name, its frames left on disk.

        Raises:
            ClipError: naming the clip, if a file is missing, damaged, or does not fit the others.
        """
        try:
            return self.open_clip(clip_id)
        except ClipError:
            raise
        except (MeropeError, OSError, ValueError, RecursionError) as error:
            raise ClipError(self.source, clip_id, error) from error

    def clips(
        self, numbers: Iterable[int] | None = None, *, skip_broken: bool = False
    ) -> Iterator[Clip | ClipError]:
        """The clips with these numbers, one after another; all without.

        With ``skip_broken`` a clip that cannot be opened costs that clip alone: its error stands in its place.

        Raises:
            ClipError: naming the first clip that cannot be opened, without ``skip_broken``.
        """
        for number in range(len(self)) if numbers is None else numbers:
            try:
                yield self[number]
            except ClipError as error:
                if not skip_broken:
                    raise
                yield error

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, number: int) -> Clip:
        return self.clip(self.ids[number])

    def __iter__(self) -> Iterator[Clip]:
        return (self[number] for number in range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A kind of data set: what it expects on disk, the options of its reader, and the function that opens it."""

    about: str
    """What it holds, in a few words."""
    layout: str
    """What is expected under the root, a file or folder a line."""
    options: type[Any]
    """Frozen dataclass of the reader's options. All have defaults, a docstring each, and types that a command line can
    give: str, int, float, bool, a Literal of strings, or one of these or None."""
    open: Callable[[Path, Any], ClipSet]
    """A root and options to its clips.

    Raises:
        FileNotFoundError: if there is no such root.
        MeropeError: if the root does not look like this data set; the message says what was looked for.
    """


def require_distinct_clips(sets: Sequence[ClipSet], *, source: str | None = None) -> None:
    """Raise unless the clips of several roots can be told apart by source and name.

    Raises:
        ValueError: naming a clip that two roots have.
    """
    seen: set[tuple[str, str]] = set()
    for clips in sets:
        for clip_id in clips.ids:
            key = source or clips.source, clip_id
            if key in seen:
                raise ValueError(
                    f"two roots hold a clip {key[0]}/{clip_id}, and clips are told apart by source and name. Give the "
                    "roots one by one, each with a source of its own (--source)."
                )
            seen.add(key)


def opened_clips(
    numbered: Iterable[tuple[ClipSet, int]], *, source: str | None = None
) -> Iterator[Clip | ClipError]:
    """Clips of several sets by their numbers, the error of a broken one in its place; ``source`` goes before their own."""
    for clips, number in numbered:
        for clip in clips.clips([number], skip_broken=True):
            if isinstance(clip, ClipError):
                yield ClipError(source or clip.source, clip.clip_id, clip.reason)
            else:
                yield clip if source is None else replace(clip, source=source)
