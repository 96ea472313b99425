import math

import pytest
import torch

from merope.cameras import Pinhole, UnifiedCamera
from tests.cameras.lenses import RASTER


def test_xi_zero_is_the_pinhole():
    pinhole, unified = Pinhole(**RASTER), UnifiedCamera(**RASTER, xi=0.0)
    assert (pinhole.pixel_rays()[0] - unified.pixel_rays()[0]).abs().max() < 1e-15


def test_xi_one_is_the_stereographic_projection():
    camera = UnifiedCamera(**RASTER, xi=1.0)
    theta = torch.linspace(0.1, 3.0, 30, dtype=torch.float64)
    points_cam = torch.stack((torch.sin(theta), torch.zeros_like(theta), torch.cos(theta)), -1)
    pixels, valid = camera.project(points_cam)
    assert valid.all()
    assert (pixels[:, 0] - (camera.fx * torch.tan(theta / 2) + camera.cx)).abs().max() < 1e-10


def test_plane_above_xi_one_ends_at_its_rim():
    camera = UnifiedCamera(fx=1.0, fy=1.0, cx=5.0, cy=3.0, width=10, height=6, pixel_origin="corner", xi=1.2)
    rim = 1 / math.sqrt(1.2**2 - 1)
    assert rim == pytest.approx(1.5076, abs=1e-4)
    radius = torch.tensor([1.5, rim, 1.6], dtype=torch.float64, requires_grad=True)
    pixels = torch.stack((5 + radius, torch.full_like(radius, 3.0)), -1)
    dirs_cam, valid = camera.unproject(pixels)
    assert valid.tolist() == [True, True, False]
    assert dirs_cam[1, 2].item() == pytest.approx(-1 / 1.2, abs=1e-7)
    dirs_cam.sum().backward()
    assert torch.isfinite(radius.grad).all()
    assert radius.grad[2] == 0


@pytest.mark.parametrize(("xi", "lowest"), [(0.5, -0.5), (1.0, -1.0), (2.0, -0.5)])
def test_rays_end_where_they_would_fold_or_meet_infinity(xi, lowest):
    camera = UnifiedCamera(**RASTER, xi=xi)
    cosine = torch.tensor([lowest + 0.01, max(lowest - 0.01, -1.0)], dtype=torch.float64)
    points_cam = torch.stack((torch.sqrt(1 - cosine**2), torch.zeros_like(cosine), cosine), -1)
    assert camera.project(points_cam)[1].tolist() == [True, False]


@pytest.mark.parametrize(("fov_x_deg", "xi"), [(90.0, 0.0), (140.0, 0.8), (200.0, 1.0), (200.0, 2.3)])
def test_field_of_view_spans_the_raster(fov_x_deg, xi):
    camera = UnifiedCamera.from_fov(fov_x_deg=fov_x_deg, xi=xi, height=48, width=80)
    edges = torch.tensor([[0.0, 24.0], [80.0, 24.0]], dtype=torch.float64)
    dirs_cam, valid = camera.unproject(edges)
    half = math.radians(fov_x_deg / 2)
    assert valid.all()
    assert dirs_cam[1].tolist() == pytest.approx([math.sin(half), 0.0, math.cos(half)], abs=1e-14)
    assert dirs_cam[0, 0].item() == pytest.approx(-math.sin(half), abs=1e-14)


@pytest.mark.parametrize(
    ("fov_x_deg", "xi"), [(180.0, 0.0), (260.0, 0.5), (300.0, 2.0), (0.0, 1.0), (360.0, 1.0)]
)
def test_impossible_field_of_view_is_refused(fov_x_deg, xi):
    with pytest.raises(ValueError, match="fov_x_deg"):
        UnifiedCamera.from_fov(fov_x_deg=fov_x_deg, xi=xi, height=48, width=80)


def test_views_may_mix_xi_below_and_above_one():
    xi = torch.tensor([0.0, 0.7, 1.0, 2.3], dtype=torch.float64)
    camera = UnifiedCamera.from_fov(fov_x_deg=100.0, xi=xi, height=6, width=10)
    dirs_cam, valid = camera.pixel_rays()
    assert valid.all()
    for view, value in enumerate(xi.tolist()):
        alone = UnifiedCamera.from_fov(fov_x_deg=100.0, xi=value, height=6, width=10)
        assert (dirs_cam[view] - alone.pixel_rays()[0]).abs().max() < 1e-14
