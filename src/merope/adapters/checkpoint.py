"""Adapter files: an adapter's weights as one safetensors file, their configuration in its metadata."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from merope.adapters.base_identity import SHAPES, base_differences, base_identity
from merope.adapters.finding import find_adapter
from merope.adapters.signals import InputMap
from merope.adapters.spec import VideoSpec
from merope.adapters.wan import BRANCH_NAME, CameraAdapter, attach
from merope.adapters.wrapping import fetched, own_modules
from merope.encodings.base import CameraEncoding
from merope.encodings.registry import (
    encoding_from_config,
    encoding_to_config,
    input_map_from_config,
    input_map_to_config,
)
from merope.errors import CheckpointMismatch
from merope.files import atomic_path

_FORMAT = "merope-adapter-2"
# Without a checksum, and with three fields to know the base by: what the shipped models came with.
_FIRST_FORMAT = "merope-adapter-1"


def save_adapter(
    path: str | Path,
    adapter: CameraAdapter,
    *,
    dtype: torch.dtype = torch.float32,
    summary: dict[str, Any] | None = None,
    spec: VideoSpec | None = None,
    tensors: Mapping[str, Tensor] | None = None,
    base: dict[str, Any] | None = None,
) -> None:
    """Write the branches to ``path``, with what they were trained for.

    ``summary`` (steps, data, loss) and ``spec`` (sizes, frames, lens) are stored beside the configuration. ``tensors``
    takes the place of `adapter_tensors`: averaged weights, or whole ones where the adapter holds a process's part alone.
    ``base`` is a `base_identity` taken before the transformer was sharded or offloaded; None takes it now.
    The file is written under a temporary name and renamed.

    Raises:
        ValueError: if the adapter was detached, ``spec`` takes another pose of a latent frame than the adapter,
            ``dtype`` is no floating-point format, or weights are sharded or have no memory.
    """
    if not adapter.blocks and adapter.encoding.facts.placement != "none":
        raise ValueError("this adapter was detached and has no weights; save it before, or use `taken_off`.")
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point format such as torch.bfloat16; got {dtype}.")
    if spec is not None and spec.pose_policy != adapter.pose_policy:
        raise ValueError(
            f"spec takes the {spec.pose_policy!r} pose of a latent frame, the adapter {adapter.pose_policy!r}; "
            "give attach and the spec the same pose_policy."
        )
    tensors = {
        name: value.to("cpu", dtype).contiguous()
        for name, value in (_whole_tensors(adapter) if tensors is None else tensors).items()
    }
    described = {"config": adapter_config(adapter, base), "summary": summary or {}}
    if spec is not None:
        described["spec"] = spec.to_dict()
    metadata = {"format": _FORMAT, **{name: json.dumps(value) for name, value in described.items()}}
    metadata["checksum"] = checksum(tensors, metadata)
    write_safetensors(path, tensors, metadata)


def adapter_tensors(adapter: CameraAdapter) -> dict[str, Tensor]:
    """The adapter's weights by the names that they have in its file, "BLOCK.NAME"; another library's not among them."""
    return {
        f"{block}.{name}": value
        for block, branch in adapter.branches.items()
        for module_name, module in own_modules(branch)
        for name, value in _tensors_of(module_name, module)
    }


def base_tensors(transformer: nn.Module) -> dict[str, Tensor]:
    """The base's weights by name: the state dict of a transformer without what cameras have added to it."""
    return {name: value for name, value in transformer.state_dict().items() if f".{BRANCH_NAME}." not in name}


def _tensors_of(name: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for inner, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        yield f"{name}.{inner}" if name else inner, value.detach()


def _whole_tensors(adapter: CameraAdapter) -> dict[str, Tensor]:
    """`adapter_tensors` with their values, also of modules whose weights another library fetches for each call."""
    found: dict[str, Tensor] = {}
    for block, branch in adapter.branches.items():
        with fetched(branch):
            for module_name, module in own_modules(branch):
                for name, value in _tensors_of(module_name, module):
                    if value.device.type == "meta" or type(value) is not Tensor:
                        raise ValueError(
                            f"the adapter's weight {block}.{name} is a {type(value).__name__} on {value.device}: sharded, "
                            "or without memory. Gather whole weights and pass them as tensors=."
                        )
                    found[f"{block}.{name}"] = value.to("cpu", copy=True)
    return found


def adapter_config(adapter: CameraAdapter, base: dict[str, Any] | None = None) -> dict[str, Any]:
    """All that must agree between an adapter file and the model it is loaded into, as JSON values."""
    return {
        "encoding": encoding_to_config(adapter.encoding),
        "compression": adapter.compression,
        "blocks": list(adapter.blocks),
        "pose_policy": adapter.pose_policy,
        "input_map": None if adapter.input_map is None else input_map_to_config(adapter.input_map),
        "qk_norm": "none",
        "base": base_identity(adapter.transformer) if base is None else base,
    }


def read_adapter_config(
    path: str | Path, *, revision: str | None = None, token: str | bool | None = None
) -> dict[str, Any]:
    """The configuration, summary and spec in an adapter file, without its weights.

    ``path``, ``revision`` and ``token`` are those of `find_adapter`. ``"spec"`` is None where none was stored;
    `VideoSpec.from_dict` makes one of it.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointMismatch: if it is no adapter file, or a damaged one.
    """
    with _opened(find_adapter(path, revision=revision, token=token)) as file:
        return _config(path, file.metadata() or {})


def read_adapter_file(
    path: str | Path, *, revision: str | None = None, token: str | bool | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`read_adapter_config` and the weights by name, whole: the file's checksum is compared.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointMismatch: if it is no adapter file, or a damaged one.
    """
    with _opened(find_adapter(path, revision=revision, token=token)) as file:
        metadata = file.metadata() or {}
        config = _config(path, metadata)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    stored = metadata.pop("checksum", None)
    if stored != checksum(tensors, metadata) and (stored is not None or metadata["format"] != _FIRST_FORMAT):
        raise CheckpointMismatch(
            f"{path} is damaged: its checksum is not that of its content. Copy or download it again."
        )
    return config, tensors


def _config(path: str | Path, metadata: dict[str, str]) -> dict[str, Any]:
    if metadata.get("format") not in (_FORMAT, _FIRST_FORMAT):
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


def stored_encoding(path: str | Path, config: dict[str, Any]) -> tuple[CameraEncoding, InputMap | None]:
    """The encoding of an adapter file's configuration, and the map that its branches read beside it.

    Raises:
        CheckpointMismatch: if they cannot be made.
    """
    try:
        made = config.get("input_map")
        return encoding_from_config(config["encoding"]), None if made is None else input_map_from_config(made)
    except (ValueError, TypeError) as error:
        raise CheckpointMismatch(f"{path} holds an encoding that cannot be made: {error}") from error


def load_adapter(
    path: str | Path,
    transformer: nn.Module,
    *,
    encoding: CameraEncoding | None = None,
    pose_policy: str | None = None,
    other_base: bool = False,
    revision: str | None = None,
    token: str | bool | None = None,
) -> CameraAdapter:
    """Attach what a file describes and load its weights, strictly.

    ``path`` is a file, a folder or a hub name (`find_adapter`, with ``revision`` and ``token``). The file knows its
    encoding, translation scale included, and the pose of a latent frame; ``encoding`` and ``pose_policy`` are for a caller
    who has an expectation, such as the scale of the data at hand. ``other_base`` takes any base into which the
    weights fit.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointMismatch: naming the field or the keys, if the file is for another base or other expectations, or is
            damaged. The transformer is then as it was.
    """
    config, found = read_adapter_file(path, revision=revision, token=token)
    _require_base(path, config["base"], transformer, other_base)
    stored, input_map = stored_encoding(path, config)
    if encoding is not None and (differences := _differences(stored, encoding)):
        raise CheckpointMismatch(f"{path} was trained with another encoding: {differences}.")
    if pose_policy not in (None, config["pose_policy"]):
        raise CheckpointMismatch(
            f"{path} was trained with pose_policy {config['pose_policy']!r} (which pose a latent frame takes), "
            f"not {pose_policy!r}."
        )
    adapter = attach(
        transformer,
        encoding=stored,
        compression=config["compression"],
        schedule=config["blocks"],
        pose_policy=config["pose_policy"],
        input_map=input_map,
    )
    wanted = adapter_tensors(adapter)
    try:
        require_same_tensors(path, wanted, found)
        if any(value.device.type == "meta" for value in wanted.values()):
            raise ValueError(
                "the transformer has no memory (meta device); load its weights before the adapter's."
            )
        with torch.no_grad():
            for name, value in wanted.items():
                value.copy_(found[name])
    except BaseException:
        adapter.detach()
        raise
    return adapter


def _require_base(path: str | Path, stored: dict[str, Any], transformer: nn.Module, other_base: bool) -> None:
    found = base_identity(transformer)
    compared = {name: stored[name] for name in stored if not other_base or name in SHAPES}
    differences = base_differences(compared, found)
    if differences:
        raise CheckpointMismatch(f"{path} was made for a base with {differences[0]}.")
    prints = stored.get("fingerprint"), found["fingerprint"]
    if None not in prints and prints[0] != prints[1] and not other_base:
        theirs, ours = (
            f"{base.get('name') or 'no name'}, {base['fingerprint'][7:15]}" for base in (stored, found)
        )
        raise CheckpointMismatch(
            f"{path} was trained beside other weights than these, of the same configuration (fingerprints: {theirs} there; "
            f"{ours} here). Load the base that it belongs to, or pass other_base=True to put it on this one."
        )


def _differences(stored: CameraEncoding, wanted: CameraEncoding) -> str:
    """The options in which two encodings differ, as text; empty where they are equal."""
    one, other = encoding_to_config(stored), encoding_to_config(wanted)
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return "; ".join(f"{name} is {one.get(name)} in the file, {other.get(name)} here" for name in names)


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """A hash of all that a file holds."""
    digest = hashlib.sha256(json.dumps(dict(sorted(metadata.items()))).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"


def _opened(path: Path) -> Any:
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
