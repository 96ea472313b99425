"""What is odd about a trajectory, one `Finding` each, with the command line flags that may mend it."""

from dataclasses import dataclass

from merope.data.poses.facts import (
    JUMP_DEG,
    OUTLIER_MADS,
    STATIC_DEG,
    STATIC_METRES,
    STATIC_SHARE,
    PoseFacts,
    TimeFacts,
)
from merope.geometry.poses import Unit

STEP_METRES = (1e-3, 20.0)
"""Median steps outside of this are no likely metres per frame of a camera that is carried or driven."""
SPEED_METRES = 100.0
"""Metres a second beyond which a median speed is no likely one."""
FARTHEST_METRES = 1e8
"""No camera on Earth is further from the origin of a map, or from the Earth's centre."""
LARGEST = 1e30
"""Beyond it squares and float32 overflow; no length in any unit is that long."""
_LIKELY_STEP = (5e-3, 5.0)
_LIKELY_SPACING = (1e-3, 10.0)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something odd, and command line flags that may mend it: alternatives, not a set."""

    kind: str
    text: str
    flags: tuple[str, ...] = ()


def unit_findings(facts: PoseFacts, unit: Unit) -> list[Finding]:
    """What speaks against the unit of a trajectory ("unit"), or that nothing says it where it moves ("unit-unknown")."""
    step, per = facts.median_step, "per pose"
    if unit == "m" and facts.max_coordinate > FARTHEST_METRES:
        return [
            Finding(
                kind="unit",
                text=f"centres are up to {facts.max_coordinate:.4g} m from the origin, farther than anything on Earth from "
                "its centre: lengths are not metres, or the file is damaged",
            )
        ]
    if not facts.moves or facts.static:
        return []
    if unit == "m" and facts.speed is not None and facts.speed[1] > SPEED_METRES and step <= STEP_METRES[1]:
        return [
            Finding(
                kind="unit",
                text=f"the median speed would be {facts.speed[1]:.4g} m/s: lengths are not metres, or times not seconds",
            )
        ]
    if unit != "normalized" and step > STEP_METRES[1]:
        smaller = {"millimetres": 1e-3, "centimetres": 1e-2}
        likely = {
            name: factor
            for name, factor in smaller.items()
            if _LIKELY_STEP[0] <= step * factor <= _LIKELY_STEP[1]
        }
        return [
            Finding(
                kind="unit",
                text=f"the median step is {step:.4g} {per}, too long for metres; "
                + (" or ".join(likely) if likely else "another unit")
                + "?",
                flags=tuple(f"--scale {factor:g} --to-unit m" for factor in likely.values()),
            )
        ]
    if unit == "m" and step < STEP_METRES[0]:
        return [
            Finding(
                kind="unit",
                text=f"the median step is {step:.4g} m {per}, too short for a moving camera: lengths that were normalised, "
                "kilometres, or a camera that hardly moves",
                flags=("--unit normalized",),
            )
        ]
    if unit == "unknown":
        return [
            Finding(
                kind="unit-unknown",
                text=f"nothing says what a length of 1 is; the median step is {step:.4g}",
                flags=("--unit m", "--unit normalized"),
            )
        ]
    return []


def time_findings(times: TimeFacts, unit: str, *, is_free: bool) -> list[Finding]:
    """Whether times can be those of a video ("times"); ``unit`` is that of the file's stamps, which may be wrong if free."""
    spacing = times.median_spacing
    if times.count < 2 or _LIKELY_SPACING[0] / 10 <= spacing <= _LIKELY_SPACING[1]:
        return []
    written = spacing / _SECONDS[unit]
    likely = [
        name
        for name, seconds in _SECONDS.items()
        if name != unit and _LIKELY_SPACING[0] <= written * seconds <= _LIKELY_SPACING[1]
    ]
    return [
        Finding(
            kind="times",
            text=f"poses are {spacing:.4g} s apart, which is no rate of a video",
            flags=tuple(f"--time-unit {name}" for name in likely) if is_free else (),
        )
    ]


def motion_findings(facts: PoseFacts, unit: Unit) -> list[Finding]:
    """A camera that stands ("static"), or poses that repeat ("duplicates") or jump, and gaps in time."""
    found = []
    near = f"{STATIC_METRES:g} m" if unit == "m" else f"{STATIC_SHARE:g} of the largest coordinate"
    if facts.static and facts.num_poses > 1:
        found.append(
            Finding(
                kind="static",
                text=f"the camera stands still: every pose is within {near} and {STATIC_DEG:g} deg of the first",
            )
        )
    elif facts.duplicates:
        found.append(
            Finding(
                kind="duplicates",
                text=f"{len(facts.duplicates)} poses repeat the one before to the last digit: {_some(facts.duplicates)}",
            )
        )
    if facts.step_jumps and not facts.static:
        found.append(
            Finding(
                kind="jumps",
                text=f"{len(facts.step_jumps)} steps are longer than the median by {OUTLIER_MADS:g} deviations (MAD) and by "
                f"half: to poses {_some(facts.step_jumps)}",
            )
        )
    if facts.rotation_jumps:
        found.append(
            Finding(
                kind="rotation-jumps",
                text=f"{len(facts.rotation_jumps)} turns of more than {JUMP_DEG:g} deg from one pose to the next: to poses "
                f"{_some(facts.rotation_jumps)}",
            )
        )
    if facts.times is not None and facts.times.gaps:
        found.append(
            Finding(
                kind="gaps",
                text=f"{len(facts.times.gaps)} gaps in time, the longest {facts.times.max_spacing:.4g} s, where "
                f"{facts.times.median_spacing:.4g} s is usual: before poses {_some(facts.times.gaps)}",
            )
        )
    return found


def _some(indices: tuple[int, ...], most: int = 8) -> str:
    return ", ".join(map(str, indices[:most])) + (", ..." if len(indices) > most else "")
