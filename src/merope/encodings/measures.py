"""Table 1 measured: what an encoding's U_ab depends on, how it factors, and what it does to norms and logits.

All of it is read off operators in float64 (`merope.encodings.pairwise` says how); what the encoding claims of
itself is never looked at.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
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
from merope.encodings.base import CameraEncoding, Claims, DepthEncoding, FeatureEncoding
from merope.encodings.pairwise import (
    Blocks,
    DepthKind,
    depth_kind,
    norm_ratios,
    pair_blocks,
    with_scene_depth,
    without_warnings,
)
from merope.geometry.rotations import rotvec_to_matrix

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

UNCHANGED = 1e-6
"""Changes below this, relative to the largest entry of U_ab where that is over one, are rounding."""
SEEN = 1e-3
"""Root mean square changes of logits above this are seen, in standard deviations of a logit."""
FACTORS = 1e-6
"""Below it ``sigma_{d+1} / sigma_1`` is rounding."""
KEEPS_NORMS = 1e-6
"""Below it a departure of norm ratios from one is rounding."""
BOUNDED = 0.1
"""Exponents of growth below this are those of bounded logits, which still differ from baseline to baseline."""

# Two tokens per camera, not of the same row and column in any other sense than that.
_GRID = (1, 2)
# Metres between the cameras whose translation is varied, and by what it is multiplied: no round numbers, which
# a rotary code might count as whole turns.
_OFFSET, _FACTORS = 2.1, (1.21, 1.47, 1.83)
# The same where a code that is cut off or saturates has nothing left to say.
_FAR_OFFSETS = (130.0, 3700.0)
# Metres around which cameras lie for what may hold near by only.
_FAR_REACH = 3000.0
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
    far: float
    """`largest` among cameras kilometres apart."""

    @property
    def largest(self) -> float:
        """The largest of the three, relative to the largest entry where that is over one."""
        return max(self.pair_moved, self.clip_moved, self.depth_doubled) / max(1.0, self.largest_entry)

    @property
    def none(self) -> bool:
        """Whether there is nothing beside the relative pose, near or far."""
        return max(self.largest, self.far) <= UNCHANGED


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
    depth_scaled_far: Mapping[str, float]
    """The same from 130 m and from 3.7 km, whichever changes less: a code that is cut off on the way shows there."""
    apart: float
    """Between the two of `DIRECTIONS` that differ least, at one distance."""
    turned: float
    """When the key camera turns by 10 degrees, about the axis that changes least."""
    turned_about: Mapping[str, float]
    """The same by axis of the query camera: right, down, ahead."""

    @property
    def metric(self) -> float:
        """The least of what a full metric pose must change: metres near and far, direction and rotation, at scaled depth."""
        return min(*self.depth_scaled.values(), *self.depth_scaled_far.values(), self.apart, self.turned)


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
    far: float
    """The same among random cameras kilometres apart."""

    @property
    def largest(self) -> float:
        """Over all scenes."""
        return max(self.by_scene.values())

    @property
    def anywhere(self) -> float:
        """Over all scenes and far away."""
        return max(self.largest, self.far)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that is measured of one encoding, and what Table 1 would say of it."""

    dependence: Dependence
    sensitivity: Sensitivity
    factorisation: float
    factorisation_far: float
    """The same among cameras hundreds of metres apart."""
    norm: NormDeviation
    growth: Growth

    @property
    def claims(self) -> Claims:
        """Yes and no: (A) is a function of the relative pose alone that sees all of it in metres."""
        return Claims(
            metric=self.dependence.none and self.sensitivity.metric > SEEN,
            per_token=max(self.factorisation, self.factorisation_far) <= FACTORS,
            norm_preserving=self.norm.anywhere <= KEEPS_NORMS,
        )


def measure(encoding: CameraEncoding) -> Measured:
    """All measurements of this module, a second or two for the encodings of this library.

    Raises:
        ValueError: if the encoding refuses the scenes.
    """
    return Measured(
        dependence=dependence(encoding),
        sensitivity=sensitivity(encoding),
        factorisation=factorisation(encoding),
        factorisation_far=factorisation(encoding, reach=300.0),
        norm=norm_deviation(encoding),
        growth=growth(encoding),
    )


def dependence(encoding: CameraEncoding) -> Dependence:
    """(A), first half: is U_ab a function of the relative pose alone?"""
    encoding = without_warnings(encoding)
    near, far = (_dependence(encoding, reach) for reach in (5.0, _FAR_REACH))
    return replace(near, far=far.largest)


def _dependence(encoding: CameraEncoding, reach: float) -> Dependence:
    here = random_drive(1, reach=reach, views=4, grid=_GRID)
    there = moved_rigidly(here, torch.tensor([0.4, -0.9, 0.6]), torch.tensor([3.0, -7.0, 2.0]).double())
    first_stays = replace(
        there,
        R_world_cam=torch.cat([here.R_world_cam[:, :1], there.R_world_cam[:, 1:]], 1),
        center_world=torch.cat([here.center_world[:, :1], there.center_world[:, 1:]], 1),
    )
    moved = slice(here.tokens_per_view, None)
    before = pair_blocks(encoding, here)
    pair_moved = [
        (copies, change[:, :, moved, moved])
        for copies, change in _change(before, pair_blocks(encoding, first_stays))
    ]
    return Dependence(
        pair_moved=_largest(pair_moved),
        clip_moved=_largest(_change(before, pair_blocks(encoding, there))),
        depth_doubled=_largest(_change(before, pair_blocks(encoding, here, depth_factor=2.0)))
        if isinstance(encoding, DepthEncoding)
        else 0.0,
        largest_entry=_largest(before),
        far=0.0,
    )


def sensitivity(encoding: CameraEncoding) -> Sensitivity:
    """(A), second half: does U_ab see metres, whatever the scene's depth, in every direction?"""
    encoding = without_warnings(encoding)
    base = _apart(_OFFSET)

    def change(view_rays: ViewRays) -> Tensor:
        return _rms_logit(_change(before, _across(encoding, view_rays)), encoding.head_dim)

    before = _across(encoding, base)
    kept = torch.stack([change(_apart(factor * _OFFSET)) for factor in _FACTORS]).amax(0)
    joint = _seen_from(encoding, _OFFSET)
    far = torch.stack([_seen_from(encoding, offset) for offset in _FAR_OFFSETS]).amin(0)
    apart = [
        _rms_logit([(copies, u[k + 1 :] - u[k]) for copies, u in before], encoding.head_dim).amin()
        for k in range(len(DIRECTIONS) - 1)
    ]
    turns = [float(change(_apart(_OFFSET, key_turn=math.radians(10) * axis)).amin()) for axis in torch.eye(3)]
    return Sensitivity(
        depth=depth_kind(encoding),
        depth_kept=dict(zip(DIRECTIONS, kept.tolist(), strict=True)),
        depth_scaled=dict(zip(DIRECTIONS, joint.tolist(), strict=True)),
        depth_scaled_far=dict(zip(DIRECTIONS, far.tolist(), strict=True)),
        apart=float(min(apart)),
        turned=min(turns),
        turned_about=dict(zip(("right", "down", "ahead"), turns, strict=True)),
    )


def _seen_from(encoding: CameraEncoding, offset: float) -> Tensor:
    """By direction, how much logits change when ``offset`` metres and the scene's depth are multiplied."""
    before = _across(encoding, _apart(offset))
    changes = [
        _change(before, _across(with_scene_depth(encoding, factor), _apart(factor * offset), factor))
        for factor in _FACTORS
    ]
    return torch.stack([_rms_logit(change, encoding.head_dim) for change in changes]).amax(0)


def factorisation(encoding: CameraEncoding, *, reach: float = 3.0) -> float:
    """(B): ``sigma_{d+1} / sigma_1`` of the matrix of all U_ab between one token each of four cameras.

    The cameras lie within ``reach`` metres. That matrix has rank at most d if and only if ``U_ab = L_a^T R_b`` for some
    maps of single tokens.
    """
    encoding = without_warnings(encoding)
    view_rays = random_drive(3, reach=reach, views=4, grid=_GRID)
    found = []
    for copies, blocks in pair_blocks(encoding, view_rays):
        # [H, M, a s, b s]: the matrix of all pairs, its rows and columns sorted by block.
        pairs = blocks[0, :, ::2, ::2].permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
        found.append(torch.linalg.svdvals(pairs).flatten(1).repeat(1, copies))
    heads = max(len(values) for values in found)
    values = torch.cat([values.expand(heads, -1) for values in found], -1).sort(descending=True).values
    return float((values[:, encoding.head_dim] / values[:, 0]).max())


def norm_deviation(encoding: CameraEncoding) -> NormDeviation:
    """(C): how far norms of features are from kept, on random cameras near and far and on the standing scenes."""
    encoding = without_warnings(encoding)
    found: dict[str, float] = {}
    refused: dict[str, str] = {}
    for name in ("random", *SCENES):
        view_rays = random_drive(4) if name == "random" else scene(name)
        try:
            found[name] = _departure(encoding, view_rays)
        except ValueError as error:
            refused[name] = str(error)
    if not found:
        raise ValueError(f"the encoding takes none of the scenes: {next(iter(refused.values()))}")
    far = _departure(encoding, random_drive(4, reach=_FAR_REACH)) if "random" in found else 0.0
    return NormDeviation(by_scene=found, refused=refused, far=far)


def _departure(encoding: CameraEncoding, view_rays: ViewRays) -> float:
    low, high = norm_ratios(encoding, view_rays)
    return max(abs(float(low.min()) - 1), abs(float(high.max()) - 1))


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
        found = _logits(q, k, _across(encoding, view_rays)) / math.sqrt(encoding.head_dim)
        logits.append(float(found.abs().max()))
        norms.append(float(norm_ratios(encoding, view_rays)[1].max()))
    return Growth(logits=tuple(logits), norms=tuple(norms))


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


def _across(encoding: CameraEncoding, view_rays: ViewRays, depth_factor: float = 1.0) -> Blocks:
    """Of a clip of two cameras, U_ab of the first one's queries and the second one's keys."""
    return pair_blocks(
        encoding, view_rays, query_views=slice(1), key_views=slice(1, 2), depth_factor=depth_factor
    )


def _change(before: Blocks, after: Blocks) -> Blocks:
    return [(copies, two - one) for (copies, one), (_, two) in zip(before, after, strict=True)]


def _rms_logit(change: Blocks, head_dim: int) -> Tensor:
    """By clip: for q and k of unit variance, E (q^T M k)^2 is the sum of M's squares."""
    squares = torch.zeros((), dtype=torch.float64)
    for copies, blocks in change:
        squares = squares + copies * blocks.square().sum((-3, -2, -1))  # [B, H, a, b]
    return (squares / head_dim).flatten(1).mean(1).sqrt()


def _logits(q: Tensor, k: Tensor, pairs: Blocks) -> Tensor:
    """q^T U_ab k of every draw of q and k [S, d] and every pair of tokens, [B, H, a, b, S]."""
    total, start = torch.zeros((), dtype=torch.float64), 0
    for copies, blocks in pairs:
        num_blocks, size = blocks.shape[-3], blocks.shape[-1]
        at = slice(start, start + num_blocks * copies * size)
        split = [x[:, at].unflatten(-1, (num_blocks, copies, size)) for x in (q, k)]
        outer = torch.einsum("smci,smcj->smij", *split)
        total = total + torch.einsum("...mij,smij->...s", blocks, outer)
        start = at.stop
    return total


def _largest(values: Blocks) -> float:
    return max(float(blocks.abs().max()) for _, blocks in values)


def _log_slope(values: tuple[float, ...]) -> float:
    far = [(math.log(b), math.log(v)) for b, v in zip(BASELINES, values, strict=True) if b >= _SLOPE_FROM]
    x, y = torch.tensor(far, dtype=torch.float64).T
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())
