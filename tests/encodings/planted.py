"""Encodings made up for tests, each with one property that can be written down."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from merope.encodings.base import Claims, Facts, assemble, kept, key_rays, offsets_query
from merope.encodings.first_view import in_first_view
from merope.encodings.native import native_band
from merope.encodings.scale import TranslationScale, assemble_scaled
from merope.operators import Band, Matrix4, Rotate2, Rotate3

PLANTED = Facts(title="planted", source="a test")
METRIC_PER_TOKEN = Claims(metric=True, per_token=True, norm_preserving=False)
METRIC_ORTHOGONAL = Claims(metric=True, per_token=False, norm_preserving=True)
ORTHOGONAL_PER_TOKEN = Claims(metric=False, per_token=True, norm_preserving=True)
ORTHOGONAL_ALONE = Claims(metric=False, per_token=False, norm_preserving=True)
PER_TOKEN_ALONE = Claims(metric=False, per_token=True, norm_preserving=False)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Head of one kind of block; subclasses say which."""

    facts: ClassVar[Facts] = PLANTED
    claims: Claims = METRIC_ORTHOGONAL
    acts_on: str = "qkvo"

    def bands(self, queries, keys):
        raise NotImplementedError

    @property
    def head_dim(self):
        raise NotImplementedError

    def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
        keys = key_rays(queries, keys)
        return assemble(
            self.bands(queries, keys), queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
        )


@dataclass(frozen=True, kw_only=True)
class Displacement(Planted):
    """Rotary phases of the query-frame displacement, wavelengths in metres, and one triplet of relative rotation."""

    wavelengths: tuple[float, ...] = (3.0, 5.0)
    stretch: float = 1.0
    """Every block is multiplied by it: 1 keeps norms."""

    @property
    def head_dim(self):
        return 3 + 6 * len(self.wavelengths)

    def coordinates(self, offsets):
        """What turns the pairs, of displacements [..., 3]."""
        return offsets

    def bands(self, queries, keys):
        omega = 2 * math.pi / torch.tensor(self.wavelengths, dtype=torch.float64)
        phases = self.coordinates(offsets_query(queries, keys))[..., None] * omega
        phases = phases.flatten(-2)[:, None]
        moved = Rotate2(self.stretch * phases.cos(), self.stretch * phases.sin())
        pairs = phases.shape[-1]
        return (
            Band(
                name="turn",
                width=3,
                size=3,
                left=Rotate3(queries.R_world_cam[:, None, :, None]),
                right=Rotate3(keys.R_world_cam[:, None, :, None]),
            ),
            Band(name="moved", width=2 * pairs, size=2, num_blocks=pairs, right=moved, grouped=True),
        )


@dataclass(frozen=True, kw_only=True)
class Heading(Displacement):
    """The direction of a displacement, not its length: blind to scale."""

    def coordinates(self, offsets):
        length = offsets.norm(dim=-1, keepdim=True)
        return offsets / torch.where(length > 0, length, 1)


@dataclass(frozen=True, kw_only=True)
class Parallax(Displacement):
    """Displacements as multiples of an assumed depth, the geometric mean of two."""

    assumed_depth: float = 4.0
    depths: tuple[float, ...] = (1.0, 2.0)

    def coordinates(self, offsets):
        return offsets / math.sqrt(self.assumed_depth * self.depths[0])


@dataclass(frozen=True, kw_only=True)
class Settling(Displacement):
    """A code whose phase settles: 2 atan(t / 10 m)."""

    wavelengths: tuple[float, ...] = (2 * math.pi,)

    def coordinates(self, offsets):
        return 2 * (offsets / 10).atan()


@dataclass(frozen=True, kw_only=True)
class CutOff(Displacement):
    """Displacements that end at so many metres."""

    end: float = 50.0

    def coordinates(self, offsets):
        return offsets.clamp(-self.end, self.end)


@dataclass(frozen=True, kw_only=True)
class OtherwiseFar(Displacement):
    """Cameras more than so many metres apart have another band of displacements."""

    begin: float = 150.0

    def far(self, queries, keys, moved):
        """The band of cameras far apart."""
        raise NotImplementedError

    def bands(self, queries, keys):
        turn, moved = super().bands(queries, keys)
        far = (offsets_query(queries, keys).norm(dim=-1) > self.begin)[:, None, :, :, None]
        near_right, far_right = moved.right, self.far(queries, keys, moved.right)
        chosen = (
            torch.where(far, there, here)
            for there, here in ((far_right.cos, near_right.cos), (far_right.sin, near_right.sin))
        )
        return turn, replace(moved, right=Rotate2(*chosen))


@dataclass(frozen=True, kw_only=True)
class Homogeneous(Planted):
    """T_i^-1 T_j in 4 x 4 blocks: per token, linear in the baseline."""

    claims: Claims = METRIC_PER_TOKEN
    facts: ClassVar[Facts] = Facts(title="planted", source="a test", needs_scale=True)
    scale: TranslationScale = TranslationScale()
    grouped: bool = False
    """Whether the operator says that it is grouped, which is no proof of it."""

    @property
    def head_dim(self):
        return 8

    def bands(self, queries, keys):
        def poses(rays):
            local = in_first_view(rays, queries)
            T_first_cam = torch.eye(4, dtype=torch.float64).repeat(*rays.center_world.shape[:2], 1, 1)
            T_first_cam[..., :3, :3] = local.R_world_cam
            T_first_cam[..., :3, 3] = self.scale.per_metre * local.center_world
            return T_first_cam

        right = poses(keys)[:, None, :, None]
        if self.grouped:
            right = right[:, :, None].expand(-1, -1, queries.num_views, -1, -1, -1, -1)
        left = torch.linalg.inv(poses(queries)).mT[:, None, :, None]
        return (
            Band(
                name="pose",
                width=8,
                size=4,
                left=Matrix4(left),
                right=Matrix4(right),
                grouped=self.grouped,
            ),
        )

    def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
        keys = key_rays(queries, keys)
        bands = self.bands(queries, keys)
        return assemble_scaled(
            "planted", self.scale, bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
        )


@dataclass(frozen=True, kw_only=True)
class FirstView(Planted):
    """Pairs turned by differences of coordinates in the frame of the first view: not relative."""

    claims: Claims = ORTHOGONAL_PER_TOKEN
    world: bool = False
    """Coordinates of the world instead, which a rigid motion of the clip changes."""

    @property
    def head_dim(self):
        return 12

    def bands(self, queries, keys):
        def turned(rays):
            local = rays if self.world else in_first_view(rays, queries)
            phases = torch.cat([local.center_world, local.R_world_cam[..., 2]], -1)[:, None]
            return Rotate2(phases.cos(), phases.sin())

        return (Band(name="place", width=12, size=2, num_blocks=6, left=turned(queries), right=turned(keys)),)


@dataclass(frozen=True, kw_only=True)
class Added(Planted):
    """The camera's centre in the first view's frame, as additive features over a native rotary head."""

    claims: Claims = PER_TOKEN_ALONE
    facts: ClassVar[Facts] = Facts(title="planted", source="a test", needs_scale=True)
    acts_on: str = "qk"
    scale: TranslationScale = TranslationScale()
    num_features: ClassVar[int] = 3

    @property
    def head_dim(self):
        return 10

    def bands(self, queries, keys):
        return kept("keep", 2), native_band(queries, keys, widths=(4, 2, 2), base=100.0)

    def features(self, rays, *, dtype=torch.float32, device="cpu"):
        center = self.scale.per_metre * in_first_view(rays, rays).center_world
        return center.repeat_interleave(rays.tokens_per_view, dim=1).to(dtype).to(device)


@dataclass(frozen=True, kw_only=True)
class GivenDepth(Displacement):
    """Displacements as multiples of the key token's predicted depth, and plain ones beside them."""

    plain: bool = True
    claims: Claims = ORTHOGONAL_ALONE
    facts: ClassVar[Facts] = Facts(title="planted", source="a test", needs_depth=True)
    depth_bias: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def head_dim(self):
        return 3 + 6 * len(self.wavelengths) * (1 + self.plain)

    def relations(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
        return queries, key_rays(queries, keys), dtype, device

    def operator_at(self, relations, query_depth, key_depth):
        queries, keys, dtype, device = relations
        turn, plain = self.bands(queries, keys)
        offsets = offsets_query(queries, keys).repeat_interleave(keys.tokens_per_view, dim=2)
        offsets = offsets / key_depth[..., 0].exp()[:, None, :, None]
        omega = 2 * math.pi / torch.tensor(self.wavelengths, dtype=torch.float64)
        phases = (offsets[..., None] * omega).flatten(-2)[:, None]
        pairs = phases.shape[-1]
        parallax = Band(
            name="parallax",
            width=2 * pairs,
            size=2,
            num_blocks=pairs,
            right=Rotate2(phases.cos(), phases.sin()),
            grouped=True,
        )
        bands = (turn, parallax, plain) if self.plain else (turn, parallax)
        return assemble(bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)

    def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
        depths = [
            torch.tensor(self.depth_bias, dtype=torch.float64).expand(rays.batch, rays.num_tokens, 2)
            for rays in (queries, key_rays(queries, keys))
        ]
        return self.operator_at(self.relations(queries, keys, dtype=dtype, device=device), *depths)
