"""Kannala-Brandt: where the lens ends, and what lies beyond."""

import math

import pytest
import torch

from merope.cameras import KannalaBrandt
from merope.cameras.inverse import invert_increasing
from tests.cameras.lenses import LENSES, RASTER


def at_angles(*degrees: float) -> torch.Tensor:
    theta = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack((torch.sin(theta) * 0.6, torch.sin(theta) * 0.8, torch.cos(theta)), -1)


def test_200_degree_lens_sees_95_degrees_and_not_130():
    camera = KannalaBrandt.from_fov(fov_x_deg=200.0, height=288, width=512)
    pixels, valid = camera.project(at_angles(95.0, 130.0))
    assert valid.tolist() == [True, False]
    radius = (pixels[0] - torch.tensor([256.0, 144.0], dtype=torch.float64)).norm()
    assert radius.item() == pytest.approx(256 * 95 / 100, abs=1e-12)
    assert pixels[1].tolist() == [0.0, 0.0]


def test_200_degree_lens_has_no_ray_outside_its_image_circle():
    camera = KannalaBrandt.from_fov(fov_x_deg=200.0, height=288, width=512)
    edge = torch.tensor([[512.0, 144.0], [0.0, 144.0], [512.0, 0.0], [513.0, 144.0]], dtype=torch.float64)
    dirs_cam, valid = camera.unproject(edge)
    assert valid.tolist() == [True, True, False, False]
    assert dirs_cam[0, 2].item() == pytest.approx(math.cos(math.radians(100)), abs=1e-14)
    wider = KannalaBrandt.from_fov(fov_x_deg=200.0, height=288, width=512, max_theta=2.2)
    assert wider.unproject(edge)[1].all()


def test_fold_is_where_the_polynomial_turns():
    camera = LENSES["kannala_brandt_folding"]
    theta = torch.linspace(0, math.pi, 200001, dtype=torch.float64)
    radius = camera._radius(theta)[0]
    first_fall = int((radius.diff() < 0).nonzero()[0])
    assert camera.theta_limit.item() == pytest.approx(theta[first_fall].item(), abs=2e-5)


def test_angles_beyond_the_fold_are_invalid_though_they_land_in_the_image():
    camera = LENSES["kannala_brandt_folding"]
    limit = math.degrees(camera.theta_limit)
    pixels, valid = camera.project(at_angles(limit - 1, limit + 1, limit + 20))
    assert valid.tolist() == [True, False, False]
    beyond = torch.deg2rad(torch.tensor(limit + 20, dtype=torch.float64))
    assert camera._radius(beyond)[0] < camera._radius(camera.theta_limit)[0]


def test_lens_without_fold_reaches_round_to_its_back():
    camera = KannalaBrandt(**RASTER)
    assert camera.theta_limit.item() == pytest.approx(math.pi)
    assert camera.project(at_angles(179.9, 180.0))[1][0]
    exactly_behind = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64)
    assert not camera.project(exactly_behind)[1]
    rim = torch.tensor([math.pi - 1e-3, math.pi], dtype=torch.float64) * camera.fx + camera.cx
    pixels = torch.stack((rim, torch.full_like(rim, camera.cy)), -1)
    assert camera.unproject(pixels)[1].tolist() == [True, False]


def test_each_view_has_its_own_fold():
    k1 = torch.tensor([0.0, -0.1, -0.2], dtype=torch.float64)
    limits = KannalaBrandt(**RASTER, k1=k1).theta_limit
    expected = [math.pi, math.sqrt(1 / 0.3), math.sqrt(1 / 0.6)]
    assert limits.tolist() == pytest.approx(expected, abs=1e-12)


def test_smaller_max_theta_wins_over_the_fold():
    camera = KannalaBrandt(**RASTER, k1=-0.1, max_theta=1.0)
    assert camera.theta_limit.item() == 1.0
    assert camera.project(at_angles(57.2, 57.4))[1].tolist() == [True, False]


def test_inverting_a_real_polynomial_takes_few_steps_and_reaches_its_end():
    camera, calls = LENSES["kannala_brandt"], 0

    def counted(theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal calls
        calls += 1
        return camera._radius(theta)

    theta = torch.linspace(0, camera.theta_limit.item(), 1000, dtype=torch.float64)
    radius = camera._radius(theta)[0]
    assert (invert_increasing(counted, radius, theta[-1]) - theta).abs().max() < 1e-14
    assert calls <= 15
