"""An encoding's U_ab for measuring: in float64, with the depth of the scene and what is added in the open.

- An encoding with a `TranslationScale` is taken as it is, its default of one unit per metre, in raw metres.
- A predicted depth is given as 1.5 m for every token, with a half-width of 0.2 in its logarithm.
- An additive encoding is written as a bilinear form of ``[q; 1]`` and ``[k; 1]``: features f pass through fixed
  random maps E with entries of variance 1 / features, drawn once for queries and once for keys, and the pairwise
  map is ``[I, E_q f_a]^T U_ab [I, E_k f_b]``, with one row and column more than the head. E stands for the learned
  maps (which also normalise and gate in some methods), so its numbers show what the features carry.
"""

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import CameraEncoding, DepthEncoding, FeatureEncoding
from merope.encodings.scale import TranslationScale
from merope.operators import CameraOperator

Blocks = list[tuple[int, Tensor]]
"""U_ab as the blocks on its diagonal: how often each is repeated, and all of them, [B, H, a, b, M, s, s]."""

DepthKind = Literal["none", "fixed", "predicted"]
"""How an encoding knows of scene depth: not at all, by constants in metres, or by a prediction per token."""

_LOG_DEPTH, _HALF_WIDTH = math.log(1.5), 0.2
_DRAWS = 64
_ALL = slice(None)


def operator_of(
    encoding: CameraEncoding,
    queries: ViewRays,
    keys: ViewRays | None = None,
    *,
    depth_factor: float = 1.0,
    half_width: float = _HALF_WIDTH,
    dtype: torch.dtype = torch.float64,
) -> CameraOperator:
    """The encoding's operator; one that predicts depth is given 1.5 m times ``depth_factor`` for every token."""
    if not isinstance(encoding, DepthEncoding):
        return encoding.operator(queries, keys, dtype=dtype)
    depths = [
        torch.tensor([_LOG_DEPTH + math.log(depth_factor), half_width], dtype=dtype).expand(
            rays.batch, rays.num_tokens, 2
        )
        for rays in (queries, queries if keys is None else keys)
    ]
    return encoding.operator_at(encoding.relations(queries, keys, dtype=dtype), *depths)


def pair_matrices(
    encoding: CameraEncoding,
    view_rays: ViewRays,
    *,
    query_views: slice = _ALL,
    key_views: slice = _ALL,
    depth_factor: float = 1.0,
) -> Float[Tensor, "batch head query_token key_token side side"]:
    """U_ab of pairs of tokens of a clip; with one row and column more for an additive encoding."""
    queries, keys = views_of(view_rays, query_views), views_of(view_rays, key_views)
    # Without any factor a dense operator is float32, whatever was asked for.
    pairs = operator_of(encoding, queries, keys, depth_factor=depth_factor).dense().double()
    if pairs.ndim == 5:
        pairs = pairs[:, None]
    if not isinstance(encoding, FeatureEncoding):
        return pairs
    # Features are those of the whole clip, whose first view may be their world.
    added_query, added_key = (
        added.unflatten(1, (view_rays.num_views, -1))[:, chosen].flatten(1, 2)
        for added, chosen in zip(added_features(encoding, view_rays), (query_views, key_views), strict=True)
    )
    column = torch.einsum("bhacde,bce->bhacd", pairs, added_key)
    row = torch.einsum("bad,bhacde->bhace", added_query, pairs)
    corner = torch.einsum("bad,bhacd->bhac", added_query, column)
    below = torch.cat([row, corner[..., None]], -1)[..., None, :]
    return torch.cat([torch.cat([pairs, column[..., None]], -1), below], -2)


def pair_blocks(
    encoding: CameraEncoding,
    view_rays: ViewRays,
    *,
    query_views: slice = _ALL,
    key_views: slice = _ALL,
    depth_factor: float = 1.0,
) -> Blocks:
    """What `pair_matrices` has on its diagonals, by band and without repetition; one block for an additive encoding.

    Bands whose blocks are the same for all heads have one head.
    """
    if isinstance(encoding, FeatureEncoding):
        dense = pair_matrices(
            encoding, view_rays, query_views=query_views, key_views=key_views, depth_factor=depth_factor
        )
        return [(1, dense.unsqueeze(-3))]
    queries, keys = views_of(view_rays, query_views), views_of(view_rays, key_views)
    operator = operator_of(encoding, queries, keys, depth_factor=depth_factor)
    return [(band.copies, operator.band_pairs(band).double()) for band in operator.bands]


def added_features(
    encoding: FeatureEncoding, view_rays: ViewRays
) -> tuple[Float[Tensor, "batch token chan"], Float[Tensor, "batch token chan"]]:
    """What fixed random maps of its features would add to queries and to keys."""
    draw = torch.Generator().manual_seed(11)
    shape = (2, encoding.head_dim, encoding.num_features)
    maps = torch.randn(shape, generator=draw, dtype=torch.float64) / math.sqrt(encoding.num_features)
    features = encoding.features(view_rays, dtype=torch.float64)
    return features @ maps[0].T, features @ maps[1].T


def norm_ratios(
    encoding: CameraEncoding, view_rays: ViewRays
) -> tuple[Float[Tensor, " value"], Float[Tensor, " value"]]:
    """Smallest and largest ``|U x| / |x|`` over a clip's pairs of tokens that have rays.

    Exactly: singular values of every block. An additive encoding acts on x by adding to it; there the
    ratios are those of random keys of unit variance.
    """
    if isinstance(encoding, FeatureEncoding):
        draw = torch.Generator().manual_seed(13)
        x = torch.randn(_DRAWS, encoding.head_dim, generator=draw, dtype=torch.float64)
        added = added_features(encoding, view_rays)[1][view_rays.valid.flatten(1)]
        ratios = (x + added[:, None]).norm(dim=-1) / x.norm(dim=-1)
        return ratios.amin(-1), ratios.amax(-1)
    operator = operator_of(encoding, view_rays)
    valid = view_rays.valid.flatten(1)
    both = valid[:, :, None] & valid[:, None, :]
    low, high = [], []
    for band in operator.bands:
        values = torch.linalg.svdvals(operator.band_pairs(band)).flatten(4).movedim(1, 3)[both]
        low.append(values.amin())
        high.append(values.amax())
    return torch.stack(low), torch.stack(high)


def depth_kind(encoding: CameraEncoding) -> DepthKind:
    """Whether the encoding is given depths, has constants that are depths, or neither."""
    if isinstance(encoding, DepthEncoding):
        return "predicted"
    return "none" if with_scene_depth(encoding, 2.0) is encoding else "fixed"


def with_scene_depth(encoding: CameraEncoding, factor: float) -> CameraEncoding:
    """The encoding for a scene whose depth is multiplied: options in metres of depth go along.

    Those are the numbers among its fields whose name says "depth", counts (``num_...``) aside. One that is given
    depths keeps its constants: they are no property of the scene.
    """
    if not is_dataclass(encoding) or isinstance(encoding, DepthEncoding):
        return encoding
    scaled: dict[str, Any] = {}
    for field in fields(encoding):
        if "depth" not in field.name or field.name.startswith("num_"):
            continue
        value = getattr(encoding, field.name)
        # A depth of 4 m may be written as 4.
        if isinstance(value, int | float) and not isinstance(value, bool) and value != 0:
            scaled[field.name] = factor * value
        elif isinstance(value, tuple):
            scaled[field.name] = tuple(factor * depth for depth in value)
    return replace(encoding, **scaled) if scaled else encoding


def without_warnings(encoding: CameraEncoding) -> CameraEncoding:
    """The same encoding with a translation scale that reaches everywhere: measuring is no use that needs a warning."""
    scale = getattr(encoding, "scale", None)
    if not is_dataclass(encoding) or not isinstance(scale, TranslationScale):
        return encoding
    return replace(cast(Any, encoding), scale=replace(scale, reach=1e300))


def views_of(clip: ViewRays, chosen: slice) -> ViewRays:
    """Some of the views of a clip; its lens has to be one for all views."""
    return replace(
        clip,
        R_world_cam=clip.R_world_cam[:, chosen],
        center_world=clip.center_world[:, chosen],
        dirs_cam=clip.dirs_cam[:, chosen],
        valid=clip.valid[:, chosen],
        time=clip.time[:, chosen],
    )
