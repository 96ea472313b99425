"""JSON pose files: every value is asked for by its type, and every complaint names the file and the place in it."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from merope.data.foreign_files.strict_json import RepeatedName, parse_json
from merope.data.poses.formats.recognition import first_bytes
from merope.data.poses.table import PoseFileError, read_text


@dataclass(frozen=True, slots=True)
class Entry:
    """A value in a JSON file and its place, such as ``frames[3].pose.rotation``."""

    path: Path
    place: str
    value: Any

    @property
    def where(self) -> str:
        """File and place, for messages."""
        return f"{self.path}, {self.place}" if self.place else str(self.path)

    def refused(self, wanted: str) -> PoseFileError:
        """The error that this value is not what was wanted."""
        return PoseFileError(f"{self.where} must be {wanted}, got {_shown(self.value)}.")

    def __getitem__(self, key: str) -> "Entry":
        """A member of an object that has to be there."""
        found = self.find(key)
        if found is None:
            names = ", ".join(name[:40] for name, _ in self.members()[:12]) or "nothing"
            raise PoseFileError(f"{self.where} has no {key!r}; it holds {names}.")
        return found

    def find(self, key: str) -> "Entry | None":
        """A member of an object, None where it is missing or null."""
        value = self.object().get(key)
        return None if value is None else self._member(key, value)

    def members(self) -> list[tuple[str, "Entry"]]:
        """All members of an object, by name, in the file's order."""
        return [(key, self._member(key, value)) for key, value in self.object().items()]

    def items(self) -> list["Entry"]:
        """The elements of a list, which has at least one."""
        if not isinstance(self.value, list) or not self.value:
            raise self.refused("a list with at least one element")
        return [Entry(self.path, self._element(index), value) for index, value in enumerate(self.value)]

    def object(self) -> dict[str, Any]:
        """An object as it is."""
        if not isinstance(self.value, dict):
            raise self.refused("an object")
        return self.value

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            raise self.refused("a text")
        # JSON can spell half a character, which no file name and no terminal takes.
        if not self.value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in self.value):
            raise self.refused("a text of whole characters")
        return self.value

    def number(self) -> float:
        """A finite number."""
        return float(self.numbers())

    def whole(self) -> int:
        """A whole number."""
        number = self.number()
        if not number.is_integer():
            raise self.refused("a whole number")
        return int(number)

    def numbers(self, *shape: int) -> Float[np.ndarray, "..."]:
        """Finite numbers in nested lists of this shape; none is a single number."""
        flat: list[float] = []
        if not _flatten(self.value, shape, flat):
            sizes = " x ".join(map(str, shape))
            raise self.refused(f"{sizes} numbers" if shape else "a number")
        if not all(map(math.isfinite, flat)):
            raise PoseFileError(
                f"{self.where} holds a value that is not finite, or beyond 1.8e308. Remove frames without a pose."
            )
        return np.asarray(flat, dtype=np.float64).reshape(shape)

    def matrix(self) -> Float[np.ndarray, "3 4"]:
        """A transform, 3 x 4 or 4 x 4 with the last row 0 0 0 1."""
        if not (isinstance(self.value, list) and len(self.value) == 4):
            return self.numbers(3, 4)
        matrix = self.numbers(4, 4)
        if np.abs(matrix[3] - [0, 0, 0, 1]).max() > 1e-6:
            raise PoseFileError(
                f"{self.where}: the last row must be 0 0 0 1, got {matrix[3].tolist()}. "
                "A translation there means a transposed matrix."
            )
        return matrix[:3]

    def _element(self, index: int) -> str:
        return f"{self.place}[{index}]" if self.place else f"entry {index}"

    def _member(self, key: str, value: Any) -> "Entry":
        return Entry(self.path, f"{self.place}.{key}" if self.place else key, value)


def read_json(path: Path) -> Entry:
    """The content of a JSON file.

    Raises:
        PoseFileError: if it is no JSON, is nested too deeply, or has one name twice in an object.
    """
    try:
        return Entry(path, "", parse_json(read_text(path)))
    except RepeatedName as repeated:
        raise PoseFileError(
            f"{path} has the name {repeated.name[:60]!r} twice in one object, and which one counts is not said. Remove one."
        ) from None
    except ValueError as error:
        raise PoseFileError(
            f"{path} is not JSON: {error}. `merope poses inspect` says which format it may be."
        ) from None


def json_glimpse(path: Path) -> str:
    """The beginning of a JSON file for `recognise`; empty where it is something else. It never raises."""
    text = first_bytes(path).decode("utf-8-sig", errors="ignore").lstrip()
    return text if text[:1] in ("{", "[") else ""


def _flatten(value: Any, shape: tuple[int, ...], flat: list[float]) -> bool:
    """Whether the value is nested lists of numbers of this shape; collects them."""
    if not shape:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        try:
            flat.append(float(value))
        except OverflowError:
            flat.append(math.inf)
        return True
    if not isinstance(value, list) or len(value) != shape[0]:
        return False
    return all(_flatten(element, shape[1:], flat) for element in value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."
