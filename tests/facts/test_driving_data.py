"""Facts of driving data sets that commands show, beside the trajectories of tests/data/poses/measured_trajectories.txt."""

import json

import numpy as np
import pytest

from merope.cli.main import run
from tests.support.said import agrees, converted, printed, said
from tests.support.shared import shared_file

KITTI = "data/kitti_odom"
SAMPLE = "data/nuscenes/scene-0061_one_sample"


def test_kitti_51_poses_beside_the_video_are_the_first_of_their_sequence(tmp_path):
    part, _ = converted(tmp_path, shared_file(f"{KITTI}/video/06_poses_first51.txt"), "--format", "kitti")
    whole, _ = converted(tmp_path, shared_file(f"{KITTI}/poses/06.txt"), "--format", "kitti", "--count", "51")
    assert len(part) == 51 and np.array_equal(part, whole)


def test_kitti_steps_of_the_video_are_even():
    facts = said("poses", "inspect", shared_file(f"{KITTI}/video/06_poses_first51.txt"), "--format", "kitti")[
        "facts"
    ]
    assert agrees(facts["path_length"], "59.86") and agrees(facts["mean_step"], "1.197")


@pytest.mark.parametrize(("camera", "baseline"), [("P0", "0.0000"), ("P1", "0.5372")])
def test_kitti_stereo_baseline_and_lens(camera, baseline):
    found = said(
        "lens",
        "info",
        shared_file(f"{KITTI}/video/06_calib.txt"),
        "--camera",
        camera,
        "--height",
        370,
        "--width",
        1226,
    )
    assert agrees(found["T_body_cam"][0][3], baseline)
    assert [found["lens"][name] for name in ("fx", "cx", "cy")] == [707.0912, 601.8873, 183.1104]


def test_nuscenes_one_sample_is_frame_0_of_the_scene(tmp_path):
    transforms = shared_file("data/nuscenes/scene-0061_CAM_FRONT_transforms.json")
    ours, _ = converted(tmp_path, shared_file(SAMPLE), "--format", "nuscenes", "--camera", "CAM_FRONT")
    theirs, _ = converted(tmp_path, transforms, "--format", "nerfstudio", "--count", "1")
    # A coordinate of 1180 m has steps of 2e-13.
    assert np.abs(ours[0, :, :3] - theirs[0, :, :3]).max() <= 7e-16
    assert np.abs(ours[0, :, 3] - theirs[0, :, 3]).max() <= 3e-13
    lenses = [
        said("poses", "inspect", file, *flags)["camera"]
        for file, flags in (
            (shared_file(SAMPLE), ("--format", "nuscenes", "--camera", "CAM_FRONT")),
            (transforms, ("--format", "nerfstudio")),
        )
    ]
    assert [lenses[0][name] for name in ("fx", "cx")] == [lenses[1][name] for name in ("fx", "cx")]


FOCAL = {
    "CAM_FRONT": "1266.4",
    "CAM_FRONT_RIGHT": "1260.8",
    "CAM_BACK_RIGHT": "1259.5",
    "CAM_BACK": "809.2",
    "CAM_BACK_LEFT": "1256.7",
    "CAM_FRONT_LEFT": "1272.6",
}


@pytest.mark.parametrize("camera", FOCAL)
def test_nuscenes_cameras_and_the_car_they_share(tmp_path, camera):
    calibration = shared_file(f"{SAMPLE}/v1.0-test/calibrated_sensor.json")
    found = said("lens", "info", calibration, "--camera", camera)
    assert agrees(found["lens"]["fx"], FOCAL[camera])
    ((T_world_cam,), _) = converted(tmp_path, shared_file(SAMPLE), "--format", "nuscenes", "--camera", camera)
    T_car_cam = np.array(found["T_body_cam"])
    R_world_car = T_world_cam[:, :3] @ T_car_cam[:3, :3].T
    place = T_world_cam[:, 3] - R_world_car @ T_car_cam[:3, 3]
    # Each image has a pose of its own. The table's first is the lidar's, half a millisecond after the back left image.
    assert place == pytest.approx([411.3, 1180.89, 0.0], abs=0.01 if camera == "CAM_BACK_LEFT" else 0.6)
    assert abs(place[2]) < 1e-9


def test_argoverse_rows_are_five_milliseconds_apart_or_next_to_nothing(tmp_path):
    path = shared_file("data/av2/7fab2350/city_SE3_egovehicle.feather")
    times = said("poses", "inspect", path, "--format", "argoverse2")["facts"]["times"]
    assert agrees(times["median_spacing"] * 1e3, "5.07")
    _, stamps = converted(tmp_path, path, "--format", "argoverse2")
    spacing = np.diff(stamps)
    assert agrees(1 / np.mean(spacing < 1e-6), "9")
    assert spacing.min() == pytest.approx(1e-9, abs=1e-14)


def test_argoverse_speeds_come_after_resampling_by_time(tmp_path):
    path = shared_file("data/av2/7fab2350/city_SE3_egovehicle.feather")
    raw = said("poses", "inspect", path, "--format", "argoverse2")["facts"]
    out = tmp_path / "even.json"
    printed("poses", "resample", str(path), "--out", str(out), "--format", "argoverse2", "--fps", "10")
    even = said("poses", "inspect", out, "--format", "merope")["facts"]
    # 75 m in 15.95 s. The slowest and the fastest step of rows that are next to each other are their rounding's.
    assert even["speed"][2] - even["speed"][0] < raw["speed"][2] - raw["speed"][0]
    assert even["path_length"] / even["times"]["span"] == pytest.approx(75.04 / 15.95, rel=0.02)


@pytest.mark.parametrize(
    ("camera", "focal", "k1"),
    [
        ("ring_rear_left", "1683.9", None),
        ("ring_front_center", "1776.0", "-0.241"),
        ("ring_side_left", None, "-0.285"),
    ],
)
def test_argoverse_cameras_at_the_ends_of_their_ranges(camera, focal, k1):
    path = shared_file("data/av2/7fab2350/calibration/intrinsics.feather")
    found = said("lens", "info", path, "--camera", camera)
    assert focal is None or agrees(found["lens"]["fx"], focal)
    # The published images are without distortion; what the glass had is a note.
    (note,) = found["notes"]
    assert k1 is None or agrees(float(note.partition("k1 ")[2].partition(",")[0]), k1)


def test_argoverse_lists_nine_cameras(capsys):
    assert run(["lens", "info", str(shared_file("data/av2/7fab2350/calibration/intrinsics.feather"))]) == 1
    assert "holds 9 cameras: ring_front_center" in capsys.readouterr().err


def test_comma2k19_positions_move_as_its_velocities_say():
    (note,) = [
        note
        for note in said("poses", "inspect", shared_file("data/comma2k19"), "--format", "comma2k19")["notes"]
        if "frame_velocities" in note
    ]
    assert agrees(float(note.partition("to ")[2].split()[0]), "0.006")


def test_comma2k19_quaternions_take_the_camera_to_the_earth(tmp_path):
    T_world_cam, _ = converted(tmp_path, shared_file("data/comma2k19"), "--format", "comma2k19")
    velocity = np.load(shared_file("data/comma2k19/frame_velocities.npy"))
    # OpenCV's right, down, forward as forward, right, down.
    seen = np.einsum("tji,tj->ti", T_world_cam[:, :, :3], velocity)[:, [2, 0, 1]].mean(0)
    assert all(agrees(value, known) for value, known in zip(seen, ("16.8", "0.2", "-1.1"), strict=True))
    up = T_world_cam[:, :, 3] / np.linalg.norm(T_world_cam[:, :, 3], axis=1, keepdims=True)
    seen = np.einsum("tji,tj->ti", T_world_cam[:, :, :3], up)[:, [2, 0, 1]].mean(0)
    assert all(agrees(value, known) for value, known in zip(seen, ("-0.06", "-0.02", "-0.997"), strict=True))


def test_tri_cameras_agree_on_one_car(tmp_path):
    path = shared_file("data/tri_dgp/poses_calib.json")
    mounts = json.loads(path.read_text())["calibration"]
    places = []
    for camera, focal in (("CAMERA_01", "2181.5"), ("CAMERA_06", "1060.8")):
        flags = ("--format", "tri-dgp", "--camera", camera)
        assert agrees(said("poses", "inspect", path, *flags)["camera"]["fx"], focal)
        T_world_cam, _ = converted(tmp_path, path, *flags)
        mount = mounts[camera]["T_ego_camera"]
        w, *xyz = (mount["rotation"][f"q{axis}"] for axis in "wxyz")
        x, y, z = xyz
        R_car_cam = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        center_car = np.array([mount["translation"][axis] for axis in "xyz"])
        places.append(T_world_cam[:, :, 3] - T_world_cam[:, :, :3] @ R_car_cam.T @ center_car)
    assert np.linalg.norm(places[0] - places[1], axis=1).max() < 0.01
    steps = np.linalg.norm(np.diff(places[0], axis=0), axis=1)
    assert agrees(steps.mean(), "1.27") and agrees(steps.mean() / 0.1, "12.7")
