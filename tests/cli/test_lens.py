"""``merope lens``: what is printed, against files of rays and facts of real cameras."""

import json

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.cli.main import run
from tests.cameras.test_expected_rays import fitted_to_rays, read_rays
from tests.support.shared import shared_file

CALIB = "data/fisheye/calib/"
TUMVI = [
    (f"tumvi_cam{index}_{kind}", CALIB + name, ["--camera", f"cam{index}"])
    for kind, name in (("kb4", "tumvi_kb4.yaml"), ("ds", "tumvi_ds.json"), ("eucm", "tumvi_eucm.json"))
    for index in (0, 1)
]
GRIDS = [
    *TUMVI,
    ("vi_car_cam0_mei", CALIB + "vi_car_cam0_mei.yaml", []),
    ("vi_car_cam0_pinhole", CALIB + "vi_car_cam0_pinhole.yaml", []),
    ("mynteye_left_mei", CALIB + "mynteye_left_mei.yaml", []),
    ("woodscape_front", "data/fisheye/woodscape_front.json", []),
    ("surround_view_front", "data/fisheye/surround_view_front.yaml", ["--format", "opencv-fisheye"]),
    ("pyocam_fisheye_1", "data/fisheye/pyocam_fisheye_1.json", ["--height", "778", "--width", "1032"]),
    *(
        (f"rds_hq_ftheta_{name}", f"data/rds_hq/ftheta_{name}.npy", [])
        for name in ("front_wide_120fov", "cross_left_120fov", "front_tele_30fov")
    ),
]  # fmt: skip
# The files hold 12 digits, those of Aria 10.
DIGITS = {"rays": 1e-11, "aria": 1.5e-10}


def table(text: str) -> np.ndarray:
    head, *rows = text.splitlines()
    assert head == "u,v,x,y,z"
    return np.array([[float(field) for field in row.split(",")] for row in rows])


@pytest.mark.parametrize(("rays", "calibration", "flags"), GRIDS, ids=[row[0] for row in GRIDS])
def test_every_file_of_rays_comes_out_of_its_calibration(rays, calibration, flags, capsys):
    expected = np.loadtxt(shared_file(f"data/fisheye/rays/{rays}.csv"), delimiter=",", skiprows=1)
    assert run(["lens", "rays", str(shared_file(calibration)), *flags]) == 0
    found = table(capsys.readouterr().out)
    assert found.shape == expected.shape
    assert np.abs(found - expected)[:, :2].max() == 0
    assert np.abs(found - expected)[:, 2:].max() < DIGITS["rays"]


def test_a_lens_that_folds_leaves_pixels_out_and_says_how_many(tmp_path, capsys):
    # The calibration itself is not at hand; the file of rays determines it.
    pixels, dirs_cam = read_rays("data/fisheye/rays/surround_view_left.csv")
    lens = fitted_to_rays(pixels, dirs_cam, height=640, width=960)
    (tmp_path / "left.json").write_text(json.dumps(lens.to_dict()))
    assert run(["lens", "rays", str(tmp_path / "left.json")]) == 0
    printed = capsys.readouterr()
    found = table(printed.out)
    assert np.abs(found - torch.cat((pixels, dirs_cam), -1).numpy()).max() < 1e-9
    assert "27 of 81 pixels have no ray" in printed.err


@pytest.mark.parametrize("camera", ["camera-rgb", "camera-slam-left", "camera-slam-right"])
def test_rays_of_given_pixels_are_arias_own(camera, capsys):
    path = shared_file(f"data/fisheye/aria_adt/{camera}_rays.csv")
    expected = np.loadtxt(path, delimiter=",", skiprows=1)
    calibration = shared_file("data/fisheye/aria_adt/calibration.json")
    assert run(["lens", "rays", str(calibration), "--camera", camera, "--pixels", str(path)]) == 0
    found = table(capsys.readouterr().out)
    assert found.shape == expected.shape and np.abs(found - expected).max() < DIGITS["aria"]


def test_pixels_count_from_the_origin_that_is_asked_for(tmp_path, capsys):
    lens = Pinhole(fx=10.0, fy=10.0, cx=4.5, cy=2.5, height=6, width=10, pixel_origin="center")
    path = tmp_path / "lens.json"
    path.write_text(json.dumps(lens.to_dict()))
    rows = []
    for flags in (
        ["--pixel", "0", "0", "4.5", "2.5"],
        ["--pixel", "0.5", "0.5", "5", "3", "--pixel-origin", "corner"],
    ):
        assert run(["lens", "rays", str(path), *flags]) == 0
        rows.append(table(capsys.readouterr().out))
    assert (rows[0][:, 2:] == rows[1][:, 2:]).all() and rows[0][1, 2:].tolist() == [0, 0, 1]
    assert run(["lens", "rays", str(path), "--pixel", "1", "1", "--pixels", str(path)]) == 2


def test_info_prints_model_parameters_fields_of_view_and_place(capsys):
    path = str(shared_file(CALIB + "tumvi_ds.json"))
    assert run(["lens", "info", path, "--camera", "cam0"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "double_sphere",
        "512 x 512",
        "(basalt)",
        "-0.172130860344",
        "centre of the first pixel",
        "horizontal field of view",
        "place on imu",
    ):
        assert part in printed
    assert run(["lens", "info", path, "--camera", "cam0", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["lens"]["alpha"] == 0.5931177593944744 and facts["format"] == "basalt"
    assert facts["max_off_axis_deg"] == pytest.approx(118.8, abs=0.05)
    assert facts["share_with_ray"] == 1


def test_info_says_which_cameras_and_formats_there_are(capsys):
    assert run(["lens", "info", str(shared_file(CALIB + "tumvi_ds.json"))]) == 1
    assert "cam0, cam1" in capsys.readouterr().err
    assert run(["lens", "info", str(shared_file("data/fisheye/surround_view_front.yaml"))]) == 1
    assert "opencv or opencv-fisheye" in capsys.readouterr().err


NINE = ["--columns", "9", "--rows", "9"]


def test_compare_prints_median_and_largest_angle(capsys):
    one, other = (str(shared_file(CALIB + name)) for name in ("tumvi_kb4.yaml", "tumvi_ds.json"))
    assert run(["lens", "compare", one, other, "--camera", "cam0", "--radius", "250", *NINE]) == 0
    printed = capsys.readouterr().out
    assert "kannala_brandt and double_sphere" in printed
    assert "median   0.0859 degrees" in printed and "largest  0.1557 degrees" in printed
    assert run(["lens", "compare", one, other, "--camera", "cam0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["one"]["model"] == "kannala_brandt"
    assert (
        run(["lens", "compare", one, str(shared_file(CALIB + "mynteye_left_mei.yaml")), "--camera", "cam0"])
        == 1
    )
    assert "camera" in capsys.readouterr().err
