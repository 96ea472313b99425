"""Encodings by name, to and from plain JSON values: what is stored beside weights."""

import dataclasses
import difflib
from importlib import import_module
from typing import Any, get_args, get_type_hints

from merope.encodings.base import CameraEncoding
from merope.encodings.latitude_up import LatitudeUpMap
from merope.encodings.scale import TranslationScale


def _kind(module: str, name: str) -> Any:
    return getattr(import_module(f"merope.encodings.{module}"), name)


ENCODINGS: dict[str, Any] = {
    "cameractrl": _kind("cameractrl", "CameraCtrl"),
    "cape": _kind("cape", "CaPE"),
    "crepe": _kind("crepe", "CRePE"),
    "distance-decay": _kind("distance_decay", "DistanceDecay"),
    "gta": _kind("gta", "GTA"),
    "merope": _kind("merope", "MeRoPE"),
    "native": _kind("native", "Native"),
    "none": _kind("native", "NoEncoding"),
    "prope": _kind("prope", "PRoPE"),
    "raynova": _kind("raynova", "RayNova"),
    "rayrope": _kind("rayrope", "RayRoPE"),
    "recammaster": _kind("recammaster", "ReCamMaster"),
    "rerope": _kind("rerope", "ReRoPE"),
    "rerope-merope": _kind("rerope", "CarvedMeRoPE"),
    "scope": _kind("scope", "SCoPE"),
    "ucpe": _kind("ucpe", "UCPE"),
    "urope": _kind("urope", "URoPE"),
    "viewrope": _kind("viewrope", "ViewRope"),
}
"""Every encoding by the name that configs, checkpoints and the command line use."""


INPUT_MAPS: dict[str, Any] = {
    "latitude-up": LatitudeUpMap,
}
"""Absolute maps that a branch's input may carry beside an encoding, by name."""


def default_encoding(
    name: str, *, head_dim: int, num_heads: int, scale: TranslationScale | None = None
) -> CameraEncoding:
    """The encoding of this name with its defaults, for a given attention.

    ``num_heads`` reaches encodings that tell heads apart, ``scale`` those in which metres enter linearly.

    Raises:
        ValueError: if the name is unknown, or the head size does not fit.
    """
    kind = _known(ENCODINGS, name, "encoding")
    given = {"head_dim": head_dim, "num_heads": num_heads, "scale": scale}
    fields = _fields(kind)
    return kind(**{key: value for key, value in given.items() if key in fields and value is not None})


def encoding_kind(name: str) -> Any:
    """The class of this name.

    Raises:
        ValueError: if the name is unknown.
    """
    return _known(ENCODINGS, name, "encoding")


def encoding_to_config(encoding: CameraEncoding) -> dict[str, Any]:
    """Name and options of an encoding as JSON values, with what its defaults stand for in place of None."""
    return _to_config(ENCODINGS, encoding, "encoding")


def encoding_from_config(config: dict[str, Any]) -> CameraEncoding:
    """The inverse of `encoding_to_config`.

    Raises:
        ValueError: if the name or an option is unknown.
    """
    return _from_config(ENCODINGS, config, "encoding")


def input_map_to_config(input_map: Any) -> dict[str, Any]:
    """Name and options of a branch's input map as JSON values."""
    return _to_config(INPUT_MAPS, input_map, "input map")


def input_map_from_config(config: dict[str, Any]) -> Any:
    """The inverse of `input_map_to_config`.

    Raises:
        ValueError: if the name or an option is unknown.
    """
    return _from_config(INPUT_MAPS, config, "input map")


def _to_config(kinds: dict[str, Any], made: Any, what: str) -> dict[str, Any]:
    for name, kind in kinds.items():
        if type(made) is kind:
            options = {
                field: getattr(made, f"resolved_{field}", getattr(made, field)) for field in _fields(kind)
            }
            return {"name": name, **_plain(options)}
    raise TypeError(f"{type(made).__name__} is not a registered {what}; known are {sorted(kinds)}.")


def _from_config(kinds: dict[str, Any], config: dict[str, Any], what: str) -> Any:
    options = dict(config)
    name = options.pop("name", None)
    return _made(_known(kinds, name, what), options, f"{what} {name!r}")


def _known(kinds: dict[str, Any], name: Any, what: str) -> Any:
    if name not in kinds:
        close = difflib.get_close_matches(name.lower(), kinds, n=1) if isinstance(name, str) else []
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown {what} {name!r}; known are {sorted(kinds)}.{hint}")
    return kinds[name]


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


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, (tuple, list)):
        return [_plain(inner) for inner in value]
    return value
