"""Absolute and relative trajectory errors of visual odometry, as evo defines them (agreeing with evo 1.38 to 1e-6).

Beside the paper's metrics because they are what other work on the same trajectories reports. In contrast to the
paper's, the absolute error aligns rotations as well, over all frames: it hides an error of the first frame that Eq. 35
spreads over the clip.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from merope.evaluation.metrics.alignment import Alignment, AlignmentUndefined, align, align_both_ways
from merope.evaluation.metrics.paper import geodesic_angle
from merope.geometry.poses import Poses

AlignmentKind = Literal["none", "se3", "sim3"]
OWN_WORLD = "the estimator's world is its own; use ATE SE(3)"
"""Why the unaligned error of cameras that were recovered from frames is undefined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorStatistics:
    """Statistics over the errors of frames or pairs; ``std`` is that of the population (divided by N)."""

    rmse: float
    mean: float
    median: float
    max: float
    std: float

    @classmethod
    def of(cls, errors: Float[Tensor, "item"]) -> "ErrorStatistics":
        """Statistics of a list of errors; the median of an even number is the mean of the middle two."""
        ordered = errors.sort().values
        middle = len(ordered) // 2
        median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        return cls(
            rmse=float(errors.square().mean().sqrt()),
            mean=float(errors.mean()),
            median=float(median),
            max=float(ordered[-1]),
            std=float(errors.std(correction=0)),
        )


def absolute_errors(
    commanded: Poses, estimated: Poses, *, alignment: AlignmentKind = "none"
) -> Float[Tensor, "view"]:
    """Distance of every recovered centre from the commanded one, in the commanded unit, after ``alignment``.

    "none" takes both world frames as they came, "se3" the best rigid motion of all centres, "sim3" also the best
    scale (`merope.evaluation.metrics.alignment.align`).

    Raises:
        ValueError: if the lengths differ.
        AlignmentUndefined: if an alignment is asked for that a path without width does not determine.
    """
    _require_equal_lengths(commanded, estimated)
    if alignment == "none":
        return (estimated.center_world - commanded.center_world).norm(dim=-1)
    if alignment not in ("se3", "sim3"):
        raise ValueError(f"alignment must be 'none', 'se3' or 'sim3', got {alignment!r}.")
    found = align(commanded.center_world, estimated.center_world, with_scale=alignment == "sim3")
    return errors_after(found, commanded, estimated)


def errors_after(alignment: Alignment, commanded: Poses, estimated: Poses) -> Float[Tensor, "view"]:
    """Distances of the centres after a given alignment, in the commanded unit."""
    return (alignment.apply(estimated.center_world) - commanded.center_world).norm(dim=-1)


def absolute_trajectory_error(
    commanded: Poses, estimated: Poses, *, alignment: AlignmentKind = "none"
) -> ErrorStatistics:
    """Statistics of `absolute_errors` over all frames; its rmse is what is called ATE."""
    return ErrorStatistics.of(absolute_errors(commanded, estimated, alignment=alignment))


def relative_errors(
    commanded: Poses, estimated: Poses, *, delta: int = 1, all_pairs: bool = False
) -> tuple[Float[Tensor, "pair"], Float[Tensor, "pair"]]:
    """Translation (commanded unit) and angle (radians) of E = (Q_i^-1 Q_j)^-1 (P_i^-1 P_j), Q commanded, P recovered.

    Frames i and j are ``delta`` apart: consecutive stretches (0, delta), (delta, 2 delta), ... as evo's default, or
    with ``all_pairs`` every frame i that has a j. Needs no alignment; the recovered scale is kept.

    Raises:
        ValueError: if the lengths differ or no two frames are ``delta`` apart.
    """
    _require_equal_lengths(commanded, estimated)
    if not 1 <= delta < len(commanded):
        raise ValueError(
            f"delta must lie in [1, {len(commanded) - 1}] for {len(commanded)} poses, got {delta}."
        )
    starts = torch.arange(0, len(commanded) - delta, 1 if all_pairs else delta)
    R_step, offset = _motions(commanded, starts, delta)
    R_step_hat, offset_hat = _motions(estimated, starts, delta)
    return (offset_hat - offset).norm(dim=-1), geodesic_angle(R_step, R_step_hat)


def relative_pose_error(
    commanded: Poses, estimated: Poses, *, delta: int = 1, all_pairs: bool = False
) -> tuple[ErrorStatistics, ErrorStatistics]:
    """Statistics of `relative_errors`: translation in the commanded unit, rotation in degrees (RPE)."""
    offsets, angles = relative_errors(commanded, estimated, delta=delta, all_pairs=all_pairs)
    return ErrorStatistics.of(offsets), ErrorStatistics.of(torch.rad2deg(angles))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryErrors:
    """Errors of one clip by frame and by pair of neighbours, from which `values` picks frames.

    Alignments are over all frames of the clip; ``undefined`` says why there are none.
    """

    unaligned: Float[Tensor, "view"]
    step_offsets: Float[Tensor, "pair"]
    step_angles: Float[Tensor, "pair"]
    rigid: Float[Tensor, "view"] | None
    similar: Float[Tensor, "view"] | None
    sim3_scale: float | None
    undefined: str | None

    @classmethod
    def of(cls, commanded: Poses, estimated: Poses) -> "TrajectoryErrors":
        """Every error of two trajectories of equal length."""
        step_offsets, step_angles = relative_errors(commanded, estimated)
        rigid = similar = sim3_scale = undefined = None
        try:
            motion, similarity = align_both_ways(commanded.center_world, estimated.center_world)
        except AlignmentUndefined as reason:
            undefined = str(reason)
        else:
            rigid, similar = (errors_after(found, commanded, estimated) for found in (motion, similarity))
            sim3_scale = similarity.scale
        return cls(
            unaligned=absolute_errors(commanded, estimated),
            step_offsets=step_offsets,
            step_angles=step_angles,
            rigid=rigid,
            similar=similar,
            sim3_scale=sim3_scale,
            undefined=undefined,
        )

    def values(
        self, *, first: int, metric: bool, same_world: bool = True
    ) -> tuple[dict[str, float | None], dict[str, str]]:
        """The figures of the group "trajectory", and reasons for those that are undefined.

        ``first`` keeps frames from there on, and pairs whose later frame is kept. Where the estimate has no
        ``metric`` scale, figures that keep the recovered scale are undefined; the unaligned error is so too where the two
        do not share the ``same_world``, since there it measures where an estimator happened to put its origin.
        """
        pairs = slice(max(first - 1, 0), None)
        values = {
            "ate_none": _rmse(self.unaligned[first:]),
            "ate_se3": None if self.rigid is None else _rmse(self.rigid[first:]),
            "ate_sim3": None if self.similar is None else _rmse(self.similar[first:]),
            "sim3_scale": self.sim3_scale,
            "rpe_trans": _rmse(self.step_offsets[pairs]),
            "rpe_rot_deg": math.degrees(_rmse(self.step_angles[pairs])),
        }
        reasons: dict[str, str] = {}
        if self.undefined is not None:
            reasons |= dict.fromkeys(("ate_se3", "ate_sim3", "sim3_scale"), self.undefined)
        if not metric:
            keys = ("ate_none", "ate_se3", "rpe_trans")
            values |= dict.fromkeys(keys)
            reasons |= dict.fromkeys(keys, "the estimate has no metric scale")
        elif not same_world:
            values["ate_none"] = None
            reasons["ate_none"] = OWN_WORLD
        return values, reasons


def _rmse(errors: Float[Tensor, "item"]) -> float:
    return float(errors.square().mean().sqrt())


def _motions(poses: Poses, starts: Tensor, delta: int) -> tuple[Tensor, Tensor]:
    """Rotations and translations of T_i^-1 T_(i + delta), each in camera i's axes."""
    R_i_world = poses.R_world_cam[starts].mT
    step = poses.center_world[starts + delta] - poses.center_world[starts]
    return R_i_world @ poses.R_world_cam[starts + delta], (R_i_world @ step[..., None]).squeeze(-1)


def _require_equal_lengths(commanded: Poses, estimated: Poses) -> None:
    if len(commanded) != len(estimated):
        raise ValueError(
            f"commanded and estimated must have the same number of poses, got {len(commanded)} and "
            f"{len(estimated)}. Match them first (by frame index or time), or take a window of each."
        )
