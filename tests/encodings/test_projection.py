"""Where views see points, for every lens and every point."""

import math

import pytest
import torch

from merope.cameras import Equirectangular, KannalaBrandt, OpenCV, Pinhole, UnifiedCamera
from merope.cameras.scenes import pinhole_lens, random_drive
from merope.encodings.projection import axis_rays, bounded_pixels, lens_limit, turned_to_queries

RASTER = {"height": 3, "width": 5}
LENSES = {
    "pinhole": Pinhole.from_fov(fov_x_deg=80.0, **RASTER),
    "unified": UnifiedCamera.from_fov(fov_x_deg=170.0, xi=0.7, **RASTER),
    "stereographic": UnifiedCamera.from_fov(fov_x_deg=200.0, xi=1.0, **RASTER),
    "unified beyond 1": UnifiedCamera.from_fov(fov_x_deg=180.0, xi=1.5, **RASTER),
    "fisheye": KannalaBrandt.from_fov(fov_x_deg=200.0, **RASTER),
    "whole sphere": KannalaBrandt.from_fov(fov_x_deg=360.0, **RASTER),
    "opencv": OpenCV(fx=4.0, fy=4.0, cx=2.5, cy=1.5, k1=-0.2, p1=0.01, pixel_origin="corner", **RASTER),
    "panorama": Equirectangular.full_sphere(**RASTER),
}


@pytest.mark.parametrize(
    ("name", "angle"),
    [
        ("pinhole", math.atan(1e6)),
        ("unified", math.acos(-0.7)),
        ("stereographic", math.pi),
        ("unified beyond 1", math.acos(-1 / 1.5)),
        ("fisheye", math.radians(100)),
        ("whole sphere", math.pi),
        ("panorama", math.pi),
    ],
)
def test_the_limit_of_a_lens_is_the_angle_up_to_which_it_sees(name, angle):
    # Towards the limit of a stereographic lens the plane is infinite, and ends at a slope of a million.
    assert lens_limit(LENSES[name]).item() == pytest.approx(angle, abs=3e-6)


def test_every_view_has_its_own_limit():
    lens = UnifiedCamera(
        fx=torch.full((2, 3), 2.0),
        fy=2.0,
        cx=2.5,
        cy=1.5,
        xi=torch.tensor([[0.1, 0.5, 0.9], [1.25, 2.0, 4.0]]),
        pixel_origin="corner",
        **RASTER,
    )
    cosines = torch.tensor([[-0.1, -0.5, -0.9], [-0.8, -0.5, -0.25]])
    torch.testing.assert_close(lens_limit(lens).cos().float(), cosines, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", LENSES)
def test_a_point_that_is_seen_inside_the_margin_is_where_the_lens_projects_it(name):
    lens = LENSES[name]
    dirs, valid = lens.pixel_rays()
    points = 3.0 * dirs[valid]
    pixels = bounded_pixels(lens, points, limit=lens_limit(lens), near=0.01, margin=1.0)
    torch.testing.assert_close(pixels, lens.pixel_centers()[valid], rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", LENSES)
def test_values_and_gradients_are_finite_and_bounded_everywhere(name, dtype):
    lens = LENSES[name]
    grid = torch.tensor([-1e5, -3.0, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 3.0, 1e5], dtype=dtype)
    points = torch.cartesian_prod(grid, grid, grid).requires_grad_()
    pixels = bounded_pixels(lens, points, limit=lens_limit(lens), near=0.2, margin=2.0)
    assert pixels.dtype == dtype
    size = torch.tensor([5.0, 3.0], dtype=dtype)
    assert ((pixels >= -2 * size) & (pixels <= 3 * size)).all()
    pixels.sum().backward()
    assert torch.isfinite(points.grad).all()


@pytest.mark.parametrize("name", LENSES)
def test_what_a_lens_does_not_see_is_on_the_side_where_it_lies(name):
    lens = LENSES[name]
    behind = torch.tensor([[1.0, 0, -4], [-1, 0, -4], [0, 1, -4], [0, -1, -4]], dtype=torch.float64)
    pixels = bounded_pixels(lens, behind, limit=lens_limit(lens), near=0.2, margin=2.0)
    middle = torch.tensor([2.5, 1.5], dtype=torch.float64)
    right, left, down, up = pixels - middle
    assert right[0] > 1 and left[0] < -1
    if name != "panorama":  # there, below is below, whatever the side
        assert down[1] > 1 and up[1] < -1


def test_a_pinhole_sees_a_point_at_no_less_than_the_near_distance():
    lens = pinhole_lens()
    limit = lens_limit(lens)

    def at(z):
        point = torch.tensor([0.3, -0.1, z], dtype=torch.float64)
        return bounded_pixels(lens, point, limit=limit, near=0.2, margin=2.0)

    torch.testing.assert_close(at(0.2), lens.project(torch.tensor([0.3, -0.1, 0.2]).double())[0])
    for z in (0.19, 0.0, -7.0):
        assert torch.equal(at(z), at(0.2))
    assert not torch.equal(at(0.21), at(0.2))


@pytest.mark.parametrize("name", ["pinhole", "unified", "fisheye", "opencv", "panorama"])
def test_gradients_are_those_of_the_values(name):
    lens = LENSES[name]
    draw = torch.Generator().manual_seed(1)
    points = torch.randn(12, 3, generator=draw, dtype=torch.float64).requires_grad_()
    limit = lens_limit(lens)
    assert torch.autograd.gradcheck(
        lambda p: bounded_pixels(lens, p, limit=limit, near=0.05, margin=3.0), (points,)
    )


def test_axis_rays_have_unit_depth_until_87_degrees_and_twenty_lengths_from_there():
    dirs = torch.tensor([[0.6, 0, 0.8], [0, -1, 0.0], [0.8, 0, -0.6]], dtype=torch.float64)
    expected = torch.tensor([[0.75, 0, 1], [0, -20, 0.0], [16, 0, -12]], dtype=torch.float64)
    torch.testing.assert_close(axis_rays(dirs), expected)


def test_vectors_turn_from_each_key_camera_to_each_query_camera():
    queries, keys = random_drive(1, views=2), random_drive(2, views=3)
    vectors = torch.randn(2, 3, 4, 5, 3, dtype=torch.float64)
    turned = turned_to_queries(queries, keys, vectors)
    assert turned.shape == (2, 2, 3, 4, 5, 3)
    one = queries.R_world_cam[1, 0].T @ keys.R_world_cam[1, 2] @ vectors[1, 2, 3, 4]
    torch.testing.assert_close(turned[1, 0, 2, 3, 4], one)
