"""The kinematic bicycle: a path's curvature and a car's speed along it, integrated to camera poses."""

from dataclasses import dataclass

import numpy as np
import torch

from merope.geometry.poses import Poses
from merope.geometry.turns import AXLE_TO_CAMERA

# Metres from the rear axle to the front axle.
WHEELBASE = 2.7
# Metres between samples of a route.
ROUTE_STEP = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Curvature of the rear axle's path (1/m, positive to the left) and the speed allowed there, every ``ROUTE_STEP``."""

    curvature: np.ndarray
    speed: np.ndarray


def feasible_speed(route: Route, *, lateral: float, accelerate: float, brake: float) -> np.ndarray:
    """The fastest speed profile under the route's limit, a lateral bound and bounds on speeding up and braking.

    A car starts at the limit of the first sample. The two passes are v_{i+1}^2 <= v_i^2 + 2 a ds forward and the
    same with the braking bound backward.
    """
    square = np.minimum(route.speed**2, lateral / np.maximum(np.abs(route.curvature), 1e-6))
    for index in range(1, len(square)):
        square[index] = min(square[index], square[index - 1] + 2.0 * accelerate * ROUTE_STEP)
    for index in range(len(square) - 2, -1, -1):
        square[index] = min(square[index], square[index + 1] + 2.0 * brake * ROUTE_STEP)
    return np.sqrt(square)


def travelled(
    speed: np.ndarray, *, start: float, duration: float, hold: float, step: float = 0.01
) -> np.ndarray:
    """Metres along the route at times 0, ``step``, ... ``duration``, for a profile from `feasible_speed`.

    Where the profile falls to zero the car stands ``hold`` seconds and then moves on. Speeds are smoothed over
    0.4 s, which bounds the jerk.
    """
    num = int(np.ceil(duration / step)) + 1
    # Room for the smoothing window on both sides.
    pad = 25
    position = start - speed[int(start / ROUTE_STEP)] * pad * step
    position = max(position, 0.0)
    waited = 0.0
    speeds = np.empty(num + 2 * pad)
    for index in range(num + 2 * pad):
        place = min(position / ROUTE_STEP, len(speed) - 1.001)
        low = int(place)
        here = speed[low] + (speed[low + 1] - speed[low]) * (place - low)
        if here < 0.25 and waited < hold and speed[min(low + 3, len(speed) - 1)] < 0.8:
            waited += step
            speeds[index] = 0.0
            continue
        # A floor far below walking pace takes the car out of the zero of the profile.
        speeds[index] = max(here, 0.2)
        position += speeds[index] * step
    kernel = np.hanning(2 * pad + 3)[1:-1]
    smooth = np.convolve(speeds, kernel / kernel.sum(), mode="valid")
    return start + np.concatenate([[0.0], np.cumsum(0.5 * (smooth[1:] + smooth[:-1]) * step)])


def camera_poses(
    route: Route,
    distance: np.ndarray,
    *,
    fps: float,
    num_frames: int,
    camera_height: float,
    vibration: np.ndarray,
    step: float = 0.01,
) -> Poses:
    """Poses of a camera on a car that has come ``distance`` [steps] metres along a route, one per frame.

    The rear axle follows the route, its heading is the integral of the curvature (x' = v cos, y' = v sin,
    yaw' = v tan(steer) / wheelbase), and the camera is fixed ``AXLE_TO_CAMERA`` ahead of it. The world starts at the
    camera of the first frame, on the ground, heading along x. ``vibration`` [T, 3] adds pitch and roll
    (radians, nose up and left side up) and heave (metres).
    """
    arc = np.arange(len(route.curvature)) * ROUTE_STEP
    yaw = np.concatenate([[0.0], np.cumsum(0.5 * (route.curvature[1:] + route.curvature[:-1]) * ROUTE_STEP)])
    middle = 0.5 * (yaw[1:] + yaw[:-1])
    axle_x = np.concatenate([[0.0], np.cumsum(np.cos(middle) * ROUTE_STEP)])
    axle_y = np.concatenate([[0.0], np.cumsum(np.sin(middle) * ROUTE_STEP)])
    times = np.arange(num_frames) / fps
    along = np.interp(times, np.arange(len(distance)) * step, distance)
    heading = np.interp(along, arc, yaw)
    x = np.interp(along, arc, axle_x) + AXLE_TO_CAMERA * np.cos(heading)
    y = np.interp(along, arc, axle_y) + AXLE_TO_CAMERA * np.sin(heading)
    turn = np.array([[np.cos(heading[0]), np.sin(heading[0])], [-np.sin(heading[0]), np.cos(heading[0])]])
    plan = turn @ np.stack([x - x[0], y - y[0]])
    center = np.stack([plan[0], plan[1], camera_height + vibration[:, 2]], axis=1)
    rotation = look(heading - heading[0], pitch=vibration[:, 0], roll=vibration[:, 1])
    return Poses(R_world_cam=rotation, center_world=torch.from_numpy(center), times=torch.from_numpy(times))


def look(yaw: np.ndarray, *, pitch: np.ndarray, roll: np.ndarray) -> torch.Tensor:
    """Rotations ``R_world_cam`` [T, 3, 3] of cameras that look along ``yaw`` (from x, left positive).

    The camera is first rolled (left side up positive), then pitched (nose up positive), then turned; all in radians.
    """
    cos_yaw, sin_yaw = np.cos(yaw), np.sin(yaw)
    cos_pitch, sin_pitch = np.cos(pitch), np.sin(pitch)
    forward = np.stack([cos_yaw * cos_pitch, sin_yaw * cos_pitch, sin_pitch], axis=-1)
    level = np.stack([sin_yaw, -cos_yaw, np.zeros_like(yaw)], axis=-1)
    below = np.cross(forward, level)
    right = np.cos(roll)[:, None] * level + np.sin(roll)[:, None] * below
    down = np.cross(forward, right)
    return torch.from_numpy(np.stack([right, down, forward], axis=-1))


def body_motion(rng: np.random.Generator, *, num_frames: int, fps: float, strength: float) -> np.ndarray:
    """Pitch, roll (radians) and heave (metres) [T, 3] of a sprung car: a few sinusoids of 0.8 to 3 Hz.

    At ``strength`` 1 the standard deviations are about 0.2 degrees, 0.15 degrees and 8 mm.
    """
    times = np.arange(num_frames) / fps
    motion = np.zeros((num_frames, 3))
    for column, scale in enumerate((np.radians(0.2), np.radians(0.15), 0.008)):
        for _ in range(3):
            rate = rng.uniform(0.8, 3.0)
            motion[:, column] += (
                scale * np.sqrt(2.0 / 3.0) * np.sin(2 * np.pi * (rate * times + rng.random()))
            )
    return strength * motion
