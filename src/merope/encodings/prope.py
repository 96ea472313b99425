"""PRoPE: relative poses between normalised pinhole projections (Li et al. 2025)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.base import CameraModel
from merope.cameras.opencv import OpenCV
from merope.cameras.parameters import Parameter, to_tensor
from merope.cameras.pinhole import Pinhole
from merope.cameras.rays import ViewRays
from merope.cameras.unified import UnifiedCamera
from merope.encodings.base import (
    ActsOn,
    Claims,
    Facts,
    key_rays,
    require_acts_on,
    required_lens,
)
from merope.encodings.projective import (
    Tiles,
    anchored_poses,
    image_band,
    rigid_inverse,
    tile_band,
    tile_widths,
)
from merope.encodings.scale import TranslationScale, assemble_scaled
from merope.operators import Band, CameraOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class PRoPE:
    """Projective positional encoding: ``U = P_i P_j^-1`` with ``P = lift(K) T^-1`` in 4 x 4 blocks.

    K is the pinhole matrix in units of the image, its origin in the middle: (fx/W, fy/H, cx/W - 1/2, cy/H - 1/2).
    Head of d channels: d/2 of projections, d/4 of columns, d/4 of rows. Needs ``ViewRays.lens``.

    Raises:
        ValueError: if the head does not divide into the layout; by ``operator``, if the rays carry no lens, or one
            that is no pinhole.
    """

    facts: ClassVar[Facts] = Facts(title="PRoPE", source="Li et al. 2025", needs_lens=True, needs_scale=True)

    head_dim: int = 128
    scale: TranslationScale = TranslationScale()
    """Units per metre of every translation."""
    tiles: Tiles = "half"
    """"whole" is the form of the ports to video transformers: no image-plane bands."""
    center_principal_point: bool = False
    """Take cx and cy as the image's middle whatever the lens says, as those ports do."""
    pretend_pinhole: bool = False
    """Read fx, fy, cx and cy of any lens as a pinhole's, as UCPE's code does with its unified cameras."""
    single_precision_image: bool = False
    """Make the image-plane rotations in float32 whatever ``dtype`` is, as the released code does."""
    acts_on: ActsOn = "qkvo"

    def __post_init__(self) -> None:
        tile_widths(self.head_dim, self.tiles)
        require_acts_on(self.acts_on)

    @property
    def claims(self) -> Claims:
        """The whole relative pose, per token; norms grow with the baseline and change with the lens."""
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
            query_lens, key_lens = (
                normalised_lens(
                    rays,
                    center_principal_point=self.center_principal_point,
                    pretend_pinhole=self.pretend_pinhole,
                )
                for rays in (queries, keys)
            )
            bands = (
                projective_band("pose", queries, keys, query_lens, key_lens, scale=self.scale, width=blocks),
                image_band(queries, keys, width=image, single_precision=self.single_precision_image),
            )
            return assemble_scaled(
                "PRoPE", self.scale, bands, queries, keys, acts_on=self.acts_on, dtype=dtype, device=device
            )


def normalised_lens(
    rays: ViewRays,
    *,
    name: str = "PRoPE",
    center_principal_point: bool = False,
    pretend_pinhole: bool = False,
) -> Float[Tensor, "batch view 4"]:
    """fx/W, fy/H, cx/W - 1/2 and cy/H - 1/2 of every view; ``name`` is the encoding that asks.

    Raises:
        ValueError: if the rays carry no lens, or one that is no pinhole and ``pretend_pinhole`` is not set.
    """
    lens = required_lens(rays, name)
    if not pretend_pinhole and not _is_pinhole(lens):
        raise ValueError(
            f"{name} needs a pinhole; the rays come from {type(lens).__name__}, which no 3 x 3 matrix describes. Pass "
            "pretend_pinhole=True to read its fx, fy, cx and cy as a pinhole's, or use an encoding by rays: UCPE, MeRoPE."
        )
    fx, fy, cx, cy = (
        to_tensor(value).to("cpu", torch.float64).expand(rays.batch, rays.num_views)
        for value in (lens.fx, lens.fy, lens.cx, lens.cy)
    )
    middle_x, middle_y = cx / lens.width - 0.5, cy / lens.height - 0.5
    if center_principal_point:
        middle_x, middle_y = torch.zeros_like(middle_x), torch.zeros_like(middle_y)
    return torch.stack([fx / lens.width, fy / lens.height, middle_x, middle_y], -1)


def projective_band(
    name: str,
    queries: ViewRays,
    keys: ViewRays,
    query_lens: Float[Tensor, "batch query_view 4"],
    key_lens: Float[Tensor, "batch key_view 4"],
    *,
    scale: TranslationScale,
    width: int,
) -> Band:
    """``U = lift(K_i) T_i^-1 T_j lift(K_j)^-1`` on ``width`` channels, one entry per camera."""
    T_query_anchor = rigid_inverse(anchored_poses(queries, queries, scale))
    T_anchor_key = anchored_poses(queries, keys, scale)
    fx, fy, cx, cy = query_lens.unbind(-1)
    left = _lifted(fx, fy, cx, cy) @ T_query_anchor
    fx, fy, cx, cy = key_lens.unbind(-1)
    right = T_anchor_key @ _lifted(1 / fx, 1 / fy, -cx / fx, -cy / fy)
    return tile_band(name, left.mT, right, width=width)


def _lifted(fx: Tensor, fy: Tensor, cx: Tensor, cy: Tensor) -> Tensor:
    """(fx, 0, cx; 0, fy, cy; 0, 0, 1) with a fourth row and column of the identity."""
    zero, one = torch.zeros_like(fx), torch.ones_like(fx)
    rows = ((fx, zero, cx, zero), (zero, fy, cy, zero), (zero, zero, one, zero), (zero, zero, zero, one))
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def _is_pinhole(lens: CameraModel) -> bool:
    """Whether a 3 x 3 matrix is all of the lens; calibrated models often hold zeros."""
    bends: list[Parameter] = []
    if isinstance(lens, UnifiedCamera):
        bends = [lens.xi]
    elif isinstance(lens, OpenCV):
        bends = list(lens.distortion)
    elif not isinstance(lens, Pinhole):
        return False
    return not any(bool(to_tensor(bend).any()) for bend in bends)
