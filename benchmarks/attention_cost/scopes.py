"""How much of a block is measured: the core, the paper's block, the full block; forward, or with the backward pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..measuring.compiling import compiled_alone
from .columns import Attend, Column, Implementation, implementation
from .shapes import Shape

Scope = Literal["core", "block", "full"]
"""Modulation and attention; with the output projection, as the paper times it; with the three input projections too."""

Direction = Literal["forward", "forward+backward"]

SCOPES: tuple[Scope, ...] = ("core", "block", "full")
DIRECTIONS: tuple[Direction, ...] = ("forward", "forward+backward")


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One column, ready to run over and over."""

    column: Column
    run: Callable[[], tuple[Tensor, ...]]
    """The output; with the backward pass, the gradients of all inputs after it."""
    compared: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]
    """Of a result, what every form of the encoding must agree on, in the paper's channel order."""
    geometry_bytes: int


def make_case(
    column: Column,
    shape: Shape,
    scope: Scope,
    direction: Direction,
    *,
    dtype: torch.dtype,
    device: str,
    seed: int = 0,
) -> Case:
    """The column in this scope and direction. The same seed gives every column the same numbers."""
    made = implementation(column, shape, device=device, dtype=dtype)
    function = scope_function(scope, made.attend, heads=shape.heads, token_last=made.token_last)
    if column.compiled:
        function = compiled_alone(function, f"{scope} {column.name}")
    train = direction == "forward+backward"
    inputs = [x.to(dtype).to(device) for x in scope_inputs(scope, shape, order=made.order, seed=seed)]
    if made.token_last and scope != "full":
        inputs[:3] = [x.mT.contiguous().mT for x in inputs[:3]]
    inputs = [x.requires_grad_(train) for x in inputs]
    run = _with_backward(function, inputs, made, shape, scope, seed) if train else None

    def forward() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (function(made.geometry, *inputs),)

    def compared(result: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if scope != "core":
            return result[:1]
        if made.order is None:
            return result
        return tuple(x[..., made.order.argsort()] for x in result)

    return Case(column, run or forward, compared, made.geometry_bytes)


def _with_backward(
    function: Callable[..., Tensor],
    inputs: list[Tensor],
    made: Implementation,
    shape: Shape,
    scope: Scope,
    seed: int,
) -> Callable[[], tuple[Tensor, ...]]:
    draw = torch.Generator().manual_seed(seed + 1)
    if scope == "core":
        cotangent = torch.randn(shape.batch, shape.heads, shape.tokens, shape.head_dim, generator=draw)
        if made.order is not None:
            cotangent = cotangent[..., made.order.cpu()]
    else:
        cotangent = torch.randn(shape.batch, shape.tokens, shape.backbone_width, generator=draw)
    cotangent = cotangent.to(inputs[0].dtype).to(inputs[0].device)

    def forward_and_backward() -> tuple[Tensor, ...]:
        out = function(made.geometry, *inputs)
        return (out.detach(), *torch.autograd.grad(out, inputs, cotangent))

    return forward_and_backward


def scope_function(
    scope: Scope, attend: Attend, *, heads: int, token_last: bool = False
) -> Callable[..., Tensor]:
    """A function of the geometry and of `scope_inputs`. Projections are those of `merope.adapters.CameraBranch`."""

    def core(geometry: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, geometry)

    def merged(geometry: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = attend(query, key, value, geometry)
        return out.mT.flatten(1, 2).mT if token_last else out.transpose(1, 2).flatten(2)

    def block(
        geometry: Any, query: Tensor, key: Tensor, value: Tensor, out_weight: Tensor, out_bias: Tensor
    ) -> Tensor:
        return linear(merged(geometry, query, key, value), out_weight, out_bias)

    def full(
        geometry: Any,
        hidden: Tensor,
        q_weight: Tensor,
        q_bias: Tensor,
        k_weight: Tensor,
        k_bias: Tensor,
        v_weight: Tensor,
        v_bias: Tensor,
        out_weight: Tensor,
        out_bias: Tensor,
    ) -> Tensor:
        pairs = ((q_weight, q_bias), (k_weight, k_bias), (v_weight, v_bias))
        # Unnamed, so that queries, keys and values are gone before the output projection, as in the branch.
        return linear(
            merged(
                geometry,
                *(project(hidden, *pair).unflatten(-1, (heads, -1)).transpose(1, 2) for pair in pairs),
            ),
            out_weight,
            out_bias,
        )

    def project(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if not token_last:
            return linear(hidden, weight, bias)
        return torch.baddbmm(bias[:, None], weight.expand(len(hidden), -1, -1), hidden.mT).mT

    return {"core": core, "block": block, "full": full}[scope]


def scope_inputs(scope: Scope, shape: Shape, *, order: Tensor | None, seed: int) -> list[Tensor]:
    """Random inputs and weights in float32, spread as nn.Linear starts them.

    ``order`` puts the channels of every head into another order: those of q, k and v, or the rows and columns of
    the projections that make and read them.
    """
    draw = torch.Generator().manual_seed(seed)
    wide, narrow = shape.backbone_width, shape.width
    places = torch.arange(shape.head_dim) if order is None else order.cpu()
    channels = (torch.arange(shape.heads)[:, None] * shape.head_dim + places).flatten()

    def weights(rows: int, columns: int) -> tuple[Tensor, Tensor]:
        bound = columns**-0.5
        return (
            bound * (2 * torch.rand(rows, columns, generator=draw) - 1),
            bound * (2 * torch.rand(rows, generator=draw) - 1),
        )

    out_weight, out_bias = weights(wide, narrow)
    out = [out_weight[:, channels], out_bias]
    if scope == "full":
        hidden = torch.randn(shape.batch, shape.tokens, wide, generator=draw)
        inward = []
        for _ in range(3):
            weight, bias = weights(narrow, wide)
            inward += [weight[channels], bias[channels]]
        return [hidden, *inward, *out]
    q, k, v = (
        torch.randn(shape.batch, shape.heads, shape.tokens, shape.head_dim, generator=draw)[..., places]
        for _ in range(3)
    )
    return [q, k, v] if scope == "core" else [q, k, v, *out]
