"""Resampling by arc length: equal steps, exact ends, no NaN; and positions that float32 never sees in the world."""

import numpy as np
import pytest
import torch

from merope.data.selection.prototypes.arc_length import (
    path_extents,
    relative_centers,
    relative_centers_of_matrices,
    resample_paths,
)
from merope.data.selection.prototypes.frechet import frechet_distances
from merope.geometry.poses import Poses
from merope.geometry.rotations import project_to_so3


def test_a_detour_of_a_metre_is_a_metre_away_however_the_paths_were_sampled():
    straight = np.array([[[0.0, 0.0, 0.0], [0.0, 0.0, 100.0]]])
    detour = np.array([[[0.0, 0.0, 0.0], [1.0, 0.0, 50.0], [0.0, 0.0, 100.0]]])
    raw = frechet_distances(straight.astype(np.float32), detour.astype(np.float32))
    assert raw[0] == pytest.approx(np.hypot(50, 1))
    even = frechet_distances(resample_paths(straight, 13), resample_paths(detour, 13))
    assert even[0] == 1.0


def test_steps_are_equal_and_ends_exact():
    rng = np.random.default_rng(0)
    angle = np.cumsum(rng.uniform(0.0, 0.2, 200))
    circle = 20.0 * np.stack([1 - np.cos(angle), np.zeros(200), np.sin(angle)], axis=-1)
    path = resample_paths(circle[None], 65)[0].astype(np.float64)
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert np.ptp(steps) < 1e-2 * steps.mean()
    assert (path[0] == 0).all()
    np.testing.assert_array_equal(path[-1], (circle[-1] - circle[0]).astype(np.float32))


def test_it_does_not_matter_when_a_car_stood():
    path = np.cumsum(np.random.default_rng(1).normal(size=(20, 3)), axis=0)
    standing = np.repeat(path, [1] * 5 + [7] + [1] * 12 + [3, 4], axis=0)
    np.testing.assert_allclose(resample_paths(path[None], 31), resample_paths(standing[None], 31), atol=1e-6)


@pytest.mark.parametrize("num_poses", [1, 2, 49])
def test_a_path_that_stands_still_is_one_point(num_poses):
    still = np.full((2, num_poses, 3), 3.7e6)
    path = resample_paths(still, 13)
    assert (path == 0).all()
    assert (path_extents(path) == 0).all()


def test_displacement_of_a_loop_is_not_that_of_its_end():
    angle = np.linspace(0, 2 * np.pi, 49)
    loop = np.stack([np.cos(angle) - 1, 0 * angle, np.sin(angle)], axis=-1)
    assert path_extents(resample_paths(5 * loop[None], 49))[0] == pytest.approx(10, rel=1e-3)


def test_a_path_far_from_the_origin_loses_nothing():
    near = np.cumsum(np.random.default_rng(2).normal(size=(1, 49, 3)), axis=1)
    np.testing.assert_allclose(resample_paths(near + 6.4e6, 49), resample_paths(near, 49), rtol=0, atol=1e-6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e200, 9000.0])
def test_what_is_no_path_of_a_clip_is_refused_by_number(wrong):
    paths = np.zeros((3, 5, 3))
    paths[1, 3, 2] = wrong
    with pytest.raises(ValueError, match="path 1 goes to"):
        resample_paths(paths, 13)


@pytest.mark.parametrize(("shape", "points"), [((2, 5, 3), 1), ((2, 0, 3), 5)])
def test_too_few_points_are_refused(shape, points):
    with pytest.raises(ValueError, match="must"):
        resample_paths(np.zeros(shape), points)


def test_no_paths_are_no_paths():
    assert resample_paths(np.zeros((0, 5, 3)), 13).shape == (0, 13, 3)


def test_centers_are_in_the_axes_of_the_first_camera_for_poses_and_matrices_alike():
    rotations = project_to_so3(torch.randn(4, 7, 3, 3, dtype=torch.float64))
    centers = torch.randn(4, 7, 3, dtype=torch.float64) * 10 + 6.4e6
    T_world_cam = torch.cat([rotations, centers[..., None]], dim=-1)
    together = relative_centers_of_matrices(T_world_cam.numpy())
    for path, matrices in zip(together, T_world_cam, strict=True):
        own = relative_centers(Poses.from_matrices(matrices))
        np.testing.assert_allclose(path, own, atol=1e-8)
        # A point ahead of the first camera has a positive z there.
        expected = matrices[0, :, :3].mT @ (matrices[3, :, 3] - matrices[0, :, 3])
        np.testing.assert_allclose(path[3], expected, atol=1e-8)


def test_a_first_camera_without_a_rotation_is_refused():
    T_world_cam = np.zeros((2, 3, 4, 4))
    with pytest.raises(ValueError, match="first cameras"):
        relative_centers_of_matrices(T_world_cam)
