"""Camera-from-world in OpenCV axes and scalar-last quaternions become camera-to-world poses."""

import math

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.evaluation import RecoveryFailed
from merope.evaluation.estimators.learned.conventions import (
    cameras_of_encoding,
    cameras_of_matrices,
    fov_note,
)

# x_cam = R x_world + t with a quarter turn about the viewing axis: world x goes to image y.
QUARTER = [[0.0, -1.0, 0.0, 3.0], [1.0, 0.0, 0.0, 5.0], [0.0, 0.0, 1.0, 7.0]]


def test_a_quarter_turn_by_hand_has_its_centre_where_the_camera_sees_zero():
    half = math.sqrt(0.5)
    encoding = torch.tensor([[3.0, 5.0, 7.0, 0.0, 0.0, half, half, 0.8, 1.1]])
    cameras = cameras_of_encoding(encoding)
    # R c + t = 0 for c = (-5, 3, -7): R (-5, 3, -7) = (-3, -5, -7).
    np.testing.assert_allclose(cameras.poses.center_world.numpy(), [[-5, 3, -7]], atol=1e-6)
    np.testing.assert_allclose(
        cameras.poses.R_world_cam[0].numpy(), [[0, 1, 0], [-1, 0, 0], [0, 0, 1]], atol=1e-6
    )
    assert float(cameras.fov_y) == pytest.approx(0.8) and float(cameras.fov_x) == pytest.approx(1.1)


def test_matrices_and_encodings_of_one_camera_are_one_pose():
    calibration = torch.tensor([[[100.0, 0, 80], [0, 90.0, 30], [0, 0, 1]]])
    cameras = cameras_of_matrices(torch.tensor([QUARTER]), calibration, height=60, width=160, is_metric=True)
    np.testing.assert_allclose(cameras.poses.center_world.numpy(), [[-5, 3, -7]], atol=1e-12)
    assert float(cameras.fov_x) == pytest.approx(2 * math.atan(0.8))
    assert float(cameras.fov_y) == pytest.approx(2 * math.atan(1 / 3))
    assert cameras.is_metric


def test_a_quaternion_of_length_zero_and_a_sheared_matrix_are_failures():
    with pytest.raises(RecoveryFailed, match="length zero"):
        cameras_of_encoding(torch.zeros(2, 9))
    sheared = torch.tensor([QUARTER])
    sheared[0, 0, 0] = 0.4
    with pytest.raises(RecoveryFailed, match="no poses"):
        cameras_of_matrices(sheared, torch.eye(3)[None], height=2, width=2)


@pytest.mark.parametrize(("fov_x_deg", "said"), [(72.0, None), (60.0, "14% too narrow")])
def test_only_a_clear_disagreement_about_the_field_of_view_is_a_note(fov_x_deg, said):
    encoding = torch.tensor([[0.0, 0, 0, 0, 0, 0, 1, 1, math.radians(fov_x_deg)]])
    note = fov_note(cameras_of_encoding(encoding), Pinhole.from_fov(fov_x_deg=70, height=40, width=60))
    assert note is None if said is None else said in str(note)
