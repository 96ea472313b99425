"""Rasters, parameters and the JSON form."""

import pytest
import torch

from merope.cameras import CameraModel, KannalaBrandt, OpenCV, Pinhole, UnifiedCamera
from tests.cameras.lenses import RASTER


def test_halving_the_raster_moves_the_principal_point_by_its_origin():
    corner = Pinhole(fx=700.0, fy=700.0, cx=400.0, cy=300.0, width=800, height=600, pixel_origin="corner")
    center = Pinhole(fx=700.0, fy=700.0, cx=399.5, cy=299.5, width=800, height=600, pixel_origin="center")
    assert corner.resize(height=300, width=400).cx == 200.0
    assert center.resize(height=300, width=400).cx == 199.5


def test_first_pixel_centre_follows_the_origin():
    corner = Pinhole(**RASTER)
    assert corner.pixel_centers()[0, 0].tolist() == [0.5, 0.5]
    assert corner.pixel_centers()[47, 79].tolist() == [79.5, 47.5]
    assert corner.with_pixel_origin("center").pixel_centers()[0, 79].tolist() == [79.0, 0.0]
    assert corner.pixel_centers().shape == (48, 80, 2)


@pytest.mark.parametrize(("origin", "low"), [("corner", 0.0), ("center", -0.5)])
def test_image_covers_its_outer_pixels_whole(origin, low):
    camera = Pinhole(**RASTER | {"pixel_origin": origin})
    pixels = torch.tensor([[0.0, 0], [80, 48], [80.01, 3], [-0.01, 3], [3, 48.01]], dtype=torch.float64)
    assert camera.in_image(pixels + low).tolist() == [True, True, False, False, False]


def test_pixel_outside_the_image_can_still_have_a_ray():
    camera = Pinhole(**RASTER)
    outside = torch.tensor([-30.0, 10.0], dtype=torch.float64)
    assert camera.unproject(outside)[1]
    assert not camera.in_image(outside)


def test_swapped_height_and_width_are_noticed():
    with pytest.raises(ValueError, match="swapped"):
        Pinhole(fx=500.0, fy=500.0, cx=400.0, cy=144.0, width=288, height=512, pixel_origin="corner")
    with pytest.raises(ValueError, match="cy must lie within the height of 288"):
        Pinhole(fx=500.0, fy=500.0, cx=200.0, cy=300.0, width=512, height=288, pixel_origin="corner")


def test_crop_beside_the_principal_point_says_so_and_can_be_saved():
    part = Pinhole(**RASTER).crop(top=0, left=60, height=10, width=20)
    assert part.principal_point_outside
    assert part.cx == pytest.approx(-21.3)
    assert CameraModel.from_dict(part.to_dict()) == part
    assert part.resize(height=20, width=40).width == 40


@pytest.mark.parametrize(
    "window",
    [
        {"top": -1, "left": 0, "height": 5, "width": 5},
        {"top": 0, "left": 76, "height": 5, "width": 5},
        {"top": 44, "left": 0, "height": 5, "width": 5},
    ],
)
def test_crop_beyond_the_raster_is_refused(window):
    with pytest.raises(ValueError, match="leaves the raster"):
        Pinhole(**RASTER).crop(**window)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fx": 0.0}, "fx must be positive"),
        ({"fy": -3.0}, "fy must be positive"),
        ({"cx": float("nan")}, "cx must be finite"),
        ({"width": 0}, "width must be a positive whole number"),
        ({"pixel_origin": "middle"}, "'corner' or 'center'"),
        ({"fx": torch.ones(2), "fy": torch.ones(3)}, "one .*view.* shape"),
    ],
)
def test_meaningless_parameters_are_refused(change, message):
    # Shape checks, where they run, refuse an unknown origin first.
    with pytest.raises(Exception, match=message if "pixel_origin" not in change else "pixel_origin"):
        Pinhole(**RASTER | change)


def test_lens_parameters_are_checked_too():
    with pytest.raises(ValueError, match="max_theta"):
        KannalaBrandt(**RASTER, max_theta=4.0)
    with pytest.raises(ValueError, match="xi must not be negative"):
        UnifiedCamera(**RASTER, xi=-0.1)
    with pytest.raises(ValueError, match="k3 must be finite"):
        OpenCV(**RASTER, k3=float("inf"))


def test_pixels_of_other_views_are_refused():
    camera = Pinhole(**RASTER | {"fx": torch.tensor([30.0, 40.0, 50.0])})
    with pytest.raises(ValueError, match=r"\[3, \.\.\., 2\]"):
        camera.unproject(torch.zeros(2, 5, 2))
    with pytest.raises(ValueError, match=r"\[3, \.\.\., 3\]"):
        camera.project(torch.ones(3))


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match="float64 or float32"):
        Pinhole(**RASTER).project(torch.ones(3, dtype=torch.bfloat16))


def test_gradients_reach_the_parameters_of_each_view():
    fx = torch.tensor([30.0, 40.0], dtype=torch.float64, requires_grad=True)
    dirs_cam, _ = Pinhole(**RASTER | {"fx": fx}).pixel_rays()
    dirs_cam[1, ..., 2].sum().backward()
    assert fx.grad[0] == 0
    assert fx.grad[1] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "thin_plate"}, "must be one of .*'kannala_brandt'"),
        ({"model": ["pinhole"]}, r"must be one of .*got \['pinhole'\]"),
        ({"k9": 1.0}, r"has no field \['k9'\]"),
    ],
)
def test_unknown_json_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        CameraModel.from_dict(Pinhole(**RASTER).to_dict() | change)


def test_incomplete_json_names_what_is_missing():
    data = Pinhole(**RASTER).to_dict()
    del data["pixel_origin"]
    with pytest.raises(ValueError, match="pixel_origin"):
        CameraModel.from_dict(data)


def test_different_lenses_are_not_equal():
    plain, other = Pinhole(**RASTER), Pinhole(**RASTER | {"fx": 41.5})
    assert plain != other
    assert plain != OpenCV(**RASTER)
    assert plain != "pinhole"


def test_numbers_do_not_pass_through_float32():
    camera = Pinhole(**RASTER)
    pixels, _ = camera.project(torch.tensor([1.0, 0.0, 4.0], dtype=torch.float64))
    assert pixels.tolist() == [41.0 / 4 + 38.7, 25.2]
