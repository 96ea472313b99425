"""GTA: homogeneous relative poses on half of the head, the image plane on the other (Miyato et al. 2024, Eq. 2)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from merope.cameras.rays import ViewRays
from merope.encodings.base import ActsOn, Claims, Facts, key_rays, require_acts_on
from merope.encodings.projective import anchored_poses, image_band, relative_band, tile_widths
from merope.encodings.scale import TranslationScale, assemble_scaled
from merope.operators import CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class GTA:
    """Geometric transform attention: ``U = T_i^-1 T_j`` in 4 x 4 blocks, rotary x and y bands beside them.

    Head of d channels: d/2 of poses, d/4 of columns, d/4 of rows. This is the form in which PRoPE's and UCPE's code run
    GTA as their baseline. GTA's own code differs in four ways. Translation has a learned factor per layer that starts
    at 0.01; here it is one fixed `TranslationScale`, and ``per_metre=0.01`` is that start. Image positions are fractions
    of the image with frequencies in octaves: ``image_positions="fraction"``. Its rows come before its columns and its
    pairs turn the other way, which only pretrained projections could tell.

    Frames of a camera that stands still are identical to it: there is no temporal band.

    Raises:
        ValueError: if the head does not divide into the layout.
    """

    facts: ClassVar[Facts] = Facts(
        title="GTA", source="Miyato et al. 2024, in the layout of Li et al. 2025", needs_scale=True
    )

    head_dim: int = 128
    scale: TranslationScale = TranslationScale()
    """Units per metre of every translation."""
    image_positions: Literal["patch", "fraction"] = "patch"
    """"patch": whole patches, base 100. "fraction": parts of the image, octaves up to one turn across it."""
    single_precision_image: bool = False
    """Make the image-plane rotations in float32 whatever ``dtype`` is, as the released code does."""
    acts_on: ActsOn = "qkvo"

    def __post_init__(self) -> None:
        tile_widths(self.head_dim, "half")
        require_acts_on(self.acts_on)
        if self.image_positions not in ("patch", "fraction"):
            raise ValueError(f"image_positions must be 'patch' or 'fraction'; got {self.image_positions!r}.")

    @property
    def claims(self) -> Claims:
        """The whole relative pose, per token; norms grow with the baseline (Eq. 4)."""
        return Claims(metric=True, per_token=True, norm_preserving=False)

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
        blocks, image = tile_widths(self.head_dim, "half")
        with torch.autocast("cpu", enabled=False):
            T_anchor_query, T_anchor_key = (
                anchored_poses(queries, rays, self.scale) for rays in (queries, keys)
            )
            bands = (
                relative_band("pose", T_anchor_query, T_anchor_key, width=blocks),
                image_band(
                    queries,
                    keys,
                    width=image,
                    fractions=self.image_positions == "fraction",
                    single_precision=self.single_precision_image,
                ),
            )
            return assemble_scaled(
                "GTA", self.scale, bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
            )
