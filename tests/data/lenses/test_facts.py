"""Fields of view and differences of lenses, against lenses whose answer is known and real ones that were measured."""

import math

import pytest
import torch

from merope.cameras import Equirectangular, KannalaBrandt, Pinhole
from merope.data.lenses.calibration_files import CalibrationError, read_calibration
from merope.data.lenses.facts import compare_lenses, lens_facts, pixel_grid, read_pixels
from tests.support.shared import shared_file


@pytest.mark.parametrize("origin", ["center", "corner"])
def test_a_pinhole_has_the_field_of_view_it_was_made_for(origin):
    facts = lens_facts(Pinhole.from_fov(fov_x_deg=90, height=480, width=640, pixel_origin=origin))
    assert facts.fov_x_deg == pytest.approx(90, abs=1e-9)
    assert facts.fov_y_deg == pytest.approx(2 * math.degrees(math.atan(0.75)), abs=1e-9)
    assert facts.fov_diagonal_deg == pytest.approx(2 * math.degrees(math.atan(1.25)), abs=1e-9)
    assert facts.share_with_ray == 1 and facts.edges_without_ray == ()


def test_a_fisheye_beyond_half_a_turn_has_its_angles_added():
    lens = KannalaBrandt.from_fov(fov_x_deg=220, height=100, width=200)
    facts = lens_facts(lens)
    assert facts.fov_x_deg == pytest.approx(220, abs=1e-9)
    # The image circle touches left and right; the corners lie outside.
    assert facts.edges_without_ray == ("diagonal",)
    assert facts.fov_diagonal_deg == pytest.approx(220, abs=0.3)
    # A band of height 1 through a circle of radius 1, in units of the radius.
    area = math.sqrt(3) / 2 + math.pi / 3
    assert facts.share_with_ray == pytest.approx(area / 2, abs=2e-3)
    assert facts.max_off_axis_deg == pytest.approx(110, abs=0.7)


def test_a_full_sphere_has_a_full_turn():
    facts = lens_facts(Equirectangular.full_sphere(height=64, width=128))
    assert (facts.fov_x_deg, facts.fov_y_deg) == (pytest.approx(360, abs=1e-9), pytest.approx(180, abs=1e-9))


def test_a_part_beside_the_axis_has_the_angle_between_its_edges():
    whole = Pinhole.from_fov(fov_x_deg=90, height=100, width=200)
    part = whole.crop(top=0, left=150, height=100, width=50)
    facts = lens_facts(part)
    assert facts.fov_x_deg == pytest.approx(45 - math.degrees(math.atan(0.5)), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "fov_x_deg"),
    [("front_wide_120fov", 118.8), ("cross_left_120fov", 119.8), ("front_tele_30fov", 29.75)],
)
def test_fields_of_view_of_real_f_theta_lenses(name, fov_x_deg):
    facts = lens_facts(read_calibration(shared_file(f"data/rds_hq/ftheta_{name}.npy")))
    assert facts.fov_x_centers_deg == pytest.approx(fov_x_deg, abs=0.05 if fov_x_deg > 100 else 0.005)
    assert 0 < facts.fov_x_deg - facts.fov_x_centers_deg < 0.07


def test_woodscape_sees_behind_itself_in_the_corners():
    facts = lens_facts(read_calibration(shared_file("data/fisheye/woodscape_front.json")))
    assert facts.max_off_axis_deg == pytest.approx(112.9, abs=0.05)


def test_three_calibrations_of_one_camera_differ_as_measured():
    kb4, ds, eucm = (
        read_calibration(shared_file(f"data/fisheye/calib/tumvi_{name}"), camera="cam0")
        for name in ("kb4.yaml", "ds.json", "eucm.json")
    )
    found = compare_lenses(kb4, ds, radius_px=250, columns=9, rows=9)
    assert found.median_deg == pytest.approx(0.086, abs=5e-4)
    assert found.max_deg == pytest.approx(0.156, abs=5e-4)
    assert compare_lenses(ds, eucm, radius_px=250, columns=9, rows=9).median_deg == pytest.approx(
        0.003, abs=5e-4
    )


def test_two_models_of_one_car_camera_differ_most_in_the_corners():
    mei, pinhole = (
        read_calibration(shared_file(f"data/fisheye/calib/vi_car_cam0_{name}.yaml"))
        for name in ("mei", "pinhole")
    )
    found = compare_lenses(mei, pinhole, columns=9, rows=9)
    assert found.median_deg == pytest.approx(0.074, abs=5e-4)
    assert found.max_deg == pytest.approx(4.1, abs=0.05)
    u, v = found.pixel_at_max
    assert u in (0, 751) and v in (0, 479)


def test_physical_pixels_are_compared_whatever_their_origins():
    lens = Pinhole.from_fov(fov_x_deg=60, height=10, width=20, pixel_origin="center")
    found = compare_lenses(lens, lens.with_pixel_origin("corner"))
    assert found.max_deg < 1e-12 and found.num_pixels == 200 and found.num_one_sided == 0


def test_pixels_with_one_ray_alone_are_counted_and_left_out():
    wide = KannalaBrandt.from_fov(fov_x_deg=180, height=50, width=100, max_theta=3.0)
    circle = KannalaBrandt.from_fov(fov_x_deg=180, height=50, width=100)
    found = compare_lenses(wide, circle)
    assert found.max_deg < 1e-9 and found.num_one_sided > 0
    assert found.num_pixels + found.num_one_sided == 5000
    with pytest.raises(ValueError, match="images of one size"):
        compare_lenses(wide, circle.resize(height=25, width=50))


def test_the_grid_goes_from_the_first_pixel_to_the_last():
    lens = Pinhole.from_fov(fov_x_deg=60, height=11, width=21, pixel_origin="corner")
    grid = pixel_grid(lens, columns=3, rows=2)
    assert grid.tolist() == [[0.5, 0.5], [10.5, 0.5], [20.5, 0.5], [0.5, 10.5], [10.5, 10.5], [20.5, 10.5]]
    one = Pinhole(fx=torch.ones(2), fy=1.0, cx=1.0, cy=1.0, height=2, width=2, pixel_origin="center")
    with pytest.raises(ValueError, match="views"):
        lens_facts(one)


def test_pixels_come_from_csv_with_or_without_a_heading(tmp_path):
    path = tmp_path / "pixels.csv"
    path.write_text("u,v,x\n1,2,9\n\n3.5,4,9\n")
    assert read_pixels(path).tolist() == [[1, 2], [3.5, 4]]
    path.write_text("1,2\nthree,4\n")
    with pytest.raises(CalibrationError, match="line 2 must begin with a pixel's u,v"):
        read_pixels(path)
    path.write_text("u,v\n")
    with pytest.raises(CalibrationError, match="no pixels"):
        read_pixels(path)
