"""A process of its own in which Triton's interpreter runs the fused kernel, and nothing else can attend.

The interpreter is chosen when triton is first imported, for good. Here other tests need the compiler, and torch may have
imported triton already.
"""

import io
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from merope.operators import CameraOperator


def _prepare() -> None:
    assert "triton" not in sys.modules, "triton was imported before it could be told to interpret"
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    # Outputs are allocated without values; what a kernel leaves out shows.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    from merope.attention import chunked, dispatch, fused, reference

    assert fused.interpreted()

    def refuse(*args: Any, **call: Any) -> Tensor:
        raise AssertionError("the fused backend fell back to another one")

    for module in (chunked, dispatch):
        module.chunked_attention = refuse
    for module in (reference, dispatch):
        module.reference_attention = refuse


def _attend(packed: bytes) -> bytes:
    from merope.attention import camera_attention

    tensors, operator, weights, call = torch.load(io.BytesIO(packed), weights_only=False)
    leaves = [tensor.requires_grad_() for tensor in tensors]
    out = camera_attention(*leaves, operator, backend="fused", **call)
    grads = torch.autograd.grad((out * weights.to(out.dtype)).sum(), leaves)
    return _packed([out.detach(), *grads])


def _packed(thing: Any) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


class Interpreter:
    """Runs the fused backend and its backward pass in the other process."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def attend(
        self,
        tensors: list[Tensor],
        operator: CameraOperator,
        weights: Tensor,
        *,
        extra_tokens: int = 0,
        key_mask: Tensor | None = None,
        frame_causal: bool = False,
    ) -> list[Tensor]:
        """Output, and the gradients of (output * weights).sum() by query, key and value."""
        call = {"extra_tokens": extra_tokens, "key_mask": key_mask, "frame_causal": frame_causal}
        packed = _packed(([tensor.detach() for tensor in tensors], operator, weights, call))
        return torch.load(io.BytesIO(self._pool.submit(_attend, packed).result()), weights_only=False)


@contextmanager
def interpreter() -> Iterator[Interpreter]:
    """The process, while the context lasts."""
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare
    ) as pool:
        yield Interpreter(pool)
