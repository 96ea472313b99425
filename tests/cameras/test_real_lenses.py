"""Lenses of real cameras against what they photographed: straight lines, and turns that were measured."""

import numpy as np
import pytest
import torch
from torch import Tensor

from merope.cameras import CameraModel, Pinhole
from merope.data.checks.epipolar import agreement, match_frames
from merope.data.clips.footage import open_footage
from merope.data.lenses.calibration_files import load_calibration
from merope.data.poses.files import read_poses
from merope.geometry.poses import Poses
from tests.cameras.calibrations import lens_of_rays
from tests.support.shared import shared_file

ARIA = "data/fisheye/aria_adt"


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
    camera, corners = lens_of_rays("pyocam_fisheye_1"), board_lines(image)
    straight = off_plane_deg(camera, corners)
    assert median_rms(straight) < 0.03
    assert torch.cat(straight).max() < 0.075
    affine = ("fx", "fy", "cx", "cy", "width", "height", "pixel_origin")
    pinhole = Pinhole(**{name: getattr(camera, name) for name in affine})
    assert median_rms(off_plane_deg(pinhole, corners)) > 0.6


@pytest.mark.parametrize(
    ("camera", "ending", "unturned_deg", "turned_deg"),
    [("camera-slam-left", "png", 0.95, 0.19), ("camera-rgb", "jpg", 0.98, 0.14)],
)
def test_aria_rays_of_one_point_meet_once_the_device_has_turned_back(
    tmp_path, camera, ending, unturned_deg, turned_deg
):
    pytest.importorskip("cv2")
    for frame in range(3):
        picture = shared_file(f"{ARIA}/{camera}_{frame:02d}.{ending}")
        (tmp_path / picture.name).symlink_to(picture.resolve())
    found = load_calibration(shared_file(f"{ARIA}/calibration.json"), camera=camera)
    # Pictures and the first three poses are of the same moments.
    device = read_poses(shared_file(f"{ARIA}/aria_trajectory.csv"), format="aria")[:3]
    poses = device.mounted(found.T_body_cam[:3, :3], found.T_body_cam[:3, 3])
    matches = match_frames(open_footage(tmp_path), [(0, 2)])
    result = agreement(matches, poses, found.lens, shifts=[0])
    assert result.unturned_deg == pytest.approx(unturned_deg, abs=0.005)
    assert result.turned_deg < turned_deg
    swapped = Poses(R_world_cam=poses.R_world_cam.flip(0), center_world=poses.center_world.flip(0))
    assert agreement(matches, swapped, found.lens, shifts=[0]).turned_deg > 1.9
