"""ReCamMaster: the pose of a token's camera, added to what attention reads (Bai et al. 2025)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.additive import ADDITIVE_CLAIMS, backbone_operator, finished_features
from merope.encodings.base import ActsOn, Claims, Facts, require_positive
from merope.encodings.first_view import in_first_view
from merope.encodings.native import backbone_widths
from merope.encodings.scale import TranslationScale, warn_features_beyond_reach
from merope.operators import CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class ReCamMaster:
    """Twelve numbers per camera: [R | o] of its camera-to-world pose in the first view's frame, row by row.

    All tokens of a view have the same. Axes are OpenCV's (x right, y down, z forward), which is what the
    release turns its Unreal cameras into before it does the same; its translations are metres.
    """

    facts: ClassVar[Facts] = Facts(
        title="ReCamMaster", source="Bai et al. 2025", placement="backbone", needs_scale=True
    )

    head_dim: int = 128
    scale: TranslationScale = TranslationScale()
    """Units per metre of every camera centre."""
    native_base: float = 10_000.0
    """Base of the backbone's rotary frequencies."""

    def __post_init__(self) -> None:
        backbone_widths(self.head_dim)
        require_positive(native_base=self.native_base)

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
        return 12

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The backbone's own rotary embedding: the cameras are in what q, k and v are projected from."""
        return backbone_operator(
            queries, keys, head_dim=self.head_dim, base=self.native_base, dtype=dtype, device=device
        )

    def features(
        self, rays: ViewRays, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Float[Tensor, "batch token feature"]:
        """[R | o] of every token's camera, row-major; zero where a token has no ray."""
        local = in_first_view(rays, rays)
        center = self.scale.per_metre * local.center_world
        poses = torch.cat([local.R_world_cam, center[..., None]], -1).flatten(-2)  # [B, V, 12]
        per_token = poses[:, :, None].expand(*rays.valid.shape, 12)
        warn_features_beyond_reach("ReCamMaster", self.scale, rays, poses)
        return finished_features(per_token, rays.valid, dtype=dtype, device=device)
