"""An estimate that belongs to other moments: the motion of the command, some frames earlier or later.

Motions between neighbouring frames are compared, which know no gauge: turns, and steps in the camera's own axes. At
constant velocity every shift fits equally well, and nothing is said.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.evaluation.metrics.paper import Aligned
from merope.geometry.poses import Poses

MAX_SHIFT = 50
# A shift is named where it leaves less than a quarter of the squared difference of turns or of steps...
_MAX_ERROR_RATIO = 0.25
# ...explains nine tenths of how they vary in the command within what overlaps...
_MAX_UNEXPLAINED = 0.1
# ...and the other kind of motion is hardly worse there. Speed alone resembles itself on other drives, so where steps
# speak, half of the turns must be explained too, or be as good as estimators get on real drives: 0.15 degrees a frame.
_MAX_SPOILED_RATIO = 1.25
_MAX_OTHER_UNEXPLAINED = 0.5
_GOOD_TURN = 2.6e-3
# Differences smaller than these are nothing to look for: a thousandth of a step, 0.01 degrees of turn.
_NEGLIGIBLE_STEP_SHARE = 1e-3
_NEGLIGIBLE_TURN = 1.7e-4
_MIN_OVERLAP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOffset:
    """``num_frames`` > 0: the estimate shows a motion that many frames after the command has it (it lags)."""

    num_frames: int
    seconds: float | None
    scale: float
    error_ratio: float
    seen_in: str

    @property
    def words(self) -> str:
        """The offset in words, with the number it rests on and the way out."""
        way = "later" if self.num_frames > 0 else "earlier"
        count = abs(self.num_frames)
        seconds = "" if self.seconds is None else f" ({abs(self.seconds):.3g} s)"
        return (
            f"the estimate has the motion of the command {count} frame{'s' if count > 1 else ''} {way}{seconds}: shifted "
            f"back, the squared difference of {self.seen_in} falls to {100 * self.error_ratio:.2g} %. Check which frame "
            "the estimate begins at (frame numbers, times), or that the video follows its command without delay"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One kind of motion: mean squared difference at each shift, and what it is measured against."""

    name: str
    error: Float[Tensor, "shift"]
    varies: Float[Tensor, "shift"]
    negligible: float


def find_time_offset(commanded: Poses, aligned: Aligned) -> TimeOffset | None:
    """The shift between -50 and 50 frames (at most a third of the clip) that explains the estimate far better, if any.

    For each shift k the command's motion at frame t is compared with the estimate's at t + k, over at least 8 motions,
    after the scale of steps that fits best there. None where no shift stands out: constant velocity, noise.
    """
    num = len(aligned) - 1
    limit = min(MAX_SHIFT, num // 3, num - _MIN_OVERLAP)
    if limit < 1:
        return None
    turn, step = _motions(aligned.R_rel, aligned.center_rel)
    turn_hat, step_hat = _motions(aligned.R_hat_rel, aligned.center_hat_rel)
    shifts = torch.arange(-limit, limit + 1)
    partner = torch.arange(num)[None] + shifts[:, None]  # [shift, motion]
    inside = (partner >= 0) & (partner < num)
    partner = partner.clamp(0, num - 1)
    overlap = inside.sum(-1).to(torch.float64)

    def mean(values: Float[Tensor, "shift motion"]) -> Float[Tensor, "shift"]:
        return (values * inside).sum(-1) / overlap

    step_there = step_hat[partner]
    products = mean((step[None] * step_there).sum(-1))
    squares = mean(step_there.square().sum(-1))
    # A negative scale would explain reversed motion, which has a flag of its own.
    scales = (products / squares.clamp_min(1e-300)).clamp_min(0)
    error_step = mean((step[None] - scales[:, None, None] * step_there).square().sum(-1))
    error_turn = mean((turn[None] - turn_hat[partner]).square().sum(-1))
    centre = limit
    length = float(step.square().sum(-1).mean().sqrt())
    kinds = (
        _Kind(
            name="steps",
            error=error_step,
            varies=_variation(step, inside, overlap),
            negligible=(_NEGLIGIBLE_STEP_SHARE * length) ** 2,
        ),
        _Kind(
            name="turns",
            error=error_turn,
            varies=_variation(turn, inside, overlap),
            negligible=_NEGLIGIBLE_TURN**2,
        ),
    )
    candidates: list[tuple[float, int, str]] = []
    for kind, other in (kinds, kinds[::-1]):
        allowed = (
            (kind.error < _MAX_ERROR_RATIO * kind.error[centre])
            & (kind.error < _MAX_UNEXPLAINED * kind.varies)
            & (kind.error[centre] > kind.negligible)
            & (other.error <= _MAX_SPOILED_RATIO * other.error[centre] + other.negligible)
        )
        if kind.name == "steps":
            allowed &= other.error <= (_MAX_OTHER_UNEXPLAINED * other.varies).clamp_min(_GOOD_TURN**2)
        if bool(allowed.any()):
            best = int(torch.where(allowed, kind.error, torch.inf).argmin())
            candidates.append((float(kind.error[best] / kind.error[centre]), best, kind.name))
    if not candidates:
        return None
    ratio, best, name = min(candidates)
    shift = int(shifts[best])
    seconds = None
    if commanded.times is not None:
        seconds = shift * float(commanded.times[-1] - commanded.times[0]) / num
    return TimeOffset(
        num_frames=shift, seconds=seconds, scale=float(scales[best]), error_ratio=ratio, seen_in=name
    )


def _variation(
    motion: Float[Tensor, "motion 3"], inside: Tensor, overlap: Float[Tensor, "shift"]
) -> Float[Tensor, "shift"]:
    """How much the command's motion varies about its mean within what overlaps at each shift."""
    weights = inside.to(torch.float64)
    mean = weights @ motion / overlap[:, None]
    return weights @ motion.square().sum(-1) / overlap - mean.square().sum(-1)


def _motions(
    R_rel: Float[Tensor, "view 3 3"], center_rel: Float[Tensor, "view 3"]
) -> tuple[Float[Tensor, "motion 3"], Float[Tensor, "motion 3"]]:
    """Turns (axis times sine of the angle) and steps from each frame to the next, in the axes of the earlier camera."""
    R_step = R_rel[:-1].mT @ R_rel[1:]
    twice = R_step - R_step.mT
    turn = torch.stack([twice[:, 2, 1], twice[:, 0, 2], twice[:, 1, 0]], dim=-1) / 2
    step = (R_rel[:-1].mT @ center_rel.diff(dim=0)[..., None]).squeeze(-1)
    return turn, step
