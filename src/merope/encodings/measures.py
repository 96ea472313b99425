"""Table 1 measured: what an encoding's U_ab depends on, how it factors, and what it does to norms and logits.

All of it is read off operators in float64; what the encoding claims of itself is never looked at. Three
conventions:

- An encoding with a `TranslationScale` is measured as it is, its default of one unit per metre, in raw metres.
- A predicted depth is given as 1.5 m for every token, with a half-width of 0.2 in its logarithm.
- An additive encoding is written as a bilinear form of ``[q; 1]`` and ``[k; 1]``: features f pass through fixed
  random maps E with entries of variance 1 / features, drawn once for queries and once for keys, and the pairwise
  map is ``[I, E_q f_a]^T U_ab [I, E_k f_b]``, with one row and column more than the head. E stands for the learned
  maps (which also normalise and gate in some methods), so its numbers show what the features carry.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.cameras.scenes import (
    SCENES,
    moved_rigidly,
    pinhole_lens,
    random_drive,
    scene,
    seen_through,
)
from merope.encodings.base import CameraEncoding, DepthEncoding, FeatureEncoding
from merope.encodings.scale import TranslationScale
from merope.geometry.rotations import rotvec_to_matrix
from merope.operators import CameraOperator

DepthKind = Literal["none", "fixed", "predicted"]
"""How an encoding knows of scene depth: not at all, by constants in metres, or by a prediction per token."""

DIRECTIONS = {
    "right": (1.0, 0.0, 0.0),
    "left": (-1.0, 0.0, 0.0),
    "down": (0.0, 1.0, 0.0),
    "up": (0.0, -1.0, 0.0),
    "ahead": (0.0, 0.0, 1.0),
    "behind": (0.0, 0.0, -1.0),
}
"""Directions of translation in the query camera's frame."""

BASELINES = tuple(10 ** (k / 2) for k in range(9))
"""Metres, 1 m to 10 km."""

# Two tokens per camera, not of the same row and column in any other sense than that.
_GRID = (1, 2)
_LOG_DEPTH, _HALF_WIDTH = math.log(1.5), 0.2
# Metres between the cameras whose translation is varied, and by what it is multiplied: no round numbers, which
# a rotary code might count as whole turns.
_OFFSET, _FACTORS = 2.1, (1.21, 1.47, 1.83)
# Slopes are taken where whatever grows has outgrown what does not.
_SLOPE_FROM = 100.0
_DRAWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """On what beside the relative pose of its two cameras U_ab depends: largest change of an entry."""

    pair_moved: float
    """When the cameras move together, rigidly, and the clip's first view stays."""
    clip_moved: float
    """When the whole clip moves rigidly."""
    depth_doubled: float
    """When predicted depths double; zero without them."""
    largest_entry: float
    """Largest entry of U_ab there, for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How much logits change with the relative pose, in standard deviations of a logit under U = I.

    Root mean square over q and k of unit variance. Translation of 2.1 m in each of `DIRECTIONS` is multiplied
    by 1.21, 1.47 and 1.83; the largest change counts.
    """

    depth: DepthKind
    """What "scaled along" means: nothing, constants of the encoding, or given predictions."""
    depth_kept: Mapping[str, float]
    """By direction, with the scene's depth as it was."""
    depth_scaled: Mapping[str, float]
    """By direction, with the scene's depth multiplied by the same factor: what is left is metric."""
    apart: float
    """Between the two of `DIRECTIONS` that differ least, at one distance."""
    turned: float
    """When the key camera turns by 10 degrees, about the axis that changes least."""

    @property
    def metric(self) -> float:
        """The least of what a full metric pose must change: metres, direction and rotation, at scaled depth."""
        return min(*self.depth_scaled.values(), self.apart, self.turned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What happens as two cameras move apart, over `BASELINES` in three directions."""

    logits: tuple[float, ...]
    """Largest logit of unit-variance q and k by baseline."""
    norms: tuple[float, ...]
    """Largest norm of U_ab k over that of k by baseline."""

    @property
    def logit_slope(self) -> float:
        """Exponent of growth of the largest logit from 100 m on."""
        return _log_slope(self.logits)

    @property
    def norm_slope(self) -> float:
        """Exponent of growth of the largest norm ratio from 100 m on."""
        return _log_slope(self.norms)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormDeviation:
    """Largest departure of a norm ratio ``|U x| / |x|`` from one, by scene, and the scenes that were refused."""

    by_scene: Mapping[str, float]
    refused: Mapping[str, str]
    """Scenes that the encoding does not take, and what it said."""

    @property
    def largest(self) -> float:
        """Over all scenes."""
        return max(self.by_scene.values())


def dependence(encoding: CameraEncoding) -> Dependence:
    """(A), first half: is U_ab a function of the relative pose alone?"""
    encoding = without_warnings(encoding)
    here = random_drive(1, reach=5.0, views=4, grid=_GRID)
    there = moved_rigidly(here, torch.tensor([0.4, -0.9, 0.6]), torch.tensor([3.0, -7.0, 2.0]).double())
    first_stays = replace(
        there,
        R_world_cam=torch.cat([here.R_world_cam[:, :1], there.R_world_cam[:, 1:]], 1),
        center_world=torch.cat([here.center_world[:, :1], there.center_world[:, 1:]], 1),
    )
    moved = slice(here.tokens_per_view, None)
    before = pair_matrices(encoding, here)
    pairs_before = before[..., moved, moved, :, :]
    return Dependence(
        pair_moved=_largest(pair_matrices(encoding, first_stays)[..., moved, moved, :, :] - pairs_before),
        clip_moved=_largest(pair_matrices(encoding, there) - before),
        depth_doubled=_largest(pair_matrices(encoding, here, depth_factor=2.0) - before)
        if isinstance(encoding, DepthEncoding)
        else 0.0,
        largest_entry=_largest(before),
    )


def sensitivity(encoding: CameraEncoding) -> Sensitivity:
    """(A), second half: does U_ab see metres, whatever the scene's depth, in every direction?"""
    encoding = without_warnings(encoding)
    base = _apart(_OFFSET)

    def change(view_rays: ViewRays, factor: float = 1.0) -> Tensor:
        scaled = with_scene_depth(encoding, factor)
        after = pair_matrices(scaled, view_rays, depth_factor=factor)
        return _rms_logit(_across(after - before, view_rays), encoding.head_dim)

    before = pair_matrices(encoding, base)
    kept = torch.stack([change(_apart(factor * _OFFSET)) for factor in _FACTORS]).amax(0)
    joint = torch.stack([change(_apart(factor * _OFFSET), factor) for factor in _FACTORS]).amax(0)
    across = _across(before, base)
    apart = [
        _rms_logit(across[k + 1 :] - across[k], encoding.head_dim).amin() for k in range(len(DIRECTIONS) - 1)
    ]
    turns = [change(_apart(_OFFSET, key_turn=math.radians(10) * axis)).amin() for axis in torch.eye(3)]
    return Sensitivity(
        depth=depth_kind(encoding),
        depth_kept=dict(zip(DIRECTIONS, kept.tolist(), strict=True)),
        depth_scaled=dict(zip(DIRECTIONS, joint.tolist(), strict=True)),
        apart=float(min(apart)),
        turned=float(min(turns)),
    )


def factorisation(encoding: CameraEncoding) -> float:
    """(B): ``sigma_{d+1} / sigma_1`` of the matrix of all U_ab between one token each of four cameras.

    That matrix has rank at most d if and only if ``U_ab = L_a^T R_b`` for some maps of single tokens.
    """
    encoding = without_warnings(encoding)
    view_rays = random_drive(3, reach=3.0, views=4, grid=_GRID)
    pairs = pair_matrices(encoding, view_rays)[0, :, ::2, ::2]  # [H, a, b, d, d]
    values = torch.linalg.svdvals(pairs.transpose(2, 3).flatten(1, 2).flatten(2, 3))
    return float((values[:, encoding.head_dim] / values[:, 0]).max())


def norm_deviation(encoding: CameraEncoding) -> NormDeviation:
    """(C): how far norms of features are from kept, on random cameras and on the standing scenes."""
    encoding = without_warnings(encoding)
    found: dict[str, float] = {}
    refused: dict[str, str] = {}
    for name in ("random", *SCENES):
        view_rays = random_drive(4) if name == "random" else scene(name)
        try:
            low, high = norm_ratios(encoding, view_rays)
        except ValueError as error:
            refused[name] = str(error)
            continue
        found[name] = max(abs(float(low.min()) - 1), abs(float(high.max()) - 1))
    if not found:
        raise ValueError(f"the encoding takes none of the scenes: {next(iter(refused.values()))}")
    return NormDeviation(by_scene=found, refused=refused)


def growth(encoding: CameraEncoding) -> Growth:
    """Largest logit and norm ratio as the baseline goes from 1 m to 10 km."""
    encoding = without_warnings(encoding)
    draw = torch.Generator().manual_seed(7)
    q, k = (torch.randn(_DRAWS, encoding.head_dim, generator=draw, dtype=torch.float64) for _ in "qk")
    if isinstance(encoding, FeatureEncoding):
        q, k = (torch.cat([x, torch.ones(_DRAWS, 1, dtype=torch.float64)], -1) for x in (q, k))
    logits, norms = [], []
    for baseline in BASELINES:
        view_rays = _apart(baseline)
        pairs = _across(pair_matrices(encoding, view_rays), view_rays)
        found = torch.einsum("sd,...de,se->...s", q, pairs, k) / math.sqrt(encoding.head_dim)
        logits.append(float(found.abs().max()))
        norms.append(float(norm_ratios(encoding, view_rays)[1].max()))
    return Growth(logits=tuple(logits), norms=tuple(norms))


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
    encoding: CameraEncoding, view_rays: ViewRays, *, depth_factor: float = 1.0
) -> Float[Tensor, "batch head query_token key_token side side"]:
    """U_ab of all pairs of tokens of a clip; with one row and column more for an additive encoding."""
    # Without any factor a dense operator is float32, whatever was asked for.
    pairs = operator_of(encoding, view_rays, depth_factor=depth_factor).dense().double()
    if pairs.ndim == 5:
        pairs = pairs[:, None]
    if not isinstance(encoding, FeatureEncoding):
        return pairs
    added_query, added_key = added_features(encoding, view_rays)
    column = torch.einsum("bhacde,bce->bhacd", pairs, added_key)
    row = torch.einsum("bad,bhacde->bhace", added_query, pairs)
    corner = torch.einsum("bad,bhacd->bhac", added_query, column)
    below = torch.cat([row, corner[..., None]], -1)[..., None, :]
    return torch.cat([torch.cat([pairs, column[..., None]], -1), below], -2)


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

    Those are the numbers among its fields whose name says "depth". One that is given depths keeps its
    constants: they are no property of the scene.
    """
    if not is_dataclass(encoding) or isinstance(encoding, DepthEncoding):
        return encoding
    scaled: dict[str, Any] = {}
    for field in fields(encoding):
        value = getattr(encoding, field.name)
        if "depth" in field.name and isinstance(value, float) and value != 0:
            scaled[field.name] = factor * value
        elif "depth" in field.name and isinstance(value, tuple):
            scaled[field.name] = tuple(factor * depth for depth in value)
    return replace(encoding, **scaled) if scaled else encoding


def without_warnings(encoding: CameraEncoding) -> CameraEncoding:
    """The same encoding with a translation scale that reaches everywhere: measuring is no use that needs a warning."""
    scale = getattr(encoding, "scale", None)
    if not is_dataclass(encoding) or not isinstance(scale, TranslationScale):
        return encoding
    changed: Any = replace(encoding, **{"scale": replace(scale, reach=1e300)})  # noqa: PIE804
    return changed


def _apart(baseline: float, *, key_turn: Tensor | None = None) -> ViewRays:
    """Two cameras ``baseline`` metres apart, turned 0.3 rad against each other; one clip for each of `DIRECTIONS`."""
    directions = torch.tensor(list(DIRECTIONS.values()), dtype=torch.float64)
    turns = torch.tensor([[0.2, -0.4, 0.1], [0.0, 0.3, 0.0]], dtype=torch.float64)
    R_world_query, R_query_key = rotvec_to_matrix(turns)
    if key_turn is not None:
        R_query_key = R_query_key @ rotvec_to_matrix(key_turn.double())
    rotations = torch.stack([R_world_query, R_world_query @ R_query_key])
    centers = torch.zeros(len(directions), 2, 3, dtype=torch.float64)
    centers[:, 1] = baseline * directions @ R_world_query.mT
    return seen_through(pinhole_lens(_GRID), rotations.expand(len(directions), 2, 3, 3), centers)


def _across(pairs: Tensor, view_rays: ViewRays) -> Tensor:
    """Of a clip of two cameras, the pairs of the first one's queries and the second one's keys."""
    tokens = view_rays.tokens_per_view
    return pairs[:, :, :tokens, tokens:]


def _rms_logit(change: Tensor, head_dim: int) -> Tensor:
    """By clip: for q and k of unit variance, E (q^T M k)^2 is the sum of M's squares."""
    return (change.square().sum((-2, -1)) / head_dim).flatten(1).mean(1).sqrt()


def _largest(values: Tensor) -> float:
    return float(values.abs().max())


def _log_slope(values: tuple[float, ...]) -> float:
    far = [(math.log(b), math.log(v)) for b, v in zip(BASELINES, values, strict=True) if b >= _SLOPE_FROM]
    x, y = torch.tensor(far, dtype=torch.float64).T
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())
