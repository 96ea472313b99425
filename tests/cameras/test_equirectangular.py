import math

import pytest
import torch

from merope.cameras import Equirectangular

CAMERA = Equirectangular.full_sphere(height=40, width=100)


@pytest.mark.parametrize(
    ("direction", "pixel"),
    [
        ([0.0, 0.0, 1.0], [50.0, 20.0]),
        ([1.0, 0.0, 0.0], [75.0, 20.0]),
        ([-1.0, 0.0, 0.0], [25.0, 20.0]),
        ([0.0, -1.0, 0.0], [50.0, 0.0]),
        ([0.0, 1.0, 0.0], [50.0, 40.0]),
        ([0.0, 1.0, 1.0], [50.0, 30.0]),
    ],
)
def test_axes_land_where_a_viewer_expects_them(direction, pixel):
    pixels, valid = CAMERA.project(torch.tensor(direction, dtype=torch.float64))
    assert valid
    assert pixels.tolist() == pytest.approx(pixel, abs=1e-12)


def test_every_pixel_and_every_direction_is_valid():
    dirs_cam, valid = CAMERA.pixel_rays()
    assert valid.all()
    assert CAMERA.project(dirs_cam)[1].all()
    assert CAMERA.project(torch.tensor([0.0, 0.0, -1.0]))[1]
    # The pixel weights cos(latitude) sum to the sphere.
    weight = torch.cos((CAMERA.pixel_centers()[..., 1] - 20) * math.pi / 40)
    solid_angle = weight.sum() * (2 * math.pi / 100) * (math.pi / 40)
    assert solid_angle.item() == pytest.approx(4 * math.pi, rel=1e-3)
    assert (dirs_cam * weight[..., None]).sum((0, 1)).abs().max() < 1e-10


def test_pixels_past_the_seam_or_a_pole_are_invalid():
    pixels = torch.tensor([[0.0, 20.0], [100.0, 20.0], [100.1, 20.0], [50.0, -0.1]], dtype=torch.float64)
    assert CAMERA.unproject(pixels)[1].tolist() == [True, True, False, False]


def test_looking_straight_back_is_the_seam():
    pixels, _ = CAMERA.project(torch.tensor([[1e-9, 0, -1.0], [-1e-9, 0, -1.0]], dtype=torch.float64))
    assert pixels[:, 0].tolist() == pytest.approx([100.0, 0.0], abs=1e-6)
