"""Formats that are tables of numbers in text: their meaning by definition, and mutations of words, rows and columns."""

import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.fuzz.outcome import REFUSED, Case, Expected, Truth, increasing, posed, reads, settled, turned
from tests.fuzz.seeds import Seed

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
LINE_END = re.compile("\r\n|\r|\n")
# Rows of the camera's axes in a body whose x points forward, y right and z down.
_FRD = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])

Words = list[str]

NO_NUMBERS = (
    *("nan", "NaN", "-nan", "inf", "Infinity", "-INF", "1e400", "-1e999", "9" * 400, "9" * 5000),
    *(
        "0x1p3",
        "0x10",
        "1_0",
        "1_000.5",
        "\u0661",
        "\uff11",
        "\u00bd",
        "1,5",
        "1.5.2",
        "1e",
        "e5",
        "--1",
        "+-1",
        "- 1",
    ),
    *("one", "None", "null", "true", '"1"', "1f", "1j", "1d0", "\ufeff1", "1;", "(1)", "\u22121", "."),
)
"""Words that are no finite number, in every spelling that some program writes."""


@dataclass(frozen=True)
class Table:
    """A format of rows of numbers."""

    columns: tuple[int, ...]
    """How many numbers a row may have."""
    meaning: Callable[[list[Words]], Truth | None]
    """Poses of rows of words, None for what is to be refused."""
    delimiter: str | None = None
    header: int = 0
    """Lines before the rows that are part of the format."""
    comments: bool = True
    stamped: bool = False
    first: int = 0
    """Where the numbers of the pose begin; the position or the matrix follows a stamp."""
    matrix: int | None = None
    """Where a matrix begins."""
    quaternion: int | None = None
    center: tuple[int, int, int] = (3, 7, 11)


def _values(rows: list[Words]) -> np.ndarray:
    return np.array([[float(word) for word in row] for row in rows])


def _seconds(rows: list[Words], per_second: int, *, whole: bool) -> np.ndarray | None:
    exact = [Fraction(row[0]) for row in rows]
    if whole and any(value != int(value) for value in exact):
        return None
    times = np.array([float(value / per_second) for value in exact])
    return times if increasing(times) else None


def _without_number(rows: list[Words]) -> list[Words] | None:
    numbers = [float(row[0]) for row in rows]
    if any(number != round(number) or abs(number) > 2**53 for number in numbers):
        return None
    return [row[1:] for row in rows] if (np.diff(numbers) > 0).all() else None


def _kitti(rows: list[Words]) -> Truth | None:
    rest = _without_number(rows) if len(rows[0]) == 13 else rows
    return None if rest is None else settled(_values(rest).reshape(-1, 3, 4))


def _kitti360(rows: list[Words]) -> Truth | None:
    rest = _without_number(rows) if len(rows[0]) == 13 else rows
    if rest is None:
        return None
    truth = settled(_values(rest).reshape(-1, 3, 4))
    return None if truth is None else Truth(truth.R_world_cam @ _FRD, truth.center_world, truth.times)


def _tum(rows: list[Words]) -> Truth | None:
    values, times = _values(rows), _seconds(rows, 1, whole=False)
    if times is None or np.abs(values[:, 0]).max() > 1e14:
        return None
    return posed(turned(values[:, 4:8]), values[:, 1:4], times)


def _euroc(rows: list[Words]) -> Truth | None:
    values, times = _values(rows), _seconds(rows, 10**9, whole=True)
    return None if times is None else posed(turned(values[:, [5, 6, 7, 4]]), values[:, 1:4], times)


def _aria(rows: list[Words]) -> Truth | None:
    values, times = _values(rows), _seconds(rows, 10**6, whole=False)
    return None if times is None else posed(turned(values[:, 4:8]), values[:, 1:4], times)


def _realestate10k(rows: list[Words]) -> Truth | None:
    values, times = _values(rows), _seconds(rows, 10**6, whole=True)
    lens = values[:, 1:5]
    if times is None or (values[:, 5:7] != 0).any() or (lens > [20, 20, 1, 1]).any():
        return None
    if (lens[:, :2] <= 0).any() or (lens[:, 2:] < 0).any():
        return None
    return settled(values[:, 7:].reshape(-1, 3, 4), times, inverted=True)


TABLES = {
    "kitti": Table((12, 13), _kitti, matrix=0),
    "kitti360": Table((12, 13), _kitti360, matrix=0),
    "tum": Table((8,), _tum, stamped=True, first=1, quaternion=4, center=(1, 2, 3)),
    "euroc": Table((8,), _euroc, delimiter=",", stamped=True, first=1, quaternion=4, center=(1, 2, 3)),
    "realestate10k": Table(
        (19,), _realestate10k, header=1, stamped=True, first=7, matrix=7, center=(10, 14, 18)
    ),
    "aria": Table(
        (8,),
        _aria,
        delimiter=",",
        header=1,
        comments=False,
        stamped=True,
        first=1,
        quaternion=4,
        center=(1, 2, 3),
    ),
}


def meaning(format: str, seed: Seed, files: dict[str, bytes]) -> Truth | None:
    """What the bytes of a file mean by the format's definition, None for what is to be refused.

    A reader in a few lines of its own, for damage whose outcome only the bytes tell. It knows the files that the writers
    make and what becomes of them, no more.
    """
    table, (content,) = TABLES[format], files.values()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    lines = LINE_END.split(text)
    if "\0" in text or not text.strip():
        return None
    if table.comments is False:
        lines = [line for line in lines if line.strip()]
    head, lines = lines[: table.header], lines[table.header :]
    if table.header and not _is_header(format, head, seed):
        return None
    rows = []
    for line in lines:
        cut = line.split("#", 1)[0] if table.comments else line
        if not cut.strip():
            continue
        if table.delimiter is None:
            rows.append(cut.split() if "," not in cut else ["a comma"])
        else:
            cut = cut.strip().rstrip(",") if table.comments else cut
            rows.append([word.strip() for word in cut.split(",")])
    return of_words(table, rows)


def _is_header(format: str, head: list[str], seed: Seed) -> bool:
    if format == "realestate10k":
        return len(head[0].split()) == 1 and head[0].strip()[0] not in "{["
    first = next(iter(seed.files.values())).decode().splitlines()[0]
    return [name.strip() for name in head[0].split(",")] == first.split(",")


def of_words(table: Table, rows: list[Words]) -> Truth | None:
    """The poses of rows of words."""
    if not rows or len(rows[0]) not in table.columns or any(len(row) != len(rows[0]) for row in rows):
        return None
    if not all(NUMBER.fullmatch(word) and np.isfinite(float(word)) for row in rows for word in row):
        return None
    return table.meaning(rows)


def expected(truth: Truth | None) -> Expected:
    return REFUSED if truth is None else reads(truth)


def mutations(format: str, seed: Seed, rng: np.random.Generator) -> Iterator[Case]:
    """One case of every kind for this seed, each at a place that ``rng`` draws."""
    table = TABLES[format]
    ((name, content),) = seed.files.items()
    lines = content.decode().split("\n")[:-1]
    start = next(index for index, line in enumerate(lines) if index >= table.header and line[0] != "#")
    head, sep = lines[:start], table.delimiter or " "
    rows = [line.split(table.delimiter) for line in lines[start:]]
    row, column = int(rng.integers(len(rows))), int(rng.integers(len(rows[0])))
    pose = int(rng.integers(table.first, len(rows[0])))

    def text(changed: list[Words], *, end: str = "\n", between: str = sep) -> bytes:
        return "".join(line + end for line in [*head, *map(between.join, changed)]).encode()

    def case(mutation: str, body: bytes, outcome: Expected) -> Case:
        return Case(mutation, {name: body}, outcome)

    def words(mutation: str, changed: list[Words]) -> Case:
        """Rows that were changed, and what these words mean."""
        return case(mutation, text(changed), expected(of_words(table, changed)))

    def with_word(word: str, at: int) -> list[Words]:
        changed = [list(each) for each in rows]
        changed[row][at] = word
        return changed

    same = reads(seed.baseline)
    yield case("unchanged", content, same)
    yield case("byte order mark", b"\xef\xbb\xbf" + content, same)
    yield case(
        "two byte order marks",
        b"\xef\xbb\xbf" * 2 + content,
        REFUSED if not table.header else _twice(format, seed),
    )
    for label, end in (
        ("CR LF", "\r\n"),
        ("CR", "\r"),
        ("blank lines between", "\n\n"),
        ("blanks at the end", "  \n"),
    ):
        yield case(label, text(rows, end=end), same)
    ends = rng.choice(["\n", "\r\n", "\r", "\n\r\n"], size=len(lines))
    yield case(
        "mixed line ends", "".join(a + str(b) for a, b in zip(lines, ends, strict=True)).encode(), same
    )
    yield case("no line end at the end", content[:-1], same)
    yield case("blank lines behind", content + b"\n \n\t\n", same)
    if table.comments:
        yield case("comment lines", content + b"# 1 2 3 \xc3\xa9\n#\n", same)
        split = "# here\x0b1 2\x0c3\x85 4\u20285\n"
        yield case("separators of other kinds in a comment", content + split.encode(), same)
        yield case(
            "a comment behind each row", text([[*each[:-1], each[-1] + " # x"] for each in rows]), same
        )
        yield case("nothing but comments", b"# a\n# b\n", REFUSED)
    else:
        yield case("a comment line", content + b"# 1 2 3\n", REFUSED)
    yield case("tabs", text(rows, between="\t" if sep == " " else ",\t"), same)
    yield case("blanks in front", text([[" \t" + each[0], *each[1:]] for each in rows]), same)
    yield case(
        "plus signs", text([[f"+{w}" if w[0] not in "+-" else w for w in each] for each in rows]), same
    )
    yield case(
        "zeros in front", text([[f"00{w}" if w[0].isdigit() else w for w in each] for each in rows]), same
    )
    yield case("capital exponents", text([[w.replace("e", "E") for w in each] for each in rows]), same)
    spelled = [[w if i < table.first else f"{float(w):.17e}" for i, w in enumerate(each)] for each in rows]
    yield case("exponents everywhere", text(spelled), same)
    yield case("gzip", gzip.compress(content), same)
    yield case("gzip in two parts", gzip.compress(content[:40]) + gzip.compress(content[40:]), same)
    yield case("gzip twice", gzip.compress(gzip.compress(content)), REFUSED)
    packed = gzip.compress(content)
    yield case("gzip cut", packed[: int(rng.integers(3, len(packed)))], REFUSED)
    yield case("gzip with rubbish behind", packed + b"rubbish", REFUSED)
    yield case("empty", b"", REFUSED)
    yield case("blanks", b" \n\r\n\t", REFUSED)
    yield case("UTF-16", content.decode().encode("utf-16"), REFUSED)
    yield case("UTF-16 without mark", content.decode().encode("utf-16-be"), REFUSED)
    yield case("a zero byte", _inserted(content, b"\0", rng), REFUSED)
    yield case("zero bytes behind", content + bytes(4096), REFUSED)
    yield case("noise", rng.bytes(200) + b"\xff", REFUSED)
    yield case("a long line in front", b"x" * 2**20 + b" y\n" + content, REFUSED)
    yield case(
        "ten thousand columns", b"1 " * 10**4 + b"\n" if sep == " " else b"1," * 10**4 + b"1\n", REFUSED
    )
    for word in NO_NUMBERS:
        at = int(rng.integers(len(rows[0])))
        yield case(f"a number is {word[:12]}", text(with_word(word, at)), REFUSED)
    yield words("one column less in a row", [w[:-1] if i == row else w for i, w in enumerate(rows)])
    yield words("one column more in a row", [[*w, "0"] if i == row else w for i, w in enumerate(rows)])
    yield words("one column less", [w[:column] + w[column + 1 :] for w in rows])
    yield words("one column more", [[*w[:column], "0.5", *w[column:]] for w in rows])
    yield words("columns swapped", [[*w[1:], w[0]] for w in rows])
    yield words("a row twice", [*rows[: row + 1], *rows[row:]])
    yield words("rows in another order", [rows[i] for i in rng.permutation(len(rows))])
    yield words("rows reversed", rows[::-1])
    yield words("a row less", rows[:row] + rows[row + 1 :])
    yield case("decimal commas", content.replace(b".", b","), REFUSED)
    if table.delimiter is None:
        yield case("commas", text(rows, between=","), REFUSED)
    else:
        yield case("blanks for commas", text(rows, between=" "), REFUSED)
        yield case("semicolons", text(rows, between=";"), REFUSED)
    for value in (
        "1e308",
        "-1e308",
        "1e200",
        "1e154",
        "5e-324",
        "-0.0",
        "0",
        "1",
        "-1",
        "2",
        "123456789.125",
    ):
        yield words(f"a pose's number is {value}", with_word(value, pose))
    yield words("a centre's number is huge", with_word("1e300", int(rng.choice(table.center))))
    flipped = with_word(_negated(rows[row][pose]), pose)
    yield words("a sign changed", flipped)
    digit = _other_digit(rows[row][column], rng)
    yield words("a digit changed", with_word(digit, column))
    yield from _turned_rows(table, rows, words)


def _turned_rows(
    table: Table, rows: list[Words], words: Callable[[str, list[Words]], Case]
) -> Iterator[Case]:
    """Rotations that are scaled, mirrored, transposed or in another order of components."""

    def each(change: Callable[[np.ndarray], np.ndarray], first: int, count: int) -> list[Words]:
        return [
            [
                *row[:first],
                *map(repr, change(np.array(row[first : first + count], float)).tolist()),
                *row[first + count :],
            ]
            for row in rows
        ]

    if table.matrix is not None:

        def matrix(change: Callable[[np.ndarray], np.ndarray]) -> list[Words]:
            def changed(values: np.ndarray) -> np.ndarray:
                part = values.reshape(3, 4).copy()
                part[:, :3] = change(part[:, :3])
                return part.reshape(-1)

            return each(changed, table.matrix or 0, 12)

        yield words("rotations scaled", matrix(lambda R: R * 1.01))
        yield words("rotations scaled within the tolerance", matrix(lambda R: R * (1 + 1e-4)))
        yield words("rotations mirrored", matrix(lambda R: R * [1, -1, 1]))
        yield words("rotations negated", matrix(lambda R: -R))
        yield words("rotations transposed", matrix(lambda R: R.T.copy()))
        yield words("rotations all zero", matrix(lambda R: R * 0))
    if table.quaternion is not None:
        first = table.quaternion
        yield words("quaternions in another order", each(lambda q: np.roll(q, 1), first, 4))
        yield words("quaternions negated", each(lambda q: -q, first, 4))
        yield words("quaternions of length 1.01", each(lambda q: q * 1.01, first, 4))
        yield words("quaternions of length 1.0005", each(lambda q: q * 1.0005, first, 4))
        yield words("quaternions of zero", each(lambda q: q * 0, first, 4))
        yield words("quaternions of 1e300", each(lambda q: q * 1e300, first, 4))


def _inserted(content: bytes, part: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(content) + 1))
    return content[:at] + part + content[at:]


def _negated(word: str) -> str:
    return word[1:] if word[0] == "-" else f"-{word}"


def _other_digit(word: str, rng: np.random.Generator) -> str:
    places = [index for index, letter in enumerate(word) if letter.isdigit()]
    at = int(rng.choice(places))
    return word[:at] + str((int(word[at]) + int(rng.integers(1, 10))) % 10) + word[at + 1 :]


def _twice(format: str, seed: Seed) -> Expected:
    # A mark before the address of a video is a part of that word, which stands for any one; a name of a column is no other.
    return reads(seed.baseline) if format == "realestate10k" else REFUSED
