"""SCoPE (RayPE): a token's ray as a line, added to queries and keys after their rotary embedding."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.additive import ADDITIVE_CLAIMS, backbone_operator, finished_features
from merope.encodings.base import ActsOn, Claims, Facts, require_positive
from merope.encodings.first_view import dirs_world, in_first_view, moments
from merope.encodings.native import backbone_widths
from merope.encodings.scale import TranslationScale, warn_features_beyond_reach
from merope.operators import CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class SCoPE:
    """Seven numbers per ray: direction d, direction of the moment m = o x d, and log |m|, in the first view's frame.

    Queries read (d, m^, s), keys the flipped (m^, d, s): equal projections of both then give the reciprocal
    product of two lines, ``d_a . m_b + m_a . d_b``, which is zero where they meet. The flip is the injection's
    (`merope.adapters.ScopeInjection`); here every token has [d, m^, s].

    Degenerate: a ray through the origin, as all of the first view are, has no moment. There m^ is zero and s the
    logarithm of ``moment_floor``, far from all other values.
    """

    facts: ClassVar[Facts] = Facts(
        title="SCoPE (RayPE)", source="arXiv 2606.27345", placement="backbone", needs_scale=True
    )

    head_dim: int = 128
    scale: TranslationScale = TranslationScale()
    """Units per metre of every camera centre."""
    moment_floor: float = 1e-6
    """Smallest length of a moment, in scaled units."""
    native_base: float = 10_000.0
    """Base of the backbone's rotary frequencies."""

    def __post_init__(self) -> None:
        backbone_widths(self.head_dim)
        require_positive(moment_floor=self.moment_floor, native_base=self.native_base)

    @property
    def acts_on(self) -> ActsOn:
        """The backbone's rotary embedding turns queries and keys."""
        return "qk"

    @property
    def claims(self) -> Claims:
        """Per token alone."""
        return ADDITIVE_CLAIMS

    @property
    def num_features(self) -> int:
        """Numbers per token."""
        return 7

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The backbone's own rotary embedding: the cameras are added to q and k after it."""
        return backbone_operator(
            queries, keys, head_dim=self.head_dim, base=self.native_base, dtype=dtype, device=device
        )

    def features(
        self, rays: ViewRays, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Float[Tensor, "batch token feature"]:
        """[d, m^, log |m|] of every token; zero where a token has no ray."""
        local = in_first_view(rays, rays)
        dirs = dirs_world(local)
        center = (self.scale.per_metre * local.center_world)[:, :, None].expand_as(dirs)
        moment = moments(center, dirs)
        length_sq = moment.square().sum(-1, keepdim=True)
        short = length_sq < self.moment_floor**2
        # The root of zero has no gradient.
        length = torch.where(short, torch.ones_like(length_sq), length_sq).sqrt()
        length = torch.where(short, self.moment_floor, length)
        lines = torch.cat([dirs, moment / length, length.log()], -1)
        warn_features_beyond_reach("SCoPE", self.scale, rays, moment)
        return finished_features(lines, rays.valid, dtype=dtype, device=device)
