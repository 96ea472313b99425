"""Grouped attention on a CPU: tiles that stay in a core's cache, as one custom op each way.

Keys and values stand token-last, ``[channel, token]`` (see `token_rows`). Of one tile of keys the maps that all query
cameras share are applied once; for each query camera the grouped channels are written over in the same
buffer, and attention is two matrix products around a streaming softmax. The backward pass keeps q, k, v, the output
and the log-sum-exp, and applies the maps again. `tile_walk` has the buffers, `tile_jobs` the threads.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from merope.attention.tile_jobs import run_in_parallel
from merope.attention.tile_walk import TileCall, TileWalk
from merope.attention.token_rows import KINDS, describe, plan_of
from merope.operators import CameraOperator

TILED_DTYPES = (torch.float32, torch.float64)


def why_not_tiled(
    query: Tensor, key: Tensor, value: Tensor, operator: CameraOperator, compute: torch.dtype
) -> str | None:
    """The reason these tiles cannot serve a call whose products run in ``compute``, or None if they can."""
    factors = operator.tensors()
    if query.device.type != "cpu":
        return f"tiles are cut for a CPU's cache; the call is on {query.device}"
    if compute not in TILED_DTYPES:
        return f"a CPU's product of {compute} matrices has {compute} logits, which is too coarse"
    if any(x.dtype != compute for x in (query, key, value, *factors)):
        return f"query, key, value and the operator's factors must all have {compute}"
    if torch.is_grad_enabled() and any(factor.requires_grad for factor in factors):
        return "a factor of the operator wants its gradient"
    if any(forward_ad.unpack_dual(x).tangent is not None for x in (query, key, value, *factors)):
        return "a tensor carries a tangent, and tiles give gradients alone"
    for band in operator.bands:
        for block in (band.left, band.right):
            if block is not None and type(block) not in KINDS.values():
                return f"band {band.name!r} holds blocks of another kind, {type(block).__name__}"
    return None


def tiled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    *,
    key_mask: Tensor | None,
    causal_offset: int | None,
    memory_budget: int,
) -> Tensor:
    """Eq. 1 for queries that all have a camera; keys past ``operator.num_keys`` have none.

    With ``causal_offset`` the first query camera sees so many keys, and every next one its own more.
    """
    out, _ = _attend(
        query, key, value, key_mask, operator.tensors(), describe(operator), causal_offset, memory_budget
    )
    return out


@torch.library.custom_op("merope::attend_in_tiles", mutates_args=(), device_types="cpu")
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor]:
    result, lse = torch.empty_like(query), query.new_empty(query.shape[:-1])
    if query.numel() == 0:
        return result, lse

    def attend(walk: TileWalk) -> None:
        q, out = walk.queries(query, spare="out"), walk.by_run("out")
        top, total = walk.by_run("top", rows=1), walk.by_run("total", rows=1)
        for tile in walk.tiles:
            walk.load(tile)
            for camera in walk.cameras():
                k, v = walk.keys_for(camera)
                for run in walk.runs(camera):
                    logits = walk.logits(k, q[run])
                    is_first = tile is walk.tiles[0]
                    walk.soften(logits, out[run], top[run], total[run], is_first)
                    torch.baddbmm(out[run], v, logits, beta=float(not is_first), out=out[run])
        sums, tops = walk.joined(total, "joined_total"), walk.joined(top, "joined_top")
        # A query whose keys are all masked: its output is zero, and so will be its weights in the backward pass.
        dead = sums == 0
        lse[walk.clip, walk.heads, walk.queries_in_hand] = (
            tops.add_(sums.log()).masked_fill_(dead, math.inf).squeeze(1)
        )
        walk.turn_back(walk.joined(out, "query").div_(sums.masked_fill_(dead, 1)), result, "o")

    call = TileCall(query, key, value, key_mask, factors, plan_of(description), causal_offset)
    run_in_parallel(attend, call, memory_budget)
    return result, lse


@_attend.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), query.new_empty(query.shape[:-1])


@torch.library.custom_op("merope::attend_in_tiles_backward", mutates_args=(), device_types="cpu")
def _attend_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_query, grad_key, grad_value = (torch.empty_like(x) for x in (query, key, value))
    if query.numel() == 0:
        return grad_query, grad_key.zero_(), grad_value.zero_()
    # Sum of weights x their gradients. With y = L^T o and do = L dy it is dy . y, whatever L.
    delta = (grad * out).sum(-1)

    def differentiate(walk: TileWalk) -> None:
        q = walk.queries(query, spare="grad_query")
        d_out = walk.queries(grad, "grad_out", side="o", spare="grad_query")
        d_query = walk.by_run("grad_query")
        sums_of_queries = lse.numpy()[walk.clip, walk.heads], delta.numpy()[walk.clip, walk.heads]
        for tile in walk.tiles:
            walk.load(tile)
            sums = walk.gradient_sums()
            for camera in walk.cameras():
                k, v = walk.keys_for(camera)
                d_turned = walk.buffer("grad_turned", 2, *k.shape)
                for n, run in enumerate(walk.runs(camera)):
                    weights = walk.logits(q[run], k, keys_last=True)
                    d_logits = walk.buffer("grad_logits", *weights.shape)
                    torch.bmm(d_out[run].mT, v, out=d_logits)
                    walk.differentiate(weights, d_logits, *sums_of_queries, run.start)
                    _product(k, d_logits.mT, walk.scale, out=d_query[run], more=tile is not walk.tiles[0])
                    _product(q[run], d_logits, walk.scale, out=d_turned[0], more=n > 0)
                    _product(d_out[run], weights, 1.0, out=d_turned[1], more=n > 0)
                walk.collect(d_turned, sums, camera)
            walk.store(sums, grad_key, grad_value)
        walk.turn_back(walk.joined(d_query, "query"), grad_query, "q")

    call = TileCall(query, key, value, key_mask, factors, plan_of(description), causal_offset)
    run_in_parallel(differentiate, call, memory_budget, backward=True)
    return grad_query, grad_key, grad_value


def _product(a: Tensor, b: Tensor, scale: float, *, out: Tensor, more: bool) -> None:
    """``scale a b`` into ``out``, or on top of it."""
    torch.baddbmm(out, a, b, beta=float(more), alpha=scale, out=out)


@_attend_backward.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    factors: list[Tensor],
    description: str,
    causal_offset: int | None,
    memory_budget: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.empty_like(x) for x in (query, key, value))  # type: ignore[return-value]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, key_mask, factors, *ctx.rest = inputs
    ctx.num_factors = len(factors)
    ctx.save_for_backward(query, key, value, *output, key_mask, *factors)


def _differentiate(ctx: Any, grad: Tensor, grad_lse: Tensor) -> Any:
    query, key, value, out, lse, key_mask, *factors = ctx.saved_tensors
    grads = _attend_backward(grad, query, key, value, out, lse, key_mask, factors, *ctx.rest)
    return (*grads, None, [None] * ctx.num_factors, None, None, None)


_attend.register_autograd(_differentiate, setup_context=_keep)
