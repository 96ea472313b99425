import math

import pytest
import torch

from merope.cameras import Pinhole


def test_field_of_view_spans_the_raster():
    camera = Pinhole.from_fov(fov_x_deg=90.0, height=288, width=512)
    edges = torch.tensor([[0.0, 144.0], [512.0, 144.0], [256.0, 144.0]], dtype=torch.float64)
    dirs_cam, valid = camera.unproject(edges)
    half = math.sqrt(0.5)
    expected = torch.tensor([[-half, 0, half], [half, 0, half], [0, 0, 1]], dtype=torch.float64)
    assert valid.all()
    assert (dirs_cam - expected).abs().max() < 1e-15


@pytest.mark.parametrize("fov_x_deg", [0.0, 180.0, -20.0, torch.tensor([60.0, 200.0])])
def test_impossible_field_of_view_names_wider_lenses(fov_x_deg):
    with pytest.raises(ValueError, match="UnifiedCamera"):
        Pinhole.from_fov(fov_x_deg=fov_x_deg, height=288, width=512)


def test_matrix_comes_back_for_every_view():
    matrix = torch.tensor([[[400.0, 0, 250], [0, 410, 140], [0, 0, 1]]], dtype=torch.float64).repeat(2, 1, 1)
    matrix[1, 0, 0] = 500
    camera = Pinhole.from_matrix(matrix, height=288, width=512, pixel_origin="center")
    assert camera.view_shape == (2,)
    assert torch.equal(camera.matrix(), matrix)
    dirs_cam, _ = camera.pixel_rays()
    pixel = torch.tensor([17.0, 5.0, 1.0], dtype=torch.float64)
    expected = torch.linalg.solve(matrix, pixel)
    assert (dirs_cam[:, 5, 17] - torch.nn.functional.normalize(expected, dim=-1)).abs().max() < 1e-15


def test_matrix_with_skew_is_refused():
    matrix = torch.tensor([[400.0, 2, 250], [0, 410, 140], [0, 0, 1]])
    with pytest.raises(ValueError, match="skew"):
        Pinhole.from_matrix(matrix, height=288, width=512, pixel_origin="center")


def test_points_behind_the_camera_are_invalid():
    camera = Pinhole.from_fov(fov_x_deg=60.0, height=288, width=512)
    points_cam = torch.tensor([[0.0, 0, 1], [0, 0, -1], [1, 0, 0], [0.3, 0.1, -4]])
    assert camera.project(points_cam)[1].tolist() == [True, False, False, False]


def test_field_of_view_keeps_its_gradient():
    fov_x_deg = torch.tensor([60.0, 80.0], dtype=torch.float64, requires_grad=True)
    camera = Pinhole.from_fov(fov_x_deg=fov_x_deg, height=4, width=6)
    camera.pixel_rays()[0][..., 2].sum().backward()
    assert (fov_x_deg.grad < 0).all()
