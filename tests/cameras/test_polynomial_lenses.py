"""F-theta, WoodScape's polynomial, OCam and Aria's fisheye: their formulas typed once more, and where they end."""

import math
from dataclasses import replace

import pytest
import torch

from merope.cameras import Fisheye624, FTheta, KannalaBrandt, OCam, Pinhole, RadialPolynomial
from tests.cameras.lenses import LENSES, RASTER

SQUARE = {"cx": 40.0, "cy": 30.0, "width": 80, "height": 60, "pixel_origin": "center"}


def at_angles(*radians: float) -> torch.Tensor:
    theta = torch.tensor(radians, dtype=torch.float64)
    return torch.stack((torch.sin(theta), torch.zeros_like(theta), torch.cos(theta)), -1)


def test_polynomial_of_the_radius_gives_the_angle_in_pixels():
    p = [0.0, 0.02, 1e-5, -2e-7, 3e-9, -1e-11]
    camera = FTheta.from_pixels(p, polynomial_of="radius", **SQUARE)
    r = torch.tensor([0.0, 10.0, 25.0, 40.0], dtype=torch.float64)
    dirs_cam, valid = camera.unproject(torch.stack((40 + r, torch.full_like(r, 30.0)), -1))
    assert valid.all()
    theta = sum(c * r**i for i, c in enumerate(p))
    assert (dirs_cam - at_angles(*theta.tolist())).abs().max() < 1e-14


def test_polynomial_of_the_angle_gives_the_radius_in_pixels():
    p = [0.0, 50.0, 2.0, -3.0, 0.5, -0.1]
    camera = FTheta.from_pixels(p, polynomial_of="angle", **SQUARE)
    theta = [0.0, 0.3, 0.8, 1.6]
    pixels, seen = camera.project(at_angles(*theta))
    assert seen.all()
    expected = [40 + sum(c * t**i for i, c in enumerate(p)) for t in theta]
    assert pixels[:, 0].tolist() == pytest.approx(expected, abs=1e-12)


def test_polynomial_of_the_angle_in_pixels_is_woodscapes():
    k = {"k1_px": 41.0, "k2_px": -3.9, "k3_px": 5.8, "k4_px": -0.87}
    woodscape = RadialPolynomial.from_pixels(**k, **SQUARE)
    f_theta = FTheta.from_pixels([0.0, *k.values()], polynomial_of="angle", **SQUARE)
    assert torch.equal(woodscape.pixel_rays()[0], f_theta.pixel_rays()[0])
    stretched = RadialPolynomial.from_pixels(**k, aspect_ratio=1.1, **SQUARE)
    assert (stretched.fx, stretched.fy) == (41.0, pytest.approx(45.1))


@pytest.mark.parametrize("lens", ["f_theta_folding", "radial_polynomial_folding", "ocam_folding"])
def test_beyond_the_fold_nothing_is_seen(lens):
    camera = LENSES[lens]
    limit = camera.theta_limit.item()
    assert limit < math.pi
    assert camera.project(at_angles(limit - 1e-3, limit + 1e-3, limit + 0.2))[1].tolist() == [
        True,
        False,
        False,
    ]
    rim = camera._radius(camera.theta_limit)[0].item()
    u = torch.tensor([rim - 1e-3, rim + 1e-3], dtype=torch.float64) * camera.fx + camera.cx
    level = replace(camera, shear_x=0.0, shear_y=0.0) if isinstance(camera, OCam) else camera
    assert level.unproject(torch.stack((u, torch.full_like(u, camera.cy)), -1))[1].tolist() == [True, False]


def test_folds_are_the_analytic_ones():
    # theta = r - 0.4 r^3 turns at r^2 = 1 / 1.2; f - r f' = 1 - 0.5 r^2 at r^2 = 2
    radius = 1 / math.sqrt(1.2)
    assert LENSES["f_theta_folding"].theta_limit.item() == pytest.approx(radius - 0.4 * radius**3, abs=1e-14)
    camera = OCam(**RASTER, a2=0.5)
    assert camera.theta_limit.item() == pytest.approx(math.atan2(math.sqrt(2), 2), abs=1e-14)
    assert RadialPolynomial(**RASTER, k2=-0.25).theta_limit.item() == pytest.approx(2.0, abs=1e-14)


@pytest.mark.parametrize(
    "lens", ["f_theta_of_radius", "f_theta_of_angle", "ocam", "radial_polynomial", "fisheye624"]
)
def test_angles_beyond_max_theta_are_invalid(lens):
    camera = replace(LENSES[lens], max_theta=0.7)
    assert camera.theta_limit.item() == 0.7
    assert camera.project(at_angles(0.69, 0.71, 2.5))[1].tolist() == [True, False, False]
    dirs_cam, valid = camera.pixel_rays()
    whole, whole_valid = LENSES[lens].pixel_rays()
    assert torch.equal(valid, whole_valid & (whole[..., 2] >= math.cos(0.7)))
    assert (dirs_cam - whole)[valid].abs().max() < 1e-14


def test_ocam_sees_its_polynomials_depth_through_the_stretched_pixels():
    taylor, center, stretch = [40.0, 0.0, -0.01, 1e-4, -2e-6], [41.0, 29.0], [[1.02, 3e-3], [-2e-3, 1.0]]
    camera = OCam.from_pixels(
        taylor_coefficient=taylor, distortion_center=center, stretch_matrix=stretch, height=60, width=80
    )
    x, y = (
        torch.tensor([0.0, 13.0, -30.0], dtype=torch.float64),
        torch.tensor([0.0, -7.0, 20.0], dtype=torch.float64),
    )
    plane = torch.stack((x, y), -1)
    pixels = plane @ torch.tensor(stretch, dtype=torch.float64).mT + torch.tensor(center, dtype=torch.float64)
    dirs_cam, valid = camera.unproject(pixels)
    assert valid.all()
    r = plane.norm(dim=-1)
    expected = torch.stack((x, y, sum(a * r**i for i, a in enumerate(taylor))), -1)
    assert (dirs_cam - torch.nn.functional.normalize(expected, dim=-1)).abs().max() < 1e-14


def test_ocam_without_terms_is_a_pinhole_to_89_degrees():
    camera, pinhole = OCam(**RASTER), Pinhole(**RASTER)
    assert (camera.pixel_rays()[0] - pinhole.pixel_rays()[0]).abs().max() < 1e-14
    assert math.degrees(camera.theta_limit) == pytest.approx(89.43, abs=0.01)
    assert not camera.project(at_angles(math.radians(89.9)))[1].any()


def test_aria_fisheye_without_other_terms_is_kannala_brandt():
    k = (-0.031, 0.012, -0.009, 0.0016)
    aria = Fisheye624(**RASTER, **{f"k{i}": value for i, value in enumerate(k)})
    other = KannalaBrandt(**RASTER, **{f"k{i}": value for i, value in enumerate(k, start=1)})
    assert torch.equal(aria.pixel_rays()[1], other.pixel_rays()[1])
    assert (aria.pixel_rays()[0] - other.pixel_rays()[0]).abs().max() < 1e-14
    assert aria.theta_limit.item() == other.theta_limit.item()


def test_aria_fisheye_follows_its_documented_formula():
    camera = LENSES["fisheye624_circle"]
    theta, turn = 0.6, 0.9
    direction = (math.cos(turn), math.sin(turn))
    point = torch.tensor(
        [math.sin(theta) * direction[0], math.sin(theta) * direction[1], math.cos(theta)], dtype=torch.float64
    )
    radius = theta + camera.k0 * theta**3 + camera.k1 * theta**5
    x, y = radius * direction[0], radius * direction[1]
    dot = camera.p0 * x + camera.p1 * y
    u = x + 2 * dot * x + radius**2 * camera.p0 + camera.s0 * radius**2 + camera.s1 * radius**4
    v = y + 2 * dot * y + radius**2 * camera.p1 + camera.s2 * radius**2 + camera.s3 * radius**4
    pixel, seen = camera.project(point)
    assert seen
    assert pixel.tolist() == pytest.approx([u * camera.fx + camera.cx, v * camera.fy + camera.cy], abs=1e-12)


def test_aria_image_ends_at_its_circle():
    camera = Fisheye624.from_aria(
        [50.0, 40.0, 30.0, *[0.0] * 12], height=60, width=80, valid_radius_px=25.0, max_theta=1.2
    )
    pixels = torch.tensor([[64.99, 30.0], [65.01, 30.0], [40.0, 5.01], [58.0, 48.0]], dtype=torch.float64)
    assert camera.unproject(pixels)[1].tolist() == [True, False, True, False]
    assert camera.project(at_angles(0.499, 0.501))[1].tolist() == [True, False]
    half = camera.resize(height=30, width=40)
    assert half.max_radius == camera.max_radius
    assert half.unproject(pixels / 2 - 0.25)[1].tolist() == [True, False, True, False]


def test_strong_prism_ends_where_it_might_fold():
    camera = Fisheye624(**RASTER, p0=0.1, s2=0.2)
    # 6 |p| r + 2 |s| r = 1
    assert camera.plane_limit.item() == pytest.approx(1.0, abs=1e-12)
    assert camera.project(at_angles(0.99, 1.01, 2.0))[1].tolist() == [True, False, False]
    dirs_cam, valid = camera.pixel_rays()
    theta = torch.acos(dirs_cam[..., 2])
    assert theta[valid].max() <= 1.0
    assert 0.3 < valid.float().mean() < 0.99


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        ([0.0], "2 to 6 numbers, got 1"),
        ([0.0] * 7, "2 to 6 numbers, got 7"),
        ([0.1, 0.02], "begin with p_0 = 0, got 0.1"),
        ([0.0, -0.02], "p_1 above 0, got -0.02"),
    ],
)
def test_f_theta_polynomials_without_meaning_are_refused(coefficients, message):
    with pytest.raises(ValueError, match=message):
        FTheta.from_pixels(coefficients, polynomial_of="radius", **SQUARE)


def test_f_theta_wants_to_know_what_its_polynomial_takes():
    camera = FTheta(**RASTER, polynomial_of="angle")
    # Past the type checker of this test run, which a user does not have.
    object.__setattr__(camera, "polynomial_of", "forward")
    with pytest.raises(ValueError, match="'angle' or 'radius', got 'forward'"):
        camera._check_lens()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"taylor_coefficient": [-300.0, 0.0, 1e-3]}, "focal length above 0, got -300.0. The MATLAB toolbox"),
        ({"taylor_coefficient": [300.0, 0.1, 1e-3]}, "must be f, 0, a2"),
        ({"taylor_coefficient": [300.0]}, "must be f, 0, a2"),
        ({"stretch_matrix": [[1.0, 0.0], [0.0, -1.0]]}, "positive diagonal"),
        ({"stretch_matrix": [[1.0, 0.0]]}, "two rows of two numbers"),
    ],
)
def test_ocam_calibrations_without_meaning_are_refused(change, message):
    values = {
        "taylor_coefficient": [300.0, 0.0, -1e-3],
        "distortion_center": [40.0, 30.0],
        "stretch_matrix": [[1.0, 0.0], [0.0, 1.0]],
    }
    with pytest.raises(ValueError, match=message):
        OCam.from_pixels(**values | change, height=60, width=80)


def test_ocam_and_aria_parameters_without_meaning_are_refused():
    with pytest.raises(ValueError, match="the image would be mirrored"):
        OCam(**RASTER, shear_x=2.0, shear_y=0.6)
    with pytest.raises(ValueError, match="15 numbers f, cx, cy, k0 to k5, p0, p1, s0 to s3, got 14"):
        Fisheye624.from_aria([1.0] * 14, height=60, width=80)
    with pytest.raises(ValueError, match="max_radius must be above 0"):
        Fisheye624(**RASTER, max_radius=0.0)
