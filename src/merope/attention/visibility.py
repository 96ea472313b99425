"""Which keys a query may see, as a mask: for the oracle and for backends that take one."""

import torch
from torch import Tensor

from merope.operators import CameraOperator


def seen_by_first(operator: CameraOperator) -> int:
    """How many keys the first query camera sees under the frame-causal rule: all history and its own."""
    per_camera = operator.num_queries // operator.num_query_cameras
    return operator.num_keys - operator.num_queries + per_camera


def seen_by_cameras(
    operator: CameraOperator, extra_tokens: int, key_mask: Tensor | None, causal_offset: int | None
) -> Tensor | None:
    """Which keys, extra ones last, the queries of each camera see: ``[B or 1, G or 1, N_key]``, or None where all.

    ``causal_offset`` is how many keys the first query camera sees (`seen_by_first`); None hides nothing.
    """
    seen = None if key_mask is None else key_mask[:, None]
    if causal_offset is None:
        return seen
    device = _device(operator, key_mask)
    per_camera = operator.num_queries // operator.num_query_cameras
    sees_below = causal_offset + per_camera * torch.arange(operator.num_query_cameras, device=device)
    key = torch.arange(operator.num_keys + extra_tokens, device=device)
    past = ((key < sees_below[:, None]) | (key >= operator.num_keys))[None]
    return past if seen is None else seen & past


def seen_by_extra(
    operator: CameraOperator, extra_tokens: int, key_mask: Tensor | None, causal_offset: int | None
) -> Tensor | None:
    """The same for queries without a camera, ``[B or 1, 1, N_key]``: under the frame-causal rule extra keys alone."""
    seen = None if key_mask is None else key_mask[:, None]
    if causal_offset is None:
        return seen
    key = torch.arange(operator.num_keys + extra_tokens, device=_device(operator, key_mask))
    extra = (key >= operator.num_keys)[None, None]
    return extra if seen is None else seen & extra


def _device(operator: CameraOperator, key_mask: Tensor | None) -> torch.device | None:
    if key_mask is not None:
        return key_mask.device
    return next((tensor.device for tensor in operator.tensors()), None)
