"""MeRoPE: ray-local minimum rotations, metric rotary translation, disparity anchors (Eqs. 5-11)."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch

from merope.cameras.rays import ViewRays
from merope.encodings.base import (
    ActsOn,
    Claims,
    Facts,
    assemble,
    kept,
    key_rays,
    offsets_query,
    require_acts_on,
    require_positive,
)
from merope.encodings.native import native_band
from merope.geometry.sphere import epipolar_anchors, minrot, minrot_axis, transported_anchor_axes
from merope.operators import Band, Block, CameraOperator, MinRotate3, Recomputed, Rotate2, Rotate3

Component = Literal["disp", "rot", "trans"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLayout:
    """How a head's channels are shared out: d = disp + rot + trans + native (B.1).

    ``disp`` holds one group of triplets per anchor, ``rot`` triplets, ``trans`` pairs on three axes,
    ``native`` pairs for time, row and column.
    """

    disp: int
    rot: int
    trans: int
    native: tuple[int, int, int]

    @property
    def head_dim(self) -> int:
        """Sum of all widths."""
        return self.disp + self.rot + self.trans + sum(self.native)

    @classmethod
    def for_head_dim(cls, head_dim: int) -> Self:
        """The paper's 36 + 36 + 24 + 32 at 128, and the same shares at 64 and 192."""
        known = {
            64: cls(disp=18, rot=18, trans=12, native=(8, 4, 4)),
            128: cls(disp=36, rot=36, trans=24, native=(16, 8, 8)),
            192: cls(disp=54, rot=54, trans=36, native=(24, 12, 12)),
        }
        if head_dim not in known:
            raise ValueError(
                f"no head layout is known for head_dim {head_dim}; known are {sorted(known)}. "
                "Pass layout=HeadLayout(disp=..., rot=..., trans=..., native=(time, row, column)) whose widths "
                f"sum to {head_dim}: disp a multiple of 3 x anchors, rot of 3, trans of 6, each native width of 2."
            )
        return known[head_dim]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeRoPE:
    """Metric Rotary Position Embedding: orthogonal, metric, grouped by query camera.

    Four direct summands (Eq. 11): rotations from the query ray to places along the key ray's epipolar
    arc (Eq. 10), the relative rotation of the two rays' minimum-rotation frames (Eq. 6), rotary phases of
    the key camera's displacement in metres in the query camera's frame (Eq. 8), and the backbone's own
    rotary embedding. Every U_ab is orthogonal, whatever the baseline.

    The translation band repeats in space: displacements whose difference is a common multiple of all
    wavelengths look alike. With the default wavelengths its kernel is back at 0.95 by 188 m.

    Raises:
        ValueError: if the layout does not fit the head, the anchors or the wavelengths.
    """

    facts: ClassVar[Facts] = Facts(title="MeRoPE", source="the paper that this project implements, Eqs. 5-11")

    head_dim: int = 128
    layout: HeadLayout | None = None
    """None is `HeadLayout.for_head_dim`."""
    fractions: tuple[float, ...] = (0.0, 0.05, 0.15, 0.4, 0.7, 1.0)
    """Angular places of the anchors on the epipolar arc (rho of Eq. 9)."""
    wavelength_min: float = 0.5
    """Shortest translation wavelength, metres (Eq. 7)."""
    wavelength_max: float = 200.0
    """Longest translation wavelength, metres (Eq. 7)."""
    single_frequency: float | None = None
    """One wavelength in metres for all translation pairs of an axis; None is the multi-frequency band."""
    components: frozenset[Component] = frozenset(("disp", "rot", "trans"))
    """Camera components that are on; the channels of the others stay and are left untouched (Table 3)."""
    native_base: float = 10_000.0
    """Base of the native rotary frequencies."""
    anchor_frames: Literal["minrot", "transported"] = "minrot"
    """"minrot" is the paper's; "transported" carries the far direction's frame along the arc."""
    min_scene_depth: float = 0.0
    """Nearest depth in metres at which the arc ends; zero is the paper's arc."""
    acts_on: ActsOn = "qkvo"
    """Eq. 1 has U on values too."""

    def __post_init__(self) -> None:
        layout = self.resolved_layout
        if layout.head_dim != self.head_dim:
            raise ValueError(
                f"layout {layout.disp} + {layout.rot} + {layout.trans} + {sum(layout.native)} = {layout.head_dim} "
                f"does not fill head_dim {self.head_dim}."
            )
        anchors = len(self.fractions)
        if min(layout.disp, layout.rot, layout.trans, *layout.native) < 0:
            raise ValueError(f"layout widths must be >= 0; got {layout}.")
        if any(not 0 <= fraction <= 1 for fraction in self.fractions):
            raise ValueError(
                f"fractions must lie in [0, 1]; got {self.fractions}. 0 is the far direction, 1 the epipole."
            )
        if anchors == 0 or layout.disp % (3 * anchors):
            raise ValueError(
                f"disp width {layout.disp} is not a multiple of 3 x {anchors} anchors = {3 * anchors}."
            )
        if layout.rot % 3:
            raise ValueError(f"rot width {layout.rot} is not a multiple of 3.")
        if layout.trans % 6:
            raise ValueError(f"trans width {layout.trans} is not a multiple of 6 (3 axes x 2 channels).")
        if any(width % 2 for width in layout.native):
            raise ValueError(f"native widths must be even; got {layout.native}.")
        if not 0 < self.wavelength_min <= self.wavelength_max < math.inf:
            raise ValueError(
                f"wavelengths must satisfy 0 < min <= max (metres); got {self.wavelength_min} and {self.wavelength_max}."
            )
        if self.single_frequency is not None and not 0 < self.single_frequency < math.inf:
            raise ValueError(
                f"single_frequency is a wavelength in metres and must be > 0; got {self.single_frequency}."
            )
        if layout.trans == 6 and self.single_frequency is None:
            raise ValueError(
                "a trans width of 6 leaves one wavelength per axis, where Eq. 7 divides by K - 1 = 0. "
                "Give that wavelength as single_frequency=."
            )
        require_positive(native_base=self.native_base)
        require_acts_on(self.acts_on)
        if self.anchor_frames not in ("minrot", "transported"):
            raise ValueError(f"anchor_frames must be 'minrot' or 'transported'; got {self.anchor_frames!r}.")
        if not 0 <= self.min_scene_depth < math.inf:
            raise ValueError(
                f"min_scene_depth must be >= 0 m; got {self.min_scene_depth}. Zero is the paper's arc."
            )
        if not self.components <= {"disp", "rot", "trans"}:
            raise ValueError(f"components must be among disp, rot, trans; got {sorted(self.components)}.")

    @classmethod
    def single_wavelength(cls, **options: Any) -> Self:
        """Table 5's "Single f": the same channels, with one wavelength for all translation pairs.

        The paper does not say which; this is the geometric mean of the multi-frequency band's ends, 10 m by default.
        ``options`` are the encoding's own.
        """
        made = cls(**options)
        return replace(made, single_frequency=math.sqrt(made.wavelength_min * made.wavelength_max))

    @property
    def resolved_layout(self) -> HeadLayout:
        """The layout in force."""
        return self.layout if self.layout is not None else HeadLayout.for_head_dim(self.head_dim)

    @property
    def wavelengths(self) -> tuple[float, ...]:
        """Translation wavelengths in metres, shortest first (Eq. 7)."""
        count = self.resolved_layout.trans // 6
        if self.single_frequency is not None:
            return (self.single_frequency,) * count
        ratio = self.wavelength_max / self.wavelength_min
        return tuple(self.wavelength_min * ratio ** (k / (count - 1)) for k in range(count))

    @property
    def claims(self) -> Claims:
        """Norm-preserving; metric with translation and an orientation; grouped unless "rot" stands alone."""
        layout = self.resolved_layout
        on = {name for name in self.components if getattr(layout, name)}
        return Claims(
            metric="trans" in on and bool(on & {"disp", "rot"}),
            per_token=not on & {"disp", "trans"},
            norm_preserving=True,
        )

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        anchor_bytes: int = 2**28,
    ) -> CameraOperator:
        """The operator of Eq. 11 between two sets of rays; ``keys`` None means the queries themselves.

        Geometry runs in float64 on the CPU and phases are reduced modulo 2 pi there; ``dtype`` is that
        of the finished factors. Compute it once per clip: it serves every layer and denoising step.

        Anchors grow with query cameras x key tokens. Those that would take more than ``anchor_bytes`` are not stored
        but made again for every query camera, in each call of attention (`Recomputed`).
        """
        keys = key_rays(queries, keys)
        layout = self.resolved_layout
        with torch.autocast("cpu", enabled=False):
            bands = (
                self._disparity(queries, keys, layout.disp, dtype, anchor_bytes),
                self._rotation(queries, keys, layout.rot),
                self._translation(queries, keys, layout.trans),
                native_band(queries, keys, widths=layout.native, base=self.native_base),
            )
            return assemble(bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)

    def _disparity(
        self, queries: ViewRays, keys: ViewRays, width: int, dtype: torch.dtype, anchor_bytes: int
    ) -> Band | None:
        if width == 0 or "disp" not in self.components:
            return kept("disp", width)
        kind = MinRotate3 if self.anchor_frames == "minrot" else Rotate3
        dirs_world = torch.einsum("bvxy,bvpy->bvpx", keys.R_world_cam, keys.dirs_cam)
        offsets = offsets_query(queries, keys)  # [B, G, V, 3]

        def anchored(first: int, last: int) -> Block:
            cameras = slice(first, last)
            with torch.autocast("cpu", enabled=False):
                R_query = queries.R_world_cam[:, cameras]
                dirs_query = torch.einsum("bgyx,bvpy->bgvpx", R_query, dirs_world)
                anchors = epipolar_anchors(
                    dirs_query,
                    offsets[:, cameras, :, None],
                    self.fractions,
                    min_scene_depth=self.min_scene_depth,
                )
                if kind is MinRotate3:
                    axis = minrot_axis(anchors).flatten(2, 3)[:, None]  # [B, 1, G, N, M, 3]
                    # Number by number, tokens last in memory: as attention's loops read them.
                    return MinRotate3(axis.permute(5, 0, 1, 2, 4, 3).contiguous().permute(1, 2, 3, 5, 4, 0))
                return Rotate3(transported_anchor_axes(dirs_query, anchors).flatten(2, 3)[:, None])

        numbers = (3 if kind is MinRotate3 else 9) * len(self.fractions) * queries.batch * keys.num_tokens
        right: Block
        if numbers * queries.num_views * dtype.itemsize <= anchor_bytes:
            right = anchored(0, queries.num_views)
        else:
            right = Recomputed(
                make=anchored,
                kind=kind,
                size=3,
                shape=(queries.batch, 1, queries.num_views, keys.num_tokens),
                bytes_per_camera=numbers * dtype.itemsize,
            )
        left = MinRotate3(minrot_axis(queries.dirs_cam).flatten(1, 2)[:, None, :, None])
        left = left.map_tensors(lambda axis: axis.expand(-1, -1, -1, len(self.fractions), -1))
        return Band(
            name="disp",
            width=width,
            size=3,
            num_blocks=len(self.fractions),
            left=left,
            right=right,
            grouped=True,
        )

    def _rotation(self, queries: ViewRays, keys: ViewRays, width: int) -> Band | None:
        if width == 0 or "rot" not in self.components:
            return kept("rot", width)
        return Band(
            name="rot", width=width, size=3, num_blocks=1, left=_ray_frames(queries), right=_ray_frames(keys)
        )

    def _translation(self, queries: ViewRays, keys: ViewRays, width: int) -> Band | None:
        if width == 0 or "trans" not in self.components:
            return kept("trans", width)
        offsets = offsets_query(queries, keys)
        omega = 2 * math.pi / torch.tensor(self.wavelengths, dtype=torch.float64)
        # Reduced in float64: at 100 m and 0.5 m the phase is 1257 rad, where bfloat16 steps by 8.
        phases = torch.remainder(offsets[..., None] * omega, 2 * math.pi).flatten(-2)[:, None]
        right = Rotate2(phases.cos(), phases.sin())  # [B, 1, G, V, 3 K]: one entry per key camera
        return Band(name="trans", width=width, size=2, num_blocks=width // 2, right=right, grouped=True)


def _ray_frames(rays: ViewRays) -> Rotate3:
    """R_i A_ip for every token, as one block per token."""
    frames = rays.R_world_cam[:, :, None] @ minrot(rays.dirs_cam)
    return Rotate3(frames.flatten(1, 2)[:, None, :, None])
