"""UCPE and GTA by hand: what one would write for a per-token encoding alone, without this library's attention.

Channels of q, k and v arrive in planar order (all first members of the blocks, then all second ones, ...), as if the
projections had been made so. Then a 4 x 4 map on four planes, a turn of two planes, and one attention call. One layout
is known, that of UCPE and GTA: 4 x 4 blocks on the first channels, rotary pairs on the rest.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from merope.operators import Band, CameraOperator, Matrix4, Rotate2


class Factors(NamedTuple):
    """The maps of an ungrouped operator, one per token: left of queries and output, right of keys and values."""

    left: Tensor
    """[B, 1, N, 4, 4]."""
    right: Tensor
    left_cos: Tensor
    """[B, 1, N, pairs]."""
    left_sin: Tensor
    right_cos: Tensor
    right_sin: Tensor


def planar_order(operator: CameraOperator) -> Tensor:
    """Where planar channel c stands in the paper's order: ``planar = paper[..., planar_order(operator)]``."""
    pieces, start = [], 0
    for band in operator.bands:
        places = start + torch.arange(band.width).view(band.num_blocks, band.copies, band.size)
        pieces.append(places.permute(2, 0, 1).flatten())
        start += band.width
    return torch.cat(pieces)


def factors_of(operator: CameraOperator) -> Factors:
    """The operator's factors, one entry per token.

    Raises:
        ValueError: if the bands are not UCPE's and GTA's.
    """
    bands = operator.bands
    if [band.size for band in bands] != [4, 2] or operator.grouped or bands[0].num_blocks != 1:
        raise ValueError(
            "the plain implementation knows one band of 4 x 4 blocks and one of rotary pairs, both per token; got "
            f"{[(band.name, band.size, band.num_blocks, band.grouped) for band in bands]}."
        )
    (left, left_cos, left_sin), (right, right_cos, right_sin) = (
        _per_token(bands, side, tokens)
        for side, tokens in (("left", operator.num_queries), ("right", operator.num_keys))
    )
    return Factors(left, right, left_cos, left_sin, right_cos, right_sin)


def _per_token(bands: tuple[Band, ...], side: str, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    matrices, plane = getattr(bands[0], side), getattr(bands[1], side)
    if not isinstance(matrices, Matrix4) or not isinstance(plane, Rotate2):
        raise ValueError(
            f"the plain implementation needs Matrix4 and Rotate2 blocks; got {matrices} and {plane}."
        )
    values = matrices.values
    values = values.repeat_interleave(tokens // values.shape[2], dim=2).squeeze(-3)
    cos, sin = (
        x.repeat_interleave(tokens // x.shape[2], dim=2).repeat_interleave(bands[1].copies, dim=-1)
        for x in (plane.cos, plane.sin)
    )
    return values.contiguous(), cos.contiguous(), sin.contiguous()


def plain_attention(query: Tensor, key: Tensor, value: Tensor, factors: Factors) -> Tensor:
    """Attention under the factors, planar channels in and out."""
    width = query.shape[-1] - 2 * factors.left_cos.shape[-1]
    # One cat of all planes: of a cat of cats the compiler makes copies.
    query, key, value = (
        torch.cat([*_map4(x[..., :width], matrix), *_turn(x[..., width:], cos, sin)], dim=-1).to(x.dtype)
        for x, matrix, cos, sin in (
            (query, factors.left, factors.left_cos, factors.left_sin),
            (key, factors.right, factors.right_cos, factors.right_sin),
            (value, factors.right, factors.right_cos, factors.right_sin),
        )
    )
    out = scaled_dot_product_attention(query, key, value)
    back = (
        *_map4(out[..., :width], factors.left.mT),
        *_turn(out[..., width:], factors.left_cos, -factors.left_sin),
    )
    return torch.cat(back, dim=-1).to(out.dtype)


def _map4(x: Tensor, matrix: Tensor) -> list[Tensor]:
    planes = x.chunk(4, dim=-1)
    rows = []
    for row in range(4):
        m0, m1, m2, m3 = (matrix[..., row, column, None] for column in range(4))
        rows.append(m0 * planes[0] + m1 * planes[1] + m2 * planes[2] + m3 * planes[3])
    return rows


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
    first, second = x.chunk(2, dim=-1)
    return [cos * first - sin * second, cos * second + sin * first]
