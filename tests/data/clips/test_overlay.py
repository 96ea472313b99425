"""Drawings on top of clips: where the path lands, and what stays untouched."""

import math

import numpy as np
import pytest
import torch

from merope.data.clips.overlay import (
    DONE_COLOR,
    HERE_COLOR,
    LABEL_HEIGHT,
    birds_eye,
    draw_path_inset,
    enlarge,
    fit_into_square,
    side_by_side,
)
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix


def left_turn(num_views: int = 9, *, unit: str = "m") -> Poses:
    """A quarter circle of 20 m radius to the left, camera axes (y down), heading along the path."""
    angle = torch.linspace(0, math.pi / 2, num_views, dtype=torch.float64)
    centers = torch.stack([20 * (torch.cos(angle) - 1), 0 * angle, 20 * torch.sin(angle)], dim=-1)
    yaw = torch.stack([0 * angle, -angle, 0 * angle], dim=-1)
    return Poses(R_world_cam=rotvec_to_matrix(yaw), center_world=centers, unit=unit)


def gray(num_frames: int, height: int, width: int) -> np.ndarray:
    return np.full((num_frames, height, width, 3), 90, dtype=np.uint8)


def count(image: np.ndarray, color: tuple[int, int, int]) -> int:
    return int((image == color).all(axis=-1).sum())


def test_enlarge_repeats_pixels_exactly():
    frames = np.random.default_rng(0).integers(0, 256, (2, 4, 7, 3), dtype=np.uint8)
    large = enlarge(frames, factor=6)
    assert large.shape == (2, 24, 42, 3)
    assert np.array_equal(large[:, 3::6, 5::6], frames)


def test_side_by_side_keeps_both_clips_pixel_for_pixel():
    rng = np.random.default_rng(0)
    left = rng.integers(0, 256, (3, 31, 44, 3), dtype=np.uint8)
    right = rng.integers(0, 256, (3, 31, 57, 3), dtype=np.uint8)
    both = side_by_side(left, right, labels=("commanded", "generated"), gap=6)
    assert both.shape[1] % 2 == 0
    assert both.shape[2] % 2 == 0
    assert np.array_equal(both[:, LABEL_HEIGHT : LABEL_HEIGHT + 31, :44], left)
    assert np.array_equal(both[:, LABEL_HEIGHT : LABEL_HEIGHT + 31, 50:107], right)
    assert both[:, :LABEL_HEIGHT, :44].max() > 100
    assert both[:, :LABEL_HEIGHT, 50:].max() > 100


def test_side_by_side_refuses_clips_that_do_not_match():
    with pytest.raises(ValueError, match="equal length and height"):
        side_by_side(gray(3, 30, 40), gray(4, 30, 40), labels=("a", "b"))


def test_birds_eye_is_right_and_forward_of_the_first_camera():
    centers, headings = birds_eye(left_turn())
    assert np.allclose(centers[0], 0)
    assert np.allclose(centers[-1], [-20, 20])
    assert np.allclose(headings[0], [0, 1])
    assert np.allclose(headings[-1], [-1, 0], atol=1e-12)


def test_birds_eye_does_not_depend_on_the_world_frame():
    turned = left_turn().transformed(
        rotvec_to_matrix(torch.tensor([0.4, -1.1, 2.0], dtype=torch.float64)),
        torch.tensor([300.0, -20.0, 7.0], dtype=torch.float64),
    )
    assert np.allclose(birds_eye(turned)[0], birds_eye(left_turn())[0], atol=1e-9)


def test_both_axes_of_the_inset_have_one_scale():
    points = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 40.0]])
    places, units_per_pixel = fit_into_square(points, side=101, border=5)
    steps = np.abs(np.diff(places, axis=0))
    assert steps[0, 0] * units_per_pixel == pytest.approx(3)
    assert steps[1, 1] * units_per_pixel == pytest.approx(40)
    assert places.min() >= 5 - 1e-9
    assert places.max() <= 95 + 1e-9


def test_forward_is_up_and_left_is_left():
    places, _ = fit_into_square(birds_eye(left_turn())[0], side=80, border=6)
    assert places[-1, 1] < places[0, 1]
    assert places[-1, 0] < places[0, 0]


def test_inset_touches_only_its_corner():
    frames = gray(9, 120, 200)
    drawn = draw_path_inset(frames, left_turn(), size=0.3, margin=4)
    assert drawn.shape == frames.shape
    assert (frames == 90).all()
    changed = (drawn != frames).any(axis=(0, 3))
    rows, columns = np.nonzero(changed)
    assert (rows.min(), rows.max()) == (4, 39)
    assert (columns.min(), columns.max()) == (160, 195)


def test_dot_follows_the_path_and_the_done_part_grows():
    drawn = draw_path_inset(gray(9, 240, 400), left_turn(unit="unknown"), size=0.4)
    done = [count(frame, DONE_COLOR) for frame in drawn]
    assert done[1] < done[4] < done[8]
    dots = [np.argwhere((frame == HERE_COLOR).all(axis=-1)).mean(axis=0) for frame in drawn]
    assert dots[8][0] < dots[0][0] - 20
    assert dots[8][1] < dots[0][1] - 20


def test_scale_bar_only_where_the_path_is_metric():
    metric = draw_path_inset(gray(9, 240, 400), left_turn(), size=0.4)
    unknown = draw_path_inset(gray(9, 240, 400), left_turn(unit="unknown"), size=0.4)
    assert count(metric[0], DONE_COLOR) > count(unknown[0], DONE_COLOR) + 10


def test_parked_camera_is_drawn_in_the_middle():
    parked = Poses(
        R_world_cam=torch.eye(3, dtype=torch.float64).repeat(4, 1, 1),
        center_world=torch.full((4, 3), 5.0, dtype=torch.float64),
    )
    places, _ = fit_into_square(birds_eye(parked)[0], side=61, border=5)
    assert np.allclose(places, 30)
    assert count(draw_path_inset(gray(4, 120, 200), parked)[0], HERE_COLOR) > 0


def test_one_pose_per_frame_is_required():
    with pytest.raises(ValueError, match="9 poses for 8 frames"):
        draw_path_inset(gray(8, 120, 200), left_turn())


def test_frame_too_small_for_an_inset_says_enlarge():
    with pytest.raises(ValueError, match="enlarge the frames first"):
        draw_path_inset(gray(9, 20, 30), left_turn())
