"""Numbers that describe a trajectory: length, steps, turns, times, and what is odd about them."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from merope.data.clips.frame_timing import GAP
from merope.geometry.rotations import rotation_angle

OUTLIER_MADS = 8.0
"""A step is a jump where it is longer than the median step by more than this many median absolute deviations."""
OUTLIER_MEDIANS = 0.5
"""... and by more than this share of the median step: even steps have no deviation, and rounding is no jump."""
JUMP_DEG = 15.0
"""A turn of more degrees than this from one pose to the next is a jump."""
STATIC_METRES = 0.05
"""A camera stands still where no pose is further than this from the first, in metres, ..."""
STATIC_DEG = 2.0
"""... or turned by more degrees than this. Where lengths are not metres, the distance is held against the coordinates."""
STATIC_SHARE = 1e-4
"""Without metres: no pose is further from the first than this share of the largest coordinate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFacts:
    """Time stamps, seconds."""

    count: int
    first: float
    span: float
    min_spacing: float
    median_spacing: float
    max_spacing: float
    gaps: tuple[int, ...]
    """Poses that follow more than `GAP` median spacings after the one before."""
    fps: float | None
    """Poses a second by the median spacing; None where that is not positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseFacts:
    """What a trajectory measures. Lengths are in the unit of its poses, indices count poses from 0."""

    num_poses: int
    path_length: float
    mean_step: float
    median_step: float
    max_step: float
    extent: tuple[float, float, float]
    """Edges of the box around all centres, along the world's x, y, z."""
    max_coordinate: float
    """Largest |x|, |y| or |z| of a centre."""
    first_center: tuple[float, float, float]
    """Centre of the first pose."""
    summed_rotation_deg: float
    """Sum of the angles from each pose to the next, of matrices that were brought back to rotations."""
    max_rotation_step_deg: float
    duplicates: tuple[int, ...]
    """Poses that equal the one before, digit for digit."""
    step_jumps: tuple[int, ...]
    """Poses reached by a step that `step_outliers` finds too long."""
    rotation_jumps: tuple[int, ...]
    """Poses reached by a turn of more than `JUMP_DEG`."""
    moves: bool
    """Whether the centre moves at all, beyond the rounding of its coordinates."""
    static: bool
    """Whether this is a standing camera, see `is_standing`."""
    up: tuple[float, float, float]
    """Mean direction of the cameras' up in the world; its length is 1 where they all agree."""
    turn_deg: float
    """How far the last pose looks to the left of the first, seen from `up_axis`; turns add up beyond 360 degrees."""
    turn_range_deg: float
    """Difference of the largest and the smallest such angle on the way."""
    speed: tuple[float, float, float] | None
    """Smallest, median and largest step per second; None without times."""
    float32_position_error: float
    """How far float32 would move a centre along an axis, at most."""
    float32_step_error: float
    """How much float32 would change a step along an axis, at most."""
    times: TimeFacts | None


def pose_facts(
    R_world_cam: Float[Tensor, "time 3 3"],
    center_world: Float[Tensor, "time 3"],
    *,
    times: Float[Tensor, "time"] | None = None,
    metric: bool,
) -> PoseFacts:
    """The facts of a trajectory; ``metric`` says that its lengths are metres.

    Rotations only have to be such up to the rounding of a file, and may all be mirrored: angles are between neighbours.
    """
    steps = center_world.diff(dim=0).norm(dim=-1)
    turns = torch.rad2deg(rotation_angle(R_world_cam[:-1], R_world_cam[1:]))
    same = (R_world_cam.diff(dim=0) == 0).all(-1).all(-1) & (center_world.diff(dim=0) == 0).all(-1)
    extent = (center_world.amax(dim=0) - center_world.amin(dim=0)).tolist()
    up, first = camera_up(R_world_cam).tolist(), center_world[0].tolist()
    turn, turn_range = _turns(R_world_cam)
    rounded = center_world.float().double()
    return PoseFacts(
        num_poses=len(center_world),
        path_length=float(steps.sum()),
        mean_step=float(steps.mean()) if len(steps) else 0.0,
        median_step=_median(steps) if len(steps) else 0.0,
        max_step=float(steps.max()) if len(steps) else 0.0,
        extent=(extent[0], extent[1], extent[2]),
        max_coordinate=float(center_world.abs().max()),
        first_center=(first[0], first[1], first[2]),
        summed_rotation_deg=float(turns.sum()),
        max_rotation_step_deg=float(turns.max()) if len(turns) else 0.0,
        duplicates=_after(same),
        step_jumps=_after(step_outliers(steps)),
        rotation_jumps=_after(turns > JUMP_DEG),
        moves=moves(center_world),
        static=is_standing(R_world_cam, center_world, metric=metric),
        up=(up[0], up[1], up[2]),
        turn_deg=turn,
        turn_range_deg=turn_range,
        speed=None if times is None else _speeds(steps, times),
        float32_position_error=float((rounded - center_world).abs().max()),
        float32_step_error=float((rounded.diff(dim=0) - center_world.diff(dim=0)).abs().max())
        if len(steps)
        else 0.0,
        times=None if times is None else time_facts(times),
    )


def step_outliers(steps: Float[Tensor, "step"]) -> Tensor:
    """Which steps are jumps, [step] bool: longer than the median by `OUTLIER_MADS` and by `OUTLIER_MEDIANS`.

    Median and deviation are those of the steps that move, so that a car that waits for most of a clip does not jump when
    it drives off.
    """
    moving = steps > 1e-3 * steps.max() if len(steps) else torch.zeros(0, dtype=torch.bool)
    if int(moving.sum()) < 3:
        return torch.zeros(len(steps), dtype=torch.bool)
    median = _median(steps[moving])
    deviation = _median((steps[moving] - median).abs())
    return steps - median > max(OUTLIER_MADS * deviation, OUTLIER_MEDIANS * median)


def moves(center_world: Float[Tensor, "time 3"]) -> bool:
    """Whether centres differ by more than the rounding of their coordinates in float64."""
    spread = (center_world - center_world[0]).abs().max()
    return float(spread) > 1e-12 * float(center_world.abs().max().clamp_min(1e-6))


def is_standing(
    R_world_cam: Float[Tensor, "time 3 3"], center_world: Float[Tensor, "time 3"], *, metric: bool
) -> bool:
    """Whether a camera stands still: every pose within `STATIC_METRES` and `STATIC_DEG` of the first.

    Distances are from the first pose, not along the path, which noise makes long. Without metres a distance is small where
    it is less than `STATIC_SHARE` of the largest coordinate: in a world whose origin is a map's or a city's.
    """
    turned = torch.rad2deg(rotation_angle(R_world_cam[:1].expand_as(R_world_cam), R_world_cam)).max()
    away = (center_world - center_world[0]).norm(dim=-1).max()
    still = float(away) <= (STATIC_METRES if metric else STATIC_SHARE * float(center_world.abs().max()))
    return still and float(turned) <= STATIC_DEG


def time_facts(times: Float[Tensor, "time"]) -> TimeFacts:
    """The facts of time stamps in seconds, in the order of the file."""
    spacing = times.diff()
    median = _median(spacing) if len(spacing) else 0.0
    return TimeFacts(
        count=len(times),
        first=float(times[0]),
        span=float(times[-1] - times[0]),
        min_spacing=float(spacing.min()) if len(spacing) else 0.0,
        median_spacing=median,
        max_spacing=float(spacing.max()) if len(spacing) else 0.0,
        gaps=_after(spacing > GAP * median),
        fps=1 / median if median > 0 else None,
    )


def _after(marked: Tensor) -> tuple[int, ...]:
    """Poses at the ends of the marked steps."""
    return tuple(int(index) + 1 for index in marked.nonzero().flatten())


def _median(values: Tensor) -> float:
    # torch's takes the lower of the two in the middle.
    return float(np.median(values.numpy()))


def camera_up(R_world_cam: Float[Tensor, "time 3 3"]) -> Float[Tensor, "3"]:
    """Mean of the cameras' up directions (-y of OpenCV axes) in the world; shorter than 1 where they disagree."""
    return -R_world_cam[:, :, 1].mean(dim=0)


def up_axis(R_world_cam: Float[Tensor, "time 3 3"]) -> tuple[int, int] | None:
    """The world axis that the cameras' up is near to, as (index, sign); None where it is near to none.

    Near is within 30 degrees, and so is a camera that pitches and rolls as a car or a walker does.
    """
    up = camera_up(R_world_cam)
    index = int(up.abs().argmax())
    if float(up[index].abs()) < 0.866 * float(up.norm()) or float(up.norm()) < 0.5:
        return None
    return index, 1 if float(up[index]) > 0 else -1


def _turns(R_world_cam: Tensor) -> tuple[float, float]:
    """Net turn to the left about up and the range of the heading, degrees; (0, 0) where up or heading is undefined."""
    up, axis = camera_up(R_world_cam), up_axis(R_world_cam)
    if float(up.norm()) < 0.5:
        return 0.0, 0.0
    if axis is not None:
        up = torch.zeros(3, dtype=torch.float64)
        up[axis[0]] = axis[1]
    up = up / up.norm()
    forward = R_world_cam[:, :, 2]
    ahead = forward[0] - (forward[0] @ up) * up
    if float(ahead.norm()) < 1e-6:
        return 0.0, 0.0
    ahead = ahead / ahead.norm()
    left = torch.linalg.cross(up, ahead)
    headings = np.rad2deg(np.unwrap(torch.atan2(forward @ left, forward @ ahead).numpy()))
    return float(headings[-1] - headings[0]), float(headings.max() - headings.min())


def _speeds(steps: Tensor, times: Tensor) -> tuple[float, float, float] | None:
    spacing = times.diff()
    if len(steps) == 0 or bool((spacing <= 0).any()):
        return None
    speeds = steps / spacing
    return float(speeds.min()), _median(speeds), float(speeds.max())
