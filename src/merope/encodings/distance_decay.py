"""Distance decay: tokens of far cameras mean less, in the manner of ALiBi (Press et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from merope.cameras.rays import ViewRays
from merope.encodings.base import ActsOn, Claims, Facts, assemble, key_rays, offsets_query, require_acts_on
from merope.operators import Band, CameraOperator, Rotate2


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceDecay:
    """``U_ab = exp(-slope |Δo|) I``, one slope per head: a logit fades with the distance between two cameras.

    ALiBi subtracts slope times distance from a logit. An operator is linear in the key, so here the
    distance shrinks the logit towards zero instead. Slopes are ALiBi's, ``2 ** (-8 h / H)`` for head h of
    H, per metre. No direction and no rotation is seen. The worked example of docs/adding-an-encoding.md.
    """

    facts: ClassVar[Facts] = Facts(
        title="distance decay", source="an example, in the manner of ALiBi (Press et al. 2022)"
    )

    head_dim: int = 128
    num_heads: int = 6
    """Heads of attention; each has its own slope."""
    acts_on: ActsOn = "qk"
    """With "qkvo" values fade too."""

    def __post_init__(self) -> None:
        if self.head_dim < 2 or self.head_dim % 2:
            raise ValueError(f"head_dim must be even and positive; got {self.head_dim}.")
        if self.num_heads < 1:
            raise ValueError(f"num_heads must be at least 1; got {self.num_heads}.")
        require_acts_on(self.acts_on)

    @property
    def claims(self) -> Claims:
        """A distance is not the whole pose, and two tokens cannot tell it apart from each other."""
        return Claims(metric=False, per_token=False, norm_preserving=False)

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
        heads = torch.arange(1, self.num_heads + 1, dtype=torch.float64)
        slopes = 2 ** (-8 * heads / self.num_heads)  # [H], per metre
        distances = offsets_query(queries, keys).norm(dim=-1)  # [B, G, V]
        decay = torch.exp(-slopes[:, None, None] * distances[:, None])[..., None]  # [B, H, G, V, 1]
        band = Band(
            name="decay",
            width=self.head_dim,
            size=2,
            num_blocks=1,
            # A rotation by nothing, shrunk: one entry per key camera serves all of its tokens.
            right=Rotate2(decay, torch.zeros_like(decay)),
            grouped=True,
        )
        return assemble((band,), queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)
