"""Frames through another lens: the same rays, textures averaged where they shrink, and a mask of what is not seen."""

import numpy as np
import pytest

from merope.cameras import Equirectangular, KannalaBrandt, Pinhole
from merope.cameras.resampling import resample_frames


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)


def rays_as_colors(lens):
    """A picture of the lens's own rays: colour is direction, smooth everywhere."""
    dirs, valid = lens.pixel_rays()
    colors = ((dirs + 1) * 127.5).numpy()
    return np.where(valid.numpy()[..., None], colors, 0).round().astype(np.uint8)[None]


def test_the_same_lens_changes_nothing():
    frames, lens = noise(2, 12, 20), Pinhole.from_fov(fov_x_deg=70, height=12, width=20)
    same, mask = resample_frames(frames, lens, lens)
    assert np.array_equal(same, frames)
    assert mask.all()


@pytest.mark.parametrize("origin", ["corner", "center"])
def test_pixel_origins_make_no_difference(origin):
    frames, lens = noise(1, 12, 20), Pinhole.from_fov(fov_x_deg=70, height=12, width=20)
    same, mask = resample_frames(frames, lens.with_pixel_origin(origin), lens)
    assert np.array_equal(same, frames)
    assert mask.all()


def test_shrinking_by_a_whole_factor_is_the_mean_of_the_pixels():
    frames, lens = noise(3, 24, 40), Pinhole.from_fov(fov_x_deg=90, height=24, width=40)
    small, mask = resample_frames(frames, lens, lens.resize(height=6, width=10))
    mean = frames.reshape(3, 6, 4, 10, 4, 3).astype(float).mean(axis=(2, 4))
    assert mask.all()
    assert np.abs(small - mean).max() <= 0.51


def test_stripes_finer_than_a_pixel_average_out():
    frames = np.zeros((1, 40, 64, 3), dtype=np.uint8)
    frames[:, :, ::2] = 200
    lens = Pinhole.from_fov(fov_x_deg=90, height=40, width=64)
    small, _ = resample_frames(frames, lens, Pinhole.from_fov(fov_x_deg=80, height=5, width=8))
    assert np.abs(small.astype(int) - 100).max() <= 14


@pytest.mark.parametrize(
    ("lens", "into"),
    [
        (
            KannalaBrandt.from_fov(fov_x_deg=190, height=80, width=120),
            Pinhole.from_fov(fov_x_deg=90, height=40, width=64),
        ),
        (
            Pinhole.from_fov(fov_x_deg=100, height=72, width=128),
            Pinhole.from_fov(fov_x_deg=60, height=40, width=64, pixel_origin="center"),
        ),
    ],
)
def test_every_pixel_shows_its_own_ray(lens, into):
    made, mask = resample_frames(rays_as_colors(lens), lens, into)
    assert mask.all()
    assert np.abs(made.astype(int) - rays_as_colors(into)).max() <= 2


def test_a_panoramas_poles_and_seam_cost_no_more_memory_than_the_rest():
    # Around the poles a pixel of the fisheye reaches over half the panorama: 20 GB of points without a bound.
    frames = np.full((1, 512, 1024, 3), 90, dtype=np.uint8)
    fisheye = KannalaBrandt.from_fov(fov_x_deg=200, height=64, width=64)
    seen, mask = resample_frames(frames, Equirectangular.full_sphere(height=512, width=1024), fisheye)
    assert mask[32].all()
    assert (seen[0][mask] == 90).all()


def test_what_the_source_does_not_see_is_black_and_masked():
    narrow = Pinhole.from_fov(fov_x_deg=60, height=36, width=60)
    wide = Pinhole.from_fov(fov_x_deg=90, height=40, width=64)
    frames = np.full((1, 36, 60, 3), 200, dtype=np.uint8)
    made, mask = resample_frames(frames, narrow, wide)
    # tan 30 of tan 45 along the middle row, in each half.
    assert mask[20].sum() == pytest.approx(64 * np.tan(np.pi / 6), abs=2)
    assert (made[0][mask] == 200).all()
    assert (made[0][~mask] == 0).all()


def test_nothing_in_common_is_all_masked():
    behind = Pinhole.from_fov(fov_x_deg=20, height=8, width=8)
    shifted = Pinhole(
        fx=100.0,
        fy=100.0,
        cx=-400.0,
        cy=4.0,
        width=8,
        height=8,
        pixel_origin="corner",
        principal_point_outside=True,
    )
    made, mask = resample_frames(noise(1, 8, 8), behind, shifted)
    assert not mask.any()
    assert not made.any()


def test_a_lens_of_another_size_is_refused():
    lens = Pinhole.from_fov(fov_x_deg=60, height=36, width=60)
    with pytest.raises(ValueError, match="lens must be for the frames' size, 12 x 20"):
        resample_frames(noise(1, 12, 20), lens, lens)
