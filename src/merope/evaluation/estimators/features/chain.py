"""From tracks to a path: two views with parallax, every other frame by the points they see, refined together (`chain`).

The scale of the path is that of its first pair. Every later frame is placed by points that earlier ones located, so the
steps share that scale, and frames where the camera stands or only turns need no parallax of their own.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.evaluation.estimators.features.adjustment import Structure, adjust, triangulate
from merope.evaluation.estimators.features.tracks import Tracks
from merope.evaluation.estimators.features.two_view import (
    RaySet,
    TwoView,
    relative_pose,
    resect,
    turn_between,
)

# Frames between adjustments of everything so far: more drift, fewer wait.
_ADJUST_EVERY = 6
# Points that an adjustment takes at most, longest tracks first.
_MAX_POINTS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions:
    """When a pair has parallax, and when a frame counts as found. Pixels are of the frames as they came."""

    threshold_px: float = 1.5
    """Residual up to which an observation obeys."""
    wanted_parallax_px: float = 24.0
    """Parallax at which the first pair is taken without looking further."""
    min_parallax_px: float = 1.5
    """Parallax below which no pair serves: the camera stands or only turns."""
    min_inliers: int = 16
    """Points that must agree on a frame's place."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What was recovered: poses of ``found`` frames (the others hold the identity), and how."""

    R_world_cam: Float[Tensor, "view 3 3"]
    center_world: Float[Tensor, "view 3"]
    found: Bool[Tensor, "view"]
    num_points: int = 0
    error_px: float = 0.0
    """Median residual of the observations that were used, pixels."""
    only_turns: bool = False
    """No pair had parallax: rotations alone were recovered, and the centres are all zero."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why a frame was not found."""


class _Growing:
    """Poses and points as they are being found."""

    def __init__(self, tracks: Tracks, options: ChainOptions) -> None:
        self.tracks, self.options = tracks, options
        self.table = tracks.table()
        self.rotations = torch.eye(3, dtype=torch.float64).repeat(tracks.num_views, 1, 1)
        self.centers = torch.zeros(tracks.num_views, 3, dtype=torch.float64)
        self.found = torch.zeros(tracks.num_views, dtype=torch.bool)
        self.points = torch.zeros(tracks.num_tracks, 3, dtype=torch.float64)
        self.located = torch.zeros(tracks.num_tracks, dtype=torch.bool)
        self.trusted = torch.ones(len(tracks.view_of), dtype=torch.bool)
        self.first_view = 0

    def start(self, first: int, second: int, pair: TwoView) -> None:
        self.first_view = first
        self.rotations[second] = pair.R_first_second
        self.centers[second] = pair.direction_first
        self.found[[first, second]] = True
        self.locate()

    def place(self, view: int) -> int:
        """Finds a frame by the points it sees; the number of points that agree, 0 where too few do."""
        rows = self.table[view]
        seen = (rows >= 0) & self.located
        seen[seen.clone()] &= self.trusted[rows[seen]]
        if int(seen.sum()) < self.options.min_inliers:
            return 0
        rays = self.tracks.rays[rows[seen]]
        placed = resect(
            self.points[seen], rays, threshold_px=2 * self.options.threshold_px, seed=self.options.seed
        )
        if placed is None or int(placed[2].sum()) < self.options.min_inliers:
            return 0
        self.rotations[view], self.centers[view] = placed[0], placed[1]
        self.found[view] = True
        return int(placed[2].sum())

    def usable(self) -> Tensor:
        return self.found[self.tracks.view_of] & self.trusted

    def locate(self) -> None:
        """Triangulates tracks without a place that found frames see from far enough apart."""
        use = self.usable() & ~self.located[self.tracks.track_of]
        view_of, track_of = self.tracks.view_of[use], self.tracks.track_of[use]
        if not len(view_of):
            return
        rays, number = self.tracks.rays[use], self.tracks.num_tracks
        points, apart = triangulate(self.rotations, self.centers, view_of, track_of, rays.dirs_cam, number)
        whole = Structure(
            R_world_cam=self.rotations,
            center_world=self.centers,
            points_world=points,
            view_of=view_of,
            point_of=track_of,
            rays=rays,
        )
        errors = whole.errors_px()
        worst = torch.zeros(number, dtype=torch.float64).scatter_reduce(0, track_of, errors, "amax")
        wide = apart > 3 * self.options.threshold_px * float(rays.angle_per_px.median())
        new = (
            wide & (worst < 2 * self.options.threshold_px) & (torch.bincount(track_of, minlength=number) > 1)
        )
        self.points[new] = points[new]
        self.located |= new

    def refine(self, *, num_steps: int) -> None:
        """Adjusts all found frames and located points, then lets go of what does not fit."""
        use = self.usable() & self.located[self.tracks.track_of]
        lengths = torch.bincount(self.tracks.track_of[use], minlength=self.tracks.num_tracks)
        kept = torch.argsort(lengths, descending=True, stable=True)[:_MAX_POINTS]
        kept = kept[lengths[kept] > 1].sort().values
        number = torch.full((self.tracks.num_tracks,), -1, dtype=torch.int64)
        number[kept] = torch.arange(len(kept))
        use &= number[self.tracks.track_of] >= 0
        free = self.found.clone()
        free[self.first_view] = False
        result = adjust(
            Structure(
                R_world_cam=self.rotations,
                center_world=self.centers,
                points_world=self.points[kept],
                view_of=self.tracks.view_of[use],
                point_of=number[self.tracks.track_of[use]],
                rays=self.tracks.rays[use],
            ),
            free=free,
            scale_px=self.options.threshold_px / 2,
            num_steps=num_steps,
        )
        self.rotations, self.centers = result.R_world_cam, result.center_world
        self.points[kept] = result.points_world
        # Every observation is judged anew, also those that earlier poses could not explain. Points that were left out were
        # located by poses that have just moved: the next `locate` places them again.
        self.located &= number >= 0
        judged = self.located[self.tracks.track_of] & self.found[self.tracks.view_of]
        self.trusted = ~judged | (self._errors_px() <= self.options.threshold_px)
        left = torch.bincount(self.tracks.track_of[self.usable()], minlength=self.tracks.num_tracks)
        self.located &= left > 1

    def _errors_px(self) -> Tensor:
        """Residual of every observation, as all poses and points stand."""
        return Structure(
            R_world_cam=self.rotations,
            center_world=self.centers,
            points_world=self.points,
            view_of=self.tracks.view_of,
            point_of=self.tracks.track_of,
            rays=self.tracks.rays,
        ).errors_px()


def chain(tracks: Tracks, options: ChainOptions | None = None) -> Chain:
    """Poses of all frames that the tracks can place, up to one scale, in the frame of the first pair's first camera.

    Degenerate: without parallax between any two frames only rotations are recovered (``only_turns``), and with
    fewer than two frames that share enough tracks none is found. A flat scene and a forward motion with all points
    near the axis are weak but not refused.
    """
    options = options or ChainOptions()
    growing = _Growing(tracks, options)
    best = _first_pair(growing)
    if best is None:
        return _turns(growing)
    growing.start(*best)
    for placed in range(1, tracks.num_views):
        if not _place_next(growing):
            break
        growing.locate()
        if placed % _ADJUST_EVERY == 0:
            growing.refine(num_steps=6)
            growing.locate()
    for num_steps in (15, 15, 30):
        growing.refine(num_steps=num_steps)
        growing.locate()
    return _result(growing)


def _place_next(growing: _Growing) -> bool:
    """Places the frame nearest to those found that can be placed; False where none can."""
    found = growing.found.nonzero().squeeze(-1)
    missing = (~growing.found).nonzero().squeeze(-1)
    gaps = (missing[:, None] - found).abs().amin(-1)
    return any(growing.place(view) for view in missing[gaps.argsort(stable=True)].tolist())


def _first_pair(growing: _Growing) -> tuple[int, int, TwoView] | None:
    """Two frames with enough parallax and many points that agree, the earliest such; None where there are none."""
    options, num_views = growing.options, growing.tracks.num_views
    best: tuple[float, tuple[int, int, TwoView]] | None = None
    for first in sorted({0, num_views // 4, num_views // 2, 3 * num_views // 4}):
        gap = 1
        while first + gap < num_views:
            pair = _pair(growing, first, first + gap)
            if pair is None:
                break
            if pair.parallax_px >= options.min_parallax_px:
                # Parallax counts up to what is wanted; beyond it only points that agree do.
                worth = min(pair.parallax_px / options.wanted_parallax_px, 1) * int(pair.inliers.sum()) ** 0.5
                if best is None or worth > 1.2 * best[0]:
                    best = worth, (first, first + gap, pair)
                if pair.parallax_px >= options.wanted_parallax_px:
                    break
            gap += max(1, gap // 2)
        if best is not None and best[1][2].parallax_px >= options.wanted_parallax_px:
            break
    return None if best is None else best[1]


def _pair(growing: _Growing, first: int, second: int) -> TwoView | None:
    rays = _common(growing, first, second)
    if len(rays[0]) < 2 * growing.options.min_inliers:
        return None
    options = growing.options
    pair = relative_pose(*rays, threshold_px=options.threshold_px, seed=options.seed)
    if pair is None or int(pair.inliers.sum()) < max(2 * options.min_inliers, 0.4 * len(rays[0])):
        return None
    return pair


def _common(growing: _Growing, first: int, second: int) -> tuple[RaySet, RaySet]:
    both = (growing.table[first] >= 0) & (growing.table[second] >= 0)
    rays = growing.tracks.rays
    return rays[growing.table[first][both]], rays[growing.table[second][both]]


def _turns(growing: _Growing) -> Chain:
    """Rotations from frame to frame, for a camera that goes nowhere."""
    options = growing.options
    growing.found[0] = True
    reasons, last = {}, 0
    errors = []
    for view in range(1, growing.tracks.num_views):
        rays = _common(growing, last, view)
        if len(rays[0]) < options.min_inliers:
            reasons[view] = f"{len(rays[0])} points in common with frame {last}"
            continue
        turn, left = turn_between(*rays)
        agree = left < options.threshold_px
        if int(agree.sum()) < max(options.min_inliers, 0.4 * len(left)):
            reasons[view] = f"{int(agree.sum())} of {len(left)} points agree on a turn since frame {last}"
            continue
        errors.append(left[agree])
        growing.rotations[view] = growing.rotations[last] @ turn
        growing.found[view] = True
        last = view
    return Chain(
        R_world_cam=growing.rotations,
        center_world=growing.centers,
        found=growing.found,
        error_px=float(torch.cat(errors).median()) if errors else 0.0,
        only_turns=True,
        reasons=reasons,
    )


def _result(growing: _Growing) -> Chain:
    use = growing.usable() & growing.located[growing.tracks.track_of]
    final = Structure(
        R_world_cam=growing.rotations,
        center_world=growing.centers,
        points_world=growing.points,
        view_of=growing.tracks.view_of[use],
        point_of=growing.tracks.track_of[use],
        rays=growing.tracks.rays[use],
    )
    reasons = {}
    for view in (~growing.found).nonzero().squeeze(-1).tolist():
        seen = growing.table[view] >= 0
        known = int((seen & growing.located).sum())
        reasons[view] = (
            f"{known} located points in sight, {growing.options.min_inliers} that agree are needed"
        )
    return Chain(
        R_world_cam=growing.rotations,
        center_world=growing.centers,
        found=growing.found,
        num_points=int(growing.located.sum()),
        error_px=float(final.errors_px().median()),
        reasons=reasons,
    )
