"""What encodings with a predicted depth share: its interval, the displacement band, the operator in two steps."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import DepthEncoding, offsets_query
from merope.operators import Band, CameraOperator, Rotate2


def log_depth_ends(
    depth: Float[Tensor, "*batch 2"], *, limits: tuple[float, float], max_log: float
) -> Float[Tensor, "*batch 2"]:
    """Logarithms of the nearest and the farthest depth of each token's interval.

    ``depth`` holds the logarithm l and the half-width s; the ends are l - s and l + s, no greater than ``max_log``
    and within ``limits``. An end at its limit passes its gradient on, an end beyond it passes none.
    """
    low, high = math.log(limits[0]), min(max_log, math.log(limits[1]))
    middle, half_width = depth.unbind(-1)
    return torch.stack([middle - half_width, middle + half_width], -1).clamp(low, high)


def displacement_band(
    queries: ViewRays, keys: ViewRays, omega: Float[Tensor, " pair"], *, per_metre: float
) -> Band:
    """Rotary band over the key camera's centre seen from the query camera (Δo_{j|i}), three axes in turn.

    Depth plays no part in it: one entry per key camera.
    """
    offsets = per_metre * offsets_query(queries, keys)
    phases = (offsets[..., None] * omega).flatten(-2)[:, None]  # [B, 1, G, V, 3 F]
    pairs = phases.shape[-1]
    right = Rotate2(phases.cos(), phases.sin())
    return Band(name="trans", width=2 * pairs, size=2, num_blocks=pairs, right=right, grouped=True)


def offsets_of_tokens(
    queries: ViewRays, keys: ViewRays, *, per_metre: float
) -> Float[Tensor, "batch query_view key_token 3"]:
    """Δo_{j|i} of every key token's camera, in units of the translation scale."""
    return per_metre * offsets_query(queries, keys).repeat_interleave(keys.tokens_per_view, dim=2)


def require_depths(operator: CameraOperator, query_depth: Tensor, key_depth: Tensor) -> None:
    """Raise ValueError unless there are two numbers for every query token and every key token."""
    for name, depth, tokens in (
        ("query_depth", query_depth, operator.num_queries),
        ("key_depth", key_depth, operator.num_keys),
    ):
        if tuple(depth.shape) != (operator.batch, tokens, 2):
            raise ValueError(
                f"{name} must have shape [batch, token, 2] = {[operator.batch, tokens, 2]}: the logarithm of the depth "
                f"and the half-width of its interval; got {list(depth.shape)}."
            )


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Depths meet displacements in the precision that they come in, whatever surrounds them."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def with_band_of_depth(fixed: CameraOperator, name: str, *, left: Rotate2, right: Rotate2) -> CameraOperator:
    """The operator with a grouped band of pairs put in after its first band, the displacement."""
    width = 2 * left.cos.shape[-1]
    band = Band(name=name, width=width, size=2, num_blocks=width // 2, left=left, right=right, grouped=True)
    displacement, *rest = fixed.bands
    return replace(fixed, bands=(displacement, band, *rest))


def operator_under_depths(
    encoding: DepthEncoding,
    queries: ViewRays,
    keys: ViewRays | None,
    query_depth: Tensor | None,
    key_depth: Tensor | None,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
) -> CameraOperator:
    """The operator in float64 on the CPU, then cast and moved.

    Where a depth is not given it is the untrained head's; keys that are the queries have the queries' depth.
    """
    relations = encoding.relations(queries, keys, dtype=torch.float64)
    untrained = torch.tensor(encoding.depth_bias, dtype=torch.float64)
    if key_depth is None and keys is None:
        key_depth = query_depth
    depths = (
        untrained.expand(rays.batch, rays.num_tokens, 2) if depth is None else depth.to("cpu", torch.float64)
        for rays, depth in ((queries, query_depth), (queries if keys is None else keys, key_depth))
    )
    operator = encoding.operator_at(relations, *depths)
    return operator.map_tensors(lambda tensor: tensor.to(dtype)).to(device)
