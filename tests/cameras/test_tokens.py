import math

import pytest
import torch

from merope.cameras import KannalaBrandt, Pinhole, TokenGrid
from tests.cameras.lenses import LENSES


def test_token_rays_match_a_table_made_by_hand():
    camera = Pinhole(fx=400.0, fy=420.0, cx=250.0, cy=140.0, width=512, height=288, pixel_origin="corner")
    dirs_cam, valid = TokenGrid(9, 16).token_rays(camera)
    assert dirs_cam.shape == (144, 3)
    assert valid.all()
    for row in range(9):
        for col in range(16):
            x, y = (32 * col + 16 - 250) / 400, (32 * row + 16 - 140) / 420
            length = math.sqrt(x * x + y * y + 1)
            expected = [x / length, y / length, 1 / length]
            assert dirs_cam[16 * row + col].tolist() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("camera", LENSES.values(), ids=LENSES.keys())
@pytest.mark.parametrize(("rows", "cols"), [(6, 10), (16, 16)], ids=["even_patch", "odd_patch"])
def test_token_has_the_ray_of_its_patch_centre_in_either_origin(camera, rows, cols):
    grid = TokenGrid(rows, cols)
    other = camera.with_pixel_origin("center" if camera.pixel_origin == "corner" else "corner")
    dirs_cam, valid = grid.token_rays(camera)
    assert (dirs_cam - grid.token_rays(other)[0]).abs().max() < 1e-12
    # The centre of a patch is the mean of its pixels' centres.
    patch_height, patch_width = 48 // rows, 80 // cols
    centers = camera.pixel_centers().reshape(rows, patch_height, cols, patch_width, 2).mean((1, 3))
    expected, expected_valid = camera.unproject(centers.flatten(0, 1))
    assert (dirs_cam - expected).abs().max() < 1e-12
    assert torch.equal(valid, expected_valid)


def test_odd_patch_has_the_ray_of_its_middle_pixel():
    camera = LENSES["kannala_brandt"]
    dirs_cam, _ = TokenGrid(16, 16).token_rays(camera)
    assert (dirs_cam.reshape(16, 16, 3) - camera.pixel_rays()[0][1::3, 2::5]).abs().max() < 1e-12


def test_rows_and_columns_are_row_major():
    rows, cols = TokenGrid(2, 3).rows_cols()
    assert rows.tolist() == [0, 0, 0, 1, 1, 1]
    assert cols.tolist() == [0, 1, 2, 0, 1, 2]
    assert TokenGrid(2, 3).num_tokens == 6


def test_views_with_their_own_focal_length_have_their_own_token_rays():
    camera = Pinhole.from_fov(
        fov_x_deg=torch.tensor([[50.0, 60.0, 70.0], [80.0, 90.0, 100.0]], dtype=torch.float64),
        height=288,
        width=512,
    )
    dirs_cam, valid = TokenGrid(9, 16).token_rays(camera)
    assert dirs_cam.shape == (2, 3, 144, 3)
    assert valid.shape == (2, 3, 144)
    assert (dirs_cam[0, 1] - dirs_cam[0, 2]).abs().max() > 0.01


def test_tokens_outside_the_image_circle_are_invalid():
    camera = KannalaBrandt.from_fov(fov_x_deg=200.0, height=48, width=80)
    valid = TokenGrid(6, 10).token_rays(camera)[1].reshape(6, 10)
    assert not valid[0, 0]
    assert valid[3, 0]


@pytest.mark.parametrize("grid", [TokenGrid(16, 9), TokenGrid(7, 16)])
def test_grid_that_does_not_divide_the_raster_is_refused(grid):
    with pytest.raises(ValueError, match="swapped"):
        grid.token_rays(Pinhole.from_fov(fov_x_deg=60.0, height=288, width=512))


def test_empty_grid_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        TokenGrid(0, 4)
