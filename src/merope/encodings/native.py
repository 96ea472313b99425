"""The backbone's own spatio-temporal rotary embedding, and the encoding that has nothing else."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from merope.cameras.rays import ViewRays
from merope.encodings.base import (
    ActsOn,
    Claims,
    Facts,
    assemble,
    kept,
    key_rays,
    require_acts_on,
    require_positive,
)
from merope.encodings.rotary import native_phases, rotary_band
from merope.operators import Band, CameraOperator


def native_band(
    queries: ViewRays, keys: ViewRays, *, widths: tuple[int, int, int], base: float
) -> Band | None:
    """Rotary embedding over (time, row, column) with ``widths`` channels each (U^native of Eq. 11).

    Pairs are interleaved and axis frequencies are ``base ** (-2 m / width)``, as in Wan; the pairwise
    rotation is by (key position - query position). None where no axis has channels.
    """
    if not sum(widths):
        return None
    query_phases, key_phases = (native_phases(rays, widths=widths, base=base) for rays in (queries, keys))
    return rotary_band("native", query_phases, key_phases)


def backbone_widths(head_dim: int) -> tuple[int, int, int]:
    """Wan's split of a whole head into (time, row, column): a third each, the remainder with time.

    44, 42, 42 of 128.

    Raises:
        ValueError: if the head has an odd number of channels, or no pair for each axis.
    """
    if head_dim % 2 or head_dim < 6:
        raise ValueError(f"head_dim must be even and at least 6, a pair for each axis; got {head_dim}.")
    side = 2 * (head_dim // 6)
    return head_dim - 2 * side, side, side


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """No camera: the native rotary band alone, every other channel untouched.

    The same branch with the same number of parameters and no geometry; what a camera encoding is
    compared with.
    """

    facts: ClassVar[Facts] = Facts(
        title="native rotary alone", source="Su et al. 2024, as in Wan (Team Wan et al. 2025)"
    )

    head_dim: int = 128
    native_widths: tuple[int, int, int] = (16, 8, 8)
    """Channels of the time, row and column axes."""
    native_base: float = 10_000.0
    acts_on: ActsOn = "qkvo"
    """The band on values too, as in MeRoPE's branch; "qk" is the usual rotary embedding."""

    def __post_init__(self) -> None:
        if any(width % 2 or width < 0 for width in self.native_widths):
            raise ValueError(f"native_widths must be even and >= 0; got {self.native_widths}.")
        if sum(self.native_widths) > self.head_dim:
            raise ValueError(
                f"native_widths {self.native_widths} sum to {sum(self.native_widths)}, over head_dim "
                f"{self.head_dim}."
            )
        require_positive(native_base=self.native_base)
        require_acts_on(self.acts_on)

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
        bands = (
            kept("keep", self.head_dim - sum(self.native_widths)),
            native_band(queries, keys, widths=self.native_widths, base=self.native_base),
        )
        return assemble(bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEncoding:
    """The backbone as it is: no branch, no features, U = I."""

    facts: ClassVar[Facts] = Facts(
        title="no camera encoding", source="the backbone alone (Table 2, first row)", placement="none"
    )

    head_dim: int = 128
    acts_on: ActsOn = "qkvo"

    def __post_init__(self) -> None:
        require_positive(head_dim=self.head_dim)
        require_acts_on(self.acts_on)

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
        """The identity for every pair."""
        keys = key_rays(queries, keys)
        return assemble(
            (kept("keep", self.head_dim),), queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
        )
