"""Lists that users point to: names of scenes or clips, and captions."""

import csv
import io
from pathlib import Path
from typing import Any

from merope.data.datasets.files import read_captions
from merope.data.foreign_files.strict_json import parse_json
from merope.data.poses.table import lines_of, read_text
from merope.errors import MeropeError


def read_names(path: Path, *, part: str | None = None) -> tuple[str, ...]:
    """Names in a file, each once: one a line, a JSON list, or an object of lists of which ``part`` names one, such as "val".

    Raises:
        MeropeError: if the file is missing, holds no names, or holds several lists and ``part`` is none of them.
    """
    text = read_text(path)
    content: Any = [line.strip() for line in lines_of(text)]
    content = [line for line in content if line and not line.startswith("#")]
    if text.lstrip()[:1] in ("[", "{"):
        try:
            content = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise MeropeError(f"{path} is not JSON: {error!s:.200}.") from None
    if isinstance(content, dict):
        if part not in content:
            raise MeropeError(
                f"{path} holds the lists {', '.join(map(repr, sorted(content)[:12]))}; name one (--option split=NAME)."
            )
        content = content[part]
    elif part is not None:
        raise MeropeError(f"{path} holds one list, so there is no split {part!r} in it. Leave split out.")
    if not (isinstance(content, list) and content and all(isinstance(name, str) for name in content)):
        raise MeropeError(f"{path} must hold names: one a line, or a JSON list of strings.")
    return tuple(dict.fromkeys(content))


def read_caption_file(path: Path) -> dict[str, str]:
    """Captions by name, from a JSON object or from a CSV table whose first line is "name,caption".

    Raises:
        MeropeError: if the file is neither, or a name stands twice in a table.
    """
    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        return read_captions(path)
    try:
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except csv.Error as error:
        raise MeropeError(f"{path} is no CSV table: {error}.") from None
    if rows[0] != ["name", "caption"]:
        raise MeropeError(
            f'{path} must be a JSON object of captions by name, or a CSV table whose first line is "name,caption"; '
            f"its first line is {','.join(rows[0])!r:.60}."
        )
    captions: dict[str, str] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2 or row[0] in captions:
            wrong = f"{len(row)} columns" if len(row) != 2 else f"{row[0]!r} a second time"
            raise MeropeError(f"{path}, row {number} has {wrong}; each row is a name and a caption.")
        captions[row[0]] = " ".join(row[1].split())
    return captions
