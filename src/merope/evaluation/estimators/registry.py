"""Estimators by name: `ESTIMATORS` says what each one needs, `build_estimator` makes one from words of a command line."""

import dataclasses
import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from merope.evaluation.estimators.base import PoseEstimator, Scale

# Set by arguments of their own, or by what the estimator is.
_NOT_OPTIONS = ("name", "weights", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorEntry:
    """One estimator of the table, described without importing it."""

    summary: str
    """What it is and what it is for, one line."""
    home: str
    """Module and class, "package.module:Class"; it is imported when the estimator is built."""
    extra: str | None
    """What to install for it, an extra of this project or a package; None where the core has all of it."""
    scale: Scale
    weights: Literal["none", "included", "needed"]
    """Whether it has learned weights: none, included (a path replaces them), or needed as a path."""
    devices: tuple[str, ...] = ("cpu",)
    """Kinds of devices it runs on."""


ESTIMATORS: dict[str, EstimatorEntry] = {
    "colmap": EstimatorEntry(
        summary="SIFT and global structure from motion through pycolmap; any lens, no learned weights",
        home="merope.evaluation.estimators.colmap.estimator:ColmapEstimator",
        extra="merope[eval]",
        scale="up_to_scale",
        weights="none",
    ),
    "network": EstimatorEntry(
        summary="small network for clips of the procedural street, in metres; other lenses are resampled into its own",
        home="merope.evaluation.estimators.motion_network.resampled:ResampledNetworkEstimator",
        extra=None,
        scale="metric",
        weights="included",
    ),
    "xfeat": EstimatorEntry(
        summary="XFeat features and a robust two-view solver, chained over frames",
        home="merope.evaluation.estimators.features.xfeat:XFeatEstimator",
        extra="merope[eval]",
        scale="up_to_scale",
        weights="included",
        devices=("cpu", "cuda"),
    ),
    "vggt": EstimatorEntry(
        summary="VGGT, all frames in one pass",
        home="merope.evaluation.estimators.learned.vggt:VGGTEstimator",
        extra="vggt",
        scale="up_to_scale",
        weights="needed",
        devices=("cpu", "cuda"),
    ),
    "vggt-omega": EstimatorEntry(
        summary="VGGT-Omega, the paper's estimator, all frames in one pass",
        home="merope.evaluation.estimators.learned.vggt_omega:VGGTOmegaEstimator",
        extra="vggt_omega",
        scale="up_to_scale",
        weights="needed",
        devices=("cpu", "cuda"),
    ),
    "depth-anything-3": EstimatorEntry(
        summary="Depth Anything 3, all frames in one pass; in metres with its nested checkpoint",
        home="merope.evaluation.estimators.learned.depth_anything_3:DepthAnything3Estimator",
        extra="depth-anything-3",
        scale="up_to_scale",
        weights="needed",
        devices=("cpu", "cuda"),
    ),
}


def build_estimator(
    name: str, *, weights: Path | None = None, device: str = "cpu", options: Sequence[str] = ()
) -> PoseEstimator:
    """The estimator called ``name``, with ``options`` of the form "field=value" for the fields of its class.

    Nothing is imported but the estimator asked for.

    Raises:
        ValueError: if the name, an option or its value is unknown (the closest known one is named), if ``weights`` are
            given to an estimator that has none or missing where they are needed, or if it does not run on ``device``.
        MissingDependency: if the package that the estimator calls is not installed, as soon as it is needed.
    """
    entry = _known(name)
    if entry.weights == "none" and weights is not None:
        raise ValueError(f"estimator {name!r} has no learned weights; got weights {weights}. Leave them out.")
    if entry.weights == "needed" and weights is None:
        raise ValueError(
            f"estimator {name!r} needs weights: the path of a file or folder that you downloaded (--weights PATH). "
            "docs/estimators.md says where from and under which licence."
        )
    if device.split(":")[0] not in entry.devices:
        raise ValueError(f"estimator {name!r} runs on {' or '.join(entry.devices)}, got device {device!r}.")
    module, _, class_name = entry.home.partition(":")
    kind: Any = getattr(importlib.import_module(module), class_name)
    if not hasattr(kind, "__dataclass_fields__"):
        if options:
            raise ValueError(f"estimator {name!r} has no options, got {list(options)}.")
        return kind.load(weights)  # type: ignore[no-any-return]
    values = parse_options(kind, options, what=f"estimator {name!r}")
    for argument, value in (("weights", weights), ("device", device)):
        if argument in kind.__dataclass_fields__:
            values[argument] = value
    return kind(**values)  # type: ignore[no-any-return]


def parse_options(kind: Any, options: Sequence[str], *, what: str) -> dict[str, Any]:
    """Values for fields of the dataclass ``kind`` from "field=value" words; ``what`` names it in errors.

    A field of a plain type (bool, int, float, str, a path, one of several words, or None) can be set.

    Raises:
        ValueError: if a word has no "=", comes twice, names no such field, or holds no value of the field's type.
    """
    hints = get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    known = [field for field in fields if field not in _NOT_OPTIONS]
    values: dict[str, Any] = {}
    for word in options:
        field, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"options of {what} have the form field=value, got {word!r}.")
        if field not in known:
            close = difflib.get_close_matches(field, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{what} has no option {field!r}; it has {', '.join(known) or 'none'}.{hint}")
        if field in values:
            raise ValueError(f"option {field!r} of {what} is given twice.")
        values[field] = _parsed(hints[field], text, f"option {field!r} of {what}")
    return values


def _known(name: str) -> EstimatorEntry:
    if name not in ESTIMATORS:
        close = difflib.get_close_matches(name.lower().replace("_", "-"), ESTIMATORS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown estimator {name!r}; known are {', '.join(ESTIMATORS)}.{hint}")
    return ESTIMATORS[name]


def _parsed(hint: Any, text: str, what: str) -> Any:
    choices = list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]
    if NoneType in choices and text.lower() == "none":
        return None
    words = [word for choice in choices if get_origin(choice) is Literal for word in get_args(choice)]
    if text in words:
        return text
    if bool in choices:
        words += ["true", "false"]
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
    for choice in (int, float):
        if choice in choices:
            try:
                return choice(text)
            except ValueError:
                continue
    if str in choices:
        return text
    if Path in choices:
        return Path(text)
    if words:
        close = difflib.get_close_matches(text.lower(), words, n=1)
        hint_text = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{what} must be one of {', '.join(words)}, got {text!r}.{hint_text}")
    wanted = " or ".join(
        getattr(choice, "__name__", str(choice)) for choice in choices if choice is not NoneType
    )
    raise ValueError(f"{what} must be of type {wanted}, got {text!r}.")
