"""ViewRope: the relative rotation of two rays, and no translation (Xiang et al. 2026)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from merope.cameras.rays import ViewRays
from merope.encodings.base import (
    ActsOn,
    Claims,
    Facts,
    assemble,
    key_rays,
    require_acts_on,
    require_positive,
)
from merope.encodings.native import native_band
from merope.encodings.ucpe import ray_frames
from merope.geometry.sphere import minrot
from merope.operators import Band, CameraOperator, Rotate3


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRope:
    """Triplets of queries and keys are turned by their ray's own rotation Omega = R_i B(d).

    Logits see ``Omega_a^T Omega_b = B(d_p)^T R_ij B(d_q)``: how one ray has to turn to become the other,
    wherever the two cameras stand. With B the minimum rotation of Eq. 5 this is U^rot of Eq. 6. Orthogonal and
    per token; it cannot be metric, for it is blind to every translation.

    No public text says how the ray's rotation is built or how many channels it has. Here triplets fill three
    quarters of the head, and the native rotary band the rest, as in MeRoPE's.

    Degenerate: the frame jumps at -e_z with "minrot" (no frame is continuous on the whole sphere), and at +-e_y
    with "cross_product".

    Raises:
        ValueError: if the native widths do not fit the head, or leave a width that is not a multiple of 3.
    """

    facts: ClassVar[Facts] = Facts(
        title="ViewRope", source="Xiang et al. 2026, arXiv 2602.07854; frames and layout a reconstruction"
    )

    head_dim: int = 128
    native_widths: tuple[int, int, int] | None = None
    """Channels of the time, row and column axes; all others are triplets. None is an eighth of the head, a
    sixteenth and a sixteenth: (16, 8, 8) of 128."""
    native_base: float = 10_000.0
    """Base of the native rotary frequencies."""
    frame: Literal["minrot", "cross_product"] = "minrot"
    """The ray's frame B: the minimum rotation of Eq. 5, or UCPE's with a level x axis."""
    acts_on: ActsOn = "qk"
    """Values stay as they are in ViewRope."""

    def __post_init__(self) -> None:
        widths = self.resolved_native_widths
        if any(width % 2 or width < 0 for width in widths):
            raise ValueError(
                f"native_widths must be even and >= 0; got {widths} at head_dim {self.head_dim}."
            )
        left = self.head_dim - sum(widths)
        if left <= 0 or left % 3:
            raise ValueError(
                f"head_dim {self.head_dim} - native {sum(widths)} = {left} channels are no whole number of triplets. "
                "Pass native_widths=(time, row, column) that leave a multiple of 3."
            )
        if self.frame not in ("minrot", "cross_product"):
            raise ValueError(f"frame must be 'minrot' or 'cross_product'; got {self.frame!r}.")
        require_positive(native_base=self.native_base)
        require_acts_on(self.acts_on)

    @property
    def resolved_native_widths(self) -> tuple[int, int, int]:
        """The native widths in force."""
        if self.native_widths is not None:
            return self.native_widths
        return self.head_dim // 8, self.head_dim // 16, self.head_dim // 16

    @property
    def claims(self) -> Claims:
        """Norm-preserving and per token; it sees no translation."""
        return Claims(metric=False, per_token=True, norm_preserving=True)

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator between two sets of rays; ``keys`` None means the queries themselves."""
        keys = key_rays(queries, keys)
        widths = self.resolved_native_widths
        with torch.autocast("cpu", enabled=False):
            rot = Band(
                name="rot",
                width=self.head_dim - sum(widths),
                size=3,
                left=self._ray_rotations(queries),
                right=self._ray_rotations(keys),
            )
            native = native_band(queries, keys, widths=widths, base=self.native_base)
            return assemble((rot, native), queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)

    def _ray_rotations(self, rays: ViewRays) -> Rotate3:
        frames = minrot if self.frame == "minrot" else ray_frames
        rotations = rays.R_world_cam[:, :, None] @ frames(rays.dirs_cam)  # [B, V, P, 3, 3]
        return Rotate3(rotations.flatten(1, 2)[:, None, :, None])
