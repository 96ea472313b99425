"""The backbone's own spatio-temporal rotary embedding, and the encoding that has nothing else."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import Claims, key_rays, valid_keys
from merope.operators import Band, CameraOperator, Rotate2


def native_band(
    queries: ViewRays,
    keys: ViewRays,
    *,
    widths: tuple[int, int, int],
    base: float,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Band:
    """Rotary embedding over (time, row, column) with ``widths`` channels each (U^native of Eq. 11).

    Pairs are interleaved and axis frequencies are ``base ** (-2 m / width)``, as in Wan; the pairwise
    rotation is by (key position - query position).
    """
    return Band(
        name="native",
        width=sum(widths),
        size=2,
        num_blocks=sum(widths) // 2,
        left=_rotation(queries, widths, base, dtype, device),
        right=_rotation(keys, widths, base, dtype, device),
    )


def _rotation(
    rays: ViewRays, widths: tuple[int, int, int], base: float, dtype: torch.dtype, device: torch.device | str
) -> Rotate2:
    batch, views, tokens = rays.valid.shape
    positions = (
        rays.time[:, :, None].expand(batch, views, tokens),
        rays.row.expand(batch, views, tokens),
        rays.col.expand(batch, views, tokens),
    )
    phases = torch.cat(
        [
            position[..., None] * _frequencies(width, base)
            for position, width in zip(positions, widths, strict=True)
        ],
        dim=-1,
    ).flatten(1, 2)[:, None]  # [B, 1, N, M]
    return Rotate2(phases.cos().to(dtype).to(device), phases.sin().to(dtype).to(device))


def _frequencies(width: int, base: float) -> Tensor:
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / max(width, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """No camera: the native rotary band alone, every other channel untouched.

    The same branch with the same number of parameters and no geometry; what a camera encoding is
    compared with.
    """

    head_dim: int = 128
    native_widths: tuple[int, int, int] = (16, 8, 8)
    """Channels of the time, row and column axes."""
    native_base: float = 10_000.0

    def __post_init__(self) -> None:
        if any(width % 2 or width < 0 for width in self.native_widths):
            raise ValueError(f"native_widths must be even and >= 0; got {self.native_widths}.")
        if sum(self.native_widths) > self.head_dim:
            raise ValueError(
                f"native_widths {self.native_widths} sum to {sum(self.native_widths)}, over head_dim "
                f"{self.head_dim}."
            )
        if not 0 < self.native_base < math.inf:
            raise ValueError(f"native_base must be > 0; got {self.native_base}.")

    @property
    def claims(self) -> Claims:
        """It sees no pose at all."""
        return Claims(metric=False, per_token=True, norm_preserving=True)

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator of the native rotary embedding."""
        keys = key_rays(queries, keys)
        bands = []
        width = sum(self.native_widths)
        if self.head_dim > width:
            bands.append(Band(name="keep", width=self.head_dim - width))
        if width:
            bands.append(
                native_band(
                    queries,
                    keys,
                    widths=self.native_widths,
                    base=self.native_base,
                    dtype=dtype,
                    device=device,
                )
            )
        return CameraOperator(
            bands=tuple(bands),
            batch=queries.batch,
            num_query_cameras=queries.num_views,
            num_queries=queries.num_tokens,
            num_keys=keys.num_tokens,
            key_valid=valid_keys(keys, device),
        )
