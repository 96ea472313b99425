"""Rays of real calibrations and of published code, against ours."""

import numpy as np
import pytest
import torch
from torch import Tensor

from merope.cameras import CameraModel, KannalaBrandt, UnifiedCamera
from tests.cameras.calibrations import LENSES_OF_RAYS, aria, lens_of_rays
from tests.support.shared import shared_file

# The files hold 12 digits, Aria's 10.
FILE_PRECISION = 1e-11
ARIA_PRECISION = 1e-9


def read_rays(path: str) -> tuple[Tensor, Tensor]:
    """Pixels, with (0, 0) the centre of the first pixel, and their unit rays."""
    table = torch.tensor(np.loadtxt(shared_file(path), delimiter=",", skiprows=1))
    return table[:, :2], table[:, 2:]


def grid(*, height: int, width: int) -> Tensor:
    """The 9 x 9 pixels that every file of rays was made for."""
    u = torch.linspace(0, width - 1, 9, dtype=torch.float64)
    v = torch.linspace(0, height - 1, 9, dtype=torch.float64)
    return torch.stack(torch.meshgrid(u, v, indexing="xy"), -1).flatten(0, 1)


def fitted_to_rays(pixels: Tensor, dirs_cam: Tensor, *, height: int, width: int) -> CameraModel:
    """The Kannala-Brandt lens that gave these rays: u is linear in (fx, fx k1, ..., fx k4, cx), v alike."""
    side = dirs_cam[:, :2].norm(dim=-1, keepdim=True)
    theta = torch.atan2(side, dirs_cam[:, 2:])
    powers = theta ** torch.tensor([1, 3, 5, 7, 9])
    one = torch.ones_like(theta)
    solved = [
        torch.linalg.lstsq(
            torch.cat((powers * dirs_cam[:, [axis]] / side, one), -1), pixels[:, [axis]], driver="gelsd"
        ).solution[:, 0]
        for axis in range(2)
    ]
    (fx, *scaled, cx), (fy, *_, cy) = (values.tolist() for values in solved)
    named = {f"k{i}": value / fx for i, value in enumerate(scaled, start=1)}
    return KannalaBrandt(
        fx=fx, fy=fy, cx=cx, cy=cy, width=width, height=height, pixel_origin="center", **named
    )


@pytest.mark.parametrize("name", LENSES_OF_RAYS)
def test_real_calibration_gives_the_expected_rays(name):
    camera = lens_of_rays(name)
    pixels, expected = read_rays(f"data/fisheye/rays/{name}.csv")
    assert torch.equal(pixels, grid(height=camera.height, width=camera.width))
    dirs_cam, valid = camera.unproject(pixels)
    assert valid.all()
    assert (dirs_cam - expected).abs().max() < FILE_PRECISION
    back, seen = camera.project(expected)
    assert seen.all()
    assert (back - pixels).abs().max() < 1e-8


@pytest.mark.parametrize("name", LENSES_OF_RAYS)
def test_pixels_of_real_calibrations_come_back_from_their_rays(name):
    camera = lens_of_rays(name)
    pixels = grid(height=camera.height, width=camera.width)
    back, seen = camera.project(camera.unproject(pixels)[0])
    assert seen.all()
    assert (back - pixels).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["camera-rgb", "camera-slam-left", "camera-slam-right"])
def test_aria_has_the_rays_of_its_official_code_and_no_others(name):
    camera = aria(name)
    pixels, expected = read_rays(f"data/fisheye/aria_adt/{name}_rays.csv")
    everywhere = grid(height=camera.height, width=camera.width)
    dirs_cam, valid = camera.unproject(everywhere)
    assert torch.equal(everywhere[valid], pixels)
    assert (dirs_cam[valid] - expected).abs().max() < ARIA_PRECISION
    back, seen = camera.project(dirs_cam[valid])
    assert seen.all()
    assert (back - pixels).abs().max() < 1e-12


def test_folding_calibration_has_rays_exactly_where_expected():
    pixels, expected = read_rays("data/fisheye/rays/surround_view_left.csv")
    # Its calibration file is not at hand; 54 rays determine the eight numbers to 1e-9 and more.
    camera = fitted_to_rays(pixels, expected, height=640, width=960)
    everywhere = grid(height=640, width=960)
    dirs_cam, valid = camera.unproject(everywhere)
    assert valid.sum() == 54
    assert torch.equal(everywhere[valid], pixels)
    assert (dirs_cam[valid] - expected).abs().max() < 1e-9
    assert (dirs_cam[~valid] == torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)).all()
    assert camera.theta_limit == pytest.approx(1.5172, abs=1e-4)


@pytest.mark.parametrize(
    ("fov_x_deg", "xi"), [(60, 0.0), (100, 0.0), (140, 0.8), (160, 1.5), (180, 2.0), (200, 2.3)]
)
def test_unified_camera_gives_the_released_rays(fov_x_deg, xi):
    expected = torch.from_numpy(np.load(shared_file("golden/ucm_rays.npz"))[f"rays_fov{fov_x_deg}_xi{xi}"])
    camera = UnifiedCamera.from_fov(fov_x_deg=float(fov_x_deg), xi=xi, height=5, width=8)
    # The released code counts pixels 0 ... W - 1 around a centre of W / 2: half a pixel off ours.
    dirs_cam, valid = camera.unproject(camera.pixel_centers() - 0.5)
    has_ray = torch.isfinite(expected).all(-1)
    assert torch.equal(valid, has_ray)
    assert (dirs_cam - expected)[has_ray].abs().max() < 1e-13
