"""Camera modules in the hands of other libraries: layers wrapped by low-rank additions, weights fetched for each call.

`peft` looks for names such as ``to_q``, which camera branches have too. What it puts around a layer keeps the layer as
``base_layer``. `accelerate` leaves shapes alone (meta tensors) where weights are offloaded one module at a time.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from accelerate.utils import align_module_device
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


@contextmanager
def fetched(module: nn.Module) -> Iterator[None]:
    """Within the block all weights of a module are here, where they are offloaded too; what is changed may be lost."""
    with ExitStack() as stack:
        for part in module.modules():
            stack.enter_context(align_module_device(part))
        yield


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
