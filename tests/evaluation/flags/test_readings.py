"""Readings of an estimate: each is scored as CamMC scores the estimate so read."""

import numpy as np
import pytest
import torch

from merope.evaluation.flags import readings
from merope.evaluation.flags.readings import best_reading, constant_turn
from merope.evaluation.metrics.paper import Aligned, cammc
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import (
    OPENGL,
    misread_as_world_to_camera,
    perturbed,
    turning,
    wandering,
    with_camera_axes,
)


def test_all_signed_axes_are_there_once_and_half_are_right_handed():
    rows, matrices = readings._signed_axes()
    assert len({row.matrix for row in rows}) == 48
    assert sorted(torch.linalg.det(matrices).round().tolist()) == [-1.0] * 24 + [1.0] * 24
    torch.testing.assert_close(matrices[0], torch.eye(3, dtype=torch.float64))
    # Every convention that a file can be read in has its name and its flag.
    flags = " ".join(row.way_out for row in rows)
    for name in ("opengl", "flu", "frd", "unreal"):
        assert f"--camera-axes {name}" in flags


@pytest.mark.parametrize("seed", range(3))
def test_readings_score_as_cammc_of_poses_in_those_axes(seed):
    commanded = wandering(14, seed)
    estimated = perturbed(wandering(14, seed), seed + 9, turn_deg=10, shift=1)
    aligned = Aligned.from_poses(commanded, estimated)
    _, matrices = readings._signed_axes()
    scores = readings._cammc_in_axes(aligned, aligned.R_hat_rel, aligned.center_hat_rel, matrices)
    for matrix, score in zip(matrices, scores, strict=True):
        # Right-handed or not, A R A^T is a rotation, and the relative poses of these are (A R_rel A^T, A o_rel).
        read = Poses(
            R_world_cam=matrix @ estimated.rebase_to_first().R_world_cam @ matrix.T,
            center_world=estimated.rebase_to_first().center_world @ matrix.T,
        )
        # The law of cosines is good to 1e-8 a frame.
        assert score == pytest.approx(cammc(Aligned.from_poses(commanded, read)), abs=1e-5)


@pytest.mark.parametrize(
    ("misread", "words", "common"),
    [
        (lambda poses: with_camera_axes(poses, OPENGL), "OpenGL", True),
        (misread_as_world_to_camera, "world-to-camera matrices", True),
        (
            lambda poses: misread_as_world_to_camera(with_camera_axes(poses, OPENGL)),
            "camera-to-world, in OpenGL",
            False,
        ),
    ],
)
def test_a_misread_estimate_is_read_back_exactly(misread, words, common):
    commanded = wandering(30, 4)
    estimated = misread(commanded)
    found = best_reading(commanded, estimated, Aligned.from_poses(commanded, estimated))
    assert words in found.words
    assert found.common == common
    assert found.cammc == pytest.approx(0, abs=1e-5)


def test_a_turn_that_is_the_same_in_every_frame_is_found_and_another_is_not():
    commanded = turning(20)
    turn = constant_turn(commanded, with_camera_axes(commanded, OPENGL))
    np.testing.assert_allclose(turn, OPENGL, atol=1e-12)
    assert constant_turn(commanded, commanded.rebase_to_first()) is not None
    assert constant_turn(commanded, wandering(20, 1)) is None
