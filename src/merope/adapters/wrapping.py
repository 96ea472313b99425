"""Camera modules whose layers another library has wrapped: low-rank additions that find layers by their names.

`peft` looks for names such as ``to_q``, which camera branches have too. What it puts around a layer keeps the layer as
``base_layer``.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn


class WrappedBranchWarning(UserWarning):
    """Low-rank additions that were meant for the backbone have reached the camera branches."""


def own_modules(module: Any, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every module by name, as if no other library had put low-rank additions around any of them."""
    while hasattr(module, "base_layer"):
        module = module.base_layer
    yield name, module
    for inner, child in module.named_children():
        yield from own_modules(child, f"{name}.{inner}" if name else inner)


def warn_of_wrapped(branches: Mapping[int, nn.Module]) -> bool:
    """Warn if layers of these modules, by block, are wrapped; whether that was so."""
    wrapped = [
        f"{block}.{name}"
        for block, branch in branches.items()
        for name, module in branch.named_modules()
        if hasattr(module, "base_layer")
    ]
    if wrapped:
        warnings.warn(
            f"another library has wrapped {len(wrapped)} layers of the camera branches ({', '.join(wrapped[:3])}, ...), "
            "whose names are like those of the backbone's attention. What it adds there is not in adapter files. Leave "
            "them out: LoraConfig(exclude_modules=r'.*camera_branch.*').",
            WrappedBranchWarning,
            # The caller of `with adapter.cameras(...)`, past contextlib.
            stacklevel=4,
        )
    return bool(wrapped)
