"""The manifest of a run: which prompts, given frames and lenses are driven along which trajectories."""

import difflib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from merope.data.poses.files import FORMATS
from merope.data.poses.table import read_text
from merope.errors import MeropeError
from merope.geometry.gravity import Up, unit_up
from merope.geometry.poses import Unit

# What may stand in a folder's name on every system, and cannot leave the folder or hide in it.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,127}")
_MOST_PROBLEMS = 20


class ManifestError(MeropeError):
    """Cases that cannot be generated as they are written; the message has a line for each mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A pose file to drive along, as `merope.data.poses.command_files.read_command` takes it."""

    poses: Path
    """The file."""
    format: str
    """Its format: kitti, tum, npy, npz or merope."""
    start: int = 0
    """First pose of the window."""
    fps: float | None = None
    """Poses per second where the file has no times; without it one pose is one frame."""
    times: Path | None = None
    """File with the time of each pose in seconds, one a line."""
    unit: Unit | None = None
    """What a length of 1 is, where the file does not say."""
    scale: float = 1.0
    """Metres per unit of the file."""
    up_world: Up | None = None
    """Against gravity in the file's world; needed by adapters with an input map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One entry of a manifest."""

    id: str
    """Name of its folder."""
    prompt: str
    """What the video shows."""
    trajectories: Mapping[str, Trajectory]
    """Where it is driven, by the name of the clip's folder."""
    negative_prompt: str | None = None
    """What it does not show; None for the pipeline's own."""
    prefix: Path | None = None
    """Video, folder of pictures or picture whose first frames are given."""
    lens: Path | None = None
    """JSON file of the lens, as `CameraModel.to_dict` gives it; that of the given frames where there are any."""
    fov: float | None = None
    """In place of a lens: horizontal field of view of a pinhole, degrees."""
    seed: int | None = None
    """Of the noise; all trajectories of a case start from the same. None derives one from the run's seed and the id."""


@dataclass(slots=True)
class Problems:
    """Mistakes found so far, each with its place."""

    found: list[str] = field(default_factory=list)

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Note an error that the block ends in, and go on after it."""
        try:
            yield
        except (MeropeError, ValueError) as error:
            self.found.append(f"{place}: {error}")
        except OSError as error:
            reason = (error.strerror or "cannot be opened").lower()
            self.found.append(f"{place}: {error.filename}: {reason}")

    def raise_any(self, source: str) -> None:
        """End in one `ManifestError` with a line for each mistake, if there was any."""
        if not self.found:
            return
        count = len(self.found)
        lines = self.found[:_MOST_PROBLEMS]
        if count > len(lines):
            lines = [*lines, f"and {count - len(lines)} more"]
        head = f"{source}: {count} mistake{'s' if count > 1 else ''}, nothing was generated"
        raise ManifestError("\n  ".join([head, *lines]))


def read_manifest(path: str | Path) -> list[Case]:
    """The cases of a JSON file (a list, or an object with "cases") or of a file with one JSON object a line.

    Relative paths are relative to the manifest's folder. Nothing but the manifest is opened.

    Raises:
        ManifestError: naming case and field of every mistake in it.
    """
    path = Path(path)
    entries = _entries(path)
    problems = Problems()
    cases: dict[str, Case] = {}
    for number, entry in enumerate(entries, start=1):
        place = f"case {number}"
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            place = f"case {entry['id']!r}"
        with problems.at(place):
            case = _case(entry, place, path.parent, problems)
            if case is None:
                continue
            if case.id in cases:
                raise ValueError("field 'id': another case has it too; every case needs its own.")
            cases[case.id] = case
    if not entries:
        problems.found.append("there are no cases in it")
    problems.raise_any(str(path))
    return list(cases.values())


def _entries(path: Path) -> list[Any]:
    text = read_text(path)
    try:
        content = json.loads(text, object_pairs_hook=_without_twins)
    except json.JSONDecodeError as whole:
        entries = []
        for number, line in enumerate(io.StringIO(text, newline=None), start=1):
            if not line.strip():
                continue
            try:
                entries.append(json.loads(line, object_pairs_hook=_without_twins))
            except json.JSONDecodeError as error:
                # A first line that is no object of its own belongs to one JSON text that is broken somewhere.
                where = f"line {whole.lineno}: {whole.msg}" if not entries else f"line {number}: {error.msg}"
                raise ManifestError(f"{path} is neither JSON nor one JSON object a line; {where}.") from None
        return entries
    if isinstance(content, dict) and "cases" in content:
        content = content["cases"]
    elif isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise ManifestError(f"{path} must hold a list of cases; got {type(content).__name__}.")
    return content


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON keeps the last of two equal names in silence; here the first of two trajectories would be gone."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twin = next(name for name in names if names.count(name) > 1)
        raise ManifestError(f"the name {twin!r} stands twice in one object of the manifest; rename one.")
    return dict(pairs)


_KINDS: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "prompt": (str,),
    "negative_prompt": (str,),
    "prefix": (str,),
    "lens": (str,),
    "fov": (int, float),
    "seed": (int,),
    "trajectories": (dict,),
    "poses": (str,),
    "format": (str,),
    "start": (int,),
    "fps": (int, float),
    "times": (str,),
    "unit": (str,),
    "scale": (int, float),
    "up_world": (list,),
}
_WORDS: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
}
_PATHS = {"prefix", "lens", "poses", "times"}


def _values(entry: Any, kind: type, folder: Path) -> dict[str, Any]:
    """Fields of an entry with their types checked and their paths resolved; null is as good as absent.

    Raises:
        ValueError: for an unknown field, a missing one or one of another type.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"must be an object with fields; got {json.dumps(entry)[:60]}.")
    # Any: fields() is typed for dataclasses alone, and kind is one.
    known: Any = fields(kind)
    names = [item.name for item in known]
    values = {}
    for name, value in entry.items():
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"There are {', '.join(names)}."
            raise ValueError(f"unknown field {name!r}; {hint}")
        if value is None:
            continue
        if not isinstance(value, _KINDS[name]) or isinstance(value, bool):
            wanted = _WORDS[_KINDS[name][-1]]
            raise ValueError(f"field {name!r} must be {wanted}; got {json.dumps(value)[:60]}.")
        values[name] = folder / str(value) if name in _PATHS else value
    for item in known:
        if item.default is MISSING and item.name not in values:
            raise ValueError(f"field {item.name!r} is missing.")
    return values


def _case(entry: Any, place: str, folder: Path, problems: Problems) -> Case | None:
    values = _values(entry, Case, folder)
    require_name("id", values["id"])
    if not 0 <= values.get("seed", 0) < 2**63:
        raise ValueError(f"field 'seed' must be 0 or more and below 2^63; got {values['seed']}.")
    if "lens" in values and "fov" in values:
        raise ValueError("fields 'lens' and 'fov' both say what the lens is; keep one.")
    if not values["trajectories"]:
        raise ValueError("field 'trajectories' is empty; a case is driven along at least one.")
    before = len(problems.found)
    trajectories = {}
    for name, inner in values["trajectories"].items():
        with problems.at(f"{place}, trajectory {name!r}"):
            require_name("the name", name)
            chosen = _values(inner, Trajectory, folder)
            if chosen["format"] not in FORMATS:
                raise ValueError(
                    f"field 'format' must be one of {', '.join(FORMATS)}; got {chosen['format']!r}."
                )
            if chosen.get("unit") not in (None, *get_args(Unit)):
                raise ValueError(
                    f"field 'unit' must be one of {', '.join(get_args(Unit))}; got {chosen['unit']!r}."
                )
            if "up_world" in chosen:
                chosen["up_world"] = unit_up(chosen["up_world"])
            trajectories[name] = Trajectory(**chosen)
    if len(problems.found) > before:
        return None
    return Case(**{**values, "trajectories": trajectories})


def require_name(what: str, name: str) -> None:
    """Raise ValueError for what cannot be the name of a folder of clips."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} becomes the name of a folder and must be letters, digits and _ . + = - alone, not begin with a dot "
            f"and have 128 characters at most; got {name!r}."
        )
