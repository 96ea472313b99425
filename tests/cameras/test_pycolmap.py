"""COLMAP's camera models, written independently, against ours."""

import numpy as np
import pytest

from merope.cameras import Equirectangular
from tests.cameras.lenses import LENSES, random_points

pycolmap = pytest.importorskip("pycolmap")

ARIA = ("k0", "k1", "k2", "k3", "k4", "k5", "p0", "p1", "s0", "s1", "s2", "s3")
NAMES = {
    "pinhole": ("PINHOLE", ()),
    "radtan": ("FULL_OPENCV", ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")),
    "rational": ("FULL_OPENCV", ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")),
    "kannala_brandt": ("OPENCV_FISHEYE", ("k1", "k2", "k3", "k4")),
    "equidistant_200": ("OPENCV_FISHEYE", ("k1", "k2", "k3", "k4")),
    "fisheye624": ("RAD_TAN_THIN_PRISM_FISHEYE", ARIA),
    "fisheye624_circle": ("RAD_TAN_THIN_PRISM_FISHEYE", ARIA),
    "extended_unified": ("EUCM", ("alpha", "beta")),
    "extended_unified_whole_plane": ("EUCM", ("alpha", "beta")),
    "extended_unified_folding": ("EUCM", ("alpha", "beta")),
}


def colmap_camera(name: str, camera, parameters):
    return pycolmap.Camera(model=name, width=camera.width, height=camera.height, params=parameters)


def visible_points(camera, *, front: bool):
    points_cam = random_points(2000, 1)
    if front:
        points_cam = points_cam[points_cam[:, 2] > 0.1 * points_cam.norm(dim=-1)]
    pixels, valid = camera.project(points_cam)
    assert valid.sum() > 50
    return points_cam[valid], pixels[valid]


@pytest.mark.parametrize("lens", NAMES)
def test_projection_equals_colmap(lens):
    name, coefficients = NAMES[lens]
    camera = LENSES[lens].with_pixel_origin("corner")
    parameters = [getattr(camera, key) for key in ("fx", "fy", "cx", "cy", *coefficients)]
    points_cam, pixels = visible_points(camera, front=True)
    expected = colmap_camera(name, camera, parameters).img_from_cam(points_cam.numpy())
    assert np.abs(expected - pixels.numpy()).max() < 1e-9


@pytest.mark.parametrize("lens", ["unified_pinhole", "unified_below_one", "unified_one", "unified_above_one"])
def test_unified_camera_is_colmaps_enhanced_one_with_beta_one(lens):
    camera = LENSES[lens].with_pixel_origin("corner")
    stretch = 1 + camera.xi
    parameters = [camera.fx / stretch, camera.fy / stretch, camera.cx, camera.cy, camera.xi / stretch, 1.0]
    points_cam, pixels = visible_points(camera, front=True)
    expected = colmap_camera("EUCM", camera, parameters).img_from_cam(points_cam.numpy())
    assert np.abs(expected - pixels.numpy()).max() < 1e-9


def test_equirectangular_equals_colmap_in_every_direction():
    camera = Equirectangular.full_sphere(height=40, width=80)
    points_cam, pixels = visible_points(camera, front=False)
    expected = colmap_camera("EQUIRECTANGULAR", camera, [80.0, 40.0]).img_from_cam(points_cam.numpy())
    assert np.abs(expected - pixels.numpy()).max() < 1e-9
