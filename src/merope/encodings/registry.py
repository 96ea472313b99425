"""Encodings by name, to and from plain JSON values: what is stored beside weights."""

from dataclasses import asdict
from typing import Any, cast

from merope.encodings.base import CameraEncoding
from merope.encodings.merope import HeadLayout, MeRoPE
from merope.encodings.native import Native

ENCODINGS: dict[str, type] = {"merope": MeRoPE, "native": Native}
"""Every encoding by the name that configs, checkpoints and the command line use."""


def encoding_to_config(encoding: CameraEncoding) -> dict[str, Any]:
    """Name and options of an encoding as JSON values; layouts are stored resolved."""
    for name, kind in ENCODINGS.items():
        if type(encoding) is kind:
            options = asdict(cast(Any, encoding))
            if isinstance(encoding, MeRoPE):
                options["layout"] = asdict(encoding.resolved_layout)
                options["components"] = sorted(encoding.components)
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
    kind: Any = ENCODINGS[name]
    unknown = sorted(set(options) - set(kind.__dataclass_fields__))
    if unknown:
        raise ValueError(
            f"encoding {name!r} has no options {unknown}; it has {sorted(kind.__dataclass_fields__)}."
        )
    if options.get("layout") is not None:
        layout = options["layout"]
        options["layout"] = HeadLayout(**{**layout, "native": tuple(layout["native"])})
    if "components" in options:
        options["components"] = frozenset(options["components"])
    for key, value in options.items():
        if isinstance(value, list):
            options[key] = tuple(value)
    return kind(**options)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [_plain(inner) for inner in value]
    return value
