"""CRePE: expected rotary phasors along the curve that a key ray draws in the query's lens (Jin et al. 2026).

A reconstruction: the abstract and the paper's description are all that is public.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.base import CameraModel
from merope.cameras.rays import ViewRays, lens_of_views
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
from merope.encodings.phasors import log_frequencies, path_phasor
from merope.encodings.predicted_depth import (
    displacement_band,
    log_depth_ends,
    offsets_of_tokens,
    operator_under_depths,
    require_depths,
    with_band_of_depth,
    without_autocast,
)
from merope.encodings.projection import bounded_pixels, lens_limit, turned_to_queries
from merope.encodings.scale import TranslationScale, warn_repeats_beyond_reach
from merope.operators import CameraOperator, Rotate2

RadiusCoordinate = Literal["log", "disparity"]

# Three displacements, column, row, distance; two channels each.
_WIDTH_PER_FREQUENCY = 12
# Disparities are clamped to it, as RayRoPE clamps depths.
_MAX_DISPARITY = 10.0
# A coordinate's longest period over the width of its range, so that no two of its values look alike.
_PERIODS_PER_RANGE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathRelations:
    """Geometry of all pairs before a distance is known."""

    fixed: CameraOperator
    """The bands that no distance enters: displacement and what is kept."""
    lens: CameraModel
    """The query views' lens; its parameters stay where they are."""
    limit: Float[Tensor, "*view"]
    """The lens's `lens_limit`, radians."""
    place_own: Float[Tensor, "query_token 2"]
    """Column and row of the query tokens, in image sizes from the middle."""
    dirs_query: Float[Tensor, "batch query_view key_token 3"]
    """Unit rays of the key tokens turned into each query view."""
    offset_query: Float[Tensor, "batch query_view key_token 3"]
    """Centres of the key tokens' cameras in each query view, in units of the translation scale."""
    omega: Float[Tensor, "3 frequency"]
    """Angular frequencies of column, row and distance."""

    def to(self, device: torch.device | str) -> Self:
        """The same on another device, without a cast."""
        return replace(
            self,
            **{
                name: getattr(self, name).to(device)
                for name in ("fixed", "limit", "place_own", "dirs_query", "offset_query", "omega")
            },
        )

    def for_query_cameras(self, first: int, last: int) -> Self:
        """Those of some query cameras to all keys; views of these."""
        per_camera = self.fixed.num_queries // self.fixed.num_query_cameras
        return replace(
            self,
            fixed=self.fixed.for_query_cameras(first, last),
            lens=lens_of_views(self.lens, first, last),
            limit=self.limit[:, first:last] if self.limit.ndim else self.limit,
            place_own=self.place_own[first * per_camera : last * per_camera],
            dirs_query=self.dirs_query[:, first:last],
            offset_query=self.offset_query[:, first:last],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CRePE:
    """Rotary phases of a predicted stretch of ray, averaged along its curved image in the query's lens.

    A token is its camera's centre and the points at distances r_1 ... r_N along its ray, evenly spaced in log r over a
    predicted interval. From the query view that is 6 coordinates: the centre (Δo_{j|i}), the column and row at which the
    query's lens, whichever it is, sees each point, in image sizes, and the point's distance. Each turns F pairs. The
    phasors of the last three are means along the path, straight between neighbouring knots in phase and every
    piece with equal weight, so U contracts wherever the interval has a width. Two knots are RayRoPE's form: the
    mean between the two ends. The query has the same coordinates in its own view, where its ray is one point.

    Where the lens does not see a point the path follows the edge of what it sees (`bounded_pixels`). Across the seam
    of a panorama the path takes the long way round.

    The displacement's coordinates are the query-frame displacement of the paper's Eq. 8 with other wavelengths.
    Periods and limits are in units of ``scale``, as RayRoPE's are.

    Raises:
        ValueError: if the head holds not one frequency, or a value is out of range.
    """

    facts: ClassVar[Facts] = Facts(
        title="CRePE",
        source="Jin et al. 2026; reconstruction from the abstract",
        needs_lens=True,
        needs_depth=True,
        needs_scale=True,
    )

    head_dim: int = 128
    num_knots: int = 8
    """Points of the path; 2 is the mean between its two ends."""
    radius_coordinate: RadiusCoordinate = "log"
    """Whether the distance enters as its logarithm or as its inverse."""
    period_displacement: float = 4.0
    """Longest period of the displacement, units of ``scale``."""
    period_image: float = 8.0
    """Longest period of column and row, image sizes."""
    period_span: float = 243.0
    """Longest over shortest period of every coordinate; RayRoPE's six frequencies of ratio 3 span as much."""
    radius_limits: tuple[float, float] = (0.01, 100.0)
    """Nearest and farthest distance, from the key and from the query camera, units of ``scale``."""
    max_log_radius: float = 3.0
    """Largest logarithm of the interval's far end."""
    margin: float = 2.0
    """How many image widths and heights outside the image the path may run."""
    scale: TranslationScale = TranslationScale()
    """Units per metre of every displacement; distances are predicted in these units."""
    acts_on: ActsOn = "qkvo"

    def __post_init__(self) -> None:
        if self.num_frequencies < 1:
            raise ValueError(
                f"head_dim {self.head_dim} holds no frequency: 6 coordinates x 2 channels = {_WIDTH_PER_FREQUENCY}."
            )
        if self.num_knots < 2:
            raise ValueError(f"num_knots must be >= 2, the two ends; got {self.num_knots}.")
        if self.radius_coordinate not in ("log", "disparity"):
            raise ValueError(
                f"radius_coordinate must be 'log' or 'disparity'; got {self.radius_coordinate!r}."
            )
        near, far = self.radius_limits
        if not 0 < near < far < math.inf or not math.log(near) < self.max_log_radius < math.inf:
            raise ValueError(
                f"radius_limits must satisfy 0 < near < far, with log(near) < max_log_radius; got {self.radius_limits} "
                f"and {self.max_log_radius}."
            )
        if not 1 <= self.period_span < math.inf:
            raise ValueError(f"period_span must be >= 1; got {self.period_span}.")
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be >= 0 image sizes; got {self.margin}.")
        require_positive(period_displacement=self.period_displacement, period_image=self.period_image)
        require_acts_on(self.acts_on)

    @property
    def num_frequencies(self) -> int:
        """F, as many as fit; the rest of the head is left untouched."""
        return self.head_dim // _WIDTH_PER_FREQUENCY

    @property
    def period_radius(self) -> float:
        """Longest period of the distance's coordinate: four times the width of its range."""
        near, far = self.radius_limits
        width = math.log(far / near) if self.radius_coordinate == "log" else 2 * _MAX_DISPARITY
        return _PERIODS_PER_RANGE * width

    @property
    def claims(self) -> Claims:
        """As in Table 1: relations depend on a depth, and expected phasors contract."""
        return Claims(metric=False, per_token=False, norm_preserving=False)

    @property
    def depth_bias(self) -> tuple[float, float]:
        """Distance 1 with an interval from e^-3 to e^3, as RayRoPE's."""
        return (0.0, 3.0)

    def relations(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> PathRelations:
        """All that does not depend on distance, formed in float64, then cast.

        Raises:
            ValueError: if the queries carry no lens.
        """
        keys = key_rays(queries, keys)
        lens = required_lens(queries, "CRePE")
        with torch.autocast("cpu", enabled=False):
            fixed = (
                displacement_band(
                    queries, keys, self._omega(self.period_displacement), per_metre=self.scale.per_metre
                ),
                kept("keep", self.head_dim - _WIDTH_PER_FREQUENCY * self.num_frequencies),
            )
            omega = [self._omega(period) for period in (*[self.period_image] * 2, self.period_radius)]
            pixels = torch.stack([queries.col, queries.row], -1) + 0.5
            tensors = {
                "limit": lens_limit(lens),
                "place_own": _in_image_sizes(pixels, lens).repeat(queries.num_views, 1),
                "dirs_query": turned_to_queries(queries, keys, keys.dirs_cam).flatten(2, 3),
                "offset_query": offsets_of_tokens(queries, keys, per_metre=self.scale.per_metre),
                "omega": torch.stack(omega),
            }
        warn_repeats_beyond_reach("CRePE", self.scale, queries, keys, period=self.period_displacement)
        return PathRelations(
            fixed=assemble(fixed, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device),
            lens=lens,
            **{name: tensor.to(dtype).to(device) for name, tensor in tensors.items()},
        )

    def operator_at(
        self,
        relations: PathRelations,
        query_depth: Float[Tensor, "batch query_token 2"],
        key_depth: Float[Tensor, "batch key_token 2"],
    ) -> CameraOperator:
        """The operator under predicted distances; gradients flow to both, on the relations' device and precision."""
        require_depths(relations.fixed, query_depth, key_depth)
        with without_autocast(relations.omega.device):
            own_radii = self._radii(query_depth.to(relations.omega))  # [B, N, K]
            places = relations.place_own[:, None].expand(*own_radii.shape, 2)
            own = self._coordinates(places, own_radii.square())
            radii = self._radii(key_depth.to(relations.omega))[:, None, :, :, None]
            # [B, G, N, K, 3]
            points = relations.offset_query[..., None, :] + radii * relations.dirs_query[..., None, :]
            pixels = bounded_pixels(
                relations.lens,
                points,
                limit=relations.limit,
                near=self.radius_limits[0],
                margin=self.margin,
            )
            places = _in_image_sizes(pixels, relations.lens)
            seen = self._coordinates(places, points.square().sum(-1))
            left, right = (_phasors(coordinates, relations.omega) for coordinates in (own, seen))
            return with_band_of_depth(relations.fixed, "path", left=left, right=right)

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

        ``keys`` None means the queries themselves, with their distances. Everything runs in float64 on the CPU;
        ``dtype`` is that of the finished factors.

        Raises:
            ValueError: if the queries carry no lens, or a depth has the wrong shape.
        """
        return operator_under_depths(self, queries, keys, query_depth, key_depth, dtype=dtype, device=device)

    def _omega(self, period: float) -> Tensor:
        return log_frequencies(period, period / self.period_span, self.num_frequencies)

    def _radii(self, depth: Tensor) -> Tensor:
        """The knots' distances from their own camera, evenly spaced in their logarithms, [..., N, K]."""
        ends = log_depth_ends(depth, limits=self.radius_limits, max_log=self.max_log_radius)
        share = torch.linspace(0, 1, self.num_knots, dtype=ends.dtype, device=ends.device)
        return torch.lerp(ends[..., :1], ends[..., 1:], share).exp()

    def _coordinates(self, places: Tensor, squared: Tensor) -> Tensor:
        """Column, row and the distance's coordinate of points whose squared distance is given."""
        near, far = self.radius_limits
        if self.radius_coordinate == "disparity":
            distance = squared.clamp(min=_MAX_DISPARITY**-2).rsqrt()
        else:
            distance = squared.clamp(min=near**2, max=far**2).log() / 2
        return torch.cat([places, distance[..., None]], -1)


def _in_image_sizes(pixels: Tensor, lens: CameraModel) -> Tensor:
    """Pixels as shares of the image's width and height, from its middle."""
    size = torch.tensor([lens.width, lens.height], dtype=pixels.dtype, device=pixels.device)
    return pixels / size - 0.5


def _phasors(coordinates: Tensor, omega: Tensor) -> Rotate2:
    """Mean phasors of paths [B, ..., N, K, 3], one row of frequencies per coordinate."""
    cos, sin = path_phasor((coordinates[..., None] * omega).flatten(-2))
    return Rotate2(cos[:, None], sin[:, None])
