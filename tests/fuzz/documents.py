"""Formats in JSON: what their values mean by definition, and mutations of values, names, nesting and layout."""

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np

from tests.fuzz.outcome import (
    REFUSED,
    Case,
    Expected,
    Truth,
    increasing,
    posed,
    reads,
    reads_or_refused,
    settled,
    turned,
)
from tests.fuzz.seeds import Seed

# Columns are the camera's axes (right, down, forward) in a left-handed engine's (forward, right, up).
_UNREAL = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])

Path = tuple[str | int, ...]

NO_NUMBERS = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e999",
        "9" * 400,
        "9" * 5000,
        "0x10",
        "1_0",
        "\u0661",
        "1,5",
        "+1",
    ),
    *(
        "01",
        ".5",
        "1.",
        "1e",
        "nan",
        "inf",
        '"1.0"',
        "true",
        "false",
        "null",
        "[]",
        "{}",
        "[1.0]",
        '""',
        "",
        "1 2",
        "--1",
    ),
)
"""What stands for a number and is none in JSON, or not finite."""

NO_WORDS = (
    "nan",
    "inf",
    "-Infinity",
    "1e400",
    "9" * 400,
    "0x10",
    "1_0",
    "\u0661",
    "1,5",
    "one",
    "",
    "1 2",
    "[1]",
    "1 ]",
)
"""The same in a text of numbers."""


def _only(documents: dict[str, Any]) -> Any:
    return documents[_main(documents)]


def _main(documents: dict[str, Any]) -> str:
    return next(name for name in documents if "calibration" not in name)


def _array(value: Any, *shape: int) -> np.ndarray:
    array = np.array(value, dtype=object)
    if array.shape != shape or any(type(each) not in (int, float) for each in array.reshape(-1)):
        raise ValueError(shape)
    return array.astype(np.float64)


def _bottom(matrix: np.ndarray) -> np.ndarray:
    if len(matrix) == 4 and np.abs(matrix[3] - [0, 0, 0, 1]).max() > 1e-6:
        raise ValueError
    return matrix[:3]


def _merope(documents: dict[str, Any]) -> Truth | None:
    document = _only(documents)
    rows = document["T_world_cam"]
    times = document.get("times")
    stamps = None if times is None else _array(times, len(rows))
    return settled(_array(rows, len(rows), 12).reshape(-1, 3, 4), stamps)


def _nerfstudio(documents: dict[str, Any]) -> Truth | None:
    frames = _only(documents)["frames"]
    matrices = np.array([_bottom(_array(frame["transform_matrix"], 4, 4)) for frame in frames])
    matrices[:, :, 1:3] *= -1
    return settled(matrices)


def _recammaster(documents: dict[str, Any]) -> Truth | None:
    document = _only(documents)
    numbered = {int(name.removeprefix("frame")): frame for name, frame in document.items()}
    # A camera may have any name, and need not be named where there is no other.
    (camera,) = numbered[min(numbered)]
    frames = {number: frame[camera] for number, frame in numbered.items()}
    if len(frames) < len(document):
        raise ValueError
    columns = []
    for _, text in sorted(frames.items()):
        brackets = text.split("]")
        if len(brackets) != 5 or brackets[4].strip() or any(part.strip()[:1] != "[" for part in brackets[:4]):
            raise ValueError
        rows = [[float(word) for word in part.strip()[1:].split()] for part in brackets[:4]]
        columns.append(_array(rows, 4, 4))
    stacked = np.array(columns).transpose(0, 2, 1)
    stacked = np.array([_bottom(matrix) for matrix in stacked])
    R, center = stacked[:, :, :3], stacked[:, :, 3] / 100
    return posed(_UNREAL.T @ R @ _UNREAL, center @ _UNREAL)


def _motionctrl(documents: dict[str, Any]) -> Truth | None:
    rows = _only(documents)
    return settled(_array(rows, len(rows), 12).reshape(-1, 3, 4), inverted=True)


def _ac3d(documents: dict[str, Any]) -> Truth | None:
    document = _only(documents)
    matrices = document["w2c"]
    _array(document["intrinsics"], len(matrices), 3, 3)
    return settled(np.array([_bottom(_array(m, len(m), 4)) for m in matrices]), inverted=True)


def _tri_dgp(documents: dict[str, Any]) -> Truth | None:
    found = []
    for datum in _only(documents)["data"]:
        day, _, rest = datum["id"]["timestamp"].removesuffix("Z").partition(".")
        moment = datetime.strptime(day, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
        stamp = int(moment.timestamp()) + Fraction(int(rest.ljust(9, "0")), 10**9)
        pose = datum["datum"]["image"]["pose"]
        numbers = [pose["translation"][axis] for axis in "xyz"]
        numbers += [pose["rotation"][name] for name in ("qx", "qy", "qz", "qw")]
        found.append((stamp, _array(numbers, 7)))
    found.sort(key=lambda each: each[0])
    values, times = np.array([each[1] for each in found]), np.array([float(each[0]) for each in found])
    return posed(turned(values[:, 3:]), values[:, :3], times) if increasing(times) else None


def _nuscenes(documents: dict[str, Any]) -> Truth | None:
    tables = {name.rsplit("/", 1)[-1].removesuffix(".json"): rows for name, rows in documents.items()}
    egos = {}
    for row in tables["ego_pose"]:
        if row["token"] in egos:
            raise ValueError
        egos[row["token"]] = _array([*row["translation"], *row["rotation"]], 7)
    (mount,) = (_array([*row["translation"], *row["rotation"]], 7) for row in tables["calibrated_sensor"])
    # Images whose samples are not in the table are left out, with a note: tables may be a part of the data set's.
    samples = {row["token"] for row in tables["sample"]} if "sample" in tables else None
    rows = [row for row in tables["sample_data"] if samples is None or row["sample_token"] in samples]
    images = sorted((_array(row["timestamp"]).item(), row["ego_pose_token"]) for row in rows)
    ego = np.array([egos[token] for _, token in images])
    times = np.array([time for time, _ in images]) / 1e6
    R_world_ego, R_ego_cam = (turned(part[:, [4, 5, 6, 3]]) for part in (ego, mount[None]))
    if R_world_ego is None or R_ego_cam is None or not increasing(times):
        return None
    centers = ego[:, :3] + (R_world_ego @ mount[:3, None])[:, :, 0]
    return posed(R_world_ego @ R_ego_cam, centers, times)


def _grid(*way: str | int, rows: int, columns: int) -> list[Path]:
    return [(*way, row, column) for row in range(rows) for column in range(columns)]


def _numbers_of(kind: str, documents: dict[str, Any]) -> list[tuple[str, Path]]:
    name = _main(documents)
    document = documents[name]
    ways: list[Path] = []
    if kind == "merope":
        ways = [("T_world_cam", i, j) for i in range(len(document["T_world_cam"])) for j in range(12)]
        ways += [("times", i) for i in range(len(document["times"] or []))]
    elif kind == "nerfstudio":
        for index in range(len(document["frames"])):
            ways += _grid("frames", index, "transform_matrix", rows=4, columns=4)
    elif kind == "recammaster":
        ways = [(frame, "cam01", word) for frame in document for word in range(16)]
    elif kind == "motionctrl":
        ways = [(row, column) for row in range(len(document)) for column in range(12)]
    elif kind == "ac3d":
        for index in range(len(document["w2c"])):
            ways += _grid("w2c", index, rows=3, columns=4)
    elif kind == "tri-dgp":
        for index in range(len(document["data"])):
            way = ("data", index, "datum", "image", "pose")
            ways += [(*way, "translation", axis) for axis in "xyz"]
            ways += [(*way, "rotation", part) for part in ("qx", "qy", "qz", "qw")]
    elif kind == "nuscenes":
        name = next(each for each in documents if each.endswith("/ego_pose.json"))
        for index in range(len(documents[name])):
            ways += [(index, "translation", axis) for axis in range(3)]
            ways += [(index, "rotation", part) for part in range(4)]
    return [(name, way) for way in ways]


_ENTRIES: dict[str, Path] = {
    "merope": ("T_world_cam",),
    "nerfstudio": ("frames",),
    "recammaster": (),
    "motionctrl": (),
    "ac3d": ("w2c",),
    "tri-dgp": ("data",),
    "nuscenes": (),
}
_MEANINGS = {
    "merope": _merope,
    "nerfstudio": _nerfstudio,
    "recammaster": _recammaster,
    "motionctrl": _motionctrl,
    "ac3d": _ac3d,
    "tri-dgp": _tri_dgp,
    "nuscenes": _nuscenes,
}
DOCUMENTS = tuple(_MEANINGS)


def meaning(format: str, seed: Seed, files: dict[str, bytes]) -> Truth | None:
    """What the bytes mean, None where they are no JSON or no poses: whoever reads them must not read anything else."""
    try:
        documents = {name: json.loads(content.decode("utf-8-sig")) for name, content in files.items()}
    except (ValueError, RecursionError):
        return None
    return of_documents(format, documents)


def of_documents(format: str, documents: dict[str, Any]) -> Truth | None:
    """The poses of documents."""
    try:
        return _MEANINGS[format](documents)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, StopIteration):
        return None


def _expected(truth: Truth | None) -> Expected:
    return REFUSED if truth is None else reads(truth)


def _at(document: Any, way: Path) -> Any:
    for key in way:
        document = document[key]
    return document


def _put(documents: dict[str, Any], name: str, way: Path, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(documents)
    if way:
        _at(changed[name], way[:-1])[way[-1]] = value
    else:
        changed[name] = value
    return changed


def _word_put(text: str, number: int, word: str) -> str:
    words = text.replace("[", " [ ").replace("]", " ] ").split()
    places = [index for index, each in enumerate(words) if each not in "[]"]
    words[places[number]] = word
    return " ".join(words)


_MARK = "@@here@@"


def mutations(format: str, seed: Seed, rng: np.random.Generator) -> Iterator[Case]:
    """One case of every kind for this seed, each at a place that ``rng`` draws."""
    documents = {name: json.loads(content) for name, content in seed.files.items()}
    in_text = format == "recammaster"
    places = _numbers_of(format, documents)
    name, way = places[int(rng.integers(len(places)))]
    same = reads(seed.baseline)

    def files(changed: dict[str, Any], **layout: Any) -> dict[str, bytes]:
        return {key: json.dumps(value, **layout).encode() for key, value in changed.items()}

    def whole(mutation: str, content: bytes, outcome: Expected) -> Case:
        return Case(mutation, {**seed.files, name: content}, outcome)

    def meant(mutation: str, changed: dict[str, Any]) -> Case:
        """Documents that were changed, and what these values mean."""
        return Case(mutation, files(changed), _expected(of_documents(format, changed)))

    def number(mutation: str, value: float) -> Case:
        if not in_text:
            return meant(mutation, _put(documents, name, way, value))
        text = _at(documents[name], way[:-1])
        return meant(mutation, _put(documents, name, way[:-1], _word_put(text, int(way[-1]), repr(value))))

    def literal(mutation: str, raw: str) -> Case:
        if in_text:
            text = _word_put(_at(documents[name], way[:-1]), int(way[-1]), raw)
            return Case(mutation, files(_put(documents, name, way[:-1], text)), REFUSED)
        written = files(_put(documents, name, way, _MARK), ensure_ascii=False)
        return Case(
            mutation,
            {key: content.replace(f'"{_MARK}"'.encode(), raw.encode()) for key, content in written.items()},
            REFUSED,
        )

    content = seed.files[name]
    yield Case("unchanged", dict(seed.files), same)
    yield Case("on one line", files(documents, separators=(",", ":")), same)
    yield Case("indented", files(documents, indent="\t"), same)
    yield Case("names in another order", files(documents, sort_keys=True), same)
    for label, end in (("CR LF", b"\r\n"), ("CR", b"\r"), ("blank lines", b"\n\n")):
        yield whole(label, content.replace(b"\n", end), same)
    yield whole("byte order mark", b"\xef\xbb\xbf" + content, same)
    yield whole("two byte order marks", b"\xef\xbb\xbf" * 2 + content, REFUSED)
    yield whole("blanks around", b" \n\t" + content + b"\r\n \n", same)
    if format != "nuscenes":
        yield whole("gzip", gzip.compress(content), same)
        packed = gzip.compress(content)
        yield whole("gzip cut", packed[: int(rng.integers(3, len(packed)))], REFUSED)
    yield whole("gzip twice", gzip.compress(gzip.compress(content)), REFUSED)
    body = content.rstrip()
    yield whole("cut", body[: int(rng.integers(len(body)))], REFUSED)
    yield whole("something behind", content + b"]", REFUSED)
    yield whole("the document twice", content + content, REFUSED)
    yield whole("a comma too many", body[:-1] + b"," + body[-1:], REFUSED)
    yield whole("empty", b"", REFUSED)
    yield whole("UTF-16", content.decode().encode("utf-16"), REFUSED)
    yield whole("a zero byte", content[:1] + b"\0" + content[1:], REFUSED)
    yield whole("a comment", b"// poses\n" + content, REFUSED)
    for raw in (
        b"null",
        b"1",
        b'"poses"',
        b"[]",
        b"{}",
        b"[[]]",
        b"[{}]",
        b"true",
        b"[1, 2]",
        b'{"frames": []}',
        b"NaN",
    ):
        yield whole(f"the document is {raw.decode()}", raw, REFUSED)
    for depth in (500, 100_000):
        yield whole(f"{depth} lists in each other", b"[" * depth + b"]" * depth, REFUSED)
        yield whole(f"{depth} lists not closed", b"[" * depth, REFUSED)
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        yield whole(f"{depth} objects in each other", deep, REFUSED)
    yield whole("an endless text", b'"' + b"x" * 2**20, REFUSED)
    for raw in NO_WORDS if in_text else NO_NUMBERS:
        yield literal(f"a number is {raw[:12]}", raw)
    for value in (1e308, -1e308, 1e200, 5e-324, -0.0, 0, 1, -1, 2, 123456789.125):
        yield number(f"a number is {value}", value)
    old = float(_at(documents[name], way)) if not in_text else 0.25
    yield number("a number changed in its sign", -old)
    yield number("a number changed in a late digit", old * (1 + 1e-7) + 1e-9)
    yield from _entries(format, documents, name, rng, meant)
    yield from _doubled(format, documents, name, content, whole)


def _entries(
    format: str, documents: dict[str, Any], name: str, rng: np.random.Generator, meant: Callable[..., Case]
) -> Iterator[Case]:
    """Poses that are missing, doubled, in another order or of another type."""
    way = _ENTRIES[format]
    entries = _at(documents[name], way)
    keys = list(range(len(entries))) if isinstance(entries, list) else list(entries)
    chosen = keys[int(rng.integers(len(keys)))]
    for value in (None, 1, "a", [], {}, [[]], True, [None] * 12, [1.0] * 11, [1.0] * 13):
        yield meant(f"a pose is {str(value)[:12]}", _put(documents, name, (*way, chosen), value))
    if isinstance(entries, list):
        for mutation, changed in (
            ("a pose less", [each for key, each in enumerate(entries) if key != chosen]),
            ("a pose twice", [*entries[: chosen + 1], *entries[chosen:]]),
            ("poses reversed", entries[::-1]),
            ("no poses", []),
        ):
            yield meant(mutation, _put(documents, name, way, changed))
    for value in (None, 1, "a", [], {}):
        yield meant(f"the poses are {value}", _put(documents, name, way, value))


def _doubled(
    format: str, documents: dict[str, Any], name: str, content: bytes, whole: Callable[..., Case]
) -> Iterator[Case]:
    """One name twice in an object, once with another value."""
    places = [index for index in range(len(content)) if content[index : index + 1] == b"{"]
    places = [at for at in places if _first_object(content, at)]
    for at in places[:: max(1, len(places) // 4)]:
        key = json.dumps(next(iter(_first_object(content, at))))
        yield whole("a name twice", content[: at + 1] + f"{key}: 1, ".encode() + content[at + 1 :], REFUSED)


def _first_object(content: bytes, at: int) -> dict[str, Any]:
    value, _ = json.JSONDecoder().raw_decode(content.decode()[at:])
    return dict(value)


def of_damage(format: str, seed: Seed, files: dict[str, bytes]) -> Expected:
    """After damage without a plan a reader may refuse what still is JSON, and must not read anything but these values."""
    truth = meaning(format, seed, files)
    return REFUSED if truth is None else reads_or_refused(truth)
