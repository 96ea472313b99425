"""What additive encodings share: the backbone's rotary embedding as their operator, and finished features."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import Claims, assemble, key_rays
from merope.encodings.native import backbone_widths, native_band
from merope.operators import CameraOperator

ADDITIVE_CLAIMS = Claims(metric=False, per_token=True, norm_preserving=False)
"""An absolute map of a camera depends on the frame it is written in, and what is added to q and k changes their norm."""


def backbone_operator(
    queries: ViewRays,
    keys: ViewRays | None,
    *,
    head_dim: int,
    base: float,
    dtype: torch.dtype,
    device: torch.device | str,
) -> CameraOperator:
    """Wan's own rotary embedding over the whole head, on queries and keys; no token is masked.

    The backbone attends to tokens without a ray too. They have no features, and that is all.
    """
    keys = key_rays(queries, keys)
    band = native_band(queries, keys, widths=backbone_widths(head_dim), base=base)
    operator = assemble((band,), queries, keys, acts_on="qk", dtype=dtype, device=device)
    return replace(operator, key_valid=None)


def finished_features(
    features: Float[Tensor, "batch view token feature"],
    valid: Bool[Tensor, "batch view token"],
    *,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Float[Tensor, "batch view_token feature"]:
    """Features in token order, zero where a token has no ray, cast and moved."""
    return torch.where(valid[..., None], features, 0).flatten(1, 2).to(dtype).to(device)
