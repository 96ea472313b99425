"""What trains: camera modules alone, with them the self-attention beside them, or everything."""

from typing import Any

from torch import nn

from merope.adapters.wan import CameraAdapter


def choose_trainable(transformer: nn.Module, adapter: CameraAdapter, trains: str) -> dict[str, nn.Parameter]:
    """Let gradients reach what trains and nothing else; the parameters that train, by name.

    "branch": the adapter's own modules. "branch+attention": and the self-attention (``attn1``) of the blocks that have
    one. "all": everything.

    Raises:
        ValueError: if nothing would train.
    """
    transformer.requires_grad_(trains == "all")
    if trains != "all":
        chosen = list(adapter.parameters())
        if trains == "branch+attention":
            # Any: torch types every attribute of a module as a tensor or a module.
            blocks: Any = transformer.blocks
            chosen += [
                parameter for block in adapter.blocks for parameter in blocks[block].attn1.parameters()
            ]
        if not chosen:
            raise ValueError(
                f"trains={trains!r} leaves nothing to train: encoding {type(adapter.encoding).__name__} has no parameters "
                "of its own. Use trains='all'."
            )
        for parameter in chosen:
            parameter.requires_grad_(True)
    return trainable_parameters(transformer)


def trainable_parameters(transformer: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that gradients reach, by name."""
    return {name: value for name, value in transformer.named_parameters() if value.requires_grad}
