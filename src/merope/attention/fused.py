"""Grouped attention in one Triton kernel: keys are turned in registers, for each query camera, and never written.

What a token needs once (left maps, bands that no query camera changes) is plain torch before and after the kernel: it is
the work of a per-token encoding, its gradients come for free, and under ``torch.compile`` it is one pass. See
`fused_rows` for what the kernels read and `fused_kernels` for what they do.
"""

import functools
import importlib.util
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from merope.attention.fused_rows import (
    Layout,
    from_rows,
    is_trained,
    kind_of,
    pair_table,
    plan_layout,
    to_rows,
    triplet_table,
    turned_bands,
)
from merope.operators import CameraOperator, MinRotate3, Rotate2, Rotate3

LONGEST_ROW = 256
"""Channels of the longest row that has tiles."""


class Tile(NamedTuple):
    """How one kernel is cut up: rows of queries and of keys at a time, warps per program, stages of its loads."""

    queries: int
    keys: int
    warps: int
    stages: int


# By bits of a number, longest row, and whether the card has products of warp groups (sm_90 to sm_110, not sm_120). Chosen by
# cross-compilation: no registers spilled in the innermost loops, and shared memory within the 99 KiB of the smallest of
# today's cards, 227 KiB where there are warp groups; benchmarks/fused_registers.py prints both. No GPU has timed them. To
# tune, change a line and time it: 128 queries with 8 warps turn half as often, and pay where cameras have many more tokens
# than 9 x 16.
_TILES: dict[tuple[int, int, bool], tuple[Tile, Tile, Tile]] = {
    (16, 64, False): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(32, 32, 4, 2)),
    (16, 128, False): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(32, 32, 4, 2)),
    (16, 256, False): (Tile(64, 32, 8, 1), Tile(32, 16, 8, 2), Tile(32, 32, 8, 1)),
    (16, 64, True): (Tile(64, 64, 4, 2), Tile(64, 64, 4, 2), Tile(32, 64, 4, 2)),
    (16, 128, True): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(32, 64, 8, 2)),
    (16, 256, True): (Tile(64, 32, 4, 2), Tile(64, 32, 8, 2), Tile(32, 32, 8, 1)),
    (32, 64, False): (Tile(32, 32, 4, 1), Tile(32, 32, 4, 1), Tile(32, 32, 4, 1)),
    (32, 128, False): (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1), Tile(16, 32, 8, 1)),
    (32, 256, False): (Tile(32, 16, 8, 1), Tile(16, 16, 8, 1), Tile(16, 16, 8, 1)),
}
_KERNELS = ("forward", "query", "key")
"""The forward pass, and the gradients of queries and of keys and values."""


def why_not_fused(query: Tensor, operator: CameraOperator) -> str | None:
    """The reason why the kernel cannot serve this call, or None if it can."""
    obstacle = device_obstacle(query.device.type, query.device.index)
    if obstacle is not None:
        return obstacle
    dtype = _compute_dtype(query)
    if dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"it computes in bfloat16, float16 or float32, and this call in {dtype}"
    bands = turned_bands(operator)
    if not bands:
        return (
            "no band that acts on keys or values depends on the query camera; each token is then transformed once and the "
            "platform's own attention is the better kernel"
        )
    for band in bands:
        kind = kind_of(band.right)
        if kind not in (MinRotate3, Rotate3, Rotate2):
            return (
                f"band {band.name!r} depends on the query camera through {kind.__name__}; the kernel turns pairs and "
                "triplets"
            )
        if torch.is_grad_enabled() and is_trained(band):
            return (
                f"the maps of band {band.name!r} depend on the query camera and require gradients; the kernel has "
                "gradients for queries, keys and values alone"
            )
    if operator.head_dim > LONGEST_ROW or plan_layout(operator).row > LONGEST_ROW:
        return f"{operator.head_dim} channels do not fit into a row of {LONGEST_ROW} (padding counts)"
    return None


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    *,
    extra_tokens: int,
    key_mask: Tensor | None,
    frame_causal: bool,
) -> Tensor:
    """Eq. 1 by a kernel that reads untransformed keys and values and turns a tile of them for its queries' camera.

    Kept for the backward pass are q, k and v with their per-token transforms, the output, one number per query, and the
    factors of all query cameras in the kernel's order: those that an operator makes anew are made here, at once.
    Masked keys and values must be finite. The call must be one that `why_not_fused` has nothing against.
    """
    layout = plan_layout(operator)
    compute = _compute_dtype(query)
    num_queries, num_keys = operator.num_queries, operator.num_keys
    query_rows = to_rows(query[:, :, :num_queries], operator, "q", layout, compute)
    key_rows = to_rows(key[:, :, :num_keys], operator, "k", layout, compute)
    value_rows = to_rows(value[:, :, :num_keys], operator, "v", layout, compute)
    if extra_tokens:
        # U between a camera's query and a key without a camera is the query's left map alone.
        key_rows, value_rows = (
            torch.cat([rows, to_rows(x[:, :, num_keys:], operator, "", layout, compute)], dim=2)
            for rows, x in ((key_rows, key), (value_rows, value))
        )
    scale = 1 / math.sqrt(operator.head_dim)
    out, _ = torch.ops.merope.fused_attention(
        query_rows,
        key_rows,
        value_rows,
        key_mask,
        triplet_table(operator),
        pair_table(operator),
        scale,
        list(layout),
        operator.num_query_cameras,
        extra_tokens,
        frame_causal,
    )
    result = from_rows(out, operator, layout).to(query.dtype)
    if extra_tokens:
        first = num_keys if frame_causal else 0
        extra = _without_cameras(
            query[:, :, num_queries:].to(compute),
            key[:, :, first:].to(compute),
            value[:, :, first:].to(compute),
            None if key_mask is None else key_mask[:, first:],
        )
        result = torch.cat([result, extra.to(query.dtype)], dim=2)
    return result


@torch.compiler.assume_constant_result
def device_obstacle(kind: str, index: int | None) -> str | None:
    """Why no Triton kernel runs on a device, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; pip install 'merope[triton]'"
    if interpreted():
        return None
    if kind != "cuda" or torch.version.hip is not None:
        return f"it runs on NVIDIA GPUs, and the query is on {kind!r}"
    major, minor = torch.cuda.get_device_capability(index)
    if major < 8:
        return f"it needs compute capability 8.0 or higher, and this GPU has {major}.{minor}"
    return None


@functools.cache
def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels: TRITON_INTERPRET=1 from before they were first imported."""
    from triton.runtime.interpreter import InterpretedFunction

    from merope.attention import fused_kernels

    return isinstance(fused_kernels.forward, InterpretedFunction)


def _arch() -> int:
    """The compute capability that Triton compiles for, times ten."""
    if interpreted():
        return 80
    from triton.runtime import driver

    return driver.active.get_current_target().arch


def _compute_dtype(query: Tensor) -> torch.dtype:
    if query.dtype != torch.float64 and torch.is_autocast_enabled(query.device.type):
        return torch.get_autocast_dtype(query.device.type)
    return query.dtype


def _without_cameras(query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None) -> Tensor:
    """Plain attention of the few queries that have no camera; exactly zero where every key is masked."""
    if key_mask is None:
        return scaled_dot_product_attention(query, key, value)
    alive = key_mask.any(-1)[:, None, None, None]
    mask = key_mask[:, None, None, :] | ~alive
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return torch.where(alive, out, torch.zeros_like(out))


def tile_of(kernel: str, row: int, dtype: torch.dtype, arch: int) -> Tile:
    """The tile of one of the kernels on sm_80, sm_90 and so on."""
    bits = dtype.itemsize * 8
    longest = min(known for _, known, _ in _TILES if known >= row)
    # Products of float32 are exact, which no tensor core does.
    tiles = _TILES[bits, longest, bits == 16 and 90 <= arch < 120]
    return tiles[_KERNELS.index(kernel)]


def _launch(
    kernel: str,
    tensors: list[Tensor],
    query: Tensor,
    key: Tensor,
    key_mask: Tensor | None,
    tables: tuple[Tensor | None, Tensor | None],
    scale: float,
    layout: list[int],
    cameras: int,
    num_extra: int,
    causal: bool,
) -> None:
    from merope.attention import fused_kernels

    plan = Layout(*layout)
    # Cards of one machine may differ: the tile is that of the query's.
    with torch.cuda.device_of(query):
        tile = tile_of(kernel, plan.row, query.dtype, _arch())
    batch, heads, num_queries, _ = query.shape
    num_keys = key.shape[2] - num_extra
    per_camera = num_queries // cameras
    if kernel == "key":
        tiles = -(-num_keys // tile.keys) + -(-num_extra // tile.keys)
        function: Any = fused_kernels.backward_key
    else:
        tiles = cameras * -(-per_camera // tile.queries)
        function = fused_kernels.forward if kernel == "forward" else fused_kernels.backward_query
    counts = [heads, cameras, per_camera, num_keys, num_extra, num_keys - num_queries]
    for table in tables:
        if table is None:
            counts += [1, 0, 0]
        else:
            shared_clip, shared_head = table.shape[0] == 1, table.shape[1] == 1
            counts += [table.shape[3] - 1, 0 if shared_clip else table.shape[1], 0 if shared_head else 1]
    with torch.cuda.device_of(query):
        function[(tiles * batch * heads,)](
            *tensors,
            key_mask,
            *tables,
            scale * math.log2(math.e),
            *counts,
            LAYOUT=plan,
            MASKED=key_mask is not None,
            CAUSAL=causal,
            UPCAST=interpreted() and query.dtype == torch.bfloat16,
            BM=tile.queries,
            BN=tile.keys,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )


@torch.library.custom_op("merope::fused_attention", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    triplets: Tensor | None,
    pairs: Tensor | None,
    scale: float,
    layout: list[int],
    cameras: int,
    num_extra: int,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """Rows of the output; of each query its largest logit, times log2(e), and the inverse of its sum of exponentials."""
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    out = torch.empty_like(query)
    normalizers = query.new_empty((*query.shape[:3], 2), dtype=torch.float32)
    tensors, tables = [query, key, value, out, normalizers], (triplets, pairs)
    _launch(
        "forward", tensors, query, key, _as_bytes(key_mask), tables, scale, layout, cameras, num_extra, causal
    )
    return out, normalizers


@_forward.register_fake
def _(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    return out, query.new_empty((*query.shape[:3], 2), dtype=torch.float32)


@torch.library.custom_op("merope::fused_attention_backward", mutates_args=())
def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    normalizers: Tensor,
    grad_out: Tensor,
    key_mask: Tensor | None,
    triplets: Tensor | None,
    pairs: Tensor | None,
    scale: float,
    layout: list[int],
    cameras: int,
    num_extra: int,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the rows of queries, keys and values."""
    query, key, value, out, grad_out = (x.contiguous() for x in (query, key, value, out, grad_out))
    grad_query, grad_key, grad_value = (torch.empty_like(x) for x in (query, key, value))
    delta = query.new_empty(query.shape[:3], dtype=torch.float32)
    call = (_as_bytes(key_mask), (triplets, pairs), scale, layout, cameras, num_extra, causal)
    # The first leaves delta for the second.
    _launch("query", [query, key, value, out, normalizers, grad_out, grad_query, delta], query, key, *call)
    _launch("key", [query, key, value, normalizers, grad_out, delta, grad_key, grad_value], query, key, *call)
    return grad_query, grad_key, grad_value


@_backward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)
    )
    return query, key, value


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, key_mask, triplets, pairs, *call = inputs
    ctx.save_for_backward(query, key, value, *output, key_mask, triplets, pairs)
    ctx.call = call


def _gradients(ctx: Any, grad_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, out, normalizers, *tables = ctx.saved_tensors
    grads = torch.ops.merope.fused_attention_backward(
        query, key, value, out, normalizers, grad_out, *tables, *ctx.call
    )
    return (*grads, *[None] * (len(tables) + len(ctx.call)))


_forward.register_autograd(_gradients, setup_context=_keep)


def _as_bytes(key_mask: Tensor | None) -> Tensor | None:
    return None if key_mask is None else key_mask.contiguous().view(torch.uint8)
