"""The oracle: attention with every U_ab as a matrix, straight from Eq. 1."""

import math

import torch
from torch import Tensor

from merope.attention.visibility import seen_by_cameras, seen_by_extra, seen_by_first
from merope.operators import CameraOperator


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    *,
    extra_tokens: int,
    key_mask: Tensor | None,
    frame_causal: bool,
) -> Tensor:
    """Eq. 1 with dense U_ab; memory grows with queries x keys x channels squared."""
    pairwise = _dense_with_extras(operator, extra_tokens).to(query.device)
    dtype = torch.promote_types(query.dtype, pairwise.dtype)
    with torch.autocast(query.device.type, enabled=False):
        pairwise, q, k, v = (x.to(dtype) for x in (pairwise, query, key, value))
        q_pairs, k_pairs, v_pairs = (
            pairwise if part in operator.acts_on else None for part in ("q", "k", "v")
        )
        if (q_pairs is None) != (k_pairs is None) or ("v" in operator.acts_on) != ("o" in operator.acts_on):
            raise ValueError(
                f"the reference needs q with k and v with o in acts_on; got {sorted(operator.acts_on)}."
            )
        if q_pairs is None:
            logits = torch.einsum("bhad,bhcd->bhac", q, k)
        else:
            logits = torch.einsum("bhad,bhacde,bhce->bhac", q, pairwise, k)
        logits = logits / math.sqrt(query.shape[-1])
        offset = seen_by_first(operator) if frame_causal else None
        seen = _seen_by_queries(operator, extra_tokens, key_mask, offset)  # [B|1, 1, Nq|1, Nk]
        if seen is not None:
            alive = seen.any(-1, keepdim=True)
            logits = logits.masked_fill(~seen, float("-inf"))
            logits = torch.where(alive, logits, torch.zeros_like(logits))
        weights = logits.softmax(-1)
        if v_pairs is None:
            out = torch.einsum("bhac,bhcd->bhad", weights, v)
        else:
            out = torch.einsum("bhac,bhacde,bhce->bhad", weights, pairwise, v)
        if seen is not None:
            out = torch.where(alive, out, torch.zeros_like(out))
    return out.to(query.dtype)


def _dense_with_extras(operator: CameraOperator, extra_tokens: int) -> Tensor:
    pairwise = operator.dense()
    if pairwise.ndim == 5:
        pairwise = pairwise[:, None]
    if extra_tokens == 0:
        return pairwise
    batch, heads, queries, keys, dim, _ = pairwise.shape
    full = torch.eye(dim, dtype=pairwise.dtype, device=pairwise.device).repeat(
        batch, heads, queries + extra_tokens, keys + extra_tokens, 1, 1
    )
    full[:, :, :queries, :keys] = pairwise
    full[:, :, :queries, keys:] = operator.dense_left()[:, :, :, None]
    return full


def _seen_by_queries(
    operator: CameraOperator, extra_tokens: int, key_mask: Tensor | None, causal_offset: int | None
) -> Tensor | None:
    call = (operator, extra_tokens, key_mask, causal_offset)
    by_camera, by_extra = seen_by_cameras(*call), seen_by_extra(*call)
    if by_camera is None or by_extra is None or causal_offset is None:
        return None if by_camera is None else by_camera[:, None]
    rows = by_camera.repeat_interleave(operator.num_queries // operator.num_query_cameras, dim=1)
    return torch.cat([rows, by_extra.expand(-1, extra_tokens, -1)], dim=1)[:, None]
