"""Left and right variants of a trajectory: the same start, then a command that bends away."""

from typing import Literal

import numpy as np
import torch

from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.worlds.vehicle import AXLE_TO_CAMERA, MAX_LATERAL_ACCELERATION, MIN_RADIUS


def turn_variant(
    poses: Poses,
    *,
    side: Literal["left", "right"],
    start: int,
    curvature: float = 0.04,
    ramp_length: float = 4.0,
    fps: float = 10.0,
    axle_to_camera: float = AXLE_TO_CAMERA,
) -> Poses:
    """The trajectory with extra curvature to one side after frame ``start``; z is up.

    Definition. Let r_i be the rear axle, ``axle_to_camera`` metres behind camera i along its level heading, and s_i the
    metres that the axle has come since frame ``start`` (in plan). The variant adds the curvature

        k(s) = +-curvature * w(s / ramp_length),  w(t) = 3 t^2 - 2 t^3 for t < 1, else 1   (left is +)

    limited at every step so that base and extra curvature together are at most 1/7 m and, at the step's speed v,
    at most 4 m/s^2 / v^2 (a base that is already beyond gets no extra, never less). The extra yaw is its
    integral over the metres travelled, psi_i = sum k ds. Steps of the axle are turned by the mean extra yaw of their
    ends, r'_{i+1} = r'_i + R_z((psi_i + psi_{i+1}) / 2) (r_{i+1} - r_i), and cameras by their own,
    R'_i = R_z(psi_i) R_i. Heights, pitch, roll, times and distance per frame of the axle stay as they are.

    Frames 0 to ``start`` are equal to the last bit. A car that stands does not turn. At 8 to 12 m/s
    the defaults give 25 to 32 degrees within 1.6 s. Speeds come from ``poses.times``, or from ``fps`` without.

    Raises:
        ValueError: if ``side`` or ``start`` is not among the possible ones, or a number is negative.
        TrajectoryError: if the poses are not in metres.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right'; got {side!r}.")
    if not 0 <= start < len(poses):
        raise ValueError(f"start must be a frame index in [0, {len(poses) - 1}]; got {start}.")
    if curvature < 0.0 or ramp_length < 0.0 or not fps > 0.0:
        raise ValueError(
            f"curvature and ramp_length must not be negative and fps be positive; got {curvature}, {ramp_length}, {fps}."
        )
    if poses.unit != "m":
        raise TrajectoryError(
            f"poses must be in metres; their unit is {poses.unit!r}. Scale them with Poses.scaled."
        )
    R_world_cam, center_world = poses.R_world_cam.numpy(), poses.center_world.numpy()
    heading = _level_headings(R_world_cam)
    forward_world = np.stack([np.cos(heading), np.sin(heading), np.zeros_like(heading)], axis=1)
    axle_world = center_world - axle_to_camera * forward_world
    steps = np.diff(axle_world[start:], axis=0)
    lengths = np.linalg.norm(steps[:, :2], axis=1)
    seconds = (
        np.diff(poses.times.numpy()[start:]) if poses.times is not None else np.full(len(steps), 1.0 / fps)
    )
    # Heading against heading rather than step against step: a step of millimetres has no direction.
    base = np.diff(np.unwrap(heading[start:])) / np.maximum(lengths, 0.05)
    sign = 1.0 if side == "left" else -1.0
    bound = _bound(lengths, seconds)
    reached = np.cumsum(lengths) - 0.5 * lengths
    share = np.clip(reached / ramp_length, 0.0, 1.0) if ramp_length > 0.0 else np.ones_like(reached)
    wanted = curvature * share * share * (3.0 - 2.0 * share)
    extra = sign * np.clip(np.minimum(wanted, bound - sign * base), 0.0, None)
    yaw = np.concatenate([[0.0], np.cumsum(extra * lengths)])

    turned = _rotate_z(0.5 * (yaw[1:] + yaw[:-1]), steps)
    new_axle_world = axle_world[start] + np.concatenate([np.zeros((1, 3)), np.cumsum(turned, axis=0)])
    new_center_world, new_R_world_cam = center_world.copy(), R_world_cam.copy()
    new_center_world[start + 1 :] = (new_axle_world + axle_to_camera * _rotate_z(yaw, forward_world[start:]))[
        1:
    ]
    for column in range(3):
        new_R_world_cam[start + 1 :, :, column] = _rotate_z(yaw, R_world_cam[start:, :, column])[1:]
    return Poses(
        R_world_cam=torch.from_numpy(new_R_world_cam),
        center_world=torch.from_numpy(new_center_world),
        times=poses.times,
        unit=poses.unit,
    )


def _level_headings(R_world_cam: np.ndarray) -> np.ndarray:
    """Yaw of every camera's forward axis in plan."""
    return np.arctan2(R_world_cam[:, 1, 2], R_world_cam[:, 0, 2])


def _bound(lengths: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Largest curvature per step by steering lock and lateral acceleration; speed is the largest of three neighbours."""
    speed = lengths / seconds
    padded = np.pad(speed, 1, mode="edge") if len(speed) else np.zeros(2)
    fastest = np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])
    return np.minimum(1.0 / MIN_RADIUS, MAX_LATERAL_ACCELERATION / np.maximum(fastest, 1e-3) ** 2)


def _rotate_z(angle: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors [T, 3] turned about z by angles [T]."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y, z = vectors.T
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=1)
