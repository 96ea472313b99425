"""CameraCtrl's Plücker map, added before the query and key projections as in Lyra 2.0 (He et al. 2025, Shen et al. 2026)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.additive import ADDITIVE_CLAIMS, backbone_operator, finished_features
from merope.encodings.base import ActsOn, Claims, Facts, require_positive
from merope.encodings.first_view import in_first_view, moments
from merope.encodings.native import backbone_widths
from merope.encodings.scale import TranslationScale, warn_features_beyond_reach
from merope.operators import CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraCtrl:
    """Six Plücker coordinates (o x d, d) per ray, in the first view's frame: d = R_first^T R_i d^c, camera-to-world.

    The rays of a token are that of its centre, or those of 2 x 2 (n x n) equal parts of it. The paper's baseline
    does not say how finely rays are sampled; Lyra 2.0 gives every pixel of a token its own.

    Raises:
        ValueError: if an option makes no sense; by ``features``, if ``rays_per_side`` > 1 and the rays carry no
            lens.
    """

    facts: ClassVar[Facts] = Facts(
        title="CameraCtrl-style ray features",
        source="He et al. 2025, injected as in Lyra 2.0 (Shen et al. 2026)",
        placement="backbone",
        needs_scale=True,
    )

    head_dim: int = 128
    scale: TranslationScale = TranslationScale()
    """Units per metre of every camera centre."""
    origin: Literal["moment", "center"] = "moment"
    """First three numbers of a ray: "moment" is o x d (CameraCtrl), "center" is o (Lyra 2.0)."""
    rays_per_side: int = 1
    """n: a token has n x n rays and 6 n^2 numbers, ordered (coordinate, row, column)."""
    init: Literal["zero", "lyra"] = "zero"
    """How the learned map starts: "zero" leaves the pretrained model as it is, "lyra" is the released
    truncated normal of deviation ``dim ** -0.5``, which does not."""
    native_base: float = 10_000.0
    """Base of the backbone's rotary frequencies."""

    def __post_init__(self) -> None:
        backbone_widths(self.head_dim)
        for name, choices in (("origin", ("moment", "center")), ("init", ("zero", "lyra"))):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be {choices[0]!r} or {choices[1]!r}; got {getattr(self, name)!r}."
                )
        if self.rays_per_side < 1:
            raise ValueError(f"rays_per_side must be at least 1; got {self.rays_per_side}.")
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
        return 6 * self.rays_per_side**2

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The backbone's own rotary embedding: the cameras are in what q and k are projected from."""
        return backbone_operator(
            queries, keys, head_dim=self.head_dim, base=self.native_base, dtype=dtype, device=device
        )

    def features(
        self, rays: ViewRays, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Float[Tensor, "batch token feature"]:
        """Plücker coordinates of every token's rays; zero where a token, or a part of it, has no ray."""
        local = in_first_view(rays, rays)
        dirs_cam, valid = self._rays_of_tokens(local)
        with torch.autocast("cpu", enabled=False):
            dirs = torch.einsum("bvxy,bvpsy->bvpsx", local.R_world_cam, dirs_cam)
        center = (self.scale.per_metre * local.center_world)[:, :, None, None].expand_as(dirs)
        first = moments(center, dirs) if self.origin == "moment" else center
        lines = torch.where(valid[..., None], torch.cat([first, dirs], -1), 0)  # [B, V, P, n^2, 6]
        warn_features_beyond_reach("CameraCtrl", self.scale, rays, lines)
        return finished_features(lines.mT.flatten(-2), rays.valid, dtype=dtype, device=device)

    def _rays_of_tokens(
        self, rays: ViewRays
    ) -> tuple[Float[Tensor, "batch view token part 3"], Bool[Tensor, "batch view token part"]]:
        """Unit rays through the centres of every token's n x n parts, row by row."""
        side = self.rays_per_side
        if side == 1:
            return rays.dirs_cam[..., None, :], rays.valid[..., None]
        if rays.lens is None:
            raise ValueError(
                f"CameraCtrl(rays_per_side={side}) finds rays between the tokens' and needs their lens. Pass it as "
                "ViewRays.from_poses(camera=...)."
            )
        rows, cols = rays.lens.height, rays.lens.width
        dirs, valid = rays.lens.resize(height=side * rows, width=side * cols).pixel_rays()
        dirs, valid = (
            # [*view, rows n, cols n, C] to [*view, rows, cols, n, n, C]
            values.unflatten(-3, (rows, side)).unflatten(-2, (cols, side)).transpose(-4, -3)
            for values in (dirs, valid[..., None])
        )
        dirs, valid = (values.flatten(-5, -4).flatten(-3, -2) for values in (dirs, valid))
        shape = (*rays.valid.shape, side * side)
        return dirs.expand(*shape, 3), valid[..., 0].expand(shape)
