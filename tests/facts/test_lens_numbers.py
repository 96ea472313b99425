"""Facts of real lenses as ``merope lens`` shows them."""

import json

import numpy as np
import pytest

from merope.data.lenses.facts import pixel_grid
from tests.cameras.calibrations import lens_of_rays
from tests.support.said import agrees, converted, printed, said
from tests.support.shared import shared_file

CALIB = "data/fisheye/calib/"
ARIA = "data/fisheye/aria_adt"
OFF_AXIS = [
    (CALIB + "tumvi_kb4.yaml", ("--camera", "cam0"), "115.3"),
    (CALIB + "tumvi_kb4.yaml", ("--camera", "cam1"), "114.5"),
    (CALIB + "tumvi_ds.json", ("--camera", "cam0"), "118.8"),
    (CALIB + "tumvi_ds.json", ("--camera", "cam1"), "119.8"),
    (CALIB + "tumvi_eucm.json", ("--camera", "cam0"), "117.9"),
    (CALIB + "tumvi_eucm.json", ("--camera", "cam1"), "118.8"),
    (CALIB + "vi_car_cam0_mei.yaml", (), "56.9"),
    (CALIB + "mynteye_left_mei.yaml", (), "73.7"),
    (CALIB + "vi_car_cam0_pinhole.yaml", (), "52.8"),
    ("data/fisheye/woodscape_front.json", (), "112.9"),
    ("data/fisheye/surround_view_front.yaml", ("--format", "opencv-fisheye"), "102.0"),
    ("data/fisheye/pyocam_fisheye_1.json", ("--height", "778", "--width", "1032"), "121.6"),
    ("data/rds_hq/ftheta_front_wide_120fov.npy", (), "77.2"),
    ("data/rds_hq/ftheta_cross_left_120fov.npy", (), "77.7"),
    ("data/rds_hq/ftheta_front_tele_30fov.npy", (), "17.8"),
]


def off_axis_deg(text: str) -> float:
    """The largest angle of any ray from the optical axis."""
    dirs_cam = np.array([[float(field) for field in row.split(",")[2:]] for row in text.splitlines()[1:]])
    return float(np.rad2deg(np.arctan2(np.hypot(*dirs_cam[:, :2].T), dirs_cam[:, 2])).max())


@pytest.mark.parametrize(("file", "flags", "known"), OFF_AXIS)
def test_rays_of_the_grid_go_as_far_from_the_axis_as_known(file, flags, known):
    assert agrees(off_axis_deg(printed("lens", "rays", str(shared_file(file)), *flags)), known)


@pytest.mark.parametrize(
    ("camera", "count", "focal", "known"),
    [
        ("camera-rgb", 47, "610.94", "54.9"),
        ("camera-slam-left", 65, "241.09", "77.8"),
        ("camera-slam-right", 65, "241.08", "77.1"),
    ],
)
def test_aria_cameras_see_the_known_rays_and_focal_lengths(camera, count, focal, known):
    calibration = shared_file(f"{ARIA}/calibration.json")
    rays = printed("lens", "rays", str(calibration), "--camera", camera)
    assert len(rays.splitlines()) == 1 + count
    assert agrees(off_axis_deg(rays), known)
    assert agrees(said("lens", "info", calibration, "--camera", camera)["lens"]["fx"], focal)


@pytest.mark.parametrize(
    ("name", "fov_x_deg"),
    [("front_wide_120fov", "118.8"), ("cross_left_120fov", "119.8"), ("front_tele_30fov", "29.75")],
)
def test_f_theta_fields_of_view(name, fov_x_deg):
    found = said("lens", "info", shared_file(f"data/rds_hq/ftheta_{name}.npy"))
    assert agrees(found["fov_x_centers_deg"], fov_x_deg)


@pytest.mark.parametrize(
    ("name", "focal"),
    [
        ("front_wide_120fov", "945.54932"),
        ("cross_left_120fov", "938.51453"),
        ("front_tele_30fov", "3675.74976"),
    ],
)
def test_rds_hq_pinholes(name, focal):
    lens = said("lens", "info", shared_file(f"data/rds_hq/pinhole_{name}.npy"))["lens"]
    assert agrees(lens["fx"], focal) and agrees(lens["fy"], focal)


@pytest.mark.parametrize(
    ("one", "other", "flags", "median", "largest"),
    [
        ("tumvi_kb4.yaml", "tumvi_ds.json", ("--camera", "cam0", "--radius", "250"), "0.086", "0.156"),
        ("tumvi_ds.json", "tumvi_eucm.json", ("--camera", "cam0", "--radius", "250"), "0.003", None),
        ("vi_car_cam0_mei.yaml", "vi_car_cam0_pinhole.yaml", (), "0.074", "4.1"),
    ],
)
def test_calibrations_of_one_camera_differ_as_measured(one, other, flags, median, largest):
    paths = (shared_file(CALIB + name) for name in (one, other))
    found = said("lens", "compare", *paths, *flags, "--columns", "9", "--rows", "9")
    assert agrees(found["median_deg"], median)
    assert largest is None or agrees(found["max_deg"], largest)


@pytest.mark.parametrize("name", ["tumvi_cam0_kb4", "tumvi_cam1_kb4", "surround_view_front"])
def test_kannala_brandt_is_opencvs_fisheye_in_front_of_the_camera(name):
    cv2 = pytest.importorskip("cv2")
    lens = lens_of_rays(name)
    pixels = pixel_grid(lens, columns=9, rows=9)
    dirs_cam, valid = lens.unproject(pixels)
    ahead = valid & (dirs_cam[:, 2] > 0.05)
    K = np.array([[lens.fx, 0, lens.cx], [0, lens.fy, lens.cy], [0, 0, 1]], dtype=np.float64)
    D = np.array([lens.k1, lens.k2, lens.k3, lens.k4], dtype=np.float64)
    criteria = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 100, 1e-15)
    plane = cv2.fisheye.undistortPoints(pixels[ahead].numpy()[None], K, D, criteria=criteria)[0]
    theirs = np.column_stack([plane, np.ones(len(plane))])
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    apart = np.rad2deg(np.linalg.norm(np.cross(theirs, dirs_cam[ahead].numpy()), axis=1))
    assert len(apart) > 50 and apart.max() < 1e-13


def test_the_lens_of_comma2k19_is_a_pinhole_of_the_size_of_its_images():
    found = said("lens", "info", shared_file("data/comma2k19/camera_intrinsics.txt"))
    assert (found["lens"]["model"], found["lens"]["width"], found["lens"]["height"]) == ("pinhole", 1164, 874)


@pytest.mark.parametrize(
    ("camera", "apart"),
    [("camera-slam-left", 1.1e-6), ("camera-slam-right", 1.1e-6), ("camera-rgb", 1.05e-4)],
)
def test_aria_poses_are_of_the_moments_of_the_pictures(tmp_path, camera, apart):
    _, times = converted(tmp_path, shared_file(f"{ARIA}/aria_trajectory.csv"), "--format", "aria")
    shots = json.loads(shared_file(f"{ARIA}/calibration.json").read_text())["cameras"][camera][
        "timestamps_ns"
    ]
    nearest = np.abs(times[:, None] - np.array(shots)[None] / 1e9).min(axis=0)
    assert len(nearest) == 3 and nearest.max() < apart
