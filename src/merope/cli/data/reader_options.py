"""Which data sets a command can read, and the options of their readers as NAME=VALUE."""

import types
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from merope.cli.telling import tell_first
from merope.cli.usage import UsageError

if TYPE_CHECKING:
    from merope.data.datasets import ClipSet

Reader = Literal["folder", "videos", "realestate10k", "kitti_odometry", "nuscenes", "panshot", "panorama"]


def reader_options(reader: Reader, given: Sequence[str]) -> dict[str, Any]:
    """The values of options written as NAME=VALUE, in the types of the reader's own.

    Raises:
        UsageError: if one is not written so, is none of the reader's, stands twice, or has a value of another type.
    """
    from merope.data.datasets import DATASETS

    kind = DATASETS[reader].options
    known = {each.name: get_type_hints(kind)[each.name] for each in fields(kind)}
    values: dict[str, Any] = {}
    for pair in given:
        name, sign, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not sign:
            raise UsageError(f"--option takes NAME=VALUE; got {pair!r}.")
        if name not in known:
            raise UsageError(
                f"--option {pair!r}: {reader} has no option {name!r}; its options are {', '.join(known) or '(none)'}. "
                "`merope data readers` says what they mean."
            )
        if name in values:
            raise UsageError(f"--option {name} is given twice.")
        values[name] = _value(name, text, known[name])
    return values


def tell_notes(sets: "Sequence[ClipSet]") -> None:
    """Print what readers say of their clips: what they left out and why."""
    notes = [note for clips in sets for note in clips.notes]
    tell_first("note", notes, rest="more like these (ClipSet.notes)")


def type_in_words(kind: Any) -> str:
    """What may be written for an option of this type."""
    if get_origin(kind) is Literal:
        return " | ".join(get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return " | ".join(type_in_words(part) for part in get_args(kind) if part is not types.NoneType)
    return {str: "text", int: "whole number", float: "number", bool: "yes | no"}[kind]


def _value(name: str, text: str, kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        # One type or None, which is what leaving the option out says.
        kind = next(part for part in get_args(kind) if part is not types.NoneType)
    if get_origin(kind) is Literal and text in get_args(kind):
        return text
    if kind is str:
        return text
    if kind is bool and text.lower() in ("yes", "no", "true", "false"):
        return text.lower() in ("yes", "true")
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    raise UsageError(f"--option {name} takes {type_in_words(kind)}; got {text!r}.")
