"""Every flag against every case: a confusion matrix of made drives, and real estimates that are as they should be."""

import numpy as np
import pytest
import torch

from merope.evaluation import ClipPair, Recovered, evaluate_clip, evaluate_clips
from merope.evaluation.protocol import FLAGS
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import (
    OPENGL,
    city_drive,
    from_numpy,
    mirrored,
    misread_as_world_to_camera,
    perturbed,
    reversed_path,
    straight,
    transposed,
    turning,
    with_camera_axes,
)

NUM = 49


def noisy(poses, seed=0):
    """As a good estimator sees it: half a degree, five centimetres."""
    return perturbed(poses, seed, turn_deg=0.5, shift=0.05)


def exactish(poses):
    """As visual odometry sees it: noise between neighbours well below how their motion varies."""
    return perturbed(poses, 0, turn_deg=0.03, shift=0.005)


def window(start, num=NUM):
    return city_drive(120)[start : start + num]


def parked(num=NUM):
    jitter = np.random.default_rng(3).normal(scale=1e-3, size=(num, 3))
    return from_numpy(np.tile(np.eye(3), (num, 1, 1)), jitter)


CURVE, ROAD = turning(NUM), straight(NUM)
DRIVE = window(20)

# name: command, estimate, the flags that must be raised, and no others
CASES = {
    "exact": (DRIVE, DRIVE, set()),
    "noisy drive": (DRIVE, noisy(DRIVE), set()),
    "noisy curve": (CURVE, noisy(CURVE), set()),
    "noisy straight road": (ROAD, noisy(ROAD), set()),
    "bad but honest": (CURVE, perturbed(CURVE, 5, turn_deg=20, shift=3), set()),
    "reversed drive": (DRIVE, reversed_path(DRIVE), {"reversed"}),
    "reversed curve": (CURVE, reversed_path(CURVE), {"reversed"}),
    "reversed and noisy": (DRIVE, noisy(reversed_path(DRIVE)), {"reversed"}),
    # Without a turn, going back and looking back are the same motion: both are said.
    "reversed straight road": (ROAD, reversed_path(ROAD), {"reversed", "axes_suspected"}),
    # s* <= 0 is flagged whatever the reason: in other axes, forward may be backward or sideways.
    "OpenGL drive": (DRIVE, noisy(with_camera_axes(DRIVE, OPENGL)), {"reversed", "axes_suspected"}),
    "OpenGL straight road": (ROAD, with_camera_axes(ROAD, OPENGL), {"reversed", "axes_suspected"}),
    "vehicle axes": (
        DRIVE,
        noisy(with_camera_axes(DRIVE, [[0, -1, 0], [0, 0, -1], [1, 0, 0]])),
        {"axes_suspected", "reversed"},
    ),
    "world-to-camera": (DRIVE, misread_as_world_to_camera(DRIVE), {"axes_suspected", "reversed"}),
    "transposed": (DRIVE, transposed(DRIVE), {"axes_suspected"}),
    "mirrored in x": (DRIVE, noisy(mirrored(DRIVE, 0)), {"mirrored"}),
    "mirrored in z": (DRIVE, noisy(mirrored(DRIVE, 2)), {"mirrored", "reversed"}),
    "mirrored centres": (DRIVE, noisy(mirrored(DRIVE, 0, rotations=False)), {"mirrored"}),
    "too small": (DRIVE, noisy(DRIVE).scaled(1 / 21), {"scaled"}),
    "too large, straight road": (ROAD, noisy(ROAD).scaled(3.28), {"scaled"}),
    "nearly to scale": (DRIVE, noisy(DRIVE).scaled(1.15), set()),
    "early": (DRIVE, exactish(window(24)), {"time_offset"}),
    "late": (DRIVE, exactish(window(13)), {"time_offset"}),
    "late and too small": (DRIVE, exactish(window(15)).scaled(0.1), {"time_offset", "scaled"}),
    # At constant speed on a straight or an evenly bent road another moment looks the same.
    "late on a straight road": (ROAD, noisy(straight(NUM + 5)[5:]), set()),
    "late on an even curve": (turning(60)[:NUM], noisy(turning(60)[7 : 7 + NUM]), set()),
    "static estimate": (DRIVE, from_numpy(DRIVE.R_world_cam, np.ones((NUM, 3))), {"static_estimate"}),
    "parked estimate": (DRIVE, parked(), {"static_estimate"}),
    "parked": (parked(), noisy(parked()), {"static_commanded"}),
    # Standing where nothing else was asked for is no fault.
    "both static": (parked(), from_numpy(parked().R_world_cam, np.ones((NUM, 3))), {"static_commanded"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_case_raises_its_own_flags_and_no_others(name):
    commanded, estimated, expected = CASES[name]
    found = evaluate_clip(commanded, estimated).flags
    assert set(found) == expected, found


@pytest.mark.parametrize("name", ["noisy drive", "reversed drive", "OpenGL drive", "mirrored in x", "late"])
def test_flags_do_not_depend_on_the_world_of_the_estimate(name):
    commanded, estimated, expected = CASES[name]
    turn = torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    moved = estimated.transformed(turn, torch.tensor([400.0, -20, 3], dtype=torch.float64))
    assert set(evaluate_clip(commanded, moved).flags) == expected


def test_every_flag_is_raised_by_a_case():
    raised = set().union(*(expected for _, _, expected in CASES.values()))
    # Those four need more than two trajectories: a registration mask, a file, a second look, a failure.
    assert raised | {"partial_registration", "nan_rows", "unreliable", "failed"} == set(FLAGS)


@pytest.mark.parametrize("seed", range(12))
def test_noise_does_not_make_a_mirror_of_opengl_axes_on_a_straight_road(seed):
    given = with_camera_axes(perturbed(ROAD, seed, turn_deg=0.1, shift=0.15), OPENGL)
    words = evaluate_clip(ROAD, given).flags
    assert "OpenGL camera axes" in words["axes_suspected"]
    assert "mirrored" not in words


@pytest.mark.parametrize("seed", range(30))
def test_an_honest_estimate_of_any_window_raises_nothing(seed):
    commanded = window(seed * 2)
    turn_deg, shift = 0.2 + seed * 0.2, 0.02 + seed * 0.03
    found = evaluate_clip(commanded, perturbed(commanded, seed, turn_deg=turn_deg, shift=shift)).flags
    assert found == {}


def test_a_scale_that_is_no_promise_is_no_flag():
    small = noisy(DRIVE).scaled(1 / 21)
    assert evaluate_clip(DRIVE, Recovered.complete(small, scale="up_to_scale")).flags == {}
    unknown = Poses(R_world_cam=small.R_world_cam, center_world=small.center_world, unit="unknown")
    assert evaluate_clip(DRIVE, unknown).flags == {}


def test_words_carry_the_numbers_and_the_way_out():
    words = {name: evaluate_clip(*CASES[name][:2]).flags for name in CASES}
    assert "--camera-axes opengl" in words["OpenGL drive"]["axes_suspected"]
    assert "--camera-axes flu" in words["vehicle axes"]["axes_suspected"]
    assert "--direction world-to-camera" in words["world-to-camera"]["axes_suspected"]
    assert "transpose the rotations" in words["transposed"]["axes_suspected"]
    assert "CamMC falls from" in words["mirrored in x"]["mirrored"]
    assert "x of camera and world negated" in words["mirrored in x"]["mirrored"]
    assert "--mirror x" in words["mirrored centres"]["mirrored"]
    assert "s* = 21" in words["too small"]["scaled"]
    assert "--scale up-to-scale" in words["too small"]["scaled"]
    assert "feet" in words["too large, straight road"]["scaled"]
    assert "4 frames earlier" in words["early"]["time_offset"]
    assert "7 frames later" in words["late"]["time_offset"]
    assert "s* = -1" in words["reversed drive"]["reversed"]


def test_a_file_of_unreal_read_as_vehicle_axes_is_told_so():
    # x_opencv = (y, -z, x) of Unreal's x forward, y right, z up; vehicle axes have y to the left: (-y, -z, x).
    unreal = np.array([[0.0, 1, 0], [0, 0, -1], [1, 0, 0]])
    vehicle = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])
    R_file = unreal.T @ DRIVE.R_world_cam.numpy() @ unreal
    read = from_numpy(R_file @ vehicle.T, DRIVE.center_world.numpy() @ unreal)
    assert set(evaluate_clip(DRIVE, read).flags) == {"mirrored"}


def test_flags_are_counted_over_clips():
    clips = [
        ClipPair(clip_id=name, commanded=CASES[name][0], estimated=CASES[name][1])
        for name in ("exact", "early", "late", "too small")
    ]
    counts = evaluate_clips(clips).flag_counts
    assert (counts["time_offset"], counts["scaled"], counts["reversed"]) == (2, 1, 0)
