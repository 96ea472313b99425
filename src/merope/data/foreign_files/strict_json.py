"""JSON from files that others wrote: what Python's parser would read by a guess or by luck is refused."""

import json
from typing import Any


class RepeatedName(ValueError):
    """A name stands twice in one object, and the parser would take the later value."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the name {name[:60]!r} stands twice in one object, and which one counts is not said. Remove one"
        )
        self.name = name


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: if it is no JSON, has a name twice in an object, or is nested too deeply; without a full stop.
    """
    try:
        return json.loads(text, object_pairs_hook=unique_names)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object, for ``object_pairs_hook``.

    Raises:
        RepeatedName: if two have one name.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        seen = set()
        for name, _ in pairs:
            if name in seen:
                raise RepeatedName(name)
            seen.add(name)
    return members
