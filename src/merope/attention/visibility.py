"""Which keys a query may see, as a mask: for the oracle and for backends that take one."""

import torch
from torch import Tensor

from merope.operators import CameraOperator


def visible_keys(
    operator: CameraOperator, extra_tokens: int, key_mask: Tensor | None, *, frame_causal: bool
) -> Tensor | None:
    """``key_mask`` and `camera_attention`'s frame-causal rule as booleans ``[B or 1, 1, N_query or 1, N_key]``.

    Extra tokens are counted on both axes. None where every query sees every key.
    """
    seen = None if key_mask is None else key_mask[:, None, None, :]
    if frame_causal:
        per_camera = operator.num_queries // operator.num_query_cameras
        device = next((tensor.device for tensor in operator.tensors()), None)
        if key_mask is not None:
            device = key_mask.device
        camera = torch.arange(operator.num_queries, device=device) // per_camera
        sees_below = operator.num_keys - operator.num_queries + (camera + 1) * per_camera
        # An extra query sees no camera's key.
        sees_below = torch.cat([sees_below, sees_below.new_zeros(extra_tokens)])
        key = torch.arange(operator.num_keys + extra_tokens, device=device)
        past = (key < sees_below[:, None]) | (key >= operator.num_keys)
        seen = past[None, None] if seen is None else seen & past
    return seen
