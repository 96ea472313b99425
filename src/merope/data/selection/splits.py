"""`Split`: a named list of clips with the cluster of each, in one JSON file that says how it was made."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from merope.data.foreign_files.strict_json import parse_json
from merope.errors import MeropeError
from merope.files import atomic_path, require_file

FORMAT = "merope-split-1"
_ENTRIES = {"format", "name", "made", "statistics", "clips"}
_CLIP_ENTRIES = {"source", "clip_id", "cluster"}


class SplitError(MeropeError):
    """A split file cannot be used; the message names the file and the entry."""


@dataclass(frozen=True, slots=True)
class SplitClip:
    """One clip of a split: told apart by its source and its name within it."""

    source: str
    """Data set or folder that the clip comes from."""
    clip_id: str
    """Name within the source; a window of a clip is "ID@00049", after its first frame."""
    cluster: str = "all"
    """Kind of motion, for `BalancedSampler`."""


@dataclass(frozen=True)
class Split:
    """Some clips, in order, and what was measured on them.

    Raises:
        ValueError: if a name is empty, or two clips have the same source and name.
    """

    name: str
    """What the split is called: "train", "evaluation"."""
    clips: tuple[SplitClip, ...]
    """The clips, each once."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """Measured on these clips, as JSON values; the translation scale stands here."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """The command and the options that made it, as JSON values."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name of a split must not be empty.")
        for number, clip in enumerate(self.clips):
            if not (clip.source and clip.clip_id and clip.cluster):
                raise ValueError(f"clip {number} must have a source, a clip_id and a cluster; got {clip}.")
        if len(self._cluster_by_clip) < len(self.clips):
            counts = Counter((clip.source, clip.clip_id) for clip in self.clips)
            source, clip_id = counts.most_common(1)[0][0]
            raise ValueError(
                f"clip {source}/{clip_id} is in the split more than once. Clips are told apart by source and name."
            )

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, sorted."""
        return tuple(sorted({clip.source for clip in self.clips}))

    def cluster_of(self, source: str, clip_id: str) -> str | None:
        """The cluster of a clip, or None where the split leaves it out.

        A window "ID@00049" that the split does not name has the cluster of the clip ID, if that is named: a split of whole
        clips holds for all their windows.
        """
        found = self._cluster_by_clip.get((source, clip_id))
        if found is None and "@" in clip_id:
            found = self._cluster_by_clip.get((source, clip_id.rpartition("@")[0]))
        return found

    @cached_property
    def _cluster_by_clip(self) -> dict[tuple[str, str], str]:
        return {(clip.source, clip.clip_id): clip.cluster for clip in self.clips}


def write_split(path: str | Path, split: Split) -> None:
    """Write a split as JSON, a clip a line, in one step.

    Raises:
        ValueError: if ``statistics`` or ``made`` hold what JSON cannot, or a number that is not finite.
    """
    head = {"format": FORMAT, "name": split.name, "made": split.made, "statistics": split.statistics}
    try:
        lines = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
    except TypeError as error:
        raise ValueError(f"statistics and made of a split must be JSON values: {error}.") from None
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(lines + ',\n "clips": [')
        for number, clip in enumerate(split.clips):
            entry = {"source": clip.source, "clip_id": clip.clip_id, "cluster": clip.cluster}
            file.write(("," if number else "") + "\n  " + json.dumps(entry))
        file.write("\n ]\n}\n")


def read_split(path: str | Path) -> Split:
    """The split in a file of `write_split`.

    Raises:
        FileNotFoundError: if there is no such file.
        SplitError: if it is not of this format, or an entry is missing, unknown or of another kind.
    """
    path = Path(path)
    try:
        require_file(path)
        content = parse_json(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SplitError(f"{path} is no split: it is not JSON ({error}).") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SplitError(
            f'{path} is no split: it needs "format": "{FORMAT}". `merope data prototypes` and `merope data check` write one.'
        )
    if unknown := sorted(set(content) - _ENTRIES):
        raise SplitError(f'{path} has unknown entries {unknown}; what made it goes under "made".')
    name, clips = content.get("name"), content.get("clips")
    if not isinstance(name, str) or not isinstance(clips, list):
        raise SplitError(f'{path} needs "name", a text, and "clips", a list.')
    notes = {}
    for entry in ("statistics", "made"):
        notes[entry] = content.get(entry, {})
        if not isinstance(notes[entry], dict):
            raise SplitError(f"{path}: {entry!r} is {notes[entry]!r:.60} and no object.")
    try:
        return Split(name, tuple(_clip(path, *item) for item in enumerate(clips)), **notes)
    except ValueError as error:
        raise SplitError(f"{path}: {error}") from None


def _clip(path: Path, number: int, entry: Any) -> SplitClip:
    if not isinstance(entry, dict) or not {"source", "clip_id"} <= set(entry) <= _CLIP_ENTRIES:
        raise SplitError(
            f'{path}: clip {number} is {entry!r:.80}; it needs "source", "clip_id" and, if it has one, "cluster".'
        )
    for key, value in entry.items():
        if not isinstance(value, str):
            raise SplitError(f"{path}: {key!r} of clip {number} is {value!r:.60} and no text.")
    return SplitClip(**entry)
