"""`drive` and `random_drive`: seeded trajectories of a car's camera, a metre being a metre."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from merope.geometry.poses import Poses
from merope.geometry.turns import MIN_RADIUS
from merope.worlds.seeds import seeded
from merope.worlds.vehicle import (
    ROUTE_STEP,
    Route,
    body_motion,
    camera_poses,
    feasible_speed,
    travelled,
)

# Below the physical bound, so that smoothing the speed cannot exceed it.
_LATERAL = 3.2
_ACCELERATE = 2.2
_BRAKE = 3.0
# Metres of route before and after the manoeuvre; more is added for long clips.
_LEAD = 80.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A manoeuvre: its curvature over arc length, a cruising speed, and speed limits that start at given metres."""

    curvature: np.ndarray
    cruise: float
    limits: tuple[tuple[float, float, float], ...] = ()
    hold: float = 0.0


def _ease(length: float, peak: float, ramp: float) -> np.ndarray:
    """Curvature over ``length`` metres: up to ``peak`` and back to zero over smooth ramps."""
    arc = np.arange(int(round(length / ROUTE_STEP))) * ROUTE_STEP
    ramp = min(ramp, 0.5 * length)
    share = np.clip(np.minimum(arc, length - arc) / ramp, 0.0, 1.0)
    return peak * share * share * (3.0 - 2.0 * share)


def _arc(angle: float, radius: float, ramp: float) -> np.ndarray:
    """Curvature of a turn by ``angle`` radians (left positive), no tighter than ``radius``."""
    length = max(abs(angle) * radius + ramp, 2.0 * ramp)
    curvature = _ease(length, np.sign(angle) / radius, ramp)
    return curvature * abs(angle) / max(abs(curvature.sum() * ROUTE_STEP), 1e-9)


def _side(rng: np.random.Generator) -> float:
    return float(rng.choice([-1.0, 1.0]))


def _straight(rng: np.random.Generator) -> _Plan:
    return _Plan(curvature=np.zeros(400), cruise=float(rng.uniform(2.0, 20.0)))


def _speed_change(rng: np.random.Generator) -> _Plan:
    slow = float(rng.uniform(2.0, 8.0))
    reach = float(rng.uniform(10.0, 30.0))
    return _Plan(curvature=np.zeros(600), cruise=float(rng.uniform(8.0, 18.0)), limits=((0.0, reach, slow),))


def _stop(rng: np.random.Generator) -> _Plan:
    return _Plan(
        curvature=np.zeros(400),
        cruise=float(rng.uniform(4.0, 14.0)),
        limits=((5.0, 5.2, 0.0),),
        hold=float(rng.uniform(0.5, 6.0)),
    )


def _curve(rng: np.random.Generator) -> _Plan:
    cruise = float(rng.uniform(5.0, 18.0))
    pieces = []
    side = _side(rng)
    for _ in range(3):
        radius = float(rng.uniform(max(18.0, cruise**2 / _LATERAL), 180.0))
        pieces.append(_arc(side * float(rng.uniform(0.15, 0.7)), radius, 8.0))
        side = -side if rng.random() < 0.6 else side
    return _Plan(curvature=np.concatenate(pieces), cruise=cruise)


def _lane_change(rng: np.random.Generator) -> _Plan:
    cruise = float(rng.uniform(6.0, 20.0))
    length = cruise * float(rng.uniform(2.8, 4.0))
    # Two opposite bends; a sine of curvature of amplitude k over L moves sideways by k L^2 / (2 pi).
    peak = _side(rng) * float(rng.uniform(3.0, 3.7)) * 2.0 * np.pi / length**2
    arc = np.arange(int(round(length / ROUTE_STEP))) * ROUTE_STEP
    return _Plan(curvature=peak * np.sin(2.0 * np.pi * arc / length), cruise=cruise)


def _turn(rng: np.random.Generator) -> _Plan:
    # Roundabouts, which are driven to the left, make up for the surplus of right turns.
    side = float(rng.choice([-1.0, 1.0], p=[0.6, 0.4]))
    radius = float(rng.uniform(MIN_RADIUS + 0.5, 12.0) if side < 0 else rng.uniform(9.0, 18.0))
    angle = side * float(rng.uniform(np.radians(60.0), np.radians(110.0)))
    curvature = _arc(angle, radius, 4.0)
    curvature *= min(1.0, 1.0 / (MIN_RADIUS * np.abs(curvature).max()))
    return _Plan(curvature=curvature, cruise=float(rng.uniform(5.0, 13.0)))


def _roundabout(rng: np.random.Generator) -> _Plan:
    radius = float(rng.uniform(10.0, 18.0))
    inward = np.radians(float(rng.uniform(30.0, 45.0)))
    around = np.radians(float(rng.choice([90.0, 180.0, 270.0]))) + 2.0 * inward
    pieces = [
        _arc(-inward, 14.0, 4.0),
        np.zeros(20),
        _arc(around, radius, 5.0),
        np.zeros(20),
        _arc(-inward, 14.0, 4.0),
    ]
    return _Plan(curvature=np.concatenate(pieces), cruise=float(rng.uniform(6.0, 12.0)))


_PLANS: dict[str, Callable[[np.random.Generator], _Plan]] = {
    "straight": _straight,
    "speed_change": _speed_change,
    "stop": _stop,
    "curve": _curve,
    "lane_change": _lane_change,
    "turn": _turn,
    "roundabout": _roundabout,
}

DRIVES: tuple[str, ...] = tuple(_PLANS)
"""Names of the manoeuvres that `drive` knows."""

_WEIGHTS = {
    "straight": 0.10,
    "speed_change": 0.10,
    "stop": 0.08,
    "curve": 0.30,
    "lane_change": 0.10,
    "turn": 0.23,
    "roundabout": 0.09,
}


def drive(
    kind: str, *, seed: int, num_frames: int, fps: float, camera_height: float = 1.65, vibration: float = 1.0
) -> Poses:
    """A car's camera through one manoeuvre, in metres and seconds.

    A kinematic bicycle (wheelbase 2.7 m) drives a route of the given kind: "straight", "speed_change", "stop", "curve",
    "lane_change", "turn" or "roundabout". Speed stays within 0 and 20 m/s, lateral acceleration within 4 m/s^2, the
    radius of the rear axle's path above 7 m. The clip is cut where the manoeuvre is under way. The
    camera is 1.7 m ahead of the rear axle, ``camera_height`` above the ground, and shakes like a sprung car's,
    scaled by ``vibration``. The first camera stands at x = y = 0 and looks along x. Side, sizes and speeds
    come from ``seed``.

    Raises:
        ValueError: if the kind is unknown, or a number is out of range.
    """
    if kind not in _PLANS:
        raise ValueError(f"kind must be one of {', '.join(DRIVES)}; got {kind!r}.")
    if num_frames < 1 or not fps > 0.0 or not camera_height > 0.0:
        raise ValueError(
            "num_frames, fps and camera_height must be positive; "
            f"got {num_frames}, {fps} and {camera_height}. A driving clip has, say, 17 frames at 10 fps."
        )
    rng = seeded(seed, DRIVES.index(kind), 0xD21)
    plan = _PLANS[kind](rng)
    duration = (num_frames - 1) / fps
    lead = int(_LEAD / ROUTE_STEP)
    tail = int((20.0 * duration + 2.0 * _LEAD) / ROUTE_STEP)
    curvature = np.concatenate([np.zeros(lead), plan.curvature, np.zeros(tail)])
    limit = np.full(len(curvature), plan.cruise)
    for first, last, value in plan.limits:
        begin, end = (lead + int(metres / ROUTE_STEP) for metres in (first, last))
        limit[begin : end + 1] = np.minimum(limit[begin : end + 1], value)
    route = Route(curvature=curvature, speed=limit)
    speed = feasible_speed(route, lateral=_LATERAL, accelerate=_ACCELERATE, brake=_BRAKE)
    # From a little before the manoeuvre, as far as the clip reaches, to its middle.
    reach = 0.7 * min(plan.cruise * duration, _LEAD)
    start = _LEAD + float(rng.uniform(-reach, 0.5 * len(plan.curvature) * ROUTE_STEP))
    if plan.limits:
        # Before the slow stretch, or, a third of the time, standing or crawling in it.
        within = rng.random() < 0.33
        start = _LEAD + (plan.limits[0][0] if within else -float(rng.uniform(0.2, 1.0)) * reach)
    distance = travelled(speed, start=start, duration=duration, hold=plan.hold)
    shake = body_motion(rng, num_frames=num_frames, fps=fps, strength=vibration)
    return camera_poses(
        route, distance, fps=fps, num_frames=num_frames, camera_height=camera_height, vibration=shake
    )


def random_drive(seed: int, num_frames: int, fps: float, *, camera_height: float = 1.65) -> Poses:
    """A drive of a random kind: curves and turns most often, some straights, stops and roundabouts.

    Raises:
        ValueError: as `drive`.
    """
    kind, strength = _drawn_kind(seed)
    return drive(
        kind, seed=seed, num_frames=num_frames, fps=fps, camera_height=camera_height, vibration=strength
    )


def random_drive_kind(seed: int) -> str:
    """The manoeuvre, one of `DRIVES`, that `random_drive` drives for this seed.

    Raises:
        ValueError: if ``seed`` is negative.
    """
    return _drawn_kind(seed)[0]


def _drawn_kind(seed: int) -> tuple[str, float]:
    """A manoeuvre and the strength of the car's vibration."""
    rng = seeded(seed, 0xD22)
    return str(rng.choice(list(_WEIGHTS), p=list(_WEIGHTS.values()))), float(rng.uniform(0.2, 1.5))
