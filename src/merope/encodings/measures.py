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
    DepthKind,
    depth_kind,
    norm_ratios,
    pair_matrices,
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

    @property
    def largest(self) -> float:
        """The largest of the three, relative to the largest entry where that is over one."""
        return max(self.pair_moved, self.clip_moved, self.depth_doubled) / max(1.0, self.largest_entry)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that is measured of one encoding, and what Table 1 would say of it."""

    dependence: Dependence
    sensitivity: Sensitivity
    factorisation: float
    norm: NormDeviation
    growth: Growth

    @property
    def claims(self) -> Claims:
        """Yes and no: (A) is a function of the relative pose alone that sees all of it in metres."""
        return Claims(
            metric=self.dependence.largest <= UNCHANGED and self.sensitivity.metric > SEEN,
            per_token=self.factorisation <= FACTORS,
            norm_preserving=self.norm.largest <= KEEPS_NORMS,
        )


def measure(encoding: CameraEncoding) -> Measured:
    """All measurements of this module, under a second for the encodings of this library.

    Raises:
        ValueError: if the encoding refuses the scenes.
    """
    return Measured(
        dependence=dependence(encoding),
        sensitivity=sensitivity(encoding),
        factorisation=factorisation(encoding),
        norm=norm_deviation(encoding),
        growth=growth(encoding),
    )


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
        return _rms_logit(_across(scaled, view_rays, factor) - before, encoding.head_dim)

    before = _across(encoding, base)
    kept = torch.stack([change(_apart(factor * _OFFSET)) for factor in _FACTORS]).amax(0)
    joint = torch.stack([change(_apart(factor * _OFFSET), factor) for factor in _FACTORS]).amax(0)
    apart = [
        _rms_logit(before[k + 1 :] - before[k], encoding.head_dim).amin() for k in range(len(DIRECTIONS) - 1)
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
        pairs = _across(encoding, view_rays)
        found = torch.einsum("sd,...de,se->...s", q, pairs, k) / math.sqrt(encoding.head_dim)
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


def _across(encoding: CameraEncoding, view_rays: ViewRays, depth_factor: float = 1.0) -> Tensor:
    """Of a clip of two cameras, U_ab of the first one's queries and the second one's keys."""
    return pair_matrices(
        encoding, view_rays, query_views=slice(1), key_views=slice(1, 2), depth_factor=depth_factor
    )


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
