"""Which keys a query may see, as a mask: for the oracle and for backends that take one."""

import torch
from torch import Tensor

from merope.operators import CameraOperator


def seen_by_first(operator: CameraOperator) -> int:
    """How many keys the first query camera sees under the frame-causal rule: all history and its own."""
    per_camera = operator.num_queries // operator.num_query_cameras
    return operator.num_keys - operator.num_queries + per_camera


def visible_keys(
    operator: CameraOperator, extra_tokens: int, key_mask: Tensor | None, causal_offset: int | None
) -> Tensor | None:
    """``key_mask`` and `camera_attention`'s frame-causal rule as booleans ``[B or 1, 1, N_query or 1, N_key]``.

    ``causal_offset`` is how many keys the first query camera sees (`seen_by_first`); None hides nothing.

    Extra tokens are counted on both axes. None where every query sees every key.
    """
    seen = None if key_mask is None else key_mask[:, None, None, :]
    if causal_offset is not None:
        per_camera = operator.num_queries // operator.num_query_cameras
        device = next((tensor.device for tensor in operator.tensors()), None)
        if key_mask is not None:
            device = key_mask.device
        camera = torch.arange(operator.num_queries, device=device) // per_camera
        sees_below = causal_offset + camera * per_camera
        # An extra query sees no camera's key.
        sees_below = torch.cat([sees_below, sees_below.new_zeros(extra_tokens)])
        key = torch.arange(operator.num_keys + extra_tokens, device=device)
        past = (key < sees_below[:, None]) | (key >= operator.num_keys)
        seen = past[None, None] if seen is None else seen & past
    return seen
