"""What encodings by 4 x 4 camera matrices share: anchored poses, their exact inverse, bands on the image plane.

Every one of them is ``U_ab = M_a^-1 M_b`` on half of the head, with a matrix M per camera or per ray that only rotates,
moves and, in PRoPE, applies a lens. A rotary embedding over the image plane fills the rest.
"""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.rotary import axis_phases, inverse_power_frequencies, rotary_band
from merope.encodings.scale import TranslationScale
from merope.operators import Band, Matrix4

Tiles = Literal["half", "whole"]
"""How much of the head is under 4 x 4 blocks: half, with the image plane on the rest, or all of it."""

_IMAGE_BASE = 100.0


def tile_widths(head_dim: int, tiles: Tiles) -> tuple[int, int]:
    """Channels under 4 x 4 blocks and channels of the image plane.

    Raises:
        ValueError: if the head does not divide into them.
    """
    if tiles not in get_args(Tiles):
        raise ValueError(f"tiles must be one of {', '.join(get_args(Tiles))}; got {tiles!r}.")
    if tiles == "whole":
        if head_dim < 4 or head_dim % 4:
            raise ValueError(f"head_dim must be a multiple of 4 to be all 4 x 4 blocks; got {head_dim}.")
        return head_dim, 0
    if head_dim < 8 or head_dim % 8:
        raise ValueError(
            f"head_dim must be a multiple of 8: a half in 4 x 4 blocks and a quarter of pairs for x and for y; got "
            f"{head_dim} = {head_dim / 2:g} + {head_dim / 4:g} + {head_dim / 4:g}."
        )
    return head_dim // 2, head_dim // 2


def released_channel_order(head_dim: int) -> Int[Tensor, " chan"]:
    """For every channel of ours, its place in a head of the PRoPE, GTA or UCPE releases.

    They keep the two channels of a rotary pair half a band apart, here they are neighbours. With ``w`` a released
    projection to queries, keys or values, ``w.unflatten(0, (heads, head_dim))[:, order].flatten(0, 1)`` serves here,
    and so do the columns of an output projection in this order. The half under 4 x 4 blocks is the same in both.

    Raises:
        ValueError: if ``head_dim`` is not a multiple of 8.
    """
    blocks, image = tile_widths(head_dim, "half")
    pairs = image // 4
    axes = [
        torch.stack((start + torch.arange(pairs), start + pairs + torch.arange(pairs)), -1).flatten()
        for start in (blocks, blocks + image // 2)
    ]
    return torch.cat([torch.arange(blocks), *axes])


def rigid(rotation: Float[Tensor, "*batch 3 3"], translation: Float[Tensor, "*batch 3"]) -> Tensor:
    """The 4 x 4 matrix ``[rotation, translation; 0, 1]``."""
    last = rotation.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(*rotation.shape[:-2], 1, 4)
    return torch.cat([torch.cat([rotation, translation[..., None]], -1), last], -2)


def rigid_inverse(T: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 4 4"]:
    """``T^-1`` of a rigid motion, by its transposed rotation: exact, where a general inverse rounds."""
    transposed = T[..., :3, :3].mT
    return rigid(transposed, -(transposed @ T[..., :3, 3:])[..., 0])


def anchored_poses(
    queries: ViewRays, rays: ViewRays, scale: TranslationScale
) -> Float[Tensor, "batch view 4 4"]:
    """``T_anchor_cam`` of every camera of ``rays``, translation in units of the scale.

    The anchor is the first query camera. Relative encodings do not see it, but matrices stay as small as the
    baselines: map coordinates of 5e6 m would leave half a metre in float32.
    """
    R_anchor_world = queries.R_world_cam[:, :1].mT
    from_anchor = rays.center_world - queries.center_world[:, :1]
    center_anchor = (R_anchor_world @ from_anchor[..., None])[..., 0]
    return rigid(R_anchor_world @ rays.R_world_cam, center_anchor * scale.per_metre)


def tile_band(
    name: str,
    left: Float[Tensor, "batch query_entry 4 4"],
    right: Float[Tensor, "batch key_entry 4 4"],
    *,
    width: int,
) -> Band:
    """``width`` channels in groups of four under ``left^T right``; one entry per camera or per token."""
    return Band(
        name=name,
        width=width,
        size=4,
        left=Matrix4(left[:, None, :, None]),
        right=Matrix4(right[:, None, :, None]),
    )


def relative_band(
    name: str,
    T_anchor_query: Float[Tensor, "batch query_entry 4 4"],
    T_anchor_key: Float[Tensor, "batch key_entry 4 4"],
    *,
    width: int,
) -> Band:
    """``U = T_i^-1 T_j`` on ``width`` channels (Eq. 2)."""
    return tile_band(name, rigid_inverse(T_anchor_query).mT, T_anchor_key, width=width)


def image_band(
    queries: ViewRays,
    keys: ViewRays,
    *,
    width: int,
    fractions: bool = False,
    single_precision: bool = False,
) -> Band | None:
    """Rotary pairs over the column and then the row, half of ``width`` each; None for no channels.

    Pairs turn by (query position - key position), the sign of the PRoPE release and the opposite of the backbone's.
    Positions are whole patches and frequencies ``100 ** (-m / M)`` for m = 0 ... M - 1. With ``fractions`` they are
    parts of the image, in [0, 1), and pair m makes ``2 ** (m + 1 - M)`` turns across it, as in GTA's own code. With
    ``single_precision`` frequencies, phases and their cosines are float32, as in the release: 2e-7 from these.
    """
    if not width:
        return None
    dtype = torch.float32 if single_precision else torch.float64
    query_phases, key_phases = (_image_phases(rays, width // 2, fractions, dtype) for rays in (queries, keys))
    # rotary_band turns by key minus query.
    return rotary_band("image", -query_phases, -key_phases)


def _image_phases(rays: ViewRays, width: int, fractions: bool, dtype: torch.dtype) -> Tensor:
    rows, cols = rays.grid
    if fractions:
        positions = (rays.col / cols, rays.row / rows)
        turns = 2.0 ** (torch.arange(width // 2, dtype=torch.float64) + 1 - width // 2)
        frequencies = 2 * math.pi * turns
    else:
        positions = (rays.col, rays.row)
        frequencies = inverse_power_frequencies(width, _IMAGE_BASE, dtype)
    frequencies = frequencies.to(dtype)
    of_view = axis_phases(
        [position.to(dtype) for position in positions], (frequencies, frequencies)
    )  # [P, pairs]
    return of_view.expand(rays.batch, rays.num_views, -1, -1).flatten(1, 2)
