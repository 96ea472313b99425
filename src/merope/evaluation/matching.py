"""Which estimated pose belongs to which commanded one: by frame number, by time, or one to one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses

# Seconds: half a frame at 25 Hz, so a frame between two poses of a tracker of 25 Hz or more still finds one. evo's
# default is 0.01, which needs a tracker of 50 Hz for that.
MAX_TIME_DIFFERENCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Two trajectories of equal length; ``rule`` says in words how they were matched and what was left out.

    ``num_commanded`` and ``num_estimated`` are the lengths before matching.
    """

    commanded: Poses
    estimated: Poses
    rule: str
    num_commanded: int
    num_estimated: int


def match_poses(
    commanded: Poses,
    estimated: Poses,
    *,
    commanded_ids: Sequence[int] | None = None,
    estimated_ids: Sequence[int] | None = None,
    max_time_difference: float = MAX_TIME_DIFFERENCE,
) -> Matched:
    """Pair the poses of two trajectories.

    Frame numbers rule where either side has them (the other side then counts from 0), else time stamps where
    both have them, else both must be equally long. Unmatched poses are left out, and ``rule`` says how many.

    Raises:
        TrajectoryError: if lengths differ with nothing to match by, or fewer than two poses match.
    """
    if commanded_ids is not None or estimated_ids is not None:
        left = list(commanded_ids if commanded_ids is not None else range(len(commanded)))
        right = list(estimated_ids if estimated_ids is not None else range(len(estimated)))
        place = {frame: row for row, frame in enumerate(right)}
        pairs = [(row, place[frame]) for row, frame in enumerate(left) if frame in place]
        how = "matched by frame number"
        if len(pairs) < 2:
            raise TrajectoryError(
                f"only {len(pairs)} frame numbers occur on both sides: commanded {left[0]} to {left[-1]}, estimated "
                f"{right[0]} to {right[-1]}. Do both count from the same frame?"
            )
    elif commanded.times is not None and estimated.times is not None:
        pairs = _by_time(commanded.times, estimated.times, max_time_difference)
        how = f"matched by time to {max_time_difference:g} s"
    else:
        if len(commanded) != len(estimated):
            raise TrajectoryError(
                f"commanded has {len(commanded)} poses, estimated {len(estimated)}, and neither frame numbers nor "
                "times on both sides say which belong together. Add a frame number to each row "
                "(--index-column), or use a format with times (--format tum)."
            )
        pairs = [(row, row) for row in range(len(commanded))]
        how = "matched one to one"
    left_rows, right_rows = ([pair[side] for pair in pairs] for side in (0, 1))
    missing = len(commanded) - len(pairs)
    rule = f"{how}: {len(pairs)} of {len(commanded)} commanded poses" + (
        f"; the {missing} without an estimate are left out of every figure" if missing else ""
    )
    return Matched(
        commanded=commanded[left_rows],
        estimated=estimated[right_rows],
        rule=rule,
        num_commanded=len(commanded),
        num_estimated=len(estimated),
    )


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
