"""The three drives of a world, and captions that say nothing untrue."""

import re

import numpy as np
import pytest
import torch

from merope.geometry.poses import Poses
from merope.worlds import build_world, drive, random_drive
from merope.worlds.clips import caption, world_drives
from merope.worlds.drives import DRIVES, random_drive_kind


def drives_of(seed):
    return world_drives(seed, num_frames=33, fps=10.0, turn_start=8)


def test_the_first_is_the_random_drive_and_the_others_part_from_it_after_the_shared_frames():
    moving = next(seed for seed in range(50) if float(random_drive(seed, 33, 10.0).step_lengths.min()) > 0.5)
    original, left, right = drives_of(moving)
    assert torch.equal(original.poses.T_world_cam, random_drive(moving, 33, 10.0).T_world_cam)
    for turned, sign in ((left, 1), (right, -1)):
        assert torch.equal(turned.poses.T_world_cam[:9], original.poses.T_world_cam[:9])
        # To the left is +y in the first camera's plan, z up.
        ahead, moved = original.poses.R_world_cam[8, :2, 2], turned.poses.R_world_cam[-1, :2, 2]
        base = original.poses.R_world_cam[-1, :2, 2]
        assert sign * float(base[0] * moved[1] - base[1] * moved[0]) > 0.05
        assert ahead.norm() > 0.9
    assert [one.variant for one in (original, left, right)] == ["original", "left", "right"]


def test_kinds_are_those_that_are_driven():
    kinds = set()
    for seed in range(40):
        kind = random_drive_kind(seed)
        kinds.add(kind)
        plain = [drive(kind, seed=seed, num_frames=9, fps=10.0, vibration=0.0)]
        shaken = random_drive(seed, 9, 10.0)
        # Vibration moves the camera by centimetres; another manoeuvre by metres.
        assert (plain[0].center_world - shaken.center_world).abs().max() < 0.3
    assert kinds == set(DRIVES)
    motions = {one.motion for one in drives_of(3)}
    kind = random_drive_kind(3)
    assert motions == {kind, f"{kind}-left", f"{kind}-right"}


def path(headings, speed):
    """A level drive at ``speed`` m/s with these headings (radians, left positive), 10 frames a second."""
    headings = np.asarray(headings, dtype=np.float64)
    steps = 0.1 * speed * np.stack([np.cos(headings), np.sin(headings)], axis=1)[:-1]
    center = np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    rotation = np.zeros((len(headings), 3, 3))
    rotation[:, 0, 0], rotation[:, 1, 0] = np.sin(headings), -np.cos(headings)
    rotation[:, 2, 1] = -1
    rotation[:, 0, 2], rotation[:, 1, 2] = np.cos(headings), np.sin(headings)
    return Poses(
        R_world_cam=torch.from_numpy(rotation),
        center_world=torch.from_numpy(np.concatenate([center, np.full((len(headings), 1), 1.65)], axis=1)),
        times=torch.arange(len(headings), dtype=torch.float64) / 10,
    )


@pytest.mark.parametrize(
    ("headings", "speed", "words"),
    [
        (np.zeros(21), 0.1, "stands still"),
        (np.zeros(21), 8, "drives straight ahead"),
        (np.zeros(21), 2, "drives slowly straight ahead"),
        (np.zeros(21), 15, "drives fast straight ahead"),
        (np.linspace(0, 1.2, 21), 6, "turns to the left"),
        (np.linspace(0, -1.2, 21), 6, "turns to the right"),
        (np.linspace(0, 0.3, 21), 3, "bears slowly to the left"),
        (0.4 * np.sin(np.linspace(0, 2 * np.pi, 21)), 8, "drives through bends"),
    ],
)
def test_motion_is_what_the_path_does(headings, speed, words):
    poses = path(headings, speed)
    text = caption(build_world(0, paths=[poses]), poses)
    assert text.startswith(f"View from a car that {words} on a ")
    assert text.endswith(".")


def test_surroundings_are_those_of_the_world():
    lanes, suns, lined = set(), set(), set()
    for seed in range(14):
        poses = random_drive(seed, 17, 10.0)
        world = build_world(seed, paths=[poses])
        text = caption(world, poses)
        assert (" one lane each way" in text) == (world.ground.num_lanes == 1)
        sun = float(np.degrees(np.arcsin(world.light.sun[2])))
        assert ("low sun" in text) == (sun < 38)
        assert ("high sun" in text) == (sun > 55)
        assert ("haze" in text) == (world.light.haze_range < 280)
        lanes.add(world.ground.num_lanes)
        suns.add(re.findall(r"in ([a-z ]+?)(?: and haze)?\.", text)[0])
        lined.add("tree-lined" in text)
    assert (lanes, suns, lined) == ({1, 2}, {"low sun", "high sun", "daylight"}, {True, False})


def test_a_caption_needs_times():
    poses = path(np.zeros(5), 5)
    timeless = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world)
    with pytest.raises(ValueError, match="poses with times"):
        caption(build_world(0, paths=[poses]), timeless)
