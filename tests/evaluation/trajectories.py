"""Trajectories that the evaluation tests share."""

import math

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from merope.geometry.poses import Poses


def from_numpy(rotations, centers, **kwargs) -> Poses:
    return Poses(R_world_cam=torch.as_tensor(rotations), center_world=torch.as_tensor(centers), **kwargs)


def straight(num=4, step=1.0) -> Poses:
    centers = np.zeros((num, 3))
    centers[:, 2] = step * np.arange(num)
    return from_numpy(np.tile(np.eye(3), (num, 1, 1)), centers)


def turning(num=12, step=1.0, turn_deg=46.0) -> Poses:
    """A level right turn: heading grows evenly, the camera looks along the path."""
    headings = np.linspace(0, math.radians(turn_deg), num)
    forward = np.stack([np.sin(headings), np.zeros(num), np.cos(headings)], axis=1)
    centers = np.concatenate([np.zeros((1, 3)), np.cumsum(step * forward[:-1], axis=0)])
    return from_numpy(Rotation.from_rotvec(np.outer(headings, [0, 1, 0])).as_matrix(), centers)


def wandering(num, seed, *, step=0.5, noise=0.3) -> Poses:
    """Random motion in all six degrees of freedom, generic in every respect."""
    rng = np.random.default_rng(seed)
    rotations = [Rotation.random(random_state=seed)]
    for _ in range(num - 1):
        rotations.append(rotations[-1] * Rotation.from_rotvec(rng.normal(scale=0.1, size=3)))
    centers = np.cumsum(rng.normal(loc=step, scale=noise, size=(num, 3)), axis=0)
    return from_numpy(np.stack([rotation.as_matrix() for rotation in rotations]), centers)


def perturbed(poses: Poses, seed, *, turn_deg=2.0, shift=0.2, scale=1.0) -> Poses:
    """The same trajectory as a noisy estimator would see it."""
    rng = np.random.default_rng(seed)
    turns = Rotation.from_rotvec(rng.normal(scale=math.radians(turn_deg), size=(len(poses), 3))).as_matrix()
    centers = scale * (poses.center_world.numpy() + rng.normal(scale=shift, size=(len(poses), 3)))
    return from_numpy(poses.R_world_cam.numpy() @ turns, centers, unit=poses.unit)


def with_camera_axes(poses: Poses, axes) -> Poses:
    """The same cameras with their axes renamed: R_world_other = R_world_cam R_cam_other."""
    return Poses(
        R_world_cam=poses.R_world_cam @ torch.as_tensor(axes, dtype=torch.float64),
        center_world=poses.center_world,
    )


OPENGL = np.diag([1.0, -1.0, -1.0])


def city_drive(num) -> Poses:
    """Brakes, bends to both sides, bumps and a slope: motion that is never the same for long, from 0.35 to 1.2 m a frame."""
    t = np.arange(num, dtype=float)
    speed = 0.8 + 0.3 * np.sin(t / 7.0) + 0.1 * np.sin(t / 3.1 + 1)
    heading = np.cumsum(
        0.02 * np.sin(t / 9.0) + 0.015 * np.sin(t / 4.3 + 2) + 0.02 * np.exp(-(((t - 60) / 9) ** 2))
    )
    pitch = 0.03 * np.sin(t / 6.0 + 0.5) + 0.015 * np.sin(t / 2.7)
    rotations = Rotation.from_euler("YX", np.stack([heading, pitch], axis=1)).as_matrix()
    steps = speed[:, None] * rotations[:, :, 2]
    centers = np.concatenate([np.zeros((1, 3)), np.cumsum(steps[:-1], axis=0)])
    return from_numpy(rotations, centers)


def reversed_path(poses: Poses) -> Poses:
    """Every centre mirrored through the first, rotations kept: the same path driven backwards."""
    return Poses(R_world_cam=poses.R_world_cam, center_world=2 * poses.center_world[:1] - poses.center_world)


def mirrored(poses: Poses, axis: int, *, rotations: bool = True) -> Poses:
    """The mirror image with one axis of camera and world negated, or of the centres alone."""
    flip = torch.eye(3, dtype=torch.float64)
    flip[axis, axis] = -1
    return Poses(
        R_world_cam=flip @ poses.R_world_cam @ flip if rotations else poses.R_world_cam,
        center_world=poses.center_world @ flip,
    )


def misread_as_world_to_camera(poses: Poses) -> Poses:
    """World-to-camera matrices taken for camera-to-world ones."""
    return Poses(R_world_cam=poses.R_world_cam.mT, center_world=poses.T_cam_world[:, :3, 3].contiguous())


def transposed(poses: Poses) -> Poses:
    """Rotations written for row vectors, centres as they are."""
    return Poses(R_world_cam=poses.R_world_cam.mT, center_world=poses.center_world)
