"""Radial-tangential distortion on the normalised plane: equations, fold, inverse."""

import math

import pytest
import torch

from merope.cameras import OpenCV
from merope.cameras.radtan import MAX_RADIUS, RadialTangential
from tests.cameras.lenses import LENSES, OPENCV_RASTER


def scalar_distortion(x, y, *, k1, k2, p1, p2, k3, k4, k5, k6):
    """The equations of OpenCV's documentation, typed once more in plain numbers."""
    r2 = x**2 + y**2
    radial = (1 + k1 * r2 + k2 * r2**2 + k3 * r2**3) / (1 + k4 * r2 + k5 * r2**2 + k6 * r2**3)
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x**2),
        y * radial + p1 * (r2 + 2 * y**2) + 2 * p2 * x * y,
    )


def test_distortion_follows_the_documented_equations():
    named = {
        "k1": 0.31,
        "k2": 0.04,
        "p1": 4e-3,
        "p2": -9e-3,
        "k3": 0.002,
        "k4": 0.66,
        "k5": 0.13,
        "k6": 0.004,
    }
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 50, dtype=torch.float64, generator=generator) * 0.5
    mapped_x, mapped_y, valid = RadialTangential(**named).distort(x, y)
    assert valid.all()
    for i in range(50):
        expected = scalar_distortion(x[i].item(), y[i].item(), **named)
        assert (mapped_x[i].item(), mapped_y[i].item()) == pytest.approx(expected, abs=1e-14)


def test_fold_radius_of_barrel_distortion_is_the_analytic_one():
    # d/dr (r - 0.3 r^3) = 0 at r = 1 / sqrt(0.9)
    assert RadialTangential(k1=-0.3).radius_limit.item() == pytest.approx(1 / math.sqrt(0.9), abs=1e-14)
    # r / (1 + r^2) turns at 1
    assert RadialTangential(k4=1.0).radius_limit.item() == pytest.approx(1.0, abs=1e-12)
    # (1 - s)^-1 has its pole at 1 and grows until there
    assert RadialTangential(k4=-1.0).radius_limit.item() == pytest.approx(1.0, abs=2e-6)
    assert RadialTangential(k1=0.2).radius_limit.item() == MAX_RADIUS


def test_points_beyond_the_fold_are_invalid_though_they_land_in_the_image():
    camera = OpenCV(**OPENCV_RASTER, k1=-0.3)
    fold = 1 / math.sqrt(0.9)
    points_cam = torch.tensor([[0.99 * fold, 0, 1], [1.01 * fold, 0, 1], [1.7, 0, 1]], dtype=torch.float64)
    assert camera.project(points_cam)[1].tolist() == [True, False, False]
    # The phantom: where the polynomial would put the last one is a good pixel of another ray.
    phantom = torch.tensor([1.7 - 0.3 * 1.7**3, 0.0], dtype=torch.float64)
    pixel = phantom * camera.fx + torch.tensor([camera.cx, camera.cy], dtype=torch.float64)
    dirs_cam, valid = camera.unproject(pixel)
    assert valid
    assert (dirs_cam[0] / dirs_cam[2]).abs() < fold


def test_pixels_outside_the_distorted_image_have_no_ray():
    camera = OpenCV(**OPENCV_RASTER, k1=-0.3)
    rim = (2 / 3) / math.sqrt(0.9)
    u = torch.tensor([rim - 1e-3, rim + 1e-3, 5.0], dtype=torch.float64) * camera.fx + camera.cx
    pixels = torch.stack((u, torch.full_like(u, camera.cy)), -1)
    assert camera.unproject(pixels)[1].tolist() == [True, False, False]


@pytest.mark.parametrize("lens", ["radtan", "radtan_folding", "rational"])
def test_map_is_one_to_one_where_valid(lens):
    distortion = LENSES[lens].distortion
    axis = torch.linspace(-2, 2, 301, dtype=torch.float64)
    x, y = torch.meshgrid(axis, axis, indexing="xy")
    mapped_x, mapped_y, valid = distortion.distort(x, y)
    back_x, back_y, found = distortion.undistort(mapped_x[valid], mapped_y[valid])
    assert found.all()
    assert (back_x - x[valid]).abs().max() < 1e-8
    assert (back_y - y[valid]).abs().max() < 1e-8


def test_tangential_fold_alone_is_noticed():
    # With p1 = 0.1 the Jacobian along y is diag(1 + 0.2 y, 1 + 0.6 y): singular from y = -5/3 down.
    distortion = RadialTangential(p1=0.1)
    y = torch.tensor([-1.6, -1.7, -6.0, 4.0], dtype=torch.float64)
    assert distortion.distort(torch.zeros_like(y), y)[2].tolist() == [True, False, False, True]


def test_each_view_has_its_own_distortion():
    k1 = torch.tensor([[0.0, -0.3], [0.1, -0.2]], dtype=torch.float64)
    camera = OpenCV(**OPENCV_RASTER, k1=k1)
    dirs_cam, valid = camera.pixel_rays()
    for row in range(2):
        for col in range(2):
            alone, alone_valid = OpenCV(**OPENCV_RASTER, k1=k1[row, col].item()).pixel_rays()
            assert (dirs_cam[row, col] - alone).abs().max() < 1e-12
            assert torch.equal(valid[row, col], alone_valid)


@pytest.mark.parametrize("p1", [0.01620265199075064, 0.0])
def test_what_unfolds_again_further_out_is_invalid(p1):
    """Tangential terms fold some directions; further out the map grows again and covers the same pixels once more."""
    lens = RadialTangential(-0.168727997699085, 0.01581969038877044, p1, 0.02114912615484229)
    assert 1 < float(lens.radius_limit) < 6
    straight = RadialTangential(-0.168727997699085, 0.01581969038877044)
    assert float(straight.radius_limit) == MAX_RADIUS
    generator = torch.Generator().manual_seed(0)
    x, y = 12 * torch.rand(2, 4000, generator=generator, dtype=torch.float64) - 6
    mapped_x, mapped_y, valid = lens.distort(x, y)
    back_x, back_y, found = lens.undistort(mapped_x, mapped_y)
    assert 0.05 < valid.double().mean() < 0.5 and found[valid].all()
    assert torch.hypot(back_x - x, back_y - y)[valid].max() < 1e-6
