"""`free_motion`: camera moves that no car can make, for the six degrees of freedom."""

from collections.abc import Callable

import numpy as np
import torch

from merope.geometry.poses import Poses
from merope.worlds.seeds import seeded
from merope.worlds.vehicle import look

Motion = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _pan(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    still = np.zeros_like(phase)
    yaw = float(rng.choice([-1.0, 1.0]) * rng.uniform(np.radians(30.0), np.radians(90.0))) * phase
    return np.zeros((len(phase), 3)), yaw, still, still


def _tilt(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    still = np.zeros_like(phase)
    pitch = float(rng.choice([-1.0, 1.0]) * rng.uniform(np.radians(10.0), np.radians(25.0))) * phase
    return np.zeros((len(phase), 3)), still, pitch, still


def _roll(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    still = np.zeros_like(phase)
    roll = float(rng.choice([-1.0, 1.0]) * rng.uniform(np.radians(10.0), np.radians(30.0))) * phase
    return np.zeros((len(phase), 3)), still, still, roll


def _orbit(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    radius = float(rng.uniform(6.0, 12.0))
    angle = float(rng.choice([-1.0, 1.0]) * rng.uniform(np.radians(20.0), np.radians(60.0))) * phase
    shift = np.stack([radius * (1.0 - np.cos(angle)), -radius * np.sin(angle), np.zeros_like(phase)], axis=1)
    return shift, angle, np.zeros_like(phase), np.zeros_like(phase)


def _dolly(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    still = np.zeros_like(phase)
    metres = float(rng.choice([-1.0, 1.0]) * rng.uniform(3.0, 15.0))
    return np.outer(phase, [metres, 0.0, 0.0]), still, still, still


def _truck(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    still = np.zeros_like(phase)
    metres = float(rng.choice([-1.0, 1.0]) * rng.uniform(1.5, 5.0))
    return np.outer(phase, [0.0, metres, 0.0]), still, still, still


def _pedestal(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    still = np.zeros_like(phase)
    return np.outer(phase, [0.0, 0.0, float(rng.uniform(1.0, 6.0))]), still, still, still


def _handheld(rng: np.random.Generator, phase: np.ndarray) -> Motion:
    """A smooth wander in all six degrees of freedom: three harmonics each."""
    curves = np.zeros((6, len(phase)))
    for row, size in enumerate((2.0, 1.0, 0.3, 0.25, 0.12, 0.12)):
        for harmonic in (1, 2, 3):
            start = rng.random() * 2.0 * np.pi
            wave = np.sin(np.pi * harmonic * phase + start) - np.sin(start)
            curves[row] += rng.normal() * size / harmonic * wave
    shift = curves[:3].T
    shift[:, 2] = np.maximum(shift[:, 2], -0.9)
    return shift, curves[3], curves[4], curves[5]


_MOTIONS: dict[str, Callable[[np.random.Generator, np.ndarray], Motion]] = {
    "pan": _pan,
    "tilt": _tilt,
    "roll": _roll,
    "orbit": _orbit,
    "dolly": _dolly,
    "truck": _truck,
    "pedestal": _pedestal,
    "handheld": _handheld,
}

MOTIONS: tuple[str, ...] = tuple(_MOTIONS)
"""Names of the motions that `free_motion` knows."""


def free_motion(kind: str, *, seed: int, num_frames: int, fps: float, camera_height: float = 1.65) -> Poses:
    """A free camera motion, starting at x = y = 0 and looking along x, z up; metres and seconds.

    "pan", "tilt" and "roll" turn in place; "dolly", "truck" and "pedestal" move forward or back, sideways, and
    up, without turning; "orbit" circles a point 6 to 12 m ahead and keeps looking at it; "handheld" wanders in all six
    degrees of freedom. All but the last ease in and out. Side and size come from ``seed``.

    Raises:
        ValueError: if the kind is unknown, a number is not positive, the seed is negative, or the camera would come
            within 0.5 m of the ground.
    """
    if kind not in _MOTIONS:
        raise ValueError(f"kind must be one of {', '.join(MOTIONS)}; got {kind!r}.")
    if num_frames < 1 or not fps > 0.0:
        raise ValueError(f"num_frames and fps must be positive; got {num_frames} and {fps}.")
    rng = seeded(seed, MOTIONS.index(kind), 0xF4EE)
    share = np.linspace(0.0, 1.0, num_frames) if num_frames > 1 else np.zeros(1)
    phase = share * share * (3.0 - 2.0 * share) if kind != "handheld" else share
    shift, yaw, pitch, roll = _MOTIONS[kind](rng, phase)
    center = shift + np.array([0.0, 0.0, camera_height])
    if center[:, 2].min() < 0.5:
        raise ValueError(
            f"camera_height {camera_height} brings the camera to {center[:, 2].min():.2f} m above the ground; "
            "raise it so that 0.5 m remain."
        )
    return Poses(
        R_world_cam=look(yaw, pitch=pitch, roll=roll),
        center_world=torch.from_numpy(center),
        times=torch.arange(num_frames, dtype=torch.float64) / fps,
    )
