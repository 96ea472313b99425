"""Measured facts about real cameras: their fields of view, and how far two calibrations of one camera agree."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from merope.cameras import CameraModel, Pinhole
from tests.cameras.calibrations import f_theta, mei, pyocam_fisheye_1, tumvi, vi_car_pinhole, woodscape_front
from tests.cameras.test_expected_rays import grid
from tests.support.shared import shared_file


def angles_deg(one: Tensor, other: Tensor) -> Tensor:
    """Angles between unit vectors; by atan2, since acos loses half the digits of a small one."""
    sine = torch.linalg.cross(one, other).norm(dim=-1)
    return torch.rad2deg(torch.atan2(sine, (one * other).sum(-1)))


def disagreement_deg(one: CameraModel, other: CameraModel, *, within_px: float = math.inf) -> Tensor:
    """Angles between the rays of a grid of 9 x 9 pixels, those within a distance of the raster's middle."""
    pixels = grid(height=one.height, width=one.width)
    middle = torch.tensor([one.width - 1, one.height - 1], dtype=torch.float64) / 2
    pixels = pixels[(pixels - middle).norm(dim=-1) < within_px]
    (dirs, valid), (other_dirs, other_valid) = one.unproject(pixels), other.unproject(pixels)
    assert (valid & other_valid).all()
    return angles_deg(dirs, other_dirs)


def test_three_calibrations_of_the_tum_camera_agree():
    kannala_brandt, double_sphere, extended = (tumvi(model, 0) for model in ("kb4", "ds", "eucm"))
    difference = disagreement_deg(kannala_brandt, double_sphere, within_px=250)
    assert difference.median().item() == pytest.approx(0.086, abs=5e-4)
    assert difference.max().item() == pytest.approx(0.156, abs=5e-4)
    spheres = disagreement_deg(double_sphere, extended, within_px=250)
    assert spheres.median().item() == pytest.approx(0.003, abs=5e-4)


def test_mei_and_the_pinhole_calibration_of_the_same_car_camera_agree():
    difference = disagreement_deg(mei("vi_car_cam0_mei"), vi_car_pinhole())
    assert difference.median().item() == pytest.approx(0.074, abs=5e-4)
    assert difference.max().item() == pytest.approx(4.1, abs=0.05)


@pytest.mark.parametrize(
    ("name", "fov_x_deg"),
    [("front_wide_120fov", 118.8), ("cross_left_120fov", 119.8), ("front_tele_30fov", 29.75)],
)
def test_f_theta_has_its_horizontal_field_of_view(name, fov_x_deg):
    camera = f_theta(name)
    # Between the centres of the outermost pixels.
    edges = torch.tensor([[0.0, camera.cy], [camera.width - 1, camera.cy]], dtype=torch.float64)
    left, right = camera.unproject(edges)[0]
    assert angles_deg(left, right).item() == pytest.approx(fov_x_deg, abs=0.05 if fov_x_deg > 30 else 0.005)


def test_woodscape_sees_behind_itself_in_the_corners():
    camera = woodscape_front()
    dirs_cam, valid = camera.unproject(grid(height=camera.height, width=camera.width))
    assert valid.all()
    assert math.degrees(math.acos(dirs_cam[..., 2].min())) == pytest.approx(112.9, abs=0.05)


def board_lines(image: int) -> Tensor:
    """Corners of a detected checkerboard, [rows, columns, 2]."""
    cv2 = pytest.importorskip("cv2")
    path = shared_file(f"data/fisheye/pyocam_Fisheye1_{image}.jpg")
    grey = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    found, corners = cv2.findChessboardCorners(grey, (8, 6))
    assert found
    criteria = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 40, 1e-3)
    corners = cv2.cornerSubPix(grey, corners, (3, 3), (-1, -1), criteria)
    return torch.from_numpy(np.asarray(corners, dtype=np.float64)).reshape(6, 8, 2)


def off_plane_deg(camera: CameraModel, corners: Tensor) -> list[Tensor]:
    """For every line of corners, the angles of its rays from the plane that fits them best."""
    angles = []
    for line in (*corners, *corners.transpose(0, 1)):
        dirs_cam, valid = camera.unproject(line)
        assert valid.all()
        normal = torch.linalg.svd(dirs_cam).Vh[-1]
        angles.append(torch.rad2deg(torch.asin((dirs_cam @ normal).abs())))
    return angles


def median_rms(angles: list[Tensor]) -> float:
    return torch.stack([line.square().mean().sqrt() for line in angles]).median().item()


@pytest.mark.parametrize("image", [1, 2, 3])
def test_straight_lines_of_a_board_are_straight_under_ocam_alone(image):
    camera, corners = pyocam_fisheye_1(), board_lines(image)
    straight = off_plane_deg(camera, corners)
    assert median_rms(straight) < 0.03
    assert torch.cat(straight).max() < 0.075
    affine = ("fx", "fy", "cx", "cy", "width", "height", "pixel_origin")
    pinhole = Pinhole(**{name: getattr(camera, name) for name in affine})
    assert median_rms(off_plane_deg(pinhole, corners)) > 0.6
