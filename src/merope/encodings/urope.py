"""URoPE: key tokens lifted to fixed depths and turned by where the query view sees them (Xie et al. 2026a)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import (
    ActsOn,
    Claims,
    Facts,
    assemble,
    key_rays,
    offsets_query,
    require_acts_on,
    require_positive,
    required_lens,
)
from merope.encodings.projection import axis_rays, bounded_pixels, lens_limit, turned_to_queries
from merope.encodings.rotary import axis_phases, inverse_power_frequencies
from merope.operators import Band, CameraOperator, Rotate2

Spacing = Literal["uniform", "geometric"]
AnchorDepth = Literal["axis", "ray"]


@dataclass(frozen=True, slots=True, kw_only=True)
class URoPE:
    """Rotary embedding over image coordinates, after reprojection from one depth per head.

    Head h lifts key token (j, q) to o_j + d^h r_j(q), with r the ray whose z is 1, projects that point into the
    query camera and turns the pair by its place (u, v) minus the query token's own, in patches: half of the
    channels by u, half by v. Within one view every depth projects onto the token itself, and U is the plain
    two-dimensional rotary embedding. Every U_ab is orthogonal; it sees translation only as parallax, so
    scaling a scene together with the anchors changes nothing.

    Heads and anchors: with at least as many heads as anchors, head h has anchor h mod A (four anchors: 6 heads
    share them 2, 2, 1, 1 and 12 heads 3 each). With fewer (1 or 3 heads) every head divides its channels
    among all anchors, which the source's ablation finds much worse (25.5 dB against 26.0).

    The source describes pinholes. Other lenses are ours: the query's own lens projects, and a ray more than 87
    degrees off the axis, which has no z-depth, is followed for 20 times the depth; ``anchor_depth`` "ray"
    counts depth along the ray instead. What the query view cannot see is brought to the edge of what it can:
    see `bounded_pixels`.

    Raises:
        ValueError: if the head does not hold the pairs, or a value is out of range.
    """

    facts: ClassVar[Facts] = Facts(
        title="URoPE", source="Xie et al. 2026a; no public code, constants are ours", needs_lens=True
    )

    head_dim: int = 128
    num_heads: int = 6
    """Heads of the attention that it serves."""
    num_anchors: int = 4
    depth_min: float = 2.0
    """Nearest anchor, metres."""
    depth_max: float = 20.0
    """Farthest anchor, metres. A single anchor lies in the middle of the two."""
    spacing: Spacing = "uniform"
    """Whether neighbouring anchors have the same difference or the same ratio."""
    anchor_depth: AnchorDepth = "axis"
    """"axis": depth along the key camera's optical axis; "ray": distance along the ray, for fisheyes."""
    base: float = 100.0
    """Base of the rotary frequencies."""
    near_share: float = 0.1
    """A pinhole sees points at no less than this share of the nearest anchor in front of it."""
    margin: float = 2.0
    """How many image widths and heights outside the image a coordinate may lie."""
    acts_on: ActsOn = "qk"

    def __post_init__(self) -> None:
        if self.num_heads < 1 or self.num_anchors < 1:
            raise ValueError(
                f"num_heads and num_anchors must be >= 1; got {self.num_heads} and {self.num_anchors}."
            )
        share = self._anchors_per_head
        if self.head_dim < 1 or self.head_dim % (4 * share):
            raise ValueError(
                f"head_dim {self.head_dim} is not a multiple of 4 x {share} = {4 * share}: pairs on two axes for each of "
                f"the {share} anchors that a head has, at {self.num_heads} heads and {self.num_anchors} anchors."
            )
        if not 0 < self.depth_min <= self.depth_max < math.inf:
            raise ValueError(
                f"depths must satisfy 0 < depth_min <= depth_max (metres); got {self.depth_min} and {self.depth_max}."
            )
        if self.spacing not in ("uniform", "geometric"):
            raise ValueError(f"spacing must be 'uniform' or 'geometric'; got {self.spacing!r}.")
        if self.anchor_depth not in ("axis", "ray"):
            raise ValueError(f"anchor_depth must be 'axis' or 'ray'; got {self.anchor_depth!r}.")
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be >= 0 image sizes; got {self.margin}.")
        if not 0 < self.near_share <= 1:
            raise ValueError(
                f"near_share must lie in (0, 1], a share of the nearest anchor; got {self.near_share}."
            )
        require_positive(base=self.base)
        require_acts_on(self.acts_on)

    @property
    def _anchors_per_head(self) -> int:
        return 1 if self.num_heads >= self.num_anchors else self.num_anchors

    @property
    def anchors(self) -> tuple[float, ...]:
        """Depths in metres, nearest first."""
        count = self.num_anchors
        places = [k / (count - 1) for k in range(count)] if count > 1 else [0.5]
        near, far = self.depth_min, self.depth_max
        if self.spacing == "geometric":
            return tuple(near * (far / near) ** place for place in places)
        return tuple(near + (far - near) * place for place in places)

    @property
    def anchors_of_heads(self) -> tuple[tuple[int, ...], ...]:
        """For every head, which anchors it has."""
        if self._anchors_per_head == 1:
            return tuple((head % self.num_anchors,) for head in range(self.num_heads))
        return (tuple(range(self.num_anchors)),) * self.num_heads

    @property
    def claims(self) -> Claims:
        """Orthogonal; grouped by query camera; image coordinates know translation only up to depth."""
        return Claims(metric=False, per_token=False, norm_preserving=True)

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator between two sets of rays; ``keys`` None means the queries themselves.

        Raises:
            ValueError: if the queries carry no lens.
        """
        keys = key_rays(queries, keys)
        with torch.autocast("cpu", enabled=False):
            pixels = self._pixels(queries, keys)  # [B, G, A, N, 2]
            width = self.head_dim // 2 // self._anchors_per_head
            omega = inverse_power_frequencies(width, self.base)
            key_phases = axis_phases(pixels.unbind(-1), [omega, omega]).movedim(2, 1)  # [B, A, G, N, M]
            own = [(place + 0.5).repeat(queries.num_views) for place in (queries.col, queries.row)]
            query_phases = axis_phases(own, [omega, omega]).expand(queries.batch, 1, -1, -1)
            if self._anchors_per_head == 1:
                heads = torch.tensor([anchor for (anchor,) in self.anchors_of_heads])
                key_phases = key_phases[:, heads]
            else:
                key_phases = key_phases.movedim(1, -2).flatten(-2)[:, None]
                query_phases = query_phases.repeat(1, 1, 1, self.num_anchors)
            band = Band(
                name="reprojection",
                width=self.head_dim,
                size=2,
                num_blocks=self.head_dim // 2,
                left=Rotate2(query_phases.cos(), query_phases.sin()),
                right=Rotate2(key_phases.cos(), key_phases.sin()),
                grouped=True,
            )
            return assemble((band,), queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)

    def _pixels(self, queries: ViewRays, keys: ViewRays) -> Tensor:
        """Where every query view sees every key token at every anchor, in patches, [B, G, A, N, 2]."""
        lens = required_lens(queries, "URoPE")
        rays_cam = axis_rays(keys.dirs_cam) if self.anchor_depth == "axis" else keys.dirs_cam
        rays_query = turned_to_queries(queries, keys, rays_cam).flatten(2, 3)
        offsets = offsets_query(queries, keys).repeat_interleave(keys.tokens_per_view, dim=2)
        depths = torch.tensor(self.anchors, dtype=torch.float64)[:, None, None]
        points = offsets[:, :, None] + depths * rays_query[:, :, None]
        return bounded_pixels(
            lens,
            points,
            limit=lens_limit(lens),
            near=self.near_share * self.depth_min,
            margin=self.margin,
        )
