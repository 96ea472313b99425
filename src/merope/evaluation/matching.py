"""Which estimated pose belongs to which commanded one: by frame number, by time, or one to one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from merope.data.poses.files import NanRow
from merope.errors import TrajectoryError
from merope.evaluation.estimators.base import fill_unregistered
from merope.geometry.poses import Poses

# Seconds: half a frame at 25 Hz, so a frame between two poses of a tracker of 25 Hz or more still finds one. evo's
# default is 0.01, which needs a tracker of 50 Hz for that.
MAX_TIME_DIFFERENCE = 0.02

Missing = Literal["leave-out", "interpolate"]
"""What becomes of commanded poses without an estimated one."""

FILLED = "interpolated between estimated neighbours, the nearest pose held at the ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Two trajectories of equal length; ``rule`` says in words how they were matched and what was left out or filled.

    ``num_commanded`` and ``num_estimated`` are the lengths before matching, rows of NaN among the latter.
    """

    commanded: Poses
    estimated: Poses
    """Filled by interpolation where ``registered`` is False."""
    registered: Bool[Tensor, "time"]
    """Whether the estimate has a pose of its own for a frame."""
    nan: Bool[Tensor, "time"]
    """Whether it has a row of NaN there."""
    frames: tuple[int, ...]
    """Frame number of each pose, counted as the command counts."""
    rule: str
    num_commanded: int
    num_estimated: int


def match_poses(
    commanded: Poses,
    estimated: Poses,
    *,
    commanded_ids: Sequence[int] | None = None,
    estimated_ids: Sequence[int] | None = None,
    nan_rows: Sequence[NanRow] = (),
    missing: Missing = "leave-out",
    max_time_difference: float = MAX_TIME_DIFFERENCE,
) -> Matched:
    """Pair the poses of two trajectories.

    Frame numbers rule where either side has them (the other side then counts from 0), else time stamps where
    both have them, else both must be equally long. Commanded poses without a partner are left out, or with
    ``missing="interpolate"`` kept and filled from the estimate; ``rule`` says how many. ``nan_rows`` are rows of the
    estimate without a pose, which ``estimated`` does not hold: frames that they match are kept and filled always.

    Raises:
        TrajectoryError: if lengths differ with nothing to match by, or fewer than two poses match.
        ValueError: if ``max_time_difference`` is negative.
    """
    if not max_time_difference >= 0:
        raise ValueError(
            f"max_time_difference (--max-time-difference) must be 0 s or more, got {max_time_difference}."
        )
    rows = _Rows.of(estimated, estimated_ids, nan_rows)
    if commanded_ids is not None or estimated_ids is not None:
        left = list(commanded_ids if commanded_ids is not None else range(len(commanded)))
        right = rows.ids
        place = {frame: row for row, frame in enumerate(right)}
        pairs = [(row, place[frame]) for row, frame in enumerate(left) if frame in place]
        how = "matched by frame number"
        if len(pairs) < 2:
            raise TrajectoryError(
                f"only {len(pairs)} frame numbers occur on both sides: commanded {left[0]} to {left[-1]}, estimated "
                f"{right[0]} to {right[-1]}. Do both count from the same frame?"
            )
    elif commanded.times is not None and rows.times is not None:
        pairs = _by_time(commanded.times, rows.times, max_time_difference)
        how = f"matched by time to {max_time_difference:g} s"
    else:
        if len(commanded) != len(rows):
            raise TrajectoryError(
                f"commanded has {len(commanded)} poses, estimated {len(rows)}, and neither frame numbers nor "
                "times on both sides say which belong together. Add a frame number to each row "
                "(--index-column, or --estimated-index-column for the estimate alone), or use a format with times "
                "(--format tum)."
            )
        pairs = [(row, row) for row in range(len(commanded))]
        how = "matched one to one"
    own = [(frame, rows.poses[row]) for frame, row in pairs]
    found = {frame: pose for frame, pose in own if pose is not None}
    if len(found) < 2:
        raise TrajectoryError(
            f"only {len(found)} of the {len(pairs)} estimated rows that match a commanded pose hold a pose; the others "
            "are NaN. Two are needed."
        )
    num_missing = len(commanded) - len(pairs)
    num_nan = len(pairs) - len(found)
    kept = range(len(commanded)) if missing == "interpolate" else [frame for frame, _ in pairs]
    registered = torch.tensor([frame in found for frame in kept])
    lost = {frame for frame, pose in own if pose is None}
    words = [f"{how}: {len(pairs)} of {len(commanded)} commanded poses"]
    if num_missing:
        done = (
            "left out of every figure" if missing == "leave-out" else f"{FILLED}, and count as not registered"
        )
        words.append(f"the {num_missing} without an estimate are {done}")
    if num_nan:
        words.append(f"{num_nan} have NaN for an estimate: {FILLED}, and count as not registered")
    if extra := len(rows) - len(pairs):
        words.append(f"{extra} estimated poses belong to no commanded one")
    return Matched(
        commanded=commanded if len(kept) == len(commanded) else commanded[list(kept)],
        estimated=_filled(estimated, found, kept, len(commanded)),
        registered=registered,
        nan=torch.tensor([frame in lost for frame in kept]),
        frames=tuple(kept if commanded_ids is None else (commanded_ids[frame] for frame in kept)),
        rule="; ".join(words),
        num_commanded=len(commanded),
        num_estimated=len(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """All rows of an estimate, those without a pose in their places."""

    poses: list[int | None]
    """Number of the pose, None for a row of NaN."""
    ids: list[int]
    times: Tensor | None

    def __len__(self) -> int:
        return len(self.poses)

    @classmethod
    def of(cls, estimated: Poses, ids: Sequence[int] | None, nan_rows: Sequence[NanRow]) -> "_Rows":
        if not nan_rows:
            rows = list(range(len(estimated)))
            return cls(poses=list(rows), ids=rows if ids is None else list(ids), times=estimated.times)
        lost = {nan.row: nan for nan in nan_rows}
        numbers = iter(range(len(estimated)))
        poses = [None if row in lost else next(numbers) for row in range(len(estimated) + len(lost))]
        own_ids, times = [], []
        for row, pose in enumerate(poses):
            if pose is not None:
                own_ids.append(row if ids is None else ids[pose])
                times.append(None if estimated.times is None else float(estimated.times[pose]))
            else:
                frame = lost[row].frame_id
                own_ids.append(row if frame is None else frame)
                times.append(lost[row].time)
        timed = bool(times) and all(time is not None for time in times)
        return cls(
            poses=poses, ids=own_ids, times=torch.tensor(times, dtype=torch.float64) if timed else None
        )


def _filled(estimated: Poses, found: dict[int, int], kept: Sequence[int], num_frames: int) -> Poses:
    """Estimated poses of the kept frames, those that were found untouched to the last digit."""
    whole_file = list(found.values()) == list(range(len(estimated)))
    chosen = estimated if whole_file else estimated[list(found.values())]
    if len(found) == len(kept):
        return chosen
    between = fill_unregistered(chosen, list(found), num_frames)
    rotations, centers = between.R_world_cam.clone(), between.center_world.clone()
    frames = list(found)
    rotations[frames], centers[frames] = chosen.R_world_cam, chosen.center_world
    whole = Poses(
        R_world_cam=rotations,
        center_world=centers,
        unit=estimated.unit,
        projection_error=estimated.projection_error,
    )
    return whole[list(kept)]


def _by_time(left: torch.Tensor, right: torch.Tensor, max_difference: float) -> list[tuple[int, int]]:
    """Nearest partner for each stamp of the shorter side, each used once, order kept."""
    swap = len(right) > len(left)
    queries, keys = (left, right) if swap else (right, left)
    after = torch.searchsorted(keys, queries).clamp(1, max(len(keys) - 1, 1))
    before = after - 1
    after = after.clamp(max=len(keys) - 1)
    nearest = torch.where((queries - keys[before]).abs() <= (keys[after] - queries).abs(), before, after)
    difference = (keys[nearest] - queries).abs()
    best: dict[int, int] = {}
    for query in (difference <= max_difference).nonzero().flatten().tolist():
        key = int(nearest[query])
        if key not in best or difference[query] < difference[best[key]]:
            best[key] = query
    pairs = sorted((key, query) for key, query in best.items())
    if len(pairs) < 2:
        raise TrajectoryError(_no_overlap(left, right, len(pairs), max_difference))
    return [(query, key) if swap else (key, query) for key, query in pairs]


def _no_overlap(left: torch.Tensor, right: torch.Tensor, num: int, max_difference: float) -> str:
    spans = [(float(times[0]), float(times[-1])) for times in (left, right)]
    text = (
        f"{num} time stamps agree to {max_difference:g} s: commanded {spans[0][0]:.6f} to {spans[0][1]:.6f} s, "
        f"estimated {spans[1][0]:.6f} to {spans[1][1]:.6f} s. "
    )
    ratio = abs(spans[1][1] / spans[0][1]) if spans[0][1] else 0.0
    for factor, unit in ((1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        if factor / 3 < ratio < factor * 3:
            return text + f"Is the estimated file in {unit}? (--time-unit {unit})"
        if ratio and factor / 3 < 1 / ratio < factor * 3:
            return text + f"Is the commanded file in {unit}? (--time-unit {unit})"
    return (
        text
        + f"The clocks may differ by an offset of {spans[1][0] - spans[0][0]:.3f} s; subtract it from one."
    )
