"""Rotary bands from scalar coordinates of tokens: what native, image-plane and Plücker bands share."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.operators import Band, Rotate2


def inverse_power_frequencies(
    width: int, base: float, dtype: torch.dtype = torch.float64
) -> Float[Tensor, " pair"]:
    """``base ** (-2 m / width)`` for the ``width / 2`` pairs m of an axis (Su et al. 2024)."""
    return base ** (-torch.arange(0, width, 2, dtype=dtype) / max(width, 1))


def rotary_band(
    name: str,
    query_phases: Float[Tensor, "batch query_token pair"],
    key_phases: Float[Tensor, "batch key_token pair"],
) -> Band:
    """Pairs turned by (key phase - query phase), radians, once per token.

    Phases are float64: metric ones reach thousands of radians. Their cosines are made in their precision.
    """
    return Band(
        name=name,
        width=2 * query_phases.shape[-1],
        size=2,
        num_blocks=query_phases.shape[-1],
        left=_plane(query_phases),
        right=_plane(key_phases),
    )


def _plane(phases: Tensor) -> Rotate2:
    phases = phases[:, None]  # [B, 1, N, M]
    return Rotate2(phases.cos(), phases.sin())


def native_phases(
    rays: ViewRays, *, widths: tuple[int, int, int], base: float
) -> Float[Tensor, "batch token pair"]:
    """Phases of the backbone's own rotary embedding over (time, row, column), ``widths`` channels each."""
    batch, views, tokens = rays.valid.shape
    positions = (
        rays.time[:, :, None].expand(batch, views, tokens),
        rays.row.expand(batch, views, tokens),
        rays.col.expand(batch, views, tokens),
    )
    return axis_phases(positions, [inverse_power_frequencies(width, base) for width in widths]).flatten(1, 2)


def axis_phases(positions: Sequence[Tensor], frequencies: Sequence[Tensor]) -> Tensor:
    """Position times frequency for every axis in turn: [...] and [pair] each, to [..., pairs of all axes]."""
    return torch.cat(
        [position[..., None] * omega for position, omega in zip(positions, frequencies, strict=True)], dim=-1
    )
