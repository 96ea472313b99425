"""Double sphere, extended unified and Mei: what they are to each other, and where their images end."""

import math
from dataclasses import replace

import pytest
import torch

from merope.cameras import CameraModel, DoubleSphere, ExtendedUnified, Mei, Pinhole, UnifiedCamera
from tests.cameras.lenses import LENSES, RASTER, random_points


def assert_same_lens(one: CameraModel, other: CameraModel):
    (dirs, valid), (other_dirs, other_valid) = one.pixel_rays(), other.pixel_rays()
    assert torch.equal(valid, other_valid)
    assert (dirs - other_dirs).abs().max() < 1e-13
    points_cam = random_points(500, 2)
    (pixels, seen), (other_pixels, other_seen) = one.project(points_cam), other.project(points_cam)
    assert torch.equal(seen, other_seen)
    scale = 1 + pixels.norm(dim=-1)
    assert ((pixels - other_pixels).norm(dim=-1) / scale).max() < 1e-12


def at_angles(*radians: float) -> torch.Tensor:
    theta = torch.tensor(radians, dtype=torch.float64)
    return torch.stack((torch.sin(theta) * 0.6, torch.sin(theta) * 0.8, torch.cos(theta)), -1)


def with_focal_times(factor: float) -> dict:
    return RASTER | {"fx": RASTER["fx"] * factor, "fy": RASTER["fy"] * factor}


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 0.7])
def test_extended_unified_with_beta_one_is_the_unified_camera(alpha):
    unified = UnifiedCamera(**with_focal_times(1 / (1 - alpha)), xi=alpha / (1 - alpha))
    assert_same_lens(ExtendedUnified(**RASTER, alpha=alpha, beta=1.0), unified)


def test_extended_unified_with_alpha_one_is_orthographic():
    camera = ExtendedUnified(**RASTER, alpha=1.0, beta=1.0)
    points_cam = at_angles(0.0, 0.5, 1.5)
    pixels, seen = camera.project(points_cam)
    assert seen.all()
    center = torch.tensor([camera.cx, camera.cy], dtype=torch.float64)
    focal_px = torch.tensor([camera.fx, camera.fy], dtype=torch.float64)
    assert (pixels - (points_cam[:, :2] * focal_px + center)).abs().max() < 1e-12
    assert not camera.project(at_angles(1.6))[1].any()
    dirs_cam, valid = camera.unproject(pixels)
    assert valid.all()
    assert (dirs_cam - points_cam).abs().max() < 1e-13


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.8])
def test_double_sphere_with_xi_zero_is_the_extended_unified_camera(alpha):
    assert_same_lens(
        DoubleSphere(**RASTER, xi=0.0, alpha=alpha), ExtendedUnified(**RASTER, alpha=alpha, beta=1.0)
    )


def test_double_sphere_with_alpha_zero_is_the_unified_camera():
    assert_same_lens(DoubleSphere(**RASTER, xi=0.7, alpha=0.0), UnifiedCamera(**RASTER, xi=0.7))


def test_alpha_and_xi_zero_are_the_pinhole():
    assert_same_lens(DoubleSphere(**RASTER, xi=0.0, alpha=0.0), Pinhole(**RASTER))


def test_mei_without_distortion_is_the_unified_camera():
    assert_same_lens(Mei(**RASTER, xi=1.8), UnifiedCamera(**RASTER, xi=1.8))


def test_mei_with_a_plane_without_rim_ends_at_a_hundred_focal_lengths():
    mei, unified = Mei(**RASTER, xi=0.8), UnifiedCamera(**RASTER, xi=0.8)
    assert (mei.pixel_rays()[0] - unified.pixel_rays()[0]).abs().max() < 1e-14
    u = torch.tensor([99.0, 101.0], dtype=torch.float64) * RASTER["fx"] + RASTER["cx"]
    pixels = torch.stack((u, torch.full_like(u, RASTER["cy"])), -1)
    assert mei.unproject(pixels)[1].tolist() == [True, False]
    assert mei.project(unified.unproject(pixels)[0])[1].tolist() == [True, False]


@pytest.mark.parametrize(
    "lens", ["double_sphere", "double_sphere_folding", "extended_unified", "extended_unified_folding"]
)
def test_image_ends_exactly_where_it_folds(lens):
    camera = LENSES[lens]
    theta = torch.linspace(0, math.pi, 100001, dtype=torch.float64)
    points_cam = torch.stack((torch.sin(theta), torch.zeros_like(theta), torch.cos(theta)), -1)
    pixels, seen = camera.project(points_cam)
    last = int(seen.nonzero()[-1])
    assert seen[: last + 1].all()
    assert not seen[last + 1 :].any()
    radius = pixels[: last + 1, 0]
    assert (radius.diff() > -1e-9).all()
    # The formula itself, past the mask: the image turns within one step of the last ray seen.
    alpha, beta, xi = camera.alpha, getattr(camera, "beta", 1.0), getattr(camera, "xi", 0.0)
    z = torch.cos(theta) + xi
    formula = torch.sin(theta) / (alpha * torch.sqrt(beta * torch.sin(theta) ** 2 + z**2) + (1 - alpha) * z)
    assert abs(int(formula.argmax()) - last) <= 1
    rim = 1 / math.sqrt(beta * (2 * alpha - 1))
    assert (radius[-1].item() - camera.cx) / camera.fx == pytest.approx(rim, abs=1e-7)
    u = torch.tensor([rim * (1 - 1e-9), rim * (1 + 1e-9)], dtype=torch.float64) * camera.fx + camera.cx
    assert camera.unproject(torch.stack((u, torch.full_like(u, camera.cy)), -1))[1].tolist() == [True, False]


def test_whole_plane_has_rays_where_alpha_is_at_most_a_half():
    for alpha in (0.2, 0.5):
        camera = DoubleSphere(**RASTER, xi=0.2, alpha=alpha)
        pixels = torch.tensor([[1e5, -1e5], [-3e4, 0.0]], dtype=torch.float64)
        dirs_cam, valid = camera.unproject(pixels)
        assert valid.all()
        assert (camera.project(dirs_cam)[0] - pixels).abs().max() < 1e-4


def test_straight_backwards_is_seen_by_none_of_them():
    for name in ("double_sphere", "double_sphere_whole_plane", "extended_unified", "mei", "mei_folding"):
        assert not LENSES[name].project(torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64))[1]


def test_views_may_mix_alpha_below_and_above_a_half():
    alpha = torch.tensor([0.0, 0.4, 0.5, 0.76, 1.0], dtype=torch.float64)
    together, seen = DoubleSphere(**RASTER, xi=0.1, alpha=alpha).pixel_rays()
    for view, value in enumerate(alpha.tolist()):
        dirs_cam, valid = DoubleSphere(**RASTER, xi=0.1, alpha=value).pixel_rays()
        assert (together[view] - dirs_cam).abs().max() < 1e-14
        assert torch.equal(seen[view], valid)


def test_mei_beyond_the_fold_of_its_distortion_is_invalid_though_it_lands_in_the_image():
    camera = Mei(**RASTER, xi=0.9, k1=-0.3)
    fold = 1 / math.sqrt(0.9)
    unified = UnifiedCamera(**RASTER, xi=0.9)
    u = torch.tensor([0.99 * fold, 1.01 * fold, 1.7], dtype=torch.float64) * camera.fx + camera.cx
    points_cam, seen = unified.unproject(torch.stack((u, torch.full_like(u, camera.cy)), -1))
    assert seen.all()
    assert camera.project(points_cam)[1].tolist() == [True, False, False]
    assert abs(1.7 - 0.3 * 1.7**3) * camera.fx < camera.width / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"xi": 1.0}, "xi must lie above -1 and below 1"),
        ({"xi": -1.2}, "xi must lie above -1 and below 1"),
        ({"alpha": -0.1}, "alpha must be at least 0 and at most 1"),
        ({"alpha": 1.1}, "alpha must be at least 0 and at most 1"),
    ],
)
def test_double_sphere_without_meaning_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(LENSES["double_sphere"], **change)


def test_other_parameters_without_meaning_are_refused():
    with pytest.raises(ValueError, match="beta must be above 0"):
        replace(LENSES["extended_unified"], beta=0.0)
    with pytest.raises(ValueError, match="xi must not be negative"):
        replace(LENSES["mei"], xi=-0.1)
