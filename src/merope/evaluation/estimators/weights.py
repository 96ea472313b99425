"""Weights of learned models from files on this machine; nothing is fetched."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from merope.errors import CheckpointMismatch


def require_weights(weights: Path | None, *, estimator: str, where: str) -> Path:
    """The path, if there is something at it.

    Raises:
        ValueError: if there is none, or nothing is there; the message says what to download.
    """
    if weights is None:
        raise ValueError(
            f"{estimator} needs weights: a path (--weights PATH, or weights= of the class) to {where}. Nothing is fetched "
            "for you, so that an evaluation never depends on the network."
        )
    if not Path(weights).exists():
        raise ValueError(
            f"weights must be a path on this machine; there is nothing at {weights}. Download {where} first and pass its "
            "path; names of a model hub are not taken."
        )
    return Path(weights)


def read_state(path: Path) -> dict[str, Tensor]:
    """Tensors by name from a .safetensors file or a PyTorch file, which is read without running its code.

    PyTorch files may wrap them in "model" or "state_dict".

    Raises:
        CheckpointMismatch: if the file is damaged or holds something else.
    """
    try:
        state: Any = (
            load_file(str(path))
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    # A damaged archive makes torch raise nearly anything: IndexError, TypeError, AssertionError, struct.error among them.
    except Exception as error:
        # What follows torch's first sentence is advice to run the file's code.
        reason = str(error).partition(". ")[0][:200] or type(error).__name__
        raise CheckpointMismatch(f"{path} is damaged or holds no weights: {reason}.") from error
    for name in ("model", "state_dict"):
        if isinstance(state, dict) and isinstance(state.get(name), dict):
            state = state[name]
    if (
        not isinstance(state, dict)
        or not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items())
        or not state
    ):
        raise CheckpointMismatch(
            f"{path} holds no weights: expected tensors by name, got {type(state).__name__}."
        )
    return state


def load_into(
    model: torch.nn.Module, state: dict[str, Tensor], path: Path, *, ignored: tuple[str, ...] = ()
) -> None:
    """Load all of a model's weights; names that start with ``ignored`` belong to heads that were not built.

    A weight that the model has under several names may be in the file under one of them, as safetensors stores it.

    Raises:
        CheckpointMismatch: if one is missing, unknown, or of another shape.
    """
    own = model.state_dict(keep_vars=True)
    by_memory: dict[int, Tensor] = {}
    for name, value in own.items():
        if name in state:
            by_memory.setdefault(value.data_ptr(), state[name])
    wanted = {name: value for name, value in state.items() if not (ignored and name.startswith(ignored))}
    for name, value in own.items():
        if name not in wanted and value.numel() and value.data_ptr() in by_memory:
            wanted[name] = by_memory[value.data_ptr()]
    try:
        model.load_state_dict(wanted)
    except RuntimeError as error:
        raise CheckpointMismatch(
            f"{path} holds weights of another model than {type(model).__name__}: {str(error)[:600]}"
        ) from error
