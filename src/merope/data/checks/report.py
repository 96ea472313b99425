"""What became of a check of many clips: findings by kind, what is there of what was expected, the clips that are sound."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from merope.data.checks.checking import NOTES, PROBLEMS, CheckConfig, ClipCheck, Kind
from merope.data.checks.expected_clips import COMPARABLE, ExpectedClips
from merope.data.selection.splits import Split, SplitClip

FORMAT = "merope-check-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The clips of all folders in order, those that were expected and are not there at the end."""

    clips: tuple[ClipCheck, ...]
    config: CheckConfig
    problems: tuple[str, ...] = ()
    """What is wrong with a folder as a whole."""
    notes: tuple[str, ...] = ()
    expected: ExpectedClips | None = None
    not_expected: int = 0
    """Clips that are there and were not looked at, because nobody expected them."""
    used: frozenset[int] = frozenset()
    """Numbers of the expected names for which a sound clip is there."""

    def is_sound(self, clip: ClipCheck) -> bool:
        """Whether nothing keeps a clip from use."""
        return not any(self.config.is_problem(finding.kind) for finding in clip.findings)

    @property
    def is_clean(self) -> bool:
        """Whether nothing at all is wrong; notes do not count."""
        return not self.problems and all(map(self.is_sound, self.clips))

    @property
    def num_sound(self) -> int:
        """Clips that can be used."""
        return sum(map(self.is_sound, self.clips))

    @property
    def is_comparable(self) -> bool | None:
        """Whether 99 % of the expected clips can be used; None where nothing says what is expected."""
        return None if self.expected is None else len(self.used) >= COMPARABLE * len(self.expected)

    def by_kind(self) -> dict[Kind, list[ClipCheck]]:
        """The clips of each kind of finding that there is, problems first."""
        found: dict[Kind, list[ClipCheck]] = {kind: [] for kind in (*PROBLEMS, *NOTES)}
        for clip in self.clips:
            for kind in dict.fromkeys(finding.kind for finding in clip.findings):
                found[kind].append(clip)
        return {kind: clips for kind, clips in found.items() if clips}

    def split(self, name: str, *, made: Mapping[str, Any]) -> Split:
        """The clips that can be used: those of the expected split as it names them, else all that are sound.

        Statistics of the expected split are not taken over: they are of all its clips.
        """
        if self.expected is not None and self.expected.split is not None:
            every = self.expected.split.clips
            kept = tuple(every[place] for place in sorted(self.used))
        else:
            kept = tuple(
                SplitClip(clip.source, clip.clip_id, clip.cluster or "all")
                for clip in self.clips
                if self.is_sound(clip)
            )
        return Split(name, kept, made={**made, "checked": asdict(self.config)})

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: the manifest of what is there, with hashes, and what is missing."""
        kinds = self.by_kind()
        expected = None
        if self.expected is not None:
            expected = {
                "n_expected": len(self.expected),
                "n_used": len(self.used),
                "comparable": self.is_comparable,
                "not_expected": self.not_expected,
            }
        return {
            "format": FORMAT,
            "config": asdict(self.config),
            "clean": self.is_clean,
            "n_checked": len(self.clips),
            "n_sound": self.num_sound,
            "expected": expected,
            "counts": {kind: len(clips) for kind, clips in kinds.items()},
            "problems": list(self.problems),
            "notes": list(self.notes),
            "missing": [clip.name for clip in kinds.get("missing", [])],
            "clips": [{**_plain(clip), "sound": self.is_sound(clip)} for clip in self.clips],
        }


def report_of(
    clips: Sequence[ClipCheck],
    config: CheckConfig,
    *,
    problems: Sequence[str] = (),
    notes: Sequence[str] = (),
    expected: ExpectedClips | None = None,
    not_expected: int = 0,
) -> CheckReport:
    """What single clips do not tell: which are there twice, which are missing, what a set's unit means."""
    checked = _with_duplicates(clips)
    report = CheckReport(clips=tuple(checked), config=config)
    there: set[int] = set()
    used: set[int] = set()
    missing: list[ClipCheck] = []
    if expected is not None:
        for clip in checked:
            places = expected.places(clip.source, clip.clip_id, opened=clip.frames is not None)
            there.update(places)
            if report.is_sound(clip):
                used.update(places)
        for place, name in enumerate(expected.names):
            if place not in there:
                source, _, clip_id = name.rpartition("/")
                gone = ClipCheck(place="", source=source or "expected", clip_id=clip_id)
                missing.append(gone.with_finding("missing", "it is expected and not there"))
    return CheckReport(
        clips=(*checked, *missing),
        config=config,
        problems=tuple(problems),
        notes=(*notes, *_unit_notes(checked)),
        expected=expected,
        not_expected=not_expected,
        used=frozenset(used),
    )


def _with_duplicates(clips: Sequence[ClipCheck]) -> list[ClipCheck]:
    """The same clips; every later one of the same name, or the same poses and content, is marked."""
    names: dict[tuple[str, str], ClipCheck] = {}
    contents: dict[tuple[str, str], ClipCheck] = {}
    marked = []
    for clip in clips:
        first = names.setdefault((clip.source, clip.clip_id), clip)
        if first is not clip:
            clip = clip.with_finding(
                "duplicate", f"{first.place} and {clip.place} both hold a clip of this name"
            )
        if clip.poses_sha256 is not None and clip.content_sha256 is not None:
            twin = contents.setdefault((clip.poses_sha256, clip.content_sha256), clip)
            if twin is not clip and twin.name != clip.name:
                clip = clip.with_finding("duplicate", f"it has the poses and the frames of {twin.name}")
        marked.append(clip)
    return marked


def _unit_notes(clips: Sequence[ClipCheck]) -> list[str]:
    units: dict[str, Counter[str]] = {}
    for clip in clips:
        if clip.unit is not None:
            units.setdefault(clip.place, Counter())[clip.unit] += 1
    notes = []
    for place, counts in units.items():
        other = [f"{count} in unit {unit!r}" for unit, count in sorted(counts.items()) if unit != "m"]
        if other:
            notes.append(
                f"{place}: of {counts.total()} clips there are {' and '.join(other)}: encodings in metres would take a "
                "length of 1 as a metre"
            )
        if len(counts) > 1:
            notes.append(f"{place}: its clips are not all in one unit; they cannot be trained on together")
    return notes


def _plain(clip: ClipCheck) -> dict[str, Any]:
    return asdict(clip)
