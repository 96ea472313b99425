"""ReRoPE: camera blocks in the place of the backbone's slow temporal rotary channels (Li et al. 2026a, Table 5).

The operator spans a whole head of the backbone, in the backbone's own channel order, and acts in its own self-attention:
every channel that is not carved out turns exactly as before.
"""

from dataclasses import dataclass, replace
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
from merope.encodings.carving import native_runs, run_of_blocks, triplets_per_run
from merope.encodings.merope import HeadLayout, MeRoPE
from merope.encodings.native import backbone_widths
from merope.encodings.projective import anchored_poses, relative_band
from merope.encodings.prope import normalised_lens, projective_band
from merope.encodings.scale import TranslationScale, assemble_scaled
from merope.geometry.sphere import minrot
from merope.operators import Band, CameraOperator, Rotate3

# The first of 22 temporal pairs that the method's figure marks as slow.
_SLOW = 10 / 22


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRoPE:
    """Projective blocks, PRoPE's, in the place of the slowest temporal pairs of the backbone's rotary embedding.

    At 128 channels 12 of the 22 temporal pairs, channels 20 to 43, hold six 4 x 4 blocks. On queries and keys alone, so
    at equal poses and lenses the pretrained attention has lost no more than those pairs' turns: at most 0.18 rad over
    13 latent frames. The branch-free form needs training of the backbone's own projections.

    Raises:
        ValueError: if the pairs do not fit the head; by ``operator``, if the rays carry no lens or one that is no
            pinhole.
    """

    facts: ClassVar[Facts] = Facts(
        title="ReRoPE",
        source="Li et al. 2026a; width of the band read from its figure",
        placement="backbone",
        needs_lens=True,
        needs_scale=True,
    )

    head_dim: int = 128
    """Channels of the backbone's own heads."""
    pairs: int | None = None
    """Temporal pairs that make room, slowest first. None is all from 10/22 of them on, in whole blocks: 6, 12 and 16
    pairs of 64, 128 and 192 channels."""
    scale: TranslationScale = TranslationScale()
    """Units per metre of every translation."""
    with_lens: bool = True
    """Blocks between projections, as PRoPE's; False leaves poses alone, as GTA's, and needs no lens."""
    pretend_pinhole: bool = False
    """Read fx, fy, cx and cy of any lens as a pinhole's."""
    native_base: float = 10_000.0
    """Base of the backbone's rotary frequencies."""
    acts_on: ActsOn = "qk"
    """"qkvo" takes values through the whole operator, rotary channels included, which no backbone was trained with."""

    def __post_init__(self) -> None:
        temporal = backbone_widths(self.head_dim)[0] // 2
        pairs = self.resolved_pairs
        if pairs < 2 or pairs % 2 or pairs > temporal:
            raise ValueError(
                f"pairs must be even, for 4 x 4 blocks, and between 2 and the {temporal} temporal pairs of head_dim "
                f"{self.head_dim}; got {pairs}."
            )
        require_positive(native_base=self.native_base)
        require_acts_on(self.acts_on)

    @property
    def resolved_pairs(self) -> int:
        """The number of pairs in force."""
        if self.pairs is not None:
            return self.pairs
        temporal = backbone_widths(self.head_dim)[0] // 2
        slow = sum(pair >= _SLOW * temporal for pair in range(temporal))
        return slow - slow % 2

    @property
    def claims(self) -> Claims:
        """The whole relative pose, per token; norms grow with the baseline."""
        return Claims(metric=True, per_token=True, norm_preserving=False)

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator of a whole backbone head; ``keys`` None means the queries themselves."""
        keys = key_rays(queries, keys)
        widths = backbone_widths(self.head_dim)
        carved = 2 * self.resolved_pairs
        with torch.autocast("cpu", enabled=False):
            if self.with_lens:
                query_lens, key_lens = (
                    normalised_lens(rays, name="ReRoPE", pretend_pinhole=self.pretend_pinhole)
                    for rays in (queries, keys)
                )
                camera = projective_band(
                    "pose", queries, keys, query_lens, key_lens, scale=self.scale, width=carved
                )
            else:
                poses = (anchored_poses(queries, rays, self.scale) for rays in (queries, keys))
                camera = relative_band("pose", *poses, width=carved)
            time, row, col = native_runs(
                queries,
                keys,
                head_dim=self.head_dim,
                kept=(widths[0] - carved, *widths[1:]),
                base=self.native_base,
            )
            bands = (time, camera, row, col)
            operator = assemble_scaled(
                "ReRoPE", self.scale, bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
            )
        # The backbone attends to tokens without a ray too.
        return replace(operator, key_valid=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarvedMeRoPE:
    """MeRoPE's orthogonal blocks in the place of slow rotary channels of the backbone (Table 5, "ReRoPE").

    ``layout.native`` is how many channels of each axis stay, the fastest ones; the camera's blocks fill what that frees.
    By default only slow temporal pairs make room: 24 channels of 128, half rotation and half translation.
    ``HeadLayout.for_head_dim(128)`` is MeRoPE's own budget, 96 channels of all three components.

    In MeRoPE's branch two tokens of one camera meet through the rotation between their rays, which pretrained
    projections never saw. With ``frames="camera"`` a block U becomes A_p U A_q^T, A being the rays' own frames (Eq. 5): the
    rotation blocks are R_ij, disparity blocks turn the key's ray to its place in the query's view, and every block is the
    identity at equal poses.

    Displacements are those of the query's frame, so the backbone's keys are redone for every query camera.

    Raises:
        ValueError: if the layout does not fit the head or the blocks.
    """

    facts: ClassVar[Facts] = Facts(
        title="ReRoPE with MeRoPE's blocks",
        source="Table 5 of the paper that this project implements; reconstruction, its allocation is not given",
        placement="backbone",
    )

    head_dim: int = 128
    """Channels of the backbone's own heads."""
    layout: HeadLayout | None = None
    """None frees slow temporal pairs alone: 6 + 12, 12 + 12 and 18 + 18 channels (rotation + translation) of 64, 128 and
    192."""
    frames: Literal["camera", "ray"] = "camera"
    """"ray" is the branch's own form."""
    fractions: tuple[float, ...] = (0.0, 0.05, 0.15, 0.4, 0.7, 1.0)
    """Angular places of the anchors on the epipolar arc (Eq. 9)."""
    wavelength_min: float = 0.5
    """Shortest translation wavelength, metres (Eq. 7)."""
    wavelength_max: float = 200.0
    """Longest translation wavelength, metres (Eq. 7)."""
    single_frequency: float | None = None
    """One wavelength in metres for all translation pairs of an axis; None is Eq. 7."""
    native_base: float = 10_000.0
    """Base of the backbone's rotary frequencies."""
    acts_on: ActsOn = "qk"
    """"qkvo" takes values through the whole operator, rotary channels included, which no backbone was trained with."""

    def __post_init__(self) -> None:
        layout, widths = self.resolved_layout, backbone_widths(self.head_dim)
        if any(not 0 <= kept <= width for kept, width in zip(layout.native, widths, strict=True)):
            raise ValueError(
                f"layout.native {layout.native} must keep at most the {widths} channels that head_dim {self.head_dim} has "
                "for time, row and column."
            )
        if layout.head_dim != self.head_dim:
            raise ValueError(
                f"layout {layout.disp} + {layout.rot} + {layout.trans} + {sum(layout.native)} = {layout.head_dim} does "
                f"not fill head_dim {self.head_dim}."
            )
        if layout.head_dim == sum(layout.native):
            raise ValueError(f"layout keeps all {self.head_dim} native channels and frees none for a camera.")
        if self.frames not in ("camera", "ray"):
            raise ValueError(f"frames must be 'camera' or 'ray'; got {self.frames!r}.")
        require_positive(native_base=self.native_base)
        if any(kept % 2 for kept in layout.native):
            raise ValueError(f"layout.native must be even; got {layout.native}.")
        # MeRoPE refuses what does not fit its blocks.
        _ = self._camera
        _ = self._triplets

    @property
    def resolved_layout(self) -> HeadLayout:
        """The layout in force."""
        if self.layout is not None:
            return self.layout
        blocks = {64: (6, 12), 128: (12, 12), 192: (18, 18)}
        if self.head_dim not in blocks:
            raise ValueError(
                f"no channels to free are known for head_dim {self.head_dim}; known are {sorted(blocks)}. Pass "
                "layout=HeadLayout(disp=..., rot=..., trans=..., native=(time, row, column)) with the channels that stay."
            )
        rot, trans = blocks[self.head_dim]
        time, row, col = backbone_widths(self.head_dim)
        return HeadLayout(disp=0, rot=rot, trans=trans, native=(time - rot - trans, row, col))

    @property
    def claims(self) -> Claims:
        """As MeRoPE's with the same components."""
        layout = self.resolved_layout
        return Claims(
            metric=layout.trans > 0, per_token=layout.disp + layout.trans == 0, norm_preserving=True
        )

    @property
    def _camera(self) -> MeRoPE:
        """MeRoPE over the freed channels alone."""
        layout = replace(self.resolved_layout, native=(0, 0, 0))
        return MeRoPE(
            head_dim=layout.head_dim,
            layout=layout,
            fractions=self.fractions,
            wavelength_min=self.wavelength_min,
            wavelength_max=self.wavelength_max,
            single_frequency=self.single_frequency,
            acts_on=self.acts_on,
        )

    @property
    def _freed(self) -> tuple[int, int, int]:
        """Channels that each axis gives up."""
        kept, widths = self.resolved_layout.native, backbone_widths(self.head_dim)
        return widths[0] - kept[0], widths[1] - kept[1], widths[2] - kept[2]

    @property
    def _triplets(self) -> tuple[int, ...]:
        """Rotation blocks in the channels that each axis gives up; pairs fill the rest."""
        layout = self.resolved_layout
        triplets = (layout.disp + layout.rot) // 3
        counts = triplets_per_run(self._freed, triplets)
        if counts is None:
            raise ValueError(
                f"layout frees {self._freed} channels for time, row and column, which {triplets} blocks of 3 and "
                f"{layout.trans // 2} of 2 cannot fill. An odd number of triplets per axis leaves half a pair."
            )
        return counts

    def operator(
        self,
        queries: ViewRays,
        keys: ViewRays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CameraOperator:
        """The operator of a whole backbone head; ``keys`` None means the queries themselves."""
        keys = key_rays(queries, keys)
        layout = self.resolved_layout
        with torch.autocast("cpu", enabled=False):
            found = {
                band.name: band for band in self._camera.operator(queries, keys, dtype=torch.float64).bands
            }
            if self.frames == "camera":
                found = {name: _in_camera_frames(band, queries, keys) for name, band in found.items()}
            triplets = [found[name] for name in ("disp", "rot") if name in found]
            pairs = [found[name] for name in ("trans",) if name in found]
            native = native_runs(
                queries, keys, head_dim=self.head_dim, kept=layout.native, base=self.native_base
            )
            bands: list[Band | None] = []
            first_triplet = first_pair = 0
            for run, freed, count in zip(native, self._freed, self._triplets, strict=True):
                num_pairs = (freed - 3 * count) // 2
                bands += [
                    run,
                    *run_of_blocks(triplets, first_triplet, count),
                    *run_of_blocks(pairs, first_pair, num_pairs),
                ]
                first_triplet, first_pair = first_triplet + count, first_pair + num_pairs
            operator = assemble(bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)
        return replace(operator, key_valid=None)


def _in_camera_frames(band: Band, queries: ViewRays, keys: ViewRays) -> Band:
    """A_p U A_q^T of a band whose U is between the rays' own frames; other bands as they are."""
    if band.name == "disp":
        assert band.right is not None
        A_key = minrot(keys.dirs_cam).flatten(1, 2)[:, None, None, :, None]
        return replace(band, left=None, right=Rotate3(band.right.matrix() @ A_key.mT))
    if band.name == "rot":
        left, right = (
            Rotate3(anchored_poses(queries, rays, TranslationScale())[:, None, :, None, :3, :3])
            for rays in (queries, keys)
        )
        return replace(band, left=left, right=right)
    return band
