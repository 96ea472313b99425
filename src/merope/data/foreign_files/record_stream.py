"""Tables in JSON, a list of records, read one record at a time: the largest have millions."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from merope.data.foreign_files.strict_json import unique_names
from merope.data.poses.table import PoseFileError
from merope.files import require_file

_CHUNK = 2**20
# Characters of a record beyond which the file is taken for damaged and not read to its end in search of a bracket.
_LONGEST_RECORD = 2**24
# Bytes from which a file takes long enough for a bar.
_LARGE = 2**26
_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Record:
    """One object of a table, with its place for error messages."""

    path: Path
    entry: int
    values: dict[str, Any]

    def error(self, reason: str) -> PoseFileError:
        """An error that names the file and the entry."""
        return PoseFileError(f"{self.path}, entry {self.entry}: {reason}.")

    def text(self, name: str) -> str:
        """A field that is a string."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self.error(f"{name!r} must be a string, got {value!r:.60}")
        # JSON can spell half a character, which no file name and no terminal takes.
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self.error(f"{name!r} holds half a character: {value!r:.60}")
        return value

    def number(self, name: str) -> float:
        """A field that is a finite number."""
        return self._finite(name, self.values.get(name))

    def numbers(self, name: str, count: int) -> list[float]:
        """A field that is a list of so many finite numbers."""
        values = self.values.get(name)
        if not isinstance(values, list) or len(values) != count:
            raise self.error(f"{name!r} must be a list of {count} numbers, got {values!r:.60}")
        return [self._finite(name, value) for value in values]

    def flag(self, name: str) -> bool:
        """A field that is true or false."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self.error(f"{name!r} must be true or false, got {value!r:.60}")
        return value

    def quaternion(self, name: str) -> list[float]:
        """A field that is a quaternion w, x, y, z of unit length to 1e-3."""
        values = self.numbers(name, 4)
        length = math.hypot(*values)
        if abs(length - 1) > 1e-3:
            raise self.error(f"{name!r} must be a unit quaternion w, x, y, z; its length is {length:.4g}")
        return values

    def _finite(self, name: str, value: Any) -> float:
        try:
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
        raise self.error(f"{name!r} must hold finite numbers, got {value!r:.60}")


def read_records(path: Path) -> Iterator[Record]:
    """The objects of a JSON list, in order; a bar shows how far a large file is read.

    Raises:
        PoseFileError: if the file is missing or no list of objects, with the entry where it ends being one.
    """
    entry = 0
    try:
        size = require_file(path)
        with (
            path.open(encoding="utf-8-sig") as file,
            tqdm(
                total=size,
                desc=path.name,
                unit="B",
                unit_scale=True,
                leave=False,
                # None: shown on a terminal alone.
                disable=None if size >= _LARGE else True,
            ) as bar,
        ):
            text = _Text(file, bar)
            _require(path, entry, text.mark(), "[")
            mark = text.mark()
            while mark != "]" or entry:
                _require(path, entry, mark, "{")
                yield Record(path, entry, text.object())
                entry += 1
                mark = text.mark()
                if mark == "]":
                    break
                _require(path, entry, mark, ",")
                mark = text.mark()
            _require(path, entry, text.mark(), "")
    except (FileNotFoundError, IsADirectoryError):
        raise PoseFileError(f"{path} does not exist.") from None
    except OSError as error:
        raise PoseFileError(f"{path} cannot be read: {error.strerror}.") from None
    # Numbers of thousands of digits and brackets nested by the thousand have errors of their own.
    except (ValueError, RecursionError) as error:
        raise PoseFileError(f"{path}, entry {entry} is not JSON: {error!s:.200}.") from None


def _require(path: Path, entry: int, mark: str, wanted: str) -> None:
    if mark != wanted:
        raise PoseFileError(
            f"{path} is no JSON list of records: at entry {entry} {repr(wanted) if wanted else 'the end'} should stand, not "
            f"{repr(mark) if mark else 'the end of the file'}. Is the file complete?"
        )


class _Text:
    """A text that is read as far as it is needed."""

    def __init__(self, file: TextIO, bar: "tqdm[Any]") -> None:
        self._file, self._bar = file, bar
        self._text, self._at = "", 0
        self._decoder = json.JSONDecoder(object_pairs_hook=unique_names)

    def mark(self) -> str:
        """The next character that is no blank, "" at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = self._at if blank is None else blank.end()
            if self._at < len(self._text):
                self._at += 1
                return self._text[self._at - 1]
            if not self._read():
                return ""

    def object(self) -> dict[str, Any]:
        """The object whose opening brace was the last mark."""
        self._at -= 1
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
                return dict(value)
            except json.JSONDecodeError:
                # Perhaps the object goes on in what was not read yet.
                if len(self._text) - self._at > _LONGEST_RECORD or not self._read():
                    raise

    def _read(self) -> bool:
        chunk = self._file.read(_CHUNK)
        self._text, self._at = self._text[self._at :] + chunk, 0
        self._bar.update(len(chunk))
        return bool(chunk)
