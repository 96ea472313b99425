"""Grouped attention on any device: a loop over query cameras with a bounded working set.

Bands that do not depend on the query camera are transformed once per token. Only the grouped bands are
redone, for a few query cameras at a time, and redone again in the backward pass rather than kept.

Dimension letters: B batch, H heads, G query cameras, N keys, P queries per camera, D channels.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from merope.attention.tiled import TILED_DTYPES, tiled_attention, why_not_tiled
from merope.attention.visibility import seen_by_cameras, seen_by_extra, seen_by_first
from merope.operators import Band, Block, CameraOperator, apply_to_planes

Planes = tuple[Tensor, ...]
"""A band's channels, [B, H, N, M, copies] for each coordinate of its blocks."""


def reads_token_last(operator: CameraOperator, like: Tensor) -> bool:
    """Whether attention on tensors such as ``like`` reads q, k and v fastest where memory is [B, H, D, N].

    The shape is [B, H, N, D] all the same. True for grouped operators in single and double precision on a CPU.
    """
    compute = _compute_dtype(like)
    return (
        operator.grouped and like.device.type == "cpu" and like.dtype == compute and compute in TILED_DTYPES
    )


def chunked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    *,
    extra_tokens: int,
    key_mask: Tensor | None,
    frame_causal: bool,
    memory_budget: int,
) -> Tensor:
    """Eq. 1 by factored transforms, a few query cameras at a time."""
    compute = _compute_dtype(query)
    causal_offset = seen_by_first(operator) if frame_causal else None
    of_cameras = query[:, :, : operator.num_queries]
    call = (extra_tokens, key_mask, compute, memory_budget)
    if operator.recomputed_bytes:
        out = _by_runs_of_cameras(of_cameras, key, value, operator, causal_offset, *call)
    else:
        out = _of_cameras(of_cameras, key, value, operator, causal_offset, *call)
    if extra_tokens:
        # A token without a camera has no query camera either: it meets raw keys and values.
        raw = _attention(
            query[:, :, None, operator.num_queries :].to(compute),
            key[:, :, None].to(compute),
            value[:, :, None].to(compute),
            seen_by_extra(operator, extra_tokens, key_mask, causal_offset),
        )
        out = torch.cat([out, raw.squeeze(2).to(query.dtype)], dim=2)
    return out


def _by_runs_of_cameras(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    causal_offset: int | None,
    extra_tokens: int,
    key_mask: Tensor | None,
    compute: torch.dtype,
    memory_budget: int,
) -> Tensor:
    """Factors that are not stored, made for as many query cameras as the budget holds; again in the backward pass."""
    cameras = operator.num_query_cameras
    per_camera = operator.num_queries // cameras
    step = max(1, min(cameras, memory_budget // operator.recomputed_bytes))

    def attend(query: Tensor, key: Tensor, value: Tensor, first: int, last: int) -> Tensor:
        offset = None if causal_offset is None else causal_offset + first * per_camera
        run = operator.for_query_cameras(first, last)
        return _of_cameras(query, key, value, run, offset, extra_tokens, key_mask, compute, memory_budget)

    outs = []
    for first in range(0, cameras, step):
        last = min(first + step, cameras)
        run = query[:, :, first * per_camera : last * per_camera]
        if torch.is_grad_enabled():
            outs.append(
                checkpoint(
                    attend, run, key, value, first, last, use_reentrant=False, preserve_rng_state=False
                )
            )
        else:
            outs.append(attend(run, key, value, first, last))
    return torch.cat(outs, dim=2)


def _of_cameras(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    causal_offset: int | None,
    extra_tokens: int,
    key_mask: Tensor | None,
    compute: torch.dtype,
    memory_budget: int,
) -> Tensor:
    """Queries with cameras. Grouped operators on a CPU go through tiles made for its cache, where those can serve
    (`merope.attention.tiled`); the rest through the platform's own attention."""
    by_camera = operator.grouped or causal_offset is not None
    if by_camera and why_not_tiled(query, key, value, operator, compute) is None:
        return tiled_attention(
            query,
            key,
            value,
            operator,
            key_mask=key_mask,
            causal_offset=causal_offset,
            memory_budget=memory_budget,
        )
    seen = seen_by_cameras(operator, extra_tokens, key_mask, causal_offset)
    return _over_cameras(query, key, value, operator, compute, seen, extra_tokens, by_camera, memory_budget)


def _over_cameras(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    compute: torch.dtype,
    seen: Tensor | None,
    extra_tokens: int,
    by_camera: bool,
    memory_budget: int,
) -> Tensor:
    """Queries with cameras; ``seen`` is [B or 1, G or 1, N] booleans."""
    query_bands = _split(query, operator)
    if "q" in operator.acts_on:
        query_bands = [_once(x, band.left) for x, band in zip(query_bands, operator.bands, strict=True)]
    groups = operator.num_query_cameras if by_camera else 1
    turned_query = _join(query_bands).to(compute).unflatten(2, (groups, -1))  # [B, H, G, P, D]
    keys = _Transformed(key, operator, active="k" in operator.acts_on, extra_tokens=extra_tokens)
    values = _Transformed(value, operator, active="v" in operator.acts_on, extra_tokens=extra_tokens)

    def attend(chunk: Tensor, first: int, last: int) -> Tensor:
        return _attention(
            chunk,
            keys.for_cameras(first, last).to(compute),
            values.for_cameras(first, last).to(compute),
            seen if seen is None or seen.shape[1] == 1 else seen[:, first:last],
        )

    batch, heads = query.shape[:2]
    factors = operator.tensors()
    itemsize = max(compute.itemsize, *(factor.dtype.itemsize for factor in factors[:1]), 1)
    per_camera = 2 * batch * heads * (operator.num_keys + extra_tokens) * operator.head_dim * itemsize
    step = max(1, min(groups, memory_budget // per_camera))
    # One chunk fits the budget and is kept; several are recomputed in the backward pass.
    recompute = step < groups and torch.is_grad_enabled()
    outs = []
    for first in range(0, groups, step):
        last = min(first + step, groups)
        chunk = turned_query[:, :, first:last]
        if recompute:
            outs.append(checkpoint(attend, chunk, first, last, use_reentrant=False, preserve_rng_state=False))
        else:
            outs.append(attend(chunk, first, last))
    out = (outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)).flatten(2, 3)  # [B, H, N_query, D] planar
    out_bands = _split_planar(out, operator)
    if "o" in operator.acts_on:
        out_bands = [
            _once(x, band.left, transpose=True) for x, band in zip(out_bands, operator.bands, strict=True)
        ]
    return _paper_order(out_bands).to(query.dtype)


class _Transformed:
    """Keys or values: ungrouped bands transformed once, grouped bands on request."""

    def __init__(self, x: Tensor, operator: CameraOperator, *, active: bool, extra_tokens: int) -> None:
        self.operator = operator
        self.active = active
        self.extra = None
        if extra_tokens:
            self.extra = _join(_split(x[:, :, operator.num_keys :], operator))
        bands = _split(x[:, :, : operator.num_keys], operator)
        self.bands = [
            _once(x_band, band.right) if active and not band.grouped else x_band
            for x_band, band in zip(bands, operator.bands, strict=True)
        ]

    def for_cameras(self, first: int, last: int) -> Tensor:
        """All tokens as the query cameras ``first`` to ``last`` see them, [B, H, G, N, D] planar."""
        pieces = []
        for x, band in zip(self.bands, self.operator.bands, strict=True):
            if self.active and band.grouped and band.right is not None:
                pieces += _per_camera(x, band, first, last)
            else:
                pieces += [plane[:, :, None].flatten(-2).expand(-1, -1, last - first, -1, -1) for plane in x]
        joined = torch.cat(_same_dtype(pieces), dim=-1)
        if self.extra is not None:
            extra = self.extra[:, :, None].expand(-1, -1, last - first, -1, -1).to(joined.dtype)
            joined = torch.cat([joined, extra], dim=3)
        return joined


def _same_dtype(pieces: list[Tensor]) -> list[Tensor]:
    dtype = pieces[0].dtype
    for piece in pieces[1:]:
        dtype = torch.promote_types(dtype, piece.dtype)
    return [piece.to(dtype) for piece in pieces]


def _attention(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
    """Plain attention of each camera's queries [B, H, G, P, D]; ``seen`` is [B or 1, G or 1, N] booleans."""
    batch, heads = query.shape[:2]
    mask = alive = None
    if seen is not None:
        alive = seen.any(-1)[:, None, :, None, None]
        mask = (seen | ~seen.any(-1, keepdim=True)).expand(batch, -1, -1)[:, :, None]
        mask = mask.repeat_interleave(heads, dim=0)
    # Fused kernels take four axes: cameras stand where heads usually do.
    out = scaled_dot_product_attention(
        query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), attn_mask=mask
    ).unflatten(0, (batch, heads))
    if alive is not None:
        out = torch.where(alive, out, torch.zeros_like(out))
    return out


def _compute_dtype(query: Tensor) -> torch.dtype:
    if query.dtype != torch.float64 and torch.is_autocast_enabled(query.device.type):
        return torch.get_autocast_dtype(query.device.type)
    return query.dtype


def _split(x: Tensor, operator: CameraOperator) -> list[Planes]:
    """Channels in the paper's order to the planes of each band."""
    bands = x.split([band.width for band in operator.bands], dim=-1)
    return [
        x_band.unflatten(-1, (band.num_blocks, band.copies, band.size))
        .movedim(-1, -3)
        .contiguous()
        .unbind(-3)
        for x_band, band in zip(bands, operator.bands, strict=True)
    ]


def _split_planar(x: Tensor, operator: CameraOperator) -> list[Planes]:
    bands = x.split([band.width for band in operator.bands], dim=-1)
    return [
        x_band.unflatten(-1, (band.size, band.num_blocks, band.copies)).unbind(-3)
        for x_band, band in zip(bands, operator.bands, strict=True)
    ]


def _join(bands: list[Planes]) -> Tensor:
    # One cat of all planes: of a cat of cats a compiler makes copies.
    return torch.cat(_same_dtype([plane.flatten(-2) for planes in bands for plane in planes]), dim=-1)


def _paper_order(bands: list[Planes]) -> Tensor:
    return torch.cat(_same_dtype([torch.stack(planes, dim=-1).flatten(-3) for planes in bands]), dim=-1)


def _unsqueezed(axis: int) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.unsqueeze(axis)


def _once(planes: Planes, block: Block | None, *, transpose: bool = False) -> Planes:
    """Apply a per-token block; a factor may serve a run of tokens."""
    if block is None:
        return planes
    spread = [plane.unflatten(2, (block.entries(2), -1)) for plane in planes]  # [B, H, E, span, M, copies]
    turned = apply_to_planes(block.map_tensors(_unsqueezed(3)), spread, transpose=transpose)
    return tuple(plane.flatten(2, 3) for plane in turned)


def _per_camera(planes: Planes, band: Band, first: int, last: int) -> list[Tensor]:
    """A grouped band for some query cameras, [B, H, G, N, M * copies] for each plane."""
    assert band.right is not None
    block = band.right.map_tensors(lambda tensor: tensor[:, :, first:last].unsqueeze(4))
    spread = [plane.unflatten(2, (band.right.entries(3), -1))[:, :, None] for plane in planes]
    return [plane.flatten(3, 4).flatten(-2) for plane in apply_to_planes(block, spread)]
