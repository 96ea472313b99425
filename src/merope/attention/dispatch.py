"""`camera_attention`: checks the call, picks a backend, runs it."""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from merope.attention.chunked import chunked_attention
from merope.attention.fused import fused_attention, why_not_fused
from merope.attention.reference import reference_attention
from merope.operators import CameraOperator

Backend = Literal["auto", "reference", "chunked", "fused"]

DEFAULT_MEMORY_BUDGET = 256 * 2**20


def available_backends() -> tuple[str, ...]:
    """Names that ``camera_attention(backend=...)`` takes beside "auto"."""
    return ("reference", "chunked", "fused")


def why_not(backend: str, query: Tensor, operator: CameraOperator) -> str | None:
    """The reason a backend cannot serve this call, or None if it can."""
    if backend not in available_backends():
        return f"there is no backend {backend!r}; choose from {available_backends()}"
    if backend == "fused":
        return why_not_fused(query, operator)
    if backend == "reference":
        numbers = operator.num_queries * operator.num_keys * operator.head_dim**2 * operator.batch
        if numbers > 2**31:
            return (
                f"it would hold every U_ab: {numbers:.3g} numbers for {operator.num_queries} x "
                f"{operator.num_keys} pairs of {operator.head_dim} channels"
            )
    return None


def camera_attention(
    query: Float[Tensor, "batch head query_token chan"],
    key: Float[Tensor, "batch head key_token chan"],
    value: Float[Tensor, "batch head key_token chan"],
    operator: CameraOperator,
    *,
    backend: Backend = "auto",
    extra_tokens: int = 0,
    key_mask: Bool[Tensor, "batch key_token"] | None = None,
    frame_causal: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Tensor, "batch head query_token chan"]:
    """Attention in which key b meets query a through U_ab: logits q_a^T U_ab k_b / sqrt(d), values U_ab v_b (Eq. 1).

    Tokens are ordered camera by camera, channels in the order of ``operator.dense()``. The last
    ``extra_tokens`` queries and keys have no camera: their own transform is the identity, so an extra
    query meets every key with U = I, and a camera's query meets an extra key through its own left map
    alone. ``key_mask`` is True where a key may be attended to; a row whose keys are all masked gives
    exactly zero, with zero gradients, and what stands in a masked key has no influence. Keys that the
    operator marks invalid (tokens outside a lens's image) are masked too.

    ``frame_causal`` hides the future: a query camera sees the keys of its own camera and of those before it.
    The query cameras are then the last of the key cameras, each with the same number of tokens, so that
    ``num_keys - num_queries`` tokens of history come first. Extra keys are seen by all, extra queries see
    extra keys alone.

    ``backend`` "auto" takes the fused kernel for a call on a GPU that it can serve (`why_not`) and "chunked" for
    every other; a backend asked for by name serves the call itself or raises.

    Transforms run in the operator's precision whatever the dtype of q, k, v and under autocast; only the
    transformed features are cast. ``memory_budget`` (bytes) bounds the keys and values that are transformed at
    once.

    Raises:
        ValueError: if shapes do not fit the operator, or the backend cannot serve the call.
    """
    _check(query, key, value, operator, extra_tokens, key_mask)
    if frame_causal:
        _check_frame_causal(operator)
    key_mask = _with_valid_keys(key_mask, operator, extra_tokens)
    if backend == "auto":
        backend = "fused" if query.is_cuda and why_not_fused(query, operator) is None else "chunked"
    reason = why_not(backend, query, operator)
    if reason is not None:
        raise ValueError(f"backend {backend!r} cannot serve this call: {reason}. Use 'chunked' or 'auto'.")
    if key_mask is not None:
        # A NaN in a masked key would leak through 0 * NaN.
        kept = key_mask[:, None, :, None]
        key, value = (
            torch.where(kept, x, torch.zeros((), dtype=x.dtype, device=x.device)) for x in (key, value)
        )
    call: dict[str, Any] = {"extra_tokens": extra_tokens, "key_mask": key_mask, "frame_causal": frame_causal}
    if backend == "reference":
        return reference_attention(query, key, value, operator.stored(), **call)
    if backend == "fused":
        return fused_attention(query, key, value, operator.stored(), **call)
    return chunked_attention(query, key, value, operator, **call, memory_budget=memory_budget)


def _with_valid_keys(key_mask: Tensor | None, operator: CameraOperator, extra_tokens: int) -> Tensor | None:
    if operator.key_valid is None:
        return key_mask
    valid = pad(operator.key_valid, (0, extra_tokens), value=True)
    return valid if key_mask is None else key_mask & valid


def _check_frame_causal(operator: CameraOperator) -> None:
    per_camera = operator.num_queries // operator.num_query_cameras
    if operator.num_keys % per_camera or operator.num_keys < operator.num_queries:
        raise ValueError(
            "frame_causal needs the query cameras to be the last of the key cameras, with as many tokens each; got "
            f"{operator.num_query_cameras} query cameras of {per_camera} tokens and {operator.num_keys} keys. Mask "
            "keys with key_mask= where cameras have different numbers of tokens."
        )


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    extra_tokens: int,
    key_mask: Tensor | None,
) -> None:
    if extra_tokens < 0:
        raise ValueError(f"extra_tokens must be >= 0; got {extra_tokens}.")
    for name, tensor, tokens in (
        ("query", query, operator.num_queries),
        ("key", key, operator.num_keys),
        ("value", value, operator.num_keys),
    ):
        if tensor.ndim != 4:
            raise ValueError(
                f"{name} must have shape [batch, head, token, channel]; got {list(tensor.shape)}."
            )
        if tensor.shape[-1] != operator.head_dim:
            raise ValueError(
                f"{name} has {tensor.shape[-1]} channels per head; the operator has "
                f"{' + '.join(str(band.width) for band in operator.bands)} = {operator.head_dim}."
            )
        if tensor.shape[2] != tokens + extra_tokens:
            raise ValueError(
                f"{name} has {tensor.shape[2]} tokens; expected {tokens} of the operator's cameras + "
                f"{extra_tokens} extra = {tokens + extra_tokens}. Pass extra_tokens= for tokens without a camera."
            )
        if tensor.shape[0] != operator.batch:
            raise ValueError(f"{name} has batch {tensor.shape[0]}; the operator has {operator.batch}.")
    if key.shape[1] != query.shape[1] or value.shape[1] != query.shape[1]:
        raise ValueError(
            f"query, key and value must have equally many heads; got {query.shape[1]}, {key.shape[1]}, {value.shape[1]}."
        )
    if operator.num_heads not in (1, query.shape[1]):
        raise ValueError(
            f"the operator tells {operator.num_heads} heads apart; query has {query.shape[1]}. Make the encoding for as "
            "many heads as attention has (num_heads=)."
        )
    device = next((tensor.device for tensor in operator.tensors()), query.device)
    if not query.device == key.device == value.device == device:
        raise ValueError(
            f"query, key, value and operator must share a device; got {query.device}, {key.device}, "
            f"{value.device} and {device}. Move the operator with operator.to(query.device)."
        )
    if key_mask is not None:
        wanted = (operator.batch, operator.num_keys + extra_tokens)
        if key_mask.dtype != torch.bool or tuple(key_mask.shape) != wanted:
            raise ValueError(
                f"key_mask must be boolean with shape {list(wanted)}; got {key_mask.dtype} {list(key_mask.shape)}."
            )
