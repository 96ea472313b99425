"""Panoramas through lenses: what is painted in a direction is seen at that direction's pixel, seam and poles included."""

import math

import numpy as np
import pytest
import torch

from merope.cameras import Equirectangular, KannalaBrandt, Pinhole, UnifiedCamera
from merope.cameras.panoramas import PanoramaView, nearest_values, padded
from merope.geometry.rotations import rotvec_to_matrix

HEIGHT, WIDTH = 96, 192
LENSES = {
    "pinhole": Pinhole.from_fov(fov_x_deg=80.0, height=36, width=64),
    "unified": UnifiedCamera.from_fov(fov_x_deg=160.0, xi=1.5, height=40, width=40),
    "fisheye": KannalaBrandt.from_fov(fov_x_deg=200.0, height=40, width=48),
    "panorama": Equirectangular.full_sphere(height=32, width=64),
}


def smooth(dirs):
    """A colour for every direction, without an edge anywhere on the sphere."""
    x, y, z = np.moveaxis(dirs, -1, 0)
    waves = [x * y + z, 0.7 * y - x * z, y * y - 0.6 * x + 0.3 * z * z]
    return 127.5 + 80 * np.stack(waves, axis=-1)


def painted(height=HEIGHT, width=WIDTH):
    rays, _ = Equirectangular.full_sphere(height=height, width=width).pixel_rays()
    return smooth(rays.numpy()).round().astype(np.uint8)


def turns(num):
    return rotvec_to_matrix(torch.randn(num, 3, dtype=torch.float64) * 2)


@pytest.mark.parametrize("name", LENSES)
def test_every_pixel_has_the_colour_of_its_direction(name):
    lens = LENSES[name]
    view = PanoramaView(lens, height=HEIGHT, width=WIDTH)
    rays, valid = lens.pixel_rays()
    panorama = padded(painted())
    for R_pano_cam in (torch.eye(3, dtype=torch.float64), *turns(6)):
        expected = smooth((rays @ R_pano_cam.mT).numpy())
        found = view.frames(panorama, R_pano_cam[None])[0]
        assert np.array_equal(view.covered, valid.numpy()) or name == "fisheye"
        inside = view.covered & valid.numpy()
        # 8 bits are half a grey level off, the panorama's own once more.
        assert np.abs(found[inside] - expected[inside]).max() < 2.0
        assert (found[~view.covered] == 0).all()


def test_a_spot_is_seen_where_the_lens_projects_its_direction():
    lens = Pinhole.from_fov(fov_x_deg=60.0, height=90, width=160)
    rays, _ = Equirectangular.full_sphere(height=512, width=1024).pixel_rays()
    view = PanoramaView(lens, height=512, width=1024)
    # Behind the camera of the panorama, across its seam; above, near the pole; and anywhere.
    for target in ((0.01, 0.02, -1.0), (0.03, -1.0, 0.02), (0.5, 0.4, 0.7)):
        direction = torch.tensor(target, dtype=torch.float64)
        direction = direction / direction.norm()
        spot = 250 * torch.exp(-(((rays - direction) ** 2).sum(-1)) / 2 / 0.02**2)
        panorama = spot[..., None].expand(-1, -1, 3).round().to(torch.uint8).numpy()
        # The camera looks past the spot by 12 degrees.
        aside = rotvec_to_matrix(torch.tensor([0.15, -0.15, 0.4], dtype=torch.float64))
        R_pano_cam = look_at(direction) @ aside
        seen = view.frame(panorama, R_pano_cam)[..., 0].astype(np.float64)
        centers = lens.pixel_centers().numpy()
        found = (centers * seen[..., None]).sum(axis=(0, 1)) / seen.sum()
        expected, valid = lens.project(direction @ R_pano_cam)
        assert bool(valid)
        # The spot is a circle on the sphere and nearly one in the image: its centre is off by its stretch alone.
        assert np.abs(found - expected.numpy()).max() < 0.1


def look_at(direction):
    """A rotation whose third column is a direction."""
    side = torch.linalg.cross(torch.tensor([0.3, 1.0, 0.2], dtype=torch.float64), direction)
    side = side / side.norm()
    return torch.stack([side, torch.linalg.cross(direction, side), direction], dim=1)


def test_seam_and_poles_are_continuous():
    # Pinholes whose middle column is the seam, or whose middle is a pole, of noise that fits itself across both.
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    coarse[:4], coarse[-4:] = 90, 170
    lens = Pinhole.from_fov(fov_x_deg=20.0, height=64, width=64)
    view = PanoramaView(lens, height=HEIGHT, width=WIDTH)
    behind = rotvec_to_matrix(torch.tensor([0.0, math.pi, 0.0], dtype=torch.float64))
    found = view.frame(coarse, behind).astype(int)
    # The same panorama begun elsewhere has no seam there.
    rolled = np.roll(coarse, WIDTH // 2, axis=1)
    assert np.abs(found - view.frame(rolled, torch.eye(3, dtype=torch.float64))).max() <= 1
    for angle, grey in ((math.pi / 2, 90), (-math.pi / 2, 170)):
        # Positive about x, the camera pitches up.
        at_pole = rotvec_to_matrix(torch.tensor([angle, 0.0, 0.0], dtype=torch.float64))
        middle = view.frame(coarse, at_pole)[26:38, 26:38]
        assert (middle == grey).all()


def test_across_a_pole_colours_go_on():
    # Of so few rows the last is 6 degrees from the pole, and what lies between is the meridian opposite's as much.
    rays, _ = Equirectangular.full_sphere(height=15, width=30).pixel_rays()
    panorama = (127.5 + 100 * rays.numpy()).round().astype(np.uint8)
    lens = Pinhole.from_fov(fov_x_deg=8.0, height=16, width=16)
    view = PanoramaView(lens, height=15, width=30)
    for angle in (math.pi / 2, -math.pi / 2):
        at_pole = rotvec_to_matrix(torch.tensor([angle, 0.0, 0.0], dtype=torch.float64))
        expected = 127.5 + 100 * (lens.pixel_rays()[0] @ at_pole.mT).numpy()
        assert np.abs(view.frame(panorama, at_pole)[..., [0, 2]] - expected[..., [0, 2]]).max() < 3


def test_fine_texture_averages_out():
    # Columns of 0 and 255, six times finer than the pixels of the frame.
    stripes = np.zeros((1024, 2048, 3), np.uint8)
    stripes[:, ::2] = 255
    lens = Pinhole.from_fov(fov_x_deg=60.0, height=36, width=32)
    found = PanoramaView(lens, height=1024, width=2048).frame(stripes, torch.eye(3, dtype=torch.float64))
    assert found.std() < 12
    assert abs(found.mean() - 127.5) < 2


def test_depth_is_never_mixed():
    depth = np.full((HEIGHT, WIDTH), 1000, np.uint16)
    depth[:, WIDTH // 2 :] = 5000
    lens = LENSES["fisheye"]
    found = nearest_values(depth, lens, turns(3))
    _, valid = lens.pixel_rays()
    assert found.shape == (3, 40, 48)
    assert set(np.unique(found[:, valid.numpy()])) == {1000.0, 5000.0}
    assert (found[:, ~valid.numpy()] == 0).all()
    # Directions to the right of the middle are in the right half.
    ahead = nearest_values(depth, LENSES["pinhole"], torch.eye(3, dtype=torch.float64)[None])[0]
    assert (ahead[:, :32] == 1000).all()
    assert (ahead[:, 32:] == 5000).all()


def test_what_is_no_full_sphere_is_refused():
    with pytest.raises(ValueError, match=r"twice as wide as high; this one is 96 x 191"):
        PanoramaView(LENSES["pinhole"], height=96, width=191)
    with pytest.raises(ValueError, match="twice as wide as high"):
        nearest_values(np.zeros((4, 4), np.uint16), LENSES["pinhole"], turns(1))
    with pytest.raises(ValueError, match="must be 96 x 192"):
        PanoramaView(LENSES["pinhole"], height=96, width=192).frame(painted(48, 96), turns(1)[0])
