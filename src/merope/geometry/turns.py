"""Left-turn and right-turn variants of a trajectory: the same start, then a command that bends away."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from merope.errors import TrajectoryError
from merope.geometry.gravity import unit_up
from merope.geometry.pose_checks import require_measurable
from merope.geometry.poses import Poses
from merope.geometry.up_direction import common_up

Side = Literal["left", "right"]

# Metres from a car's rear axle forward to its camera.
AXLE_TO_CAMERA = 1.7
# Metres; about what a car's steering lock allows at low speed.
MIN_RADIUS = 7.0
# Metres per second squared, sideways, of brisk but comfortable driving.
MAX_LATERAL_ACCELERATION = 4.0

# Sine of the angle to the vertical below which a camera has no heading.
_VERTICAL = 1e-3


def turn_variant(
    poses: Poses,
    *,
    side: Side,
    start: int = 8,
    up_world: Sequence[float] | None = None,
    fps: float | None = None,
    curvature: float = 0.04,
    ramp_length: float = 4.0,
    axle_to_camera: float = AXLE_TO_CAMERA,
    min_radius: float = MIN_RADIUS,
    max_lateral_acceleration: float = MAX_LATERAL_ACCELERATION,
) -> Poses:
    """The trajectory with extra curvature to one side after frame ``start``, in its own world.

    Definition. Seen from above, let r_i be the rear axle, ``axle_to_camera`` metres behind camera i along its level
    heading, and s_i the metres that the axle has come since frame ``start``. The variant adds the curvature

        k(s) = +-curvature * w(s / ramp_length),  w(t) = 3 t^2 - 2 t^3 for t < 1, else 1   (left is +)

    limited at every step so that base and extra curvature together are at most 1 / ``min_radius`` and, at the step's speed
    v, at most ``max_lateral_acceleration`` / v^2 (a base that is already beyond gets no extra, never less). The extra yaw
    about ``up_world`` is its integral over the metres travelled, psi_i = sum k ds. Steps of the axle are turned by the mean
    extra yaw of their ends, r'_{i+1} = r'_i + R_up((psi_i + psi_{i+1}) / 2) (r_{i+1} - r_i), and cameras by their own,
    R'_i = R_up(psi_i) R_i. Heights, pitch, roll, times and distance per frame of the axle stay as they are.

    Frames 0 to ``start`` are equal to the last bit; the default leaves the paper's 9 given frames alone. A car that stands
    does not turn, nor does a camera that rises on the spot. At 8 to 12 m/s the defaults give 25 to 32 degrees within 1.6 s.
    Speeds come from ``poses.times``, or from ``fps`` without.

    ``up_world`` is the direction against gravity in the world of the poses; without it that of `common_up`, from the path
    and the cameras' own up axes. For a camera that is not on a car, ``axle_to_camera`` 0 turns it about itself.

    Raises:
        ValueError: if ``side`` or ``start`` is not among the possible ones, or a number has no meaning.
        TrajectoryError: if the poses are not in metres, have neither times nor ``fps``, no common up direction, or a camera
            that looks straight up or down.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right'; got {side!r}.")
    if not 0 <= start < len(poses) - 1:
        raise ValueError(
            f"start must be a frame index in [0, {len(poses) - 2}], so that a frame remains behind it; got {start} for "
            f"{len(poses)} poses."
        )
    for name, value in (
        ("curvature", curvature),
        ("ramp_length", ramp_length),
        ("axle_to_camera", axle_to_camera),
    ):
        if not 0.0 <= value < np.inf:
            raise ValueError(f"{name} must be at least 0; got {value}.")
    if not (min_radius > 0.0 and max_lateral_acceleration > 0.0 and (fps is None or fps > 0.0)):
        raise ValueError(
            f"min_radius, max_lateral_acceleration and fps must be > 0; got {min_radius}, {max_lateral_acceleration}, {fps}."
        )
    if poses.unit != "m":
        raise TrajectoryError(
            f"poses must be in metres, since a turn has a radius; their unit is {poses.unit!r}. If lengths are metres, "
            "read them so (--unit m); otherwise convert them (Poses.scaled; merope poses convert --scale --to-unit m)."
        )
    if poses.times is None and fps is None:
        raise TrajectoryError(
            "a turn may be as sharp as the speed allows, and the poses have no times. Say how many there are in a second "
            "(fps; --trajectory-fps, --rate)."
        )
    require_measurable(poses.center_world)
    up = unit_up(common_up(poses).tolist() if up_world is None else up_world)
    R_level_world = _level_axes(up)
    R_world_cam, center_world = poses.R_world_cam.numpy(), poses.center_world.numpy()
    heading = _level_headings(_rotated(R_level_world, R_world_cam[:, :, 2]))
    forward_level = np.stack([np.cos(heading), np.sin(heading), np.zeros_like(heading)], axis=1)
    R_world_level = None if R_level_world is None else R_level_world.T
    axle_world = center_world - axle_to_camera * _rotated(R_world_level, forward_level)
    steps = _rotated(R_level_world, np.diff(axle_world[start:], axis=0))
    lengths = np.linalg.norm(steps[:, :2], axis=1)
    seconds = (
        np.full(len(steps), 1.0 / (fps or 1.0))
        if poses.times is None
        else np.diff(poses.times.numpy()[start:])
    )
    # Heading against heading rather than step against step: a step of millimetres has no direction.
    base = np.diff(np.unwrap(heading[start:])) / np.maximum(lengths, 0.05)
    sign = 1.0 if side == "left" else -1.0
    # A speed whose square has no number leaves no turn.
    with np.errstate(over="ignore"):
        square = np.maximum(_speeds(lengths, seconds), 1e-3) ** 2
    bound = np.minimum(1.0 / min_radius, max_lateral_acceleration / square)
    reached = np.cumsum(lengths) - 0.5 * lengths
    share = np.clip(reached / ramp_length, 0.0, 1.0) if ramp_length > 0.0 else np.ones_like(reached)
    wanted = curvature * share * share * (3.0 - 2.0 * share)
    extra = sign * np.clip(np.minimum(wanted, bound - sign * base), 0.0, None)
    yaw = np.concatenate([[0.0], np.cumsum(extra * lengths)])

    turned = _rotated(R_world_level, _yawed(0.5 * (yaw[1:] + yaw[:-1]), steps))
    new_axle_world = axle_world[start] + np.concatenate([np.zeros((1, 3)), np.cumsum(turned, axis=0)])
    new_forward_world = _rotated(R_world_level, _yawed(yaw, forward_level[start:]))
    new_center_world, new_R_world_cam = center_world.copy(), R_world_cam.copy()
    new_center_world[start + 1 :] = (new_axle_world + axle_to_camera * new_forward_world)[1:]
    for column in range(3):
        axis_level = _yawed(yaw, _rotated(R_level_world, R_world_cam[start:, :, column]))
        new_R_world_cam[start + 1 :, :, column] = _rotated(R_world_level, axis_level)[1:]
    return Poses(
        R_world_cam=torch.from_numpy(new_R_world_cam),
        center_world=torch.from_numpy(new_center_world),
        times=poses.times,
        unit=poses.unit,
        projection_error=poses.projection_error,
    )


def _level_axes(up: tuple[float, float, float]) -> np.ndarray | None:
    """The rotation into some axes with z up; None where z is up already, so that no digit changes there."""
    if up == (0.0, 0.0, 1.0):
        return None
    up_world = np.array(up)
    # Any horizontal axis: made of the one that is least along up.
    x_world = np.cross(np.eye(3)[np.abs(up_world).argmin()], up_world)
    x_world /= np.linalg.norm(x_world)
    return np.stack([x_world, np.cross(up_world, x_world), up_world])


def _rotated(R_a_b: np.ndarray | None, vectors_b: np.ndarray) -> np.ndarray:
    """Row vectors [T, 3] in the other axes."""
    return vectors_b if R_a_b is None else vectors_b @ R_a_b.T


def _level_headings(forward_level: np.ndarray) -> np.ndarray:
    """Yaw of every camera's forward axis seen from above.

    Raises:
        TrajectoryError: if a camera looks straight up or down.
    """
    vertical = np.hypot(forward_level[:, 0], forward_level[:, 1]) < _VERTICAL
    if vertical.any():
        raise TrajectoryError(
            f"camera {int(vertical.argmax())} looks straight up or down and has no heading to turn. Turn variants are for "
            "cameras that look about level, as a vehicle's do; if these do, their axes or the up direction are wrong "
            "(--camera-axes, --up)."
        )
    return np.arctan2(forward_level[:, 1], forward_level[:, 0])


def _speeds(lengths: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The largest speed of each step and its two neighbours."""
    padded = np.pad(lengths / seconds, 1, mode="edge")
    return np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])


def _yawed(angle: np.ndarray, vectors_level: np.ndarray) -> np.ndarray:
    """Vectors [T, 3] turned about z by angles [T], to the left where positive."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y, z = vectors_level.T
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=1)
