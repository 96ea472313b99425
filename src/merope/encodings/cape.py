"""CaPE: relative poses on all of the head, on queries and keys alone (Kong et al. 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from merope.cameras.rays import ViewRays
from merope.encodings.base import ActsOn, Claims, Facts, key_rays, require_acts_on
from merope.encodings.projective import (
    Tiles,
    anchored_poses,
    image_band,
    rigid_inverse,
    tile_band,
    tile_widths,
)
from merope.encodings.scale import TranslationScale, assemble_scaled
from merope.operators import CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class CaPE:
    """Camera positional encoding with six degrees of freedom: ``U = (T_j^-1 T_i)^T`` in 4 x 4 blocks.

    The paper multiplies rows where GTA multiplies columns, so the displacement stands in the last row and is the
    query's, seen from the key: ``[R_ij, 0; Δo_{i|j}^T, 1]``. Its norm grows as GTA's does. Values and output
    are untouched. All of the head is poses, without any position in the image: two tokens of one camera
    meet through the identity. ``tiles="half"`` is GTA's layout, with the image plane on the other half.

    The paper's second form, with four degrees of freedom around an object, is not here.

    Raises:
        ValueError: if the head does not divide into the layout.
    """

    facts: ClassVar[Facts] = Facts(title="CaPE", source="Kong et al. 2024, EscherNet", needs_scale=True)

    head_dim: int = 128
    scale: TranslationScale = TranslationScale()
    """Units per metre of every translation; the paper's own poses are used as they come."""
    tiles: Tiles = "whole"
    """"half" leaves a quarter of the head each to rotary columns and rows, as in GTA."""
    acts_on: ActsOn = "qk"

    def __post_init__(self) -> None:
        tile_widths(self.head_dim, self.tiles)
        require_acts_on(self.acts_on)

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
        """The operator between two sets of rays; ``keys`` None means the queries themselves."""
        keys = key_rays(queries, keys)
        blocks, image = tile_widths(self.head_dim, self.tiles)
        with torch.autocast("cpu", enabled=False):
            T_anchor_query, T_anchor_key = (
                anchored_poses(queries, rays, self.scale) for rays in (queries, keys)
            )
            bands = (
                tile_band("pose", T_anchor_query, rigid_inverse(T_anchor_key).mT, width=blocks),
                image_band(queries, keys, width=image),
            )
            return assemble_scaled(
                "CaPE", self.scale, bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
            )
