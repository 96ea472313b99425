"""Paths with equal steps: what two clips did, whatever their speed profile and their number of frames.

The discrete Frechet distance compares points, so it depends on where a path was sampled: a straight line of two points and
a detour of 1 m with three points are 50 m apart, and 1 m once both are sampled evenly.
"""

# Numba infers the types of these functions at each call.
# ruff: noqa: ANN001
# mypy: disable-error-code="no-untyped-def"

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from numba import njit

from merope.geometry.pose_checks import read_matrices
from merope.geometry.poses import Poses

# Metres from the first point. Up to there float32 is within 0.25 mm, and within 4 um up to 128 m.
FARTHEST = 8192.0


def relative_centers(poses: Poses) -> Float64[np.ndarray, "time 3"]:
    """Centres of the cameras in the axes of the first one (x right, y down, z forward), in the poses' unit."""
    return poses.rebase_to_first().center_world.numpy()


def relative_centers_of_matrices(
    T_world_cam: Float64[np.ndarray, "path time rows 4"], *, tolerance: float = 1e-3
) -> Float64[np.ndarray, "path time 3"]:
    """`relative_centers` of many paths of camera-to-world matrices, [N, T, 3, 4] or [N, T, 4, 4].

    Raises:
        ValueError: if the rotation of a first camera is not one, to ``tolerance``.
    """
    first = torch.from_numpy(np.ascontiguousarray(T_world_cam[:, 0]))
    R_world_first, center_world, _ = read_matrices("T_world_cam of the first cameras", first, tolerance)
    offsets_world = T_world_cam[:, :, :3, 3] - center_world.numpy()[:, None]
    return offsets_world @ R_world_first.numpy()


def resample_paths(
    centers: Float[np.ndarray, "path time 3"], num_points: int
) -> Float32[np.ndarray, "path point 3"]:
    """Paths as ``num_points`` points, the same arc length apart along each, from the first position to the last.

    Positions are taken relative to the first one, and only then rounded to float32. A path that stands still, or has one
    pose alone, is ``num_points`` times the same point. Corners between two points are cut by less than half a step.

    Raises:
        ValueError: if ``num_points`` is below 2, there are no poses, or a position is not finite or further than 8192 from
            the first.
    """
    if num_points < 2:
        raise ValueError(f"num_points must be 2 or more; got {num_points}.")
    if centers.shape[1] == 0:
        raise ValueError("paths must have at least one pose; got none.")
    centers = np.asarray(centers, dtype=np.float64)
    centers = centers - centers[:, :1]
    # Also false where a position is not finite.
    usable = (np.abs(centers).max(axis=(1, 2), initial=0.0)) <= FARTHEST
    if not usable.all():
        number = int(np.argmin(usable))
        raise ValueError(
            f"positions must be finite and within {FARTHEST:g} m of the first; path {number} goes to "
            f"{np.abs(centers[number]).max():g}. Is its unit metres?"
        )
    out = np.empty((len(centers), num_points, 3), dtype=np.float32)
    _resample(np.ascontiguousarray(centers), out)
    return out


def path_extents(paths: Float32[np.ndarray, "path point 3"]) -> Float64[np.ndarray, "path"]:
    """The largest distance of each path from its first point: its displacement, which is not zero for a loop."""
    extents = np.empty(len(paths))
    _extents(paths, extents)
    return extents


@njit(cache=True, nogil=True, error_model="numpy")
def _resample(centers, out):
    num_paths, num_poses = centers.shape[:2]
    num_points = out.shape[1]
    travelled = np.zeros(num_poses)
    for path in range(num_paths):
        for pose in range(1, num_poses):
            x = centers[path, pose, 0] - centers[path, pose - 1, 0]
            y = centers[path, pose, 1] - centers[path, pose - 1, 1]
            z = centers[path, pose, 2] - centers[path, pose - 1, 2]
            travelled[pose] = travelled[pose - 1] + np.sqrt(x * x + y * y + z * z)
        length = travelled[num_poses - 1]
        after = min(1, num_poses - 1)
        for point in range(num_points):
            wanted = length * (point / (num_points - 1))
            while after < num_poses - 1 and travelled[after] < wanted:
                after += 1
            before = max(after - 1, 0)
            step = travelled[after] - travelled[before]
            # Frames that stand still repeat a place.
            share = min(max((wanted - travelled[before]) / step, 0.0), 1.0) if step > 0 else 0.0
            if point == num_points - 1:
                before, after, share = num_poses - 1, num_poses - 1, 0.0
            for axis in range(3):
                start = centers[path, before, axis]
                out[path, point, axis] = start + share * (centers[path, after, axis] - start)


@njit(cache=True, nogil=True, error_model="numpy")
def _extents(paths, extents):
    for path in range(paths.shape[0]):
        largest = 0.0
        for point in range(1, paths.shape[1]):
            x = np.float64(paths[path, point, 0]) - np.float64(paths[path, 0, 0])
            y = np.float64(paths[path, point, 1]) - np.float64(paths[path, 0, 1])
            z = np.float64(paths[path, point, 2]) - np.float64(paths[path, 0, 2])
            largest = max(largest, x * x + y * y + z * z)
        extents[path] = np.sqrt(largest)
