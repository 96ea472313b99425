"""Adapter files: an adapter's weights as one safetensors file, their configuration in its metadata."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from merope.adapters.spec import VideoSpec
from merope.adapters.wan import CameraAdapter, attach
from merope.encodings.base import CameraEncoding
from merope.encodings.registry import (
    encoding_from_config,
    encoding_to_config,
    input_map_from_config,
    input_map_to_config,
)
from merope.errors import CheckpointMismatch
from merope.files import atomic_path

_FORMAT = "merope-adapter-1"


def save_adapter(
    path: str | Path,
    adapter: CameraAdapter,
    *,
    dtype: torch.dtype = torch.float32,
    summary: dict[str, Any] | None = None,
    spec: VideoSpec | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the branches to ``path``, with what they were trained for.

    ``summary`` (steps, data, loss) and ``spec`` (sizes, frames, lens) are stored beside the configuration. ``tensors``
    takes the place of `adapter_tensors`: averaged weights, or whole ones where the adapter holds a process's part alone.
    The file is written under a temporary name and renamed.

    Raises:
        ValueError: if ``spec`` takes another pose of a latent frame than the adapter.
    """
    if spec is not None and spec.pose_policy != adapter.pose_policy:
        raise ValueError(
            f"spec takes the {spec.pose_policy!r} pose of a latent frame, the adapter {adapter.pose_policy!r}; "
            "give attach and the spec the same pose_policy."
        )
    tensors = {
        name: value.detach().to("cpu", dtype).contiguous()
        for name, value in (adapter_tensors(adapter) if tensors is None else tensors).items()
    }
    described = {"config": adapter_config(adapter), "summary": summary or {}}
    if spec is not None:
        described["spec"] = spec.to_dict()
    metadata = {name: json.dumps(value) for name, value in described.items()}
    write_safetensors(path, tensors, {"format": _FORMAT, **metadata})


def adapter_tensors(adapter: CameraAdapter) -> dict[str, Tensor]:
    """The adapter's weights by the names that they have in its file, "BLOCK.NAME"."""
    return {
        f"{block}.{name}": value
        for block, branch in adapter.branches.items()
        for name, value in branch.state_dict().items()
    }


def adapter_config(adapter: CameraAdapter) -> dict[str, Any]:
    """All that must agree between an adapter file and the model it is loaded into, as JSON values."""
    base = adapter.transformer.config
    return {
        "encoding": encoding_to_config(adapter.encoding),
        "compression": adapter.compression,
        "blocks": list(adapter.blocks),
        "pose_policy": adapter.pose_policy,
        "input_map": None if adapter.input_map is None else input_map_to_config(adapter.input_map),
        "qk_norm": "none",
        "base": {
            "num_layers": base.num_layers,
            "num_attention_heads": base.num_attention_heads,
            "attention_head_dim": base.attention_head_dim,
        },
    }


def read_adapter_config(path: str | Path) -> dict[str, Any]:
    """The configuration, summary and spec in an adapter file, without its weights.

    ``"spec"`` is None where none was stored; `VideoSpec.from_dict` makes one of it.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointMismatch: if it is no adapter file, or a damaged one.
    """
    with _opened(path) as file:
        metadata = file.metadata() or {}
    if metadata.get("format") != _FORMAT:
        raise CheckpointMismatch(
            f"{path} is not an adapter file: its format is {metadata.get('format')!r}, expected {_FORMAT!r}."
        )
    try:
        config = {
            **json.loads(metadata["config"]),
            "summary": json.loads(metadata["summary"]),
            "spec": json.loads(metadata.get("spec", "null")),
        }
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointMismatch(f"{path} has no readable configuration: {error!r}.") from error
    missing = sorted({"encoding", "compression", "blocks", "pose_policy", "base"} - set(config))
    if missing:
        raise CheckpointMismatch(f"{path} lacks {', '.join(missing)} in its configuration.")
    return config


def load_adapter(
    path: str | Path, transformer: nn.Module, *, encoding: CameraEncoding | None = None
) -> CameraAdapter:
    """Attach what a file describes and load its weights, strictly.

    The file knows its encoding, translation scale included; ``encoding`` is for a caller who has an
    expectation, such as the scale of the data at hand.

    Raises:
        CheckpointMismatch: naming the field or the keys, if the file is for another base or is damaged.
            The transformer is then as it was.
    """
    config = read_adapter_config(path)
    base: Any = transformer.config
    for name, wanted in config["base"].items():
        have = getattr(base, name, None)
        if have != wanted:
            raise CheckpointMismatch(
                f"{path} was made for a base with {name} = {wanted}; this one has {have}."
            )
    try:
        stored = encoding_from_config(config["encoding"])
        made = config.get("input_map")
        input_map = None if made is None else input_map_from_config(made)
    except (ValueError, TypeError) as error:
        raise CheckpointMismatch(f"{path} holds an encoding that cannot be made: {error}") from error
    if encoding is not None and (differences := _differences(stored, encoding)):
        raise CheckpointMismatch(f"{path} was trained with another encoding: {differences}.")
    adapter = attach(
        transformer,
        encoding=stored,
        compression=config["compression"],
        schedule=config["blocks"],
        pose_policy=config["pose_policy"],
        input_map=input_map,
    )
    wanted_tensors = adapter_tensors(adapter)
    try:
        with _opened(path) as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        require_same_tensors(path, wanted_tensors, found)
        with torch.no_grad():
            for name, value in wanted_tensors.items():
                value.copy_(found[name])
    except BaseException:
        adapter.detach()
        raise
    return adapter


def _differences(stored: CameraEncoding, wanted: CameraEncoding) -> str:
    """The options in which two encodings differ, as text; empty where they are equal."""
    one, other = encoding_to_config(stored), encoding_to_config(wanted)
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return "; ".join(f"{name} is {one.get(name)} in the file, {other.get(name)} here" for name in names)


def _opened(path: str | Path) -> Any:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no adapter file at {path}.")
    try:
        return safe_open(str(path), framework="pt")
    except SafetensorError as error:
        raise CheckpointMismatch(f"{path} is damaged or no safetensors file: {error}.") from error


def require_same_tensors(path: str | Path, wanted: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Raise `CheckpointMismatch` unless names and shapes agree; up to five examples of each difference."""
    missing = sorted(set(wanted) - set(found))
    unexpected = sorted(set(found) - set(wanted))
    reshaped = [
        f"{name} {list(found[name].shape)} for {list(wanted[name].shape)}"
        for name in sorted(set(wanted) & set(found))
        if found[name].shape != wanted[name].shape
    ]
    problems = [
        f"{label}: {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        for label, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
        if names
    ]
    if problems:
        raise CheckpointMismatch(f"{path} does not fit the model; tensors {'; '.join(problems)}.")


def write_safetensors(path: str | Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file under a temporary name, then rename it."""
    with atomic_path(path) as temporary:
        save_file(tensors, str(temporary), metadata=metadata)
