"""Our lenses in COLMAP's terms: its own projection against ours, and what becomes of a lens that it has not."""

import numpy as np
import pytest
import torch

from merope.cameras import (
    DoubleSphere,
    Equirectangular,
    ExtendedUnified,
    Fisheye624,
    FTheta,
    KannalaBrandt,
    Mei,
    OCam,
    OpenCV,
    Pinhole,
    RadialPolynomial,
    UnifiedCamera,
)
from merope.evaluation.estimators.colmap.lens import colmap_camera, lens_for_colmap

CORNER = {"fx": 41.0, "fy": 39.5, "cx": 38.7, "cy": 25.2, "width": 80, "height": 48, "pixel_origin": "corner"}
CENTER = CORNER | {"pixel_origin": "center"}
ARIA = {"k0": -0.026, "k1": 0.098, "k2": -0.068, "k3": 0.01, "k4": 0.002, "k5": -0.001} | {
    "p0": 3e-4, "p1": -2e-4, "s0": 1e-3, "s1": -2e-4, "s2": 5e-4, "s3": 1e-4,
}  # fmt: skip

SAME = {
    "PINHOLE": Pinhole(**CENTER),
    "OPENCV": OpenCV(**CORNER, k1=-0.05, k2=0.01, p1=1e-3, p2=-2e-3),
    "FULL_OPENCV": OpenCV(**CENTER, k1=-0.05, k2=0.01, p1=1e-3, k3=1e-3, k4=0.02, k5=0.003, k6=1e-4),
    "OPENCV_FISHEYE": KannalaBrandt(**CENTER, k1=0.01, k2=-2e-3, k3=1e-4, k4=-1e-5),
    "RAD_TAN_THIN_PRISM_FISHEYE": Fisheye624(**CENTER, **ARIA),
    "EUCM": ExtendedUnified(**CENTER, alpha=0.63, beta=1.04),
    "EUCM of a unified camera": UnifiedCamera(**CENTER, xi=0.8),
    "EUCM of a unified camera beyond one": UnifiedCamera(**CORNER, xi=1.5),
    "EUCM of a double sphere with one sphere": DoubleSphere(**CENTER, xi=0.0, alpha=0.59),
    "EUCM of a double sphere without a plane": DoubleSphere(**CENTER, xi=0.4, alpha=0.0),
    "EUCM of Mei without distortion": Mei(**CENTER, xi=0.9),
    "OPENCV_FISHEYE of an odd f-theta": FTheta(**CENTER, polynomial_of="angle", k3=-0.05, k5=0.004),
    "OPENCV_FISHEYE of an equidistant f-theta": FTheta(**CORNER, polynomial_of="radius"),
    "OPENCV_FISHEYE of an odd polynomial": RadialPolynomial(**CENTER, k3=-0.06),
    "DIVISION": OCam(**CENTER, a2=-0.3),
    "EQUIRECTANGULAR": Equirectangular.full_sphere(height=48, width=96),
    "EQUIRECTANGULAR from pixel centres": Equirectangular.full_sphere(
        height=48, width=96, pixel_origin="center"
    ),
}
OTHER = {
    "double sphere": DoubleSphere(**CENTER, xi=-0.17, alpha=0.59),
    "double sphere without a plane, centre in front": DoubleSphere(**CENTER, xi=-0.2, alpha=0.0),
    "mei": Mei(**CENTER, xi=0.9, k1=-0.03, k2=0.01),
    "f-theta of angle": FTheta(**CENTER, polynomial_of="angle", k2=0.05, k3=-0.1),
    "f-theta of radius": FTheta(**CENTER, polynomial_of="radius", k3=-0.03),
    "radial polynomial": RadialPolynomial(**CENTER, k2=-0.09, k3=0.14, k4=-0.02),
    "ocam": OCam(**CENTER, a2=-0.413, a3=0.157, a4=-0.116),
    "ocam with a shear": OCam(**CENTER, a2=-0.3, shear_x=1e-3),
    "part of a panorama": Equirectangular.full_sphere(height=64, width=128).crop(
        top=10, left=24, height=48, width=80
    ),
}


def rays(camera, num):
    """Random directions that the lens maps into its image from in front of the image plane, and their pixels."""
    draw = torch.Generator().manual_seed(0)
    points = torch.randn(40 * num, 3, generator=draw, dtype=torch.float64)
    if camera.model != "equirectangular":
        points[:, 2] = points[:, 2].abs() + 0.05
    pixels, valid = camera.project(points)
    kept = valid & camera.in_image(pixels)
    assert int(kept.sum()) >= num
    return points[kept][:num], pixels[kept][:num]


@pytest.mark.parametrize("name", SAME)
def test_colmap_projects_a_thousand_rays_as_our_lens_does(name):
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap is not installed: pip install 'merope[eval]'")
    camera = SAME[name]
    model, params = colmap_camera(camera)
    assert model == name.split()[0]
    assert lens_for_colmap(camera) is camera
    theirs = pycolmap.Camera(model=model, width=camera.width, height=camera.height, params=params)
    points, pixels = rays(camera, 1000)
    shift = 0.5 if camera.pixel_origin == "center" else 0.0
    np.testing.assert_allclose(theirs.img_from_cam(points.numpy()), pixels.numpy() + shift, atol=1e-9)


@pytest.mark.parametrize("name", OTHER)
def test_another_lens_becomes_one_that_reaches_as_far_along_its_axes(name):
    camera = OTHER[name]
    with pytest.raises(ValueError, match=rf"no lens like this {type(camera).__name__}.*resample_frames"):
        colmap_camera(camera)
    into = lens_for_colmap(camera)
    assert (into.height, into.width) == (camera.height, camera.width)
    colmap_camera(into)
    # Along the narrower of both axes the field of view is the same, up to the 85 degrees that COLMAP can hold.
    reach = []
    for lens in (camera, into):
        dirs, valid = lens.pixel_rays()
        theta = torch.where(valid, torch.rad2deg(torch.acos(dirs[..., 2].clamp(-1, 1))), 0)
        row, col = theta[lens.height // 2], theta[:, lens.width // 2]
        reach.append((float(row[row <= 85].max()), float(col[col <= 85].max())))
    ratios = [there / here for here, there in zip(*reach, strict=True)]
    assert min(abs(ratio - 1) for ratio in ratios) < 0.03
    assert max(ratios) < 1.03


def test_a_narrow_lens_is_resampled_into_a_pinhole_and_a_wide_one_into_a_fisheye():
    narrow = RadialPolynomial(**CENTER | {"fx": 200.0, "fy": 200.0}, k2=-0.09)
    assert isinstance(lens_for_colmap(narrow), Pinhole)
    assert isinstance(lens_for_colmap(OTHER["radial polynomial"]), KannalaBrandt)


def test_a_lens_for_each_view_is_refused():
    camera = Pinhole(**CORNER | {"fx": torch.tensor([40.0, 41.0], dtype=torch.float64)})
    for refuses in (colmap_camera, lens_for_colmap):
        with pytest.raises(ValueError, match=r"one lens for all frames; this one has views \[2\]"):
            refuses(camera)


def test_a_part_of_a_panorama_that_looks_backwards_cannot_be_resampled():
    behind = Equirectangular.full_sphere(height=64, width=128).crop(top=10, left=0, height=48, width=24)
    with pytest.raises(ValueError, match="sees nothing in front"):
        lens_for_colmap(behind)
