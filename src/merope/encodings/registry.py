"""Encodings by name, to and from plain JSON values: what is stored beside weights."""

import dataclasses
from typing import Any, cast, get_args, get_type_hints

from merope.encodings.base import CameraEncoding
from merope.encodings.merope import MeRoPE
from merope.encodings.native import Native, NoEncoding

ENCODINGS: dict[str, type] = {
    "merope": MeRoPE,
    "native": Native,
    "none": NoEncoding,
}
"""Every encoding by the name that configs, checkpoints and the command line use."""


def encoding_to_config(encoding: CameraEncoding) -> dict[str, Any]:
    """Name and options of an encoding as JSON values; layouts are stored resolved."""
    for name, kind in ENCODINGS.items():
        if type(encoding) is kind:
            options = dataclasses.asdict(cast(Any, encoding))
            if "layout" in options:
                options["layout"] = dataclasses.asdict(cast(Any, encoding).resolved_layout)
            return {"name": name, **_plain(options)}
    raise TypeError(f"{type(encoding).__name__} is not a registered encoding; known are {sorted(ENCODINGS)}.")


def encoding_from_config(config: dict[str, Any]) -> CameraEncoding:
    """The inverse of `encoding_to_config`.

    Raises:
        ValueError: if the name or an option is unknown.
    """
    options = dict(config)
    name = options.pop("name", None)
    if name not in ENCODINGS:
        raise ValueError(f"unknown encoding {name!r}; known are {sorted(ENCODINGS)}.")
    return _made(ENCODINGS[name], options, f"encoding {name!r}")


def _made(kind: Any, options: dict[str, Any], what: str) -> Any:
    """An instance of a dataclass from JSON values, nested dataclasses, tuples and sets included."""
    unknown = sorted(set(options) - set(kind.__dataclass_fields__))
    if unknown:
        raise ValueError(f"{what} has no options {unknown}; it has {sorted(kind.__dataclass_fields__)}.")
    hints = get_type_hints(kind)
    return kind(**{name: _typed(hints[name], value, f"{what}: {name}") for name, value in options.items()})


def _typed(hint: Any, value: Any, what: str) -> Any:
    for choice in (hint, *get_args(hint)):
        if isinstance(value, dict) and dataclasses.is_dataclass(choice):
            return _made(choice, value, what)
    if isinstance(value, list):
        return frozenset(value) if "frozenset" in str(hint) else tuple(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, (tuple, list)):
        return [_plain(inner) for inner in value]
    return value
