"""RayRoPE: expected rotary phasors of ray segments with a predicted depth (Wu et al. 2026)."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

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
    required_lens,
)
from merope.encodings.phasors import expected_phasor, log_frequencies
from merope.encodings.predicted_depth import (
    displacement_band,
    log_depth_ends,
    offsets_of_tokens,
    operator_under_depths,
    require_depths,
    with_band_of_depth,
    without_autocast,
)
from merope.encodings.projection import axis_rays, turned_to_queries
from merope.encodings.prope import normalised_lens
from merope.encodings.scale import TranslationScale, warn_repeats_beyond_reach
from merope.operators import CameraOperator, Rotate2

# Where in a patch its rays go through, fractions of its width and height.
_PLACES = {
    1: ((0.5, 0.5),),
    2: ((0.0, 0.0), (1.0, 1.0)),
    3: ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)),
}
# Added to the length of a direction and to the square of a depth along the axis, and the least such depth.
_LENGTH_EPSILON = 1e-6
_AXIS_EPSILON = 1e-9
_MIN_AXIS = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentRelations:
    """Geometry of all pairs before a depth is known. Vectors are (x, y, z) with K of the query view applied."""

    fixed: CameraOperator
    """The bands that no depth enters: displacement and what is kept."""
    rays_own: Float[Tensor, "batch query_token ray 3"]
    """Rays of the query tokens in their own view, z = 1 before K."""
    rays_query: Float[Tensor, "batch query_view key_token ray 3"]
    """Rays of the key tokens turned into each query view."""
    offset_query: Float[Tensor, "batch query_view key_token 3"]
    """Centres of the key tokens' cameras in each query view, in units of the translation scale."""
    omega: Float[Tensor, "3 frequency"]
    """Angular frequencies of the two directions and of the depth."""

    def to(self, device: torch.device | str) -> Self:
        """The same on another device, without a cast."""
        return replace(
            self,
            **{
                name: getattr(self, name).to(device)
                for name in ("fixed", "rays_own", "rays_query", "offset_query", "omega")
            },
        )

    def for_query_cameras(self, first: int, last: int) -> Self:
        """Those of some query cameras to all keys; views of these."""
        per_camera = self.fixed.num_queries // self.fixed.num_query_cameras
        return replace(
            self,
            fixed=self.fixed.for_query_cameras(first, last),
            rays_own=self.rays_own[:, first * per_camera : last * per_camera],
            rays_query=self.rays_query[:, first:last],
            offset_query=self.offset_query[:, first:last],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RayRoPE:
    """Rotary phases of a ray segment seen from the query view, averaged over its predicted depth.

    A token is its camera's centre and, for each of ``num_rays`` rays of its patch, the point at depth d along it.
    From the query view that is 3 + 3 num_rays coordinates: the centre (Δo_{j|i}); per ray the x and y of the
    direction to the point, of unit length after K (fx/W, fy/H, cx/W - 1/2, cy/H - 1/2); and the point's depth.
    Each turns F pairs, with periods a factor ``frequency_ratio`` apart. Depth is an interval, so direction and depth are
    spread between the values at its two ends, evenly in angle, and the phasors are means (`expected_phasor`):
    U contracts wherever the interval has a width. The query has the same coordinates in its own view.

    The centre's coordinates are the query-frame displacement of the paper's Eq. 8 with other wavelengths, so this
    part alone does depend on metric translation; the paper's Table 1 counts the encoding as a whole.

    As released: the depth along the query's axis is sqrt(z^2 + 1e-9), so a point behind the query view has the
    depth of its mirror image, and only its direction tells. The far end of an untrained head's interval, e^3,
    lies exactly on its limit: there its gradient passes, and one step further it is lost (see docs/choices.md).

    Periods and depth limits are in units of ``scale``: the source normalises every scene. In raw metres the
    displacement repeats every 4 m and depths end at 10 m. The source describes pinholes. Other lenses are ours: rays
    are the lens's own, K is its affine part, and a ray more than 87 degrees off the axis is followed for 20 times
    the depth.

    Raises:
        ValueError: if the head holds not one frequency, or a value is out of range.
    """

    facts: ClassVar[Facts] = Facts(
        title="RayRoPE", source="Wu et al. 2026", needs_lens=True, needs_depth=True, needs_scale=True
    )

    head_dim: int = 128
    num_rays: int = 3
    """Rays per patch: 3 through corners (0, 0), (1, 0), (0, 1), 1 through the centre, 2 through opposite corners."""
    frequency_ratio: float = 3.0
    """Ratio of neighbouring periods."""
    period_displacement: float = 4.0
    """Longest period of the displacement, units of ``scale``."""
    period_direction: float = 8.0
    """Longest period of a direction's coordinates."""
    period_depth: float = 80.0
    """Longest period of the depth, units of ``scale``."""
    max_depth: float = 10.0
    """Depths in the query view are clamped to it, units of ``scale``."""
    depth_limits: tuple[float, float] = (0.01, 100.0)
    """Nearest and farthest end of a token's depth interval, units of ``scale``."""
    max_log_depth: float = 3.0
    """Largest logarithm of an end; e^3 = 20.1 lies below the farthest limit."""
    scale: TranslationScale = TranslationScale()
    """Units per metre of every displacement; depths are predicted in these units."""
    acts_on: ActsOn = "qkvo"

    def __post_init__(self) -> None:
        if self.num_rays not in _PLACES:
            raise ValueError(f"num_rays must be 1, 2 or 3; got {self.num_rays}.")
        if self.num_frequencies < 1:
            raise ValueError(
                f"head_dim {self.head_dim} holds no frequency: {3 + 3 * self.num_rays} coordinates x 2 channels = "
                f"{self._width_per_frequency}. Use fewer rays or a larger head."
            )
        near, far = self.depth_limits
        if not 0 < near < far < math.inf or not math.log(near) < self.max_log_depth < math.inf:
            raise ValueError(
                f"depth_limits must satisfy 0 < near < far, with log(near) < max_log_depth; got {self.depth_limits} "
                f"and {self.max_log_depth}."
            )
        require_positive(
            frequency_ratio=self.frequency_ratio,
            period_displacement=self.period_displacement,
            period_direction=self.period_direction,
            period_depth=self.period_depth,
            max_depth=self.max_depth,
        )
        require_acts_on(self.acts_on)

    @property
    def _width_per_frequency(self) -> int:
        return 2 * (3 + 3 * self.num_rays)

    @property
    def num_frequencies(self) -> int:
        """F, as many as fit; the rest of the head is left untouched."""
        return self.head_dim // self._width_per_frequency

    @property
    def claims(self) -> Claims:
        """As in Table 1: relations depend on a depth, and expected phasors contract."""
        return Claims(metric=False, per_token=False, norm_preserving=False)

    @property
    def depth_bias(self) -> tuple[float, float]:
        """Depth 1 with an interval from e^-3 to e^3."""
        return (0.0, 3.0)

    def relations(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> SegmentRelations:
        """All that does not depend on depth, formed in float64, then cast.

        Raises:
            ValueError: if the rays carry no lens.
        """
        keys = key_rays(queries, keys)
        with torch.autocast("cpu", enabled=False):
            own = _patch_rays(queries, self.num_rays)
            affine = normalised_lens(queries, name="RayRoPE", pretend_pinhole=True)[:, :, None, None]
            rays = own if keys is queries else _patch_rays(keys, self.num_rays)
            rays_query = turned_to_queries(queries, keys, rays).flatten(2, 3)
            offsets = offsets_of_tokens(queries, keys, per_metre=self.scale.per_metre)
            fixed = (
                displacement_band(
                    queries, keys, self._omega(self.period_displacement), per_metre=self.scale.per_metre
                ),
                kept("keep", self.head_dim - self._width_per_frequency * self.num_frequencies),
            )
            omega = [self._omega(period) for period in (*[self.period_direction] * 2, self.period_depth)]
            tensors = {
                "rays_own": _apply_affine(own, affine).flatten(1, 2),
                "rays_query": _apply_affine(rays_query, affine),
                "offset_query": _apply_affine(offsets[..., None, :], affine)[..., 0, :],
                "omega": torch.stack(omega),
            }
        warn_repeats_beyond_reach("RayRoPE", self.scale, queries, keys, period=self.period_displacement)
        return SegmentRelations(
            fixed=assemble(fixed, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device),
            **{name: tensor.to(dtype).to(device) for name, tensor in tensors.items()},
        )

    def operator_at(
        self,
        relations: SegmentRelations,
        query_depth: Float[Tensor, "batch query_token 2"],
        key_depth: Float[Tensor, "batch key_token 2"],
    ) -> CameraOperator:
        """The operator under predicted depths; gradients flow to both, on the relations' device and precision."""
        require_depths(relations.fixed, query_depth, key_depth)
        with without_autocast(relations.omega.device):
            left = self._phasors(relations.rays_own, None, query_depth.to(relations.omega), relations.omega)
            right = self._phasors(
                relations.rays_query,
                relations.offset_query,
                key_depth.to(relations.omega)[:, None],
                relations.omega,
            )
            return with_band_of_depth(relations.fixed, "segment", left=left, right=right)

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        query_depth: Float[Tensor, "batch query_token 2"] | None = None,
        key_depth: Float[Tensor, "batch key_token 2"] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator between two sets of rays, by default under what an untrained head answers.

        ``keys`` None means the queries themselves, with their depths. Everything runs in float64 on the CPU;
        ``dtype`` is that of the finished factors.

        Raises:
            ValueError: if the rays carry no lens, or a depth has the wrong shape.
        """
        return operator_under_depths(self, queries, keys, query_depth, key_depth, dtype=dtype, device=device)

    def _omega(self, period: float) -> Tensor:
        count = self.num_frequencies
        return log_frequencies(period, period / self.frequency_ratio ** (count - 1), count)

    def _phasors(self, rays: Tensor, offset: Tensor | None, depth: Tensor, omega: Tensor) -> Rotate2:
        """Expected phasors of segments along ``rays`` [..., N, R, 3] with depths [..., N, 2]."""
        ends = log_depth_ends(depth, limits=self.depth_limits, max_log=self.max_log_depth)
        inverse = (-ends).exp()[..., None, None]  # [..., N, 2, 1, 1]
        points = rays[..., None, :, :]  # [..., N, 2, R, 3], homogeneous with the inverse depth as fourth
        if offset is not None:
            points = points + offset[..., None, None, :] * inverse
        length = points.norm(dim=-1, keepdim=True) + _LENGTH_EPSILON
        along = (points[..., 2:].square() + _AXIS_EPSILON).sqrt().clamp(min=_MIN_AXIS)
        depths = (along / inverse).clamp(max=self.max_depth)
        coordinates = torch.cat([(points[..., :2] / length).expand(*depths.shape[:-1], 2), depths], -1)
        phases = (coordinates[..., None] * omega).flatten(-3)  # [..., N, 2, 3 R F]
        cos, sin = expected_phasor(*phases.unbind(-2))
        return Rotate2(cos[:, None], sin[:, None])


def _patch_rays(rays: ViewRays, count: int) -> Float[Tensor, "batch view token ray 3"]:
    """Rays through places of every patch, z = 1; the token's own ray where the lens has none there."""
    lens = required_lens(rays, "RayRoPE")
    corners = torch.stack([rays.col, rays.row], -1)[:, None]
    pixels = corners + torch.tensor(_PLACES[count], dtype=torch.float64)  # [P, R, 2]
    dirs, seen = lens.unproject(pixels.expand(*lens.view_shape, *pixels.shape))
    return axis_rays(torch.where(seen[..., None], dirs, rays.dirs_cam[..., None, :]))


def _apply_affine(vectors: Tensor, affine: Tensor) -> Tensor:
    """K (x, y, z) of vectors [B, G, ..., 3] in the view that the second axis counts."""
    x, y, z = vectors.unbind(-1)
    fx, fy, cx, cy = affine.unbind(-1)
    return torch.stack([fx * x + cx * z, fy * y + cy * z, z], -1)
