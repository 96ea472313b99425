"""What an adapter file holds, without the model that it belongs to."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from merope.adapters.branch import CameraBranch
from merope.adapters.checkpoint import read_adapter_file, require_same_tensors, stored_encoding
from merope.adapters.finding import find_adapter
from merope.adapters.schedules import scheduled_blocks
from merope.adapters.wan import camera_module
from merope.encodings.registry import encoding_to_config


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterReport:
    """An adapter file's configuration and what its weights amount to."""

    file: str
    """Where it was found."""
    bytes: int
    """Size of the file."""
    config: dict[str, Any]
    """`read_adapter_config` of it, with every option of the encoding."""
    placement: str
    """"branch", "backbone" or "none": where the encoding works."""
    schedule: str
    """The name of its list of blocks, or "list"."""
    parameters: int
    """Numbers in all its tensors."""
    dtypes: tuple[str, ...]
    """Formats in which they are stored."""
    norms: dict[int, float]
    """Per block, the Frobenius norm of what starts at zero and adds to the base: a branch's output projection, all
    of an injection's weights."""
    zero_blocks: tuple[int, ...]
    """Blocks that would change nothing."""

    @property
    def is_zero(self) -> bool:
        """Whether cameras would be ignored."""
        return bool(self.norms) and len(self.zero_blocks) == len(self.norms)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return _plain({**asdict(self), "is_zero": self.is_zero})


def inspect_adapter(
    path: str | Path, *, revision: str | None = None, token: str | bool | None = None
) -> AdapterReport:
    """Read a whole adapter file and hold its weights against its own configuration.

    ``path``, ``revision`` and ``token`` are those of `find_adapter`.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointMismatch: if it is damaged, or its weights are not those of its configuration.
    """
    file = find_adapter(path, revision=revision, token=token)
    config, tensors = read_adapter_file(file)
    encoding, input_map = stored_encoding(file, config)
    base = SimpleNamespace(**config["base"])
    modules = {
        block: camera_module(base, encoding, config["compression"], input_map) for block in config["blocks"]
    }
    wanted = {
        f"{block}.{name}": value
        for block, module in modules.items()
        for name, value in module.state_dict().items()
    }
    require_same_tensors(file, wanted, tensors)
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(tensors[name])
    return AdapterReport(
        file=str(file),
        bytes=file.stat().st_size,
        config={**config, "encoding": encoding_to_config(encoding)},
        placement=encoding.facts.placement,
        schedule=_schedule_name(config["blocks"], config["base"]["num_layers"]),
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        dtypes=tuple(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()})),
        norms={block: _norm(module) for block, module in modules.items()},
        zero_blocks=tuple(block for block, module in modules.items() if module.is_zero),
    )


def _plain(value: Any) -> Any:
    """The same without NaN and infinities: JSON has none, and files of trainings that went wrong are looked at too."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _norm(module: nn.Module) -> float:
    adds = module.to_out if isinstance(module, CameraBranch) else module
    squares = [_square(parameter) for parameter in adds.parameters()]
    return math.sqrt(sum(squares))


def _square(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().sum())


def _schedule_name(blocks: list[int], num_layers: int) -> str:
    for name in ("alternate", "every", "peak"):
        try:
            if list(scheduled_blocks(name, num_layers)) == blocks:
                return name
        except ValueError:
            continue
    return "list"
