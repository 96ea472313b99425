"""Facts measured on files of other data sets come out of `merope poses inspect --json`, to the digits they are known to."""

import json
import math
from dataclasses import dataclass

import pytest

from merope.cli.main import run
from tests.support.shared import shared_file


@dataclass(frozen=True, kw_only=False)
class Row:
    """What is known of a trajectory file; numbers are text where their digits matter."""

    file: str
    format: str
    num_poses: int
    r_rt_error: str
    path: str
    steps: tuple[str, str]
    """Mean and largest."""
    box: tuple[str, str, str]
    rotation: str
    """Summed, degrees, by arccos of the matrices as they stand."""
    span: str | None = None
    spacing: tuple[str, str] | None = None
    coordinate: str | None = None
    fx: str | None = None


ROWS = (
    Row(
        "kitti_odom/poses/00.txt",
        "kitti",
        4541,
        "2e-07",
        "3724.19",
        ("0.8203", "1.3377"),
        ("563.52", "25.52", "496.2"),
        "3459.2",
    ),
    Row(
        "kitti_odom/poses/04.txt",
        "kitti",
        271,
        "1e-07",
        "393.645",
        ("1.4579", "1.6408"),
        ("0.55", "7.73", "393.56"),
        "33.2",
    ),
    Row(
        "kitti_odom/poses/06.txt",
        "kitti",
        1101,
        "2e-07",
        "1232.88",
        ("1.1208", "1.5138"),
        ("22.89", "9.63", "457.02"),
        "506.5",
    ),
    Row(
        "kitti_odom/poses/09.txt",
        "kitti",
        1591,
        "2e-07",
        "1705.05",
        ("1.0724", "1.5451"),
        ("465.04", "37.98", "567.59"),
        "1103.2",
    ),
    Row(
        "kitti_odom/estimates/00_ORB.txt.gz",
        "kitti",
        4541,
        "8e-07",
        "3705.1",
        ("0.8161", "1.3309"),
        ("564.53", "18.73", "497.33"),
        "3459.6",
    ),
    Row(
        "kitti_odom/estimates/00_SPTAM.txt.gz",
        "kitti",
        4541,
        "2e-15",
        "3718.5",
        ("0.8191", "1.3332"),
        ("568.14", "26.18", "492.67"),
        "3457.6",
    ),
    Row(
        "kitti_odom/estimates/09_example_0.txt",
        "kitti",
        1589,
        "1e-15",
        "84.309",
        ("0.0531", "0.2112"),
        ("21.24", "1.65", "27.41"),
        "1104.8",
    ),
    Row(
        "kitti_odom/estimates/09_example_1.txt",
        "kitti",
        1591,
        "7e-14",
        "1661.73",
        ("1.0451", "1.5854"),
        ("460.13", "33.44", "550.99"),
        "1095.4",
    ),
    Row(
        "kitti_odom/video/06_poses_first51.txt",
        "kitti",
        51,
        "1e-07",
        "59.86",
        ("1.1972", "1.2078"),
        ("0.98", "1.19", "59.84"),
        "4.1",
    ),
    Row(
        "kitti360/orbslam_test_0.txt",
        "kitti360",
        933,
        "1e-06",
        "783.021",
        ("0.8402", "1.2049"),
        ("301.18", "15.7", "167.4"),
        "864.5",
    ),
    Row(
        "kitti360/semantic_suma_test_0.txt",
        "kitti360",
        933,
        "2e-06",
        "769.224",
        ("0.8253", "1.2302"),
        ("156.18", "293.53", "3.4"),
        "874",
    ),
    Row(
        "nuscenes/scene-0061_CAM_FRONT_transforms.json",
        "nerfstudio",
        39,
        "3e-15",
        "91.496",
        ("2.4078", "4.8063"),
        ("25.81", "75.26", "0.04"),
        "100.5",
        coordinate="1179.6",
        fx="1266.42",
    ),
    Row(
        "nuscenes/scene-0553_CAM_FRONT_transforms.json",
        "nerfstudio",
        41,
        "2e-15",
        "0.013",
        ("0.0003", "0.001"),
        ("0.0", "0.0", "0.0"),
        "0.4",
        coordinate="1315.1",
        fx="1252.81",
    ),
    Row(
        "av2/7fab2350/city_SE3_egovehicle.feather",
        "argoverse2",
        2706,
        "7e-16",
        "75.044",
        ("0.0277", "0.1317"),
        ("63.62", "35.1", "2.4"),
        "93",
        span="15.95",
        spacing=("1.0e-09", "0.0100"),
        coordinate="5236.3",
    ),
    Row(
        "av2/adcf7d18/city_SE3_egovehicle.feather",
        "argoverse2",
        2637,
        "7e-16",
        "40.413",
        ("0.0153", "0.0642"),
        ("37.81", "14.01", "0.21"),
        "13.3",
        span="15.94",
        spacing=("1.0e-09", "0.0100"),
        coordinate="1506.7",
    ),
    Row(
        "re10k/cameractrl/0bf152ef84195293_16f.txt",
        "realestate10k",
        16,
        "7e-08",
        "2.998",
        ("0.1999", "0.2344"),
        ("1.15", "0.17", "2.65"),
        "40",
        spacing=("0.2669", "0.3003"),
        fx="0.4748",
    ),
    Row(
        "re10k/cameractrl/0bf152ef84195293_25f.txt",
        "realestate10k",
        25,
        "8e-08",
        "2.825",
        ("0.1177", "0.166"),
        ("0.6", "0.19", "2.62"),
        "44.6",
        spacing=("0.1668", "0.2002"),
        fx="0.4748",
    ),
    Row(
        "re10k/cameractrl/0c11dbe781b1c11c_16f.txt",
        "realestate10k",
        16,
        "8e-08",
        "2.896",
        ("0.193", "0.2318"),
        ("1.99", "0.4", "2.05"),
        "32.1",
        spacing=("0.2669", "0.3003"),
        fx="0.4854",
    ),
    Row(
        "re10k/cameractrl/0c11dbe781b1c11c_25f.txt",
        "realestate10k",
        25,
        "7e-08",
        "2.864",
        ("0.1193", "0.1507"),
        ("1.96", "0.4", "2.04"),
        "30.3",
        spacing=("0.1668", "0.2002"),
        fx="0.4854",
    ),
    Row(
        "re10k/cameractrl/0c9b371cc6225682_16f.txt",
        "realestate10k",
        16,
        "6e-08",
        "2.692",
        ("0.1795", "0.2272"),
        ("0.81", "0.1", "2.44"),
        "10.6",
        spacing=("0.2670", "0.3010"),
        fx="0.4793",
    ),
    Row(
        "re10k/cameractrl/0c9b371cc6225682_25f.txt",
        "realestate10k",
        25,
        "6e-08",
        "2.411",
        ("0.1004", "0.1331"),
        ("0.81", "0.12", "2.17"),
        "14.9",
        spacing=("0.1660", "0.2000"),
        fx="0.4793",
    ),
    Row(
        "re10k/cameractrl/0f47577ab3441480_16f.txt",
        "realestate10k",
        16,
        "6e-08",
        "1.827",
        ("0.1218", "0.198"),
        ("0.22", "0.46", "1.43"),
        "16.2",
        spacing=("0.2669", "0.3003"),
        fx="0.5077",
    ),
    Row(
        "re10k/cameractrl/0f47577ab3441480_25f.txt",
        "realestate10k",
        25,
        "6e-08",
        "1.634",
        ("0.0681", "0.1137"),
        ("0.16", "0.47", "1.16"),
        "11.1",
        spacing=("0.1668", "0.2002"),
        fx="0.5077",
    ),
    Row(
        "re10k/cameractrl/0f68374b76390082_16f.txt",
        "realestate10k",
        16,
        "6e-08",
        "2.362",
        ("0.1575", "0.1891"),
        ("1.38", "0.05", "1.73"),
        "51.8",
        spacing=("0.2669", "0.3003"),
        fx="0.4742",
    ),
    Row(
        "re10k/cameractrl/0f68374b76390082_25f.txt",
        "realestate10k",
        25,
        "6e-08",
        "2.301",
        ("0.0959", "0.1277"),
        ("1.37", "0.05", "1.67"),
        "50.7",
        spacing=("0.1668", "0.2002"),
        fx="0.4742",
    ),
    Row(
        "re10k/ac3d/018f7907401f2fef.camera_info.json",
        "ac3d",
        189,
        "8e-08",
        "2.318",
        ("0.0123", "0.0164"),
        ("1.21", "0.05", "1.81"),
        "39.5",
        fx="484.13",
    ),
    Row(
        "re10k/ac3d/018f7907401f2fef.camera_info_metric.json",
        "ac3d",
        189,
        "8e-08",
        "1.575",
        ("0.0084", "0.0111"),
        ("0.82", "0.03", "1.23"),
        "39.5",
        fx="484.13",
    ),
    Row(
        "re10k/ucpe_pose_files/20e7a3651ec30386.txt",
        "realestate10k",
        279,
        "6e-08",
        "4.251",
        ("0.0153", "0.0211"),
        ("0.78", "0.16", "4.15"),
        "8.5",
        spacing=("0.0334", "0.0334"),
        fx="0.4932",
    ),
    Row(
        "re10k/ucpe_pose_files/38f7ba7fd9a83069.txt",
        "realestate10k",
        102,
        "8e-08",
        "1.517",
        ("0.015", "0.027"),
        ("0.77", "0.05", "1.18"),
        "29.4",
        spacing=("0.0334", "0.0334"),
        fx="0.4963",
    ),
    Row(
        "re10k/ucpe_pose_files/5451cefde53f06f1.txt",
        "realestate10k",
        106,
        "6e-08",
        "0.744",
        ("0.0071", "0.01"),
        ("0.01", "0.74", "0.02"),
        "3.1",
        spacing=("0.0334", "0.0334"),
        fx="0.5014",
    ),
    Row(
        "re10k/motionctrl/test_camera_018f7907401f2fef.json",
        "motionctrl",
        16,
        "1e-07",
        "1.555",
        ("0.1037", "0.1341"),
        ("0.45", "0.02", "1.4"),
        "35.3",
    ),
    Row(
        "re10k/motionctrl/test_camera_088b93f15ca8745d.json",
        "motionctrl",
        16,
        "1e-07",
        "1.59",
        ("0.106", "0.1362"),
        ("1.1", "0.14", "0.85"),
        "21",
    ),
    Row(
        "re10k/motionctrl/test_camera_0f12b97e0e4c7e21.json",
        "motionctrl",
        16,
        "1e-07",
        "7.77",
        ("0.518", "0.6164"),
        ("4.56", "0.25", "5.91"),
        "40.3",
    ),
    Row(
        "re10k/motionctrl/test_camera_1424acd0007d40b5.json",
        "motionctrl",
        16,
        "1e-07",
        "9.533",
        ("0.6356", "0.7381"),
        ("5.84", "0.73", "6.92"),
        "30.9",
    ),
    Row(
        "re10k/motionctrl/test_camera_2ceec371086f5d82.json",
        "motionctrl",
        16,
        "2e-07",
        "0.18",
        ("0.012", "0.0147"),
        ("0.13", "0.11", "0.03"),
        "14.9",
    ),
    Row(
        "re10k/motionctrl/test_camera_4d162b68bb19944e.json",
        "motionctrl",
        16,
        "1e-07",
        "0.795",
        ("0.053", "0.062"),
        ("0.64", "0.04", "0.45"),
        "23.5",
    ),
    Row(
        "re10k/motionctrl/test_camera_5570474575713996.json",
        "motionctrl",
        16,
        "1e-07",
        "2.45",
        ("0.1633", "0.2311"),
        ("0.14", "0.13", "2.4"),
        "17.7",
    ),
    Row(
        "re10k/motionctrl/test_camera_5bdfcb2cf3ea6b54.json",
        "motionctrl",
        16,
        "1e-07",
        "1.074",
        ("0.0716", "0.1079"),
        ("0.19", "0.04", "1.05"),
        "32.8",
    ),
    Row(
        "re10k/motionctrl/test_camera_71e6127ee98db5ee.json",
        "motionctrl",
        16,
        "1e-07",
        "2.086",
        ("0.139", "0.1634"),
        ("0.18", "0.06", "2.06"),
        "4.2",
    ),
    Row(
        "re10k/motionctrl/test_camera_754f7a46cc9770c6.json",
        "motionctrl",
        16,
        "1e-07",
        "1.286",
        ("0.0857", "0.0887"),
        ("1.12", "0.06", "0.63"),
        "1.5",
    ),
    Row(
        "re10k/motionctrl/test_camera_78c9f12f1f2df5a1.json",
        "motionctrl",
        16,
        "1e-07",
        "2.674",
        ("0.1782", "0.2133"),
        ("0.53", "0.49", "2.36"),
        "55.3",
    ),
    Row(
        "re10k/motionctrl/test_camera_828a000aaa5ac92c.json",
        "motionctrl",
        16,
        "1e-07",
        "1.742",
        ("0.1161", "0.127"),
        ("0.78", "0.28", "1.51"),
        "23.8",
    ),
    Row(
        "panshot/pose-test/1jVPI3bNCBc-5-0-no_rot_aug_0.npy",
        "panshot",
        81,
        "2e-07",
        "0.109",
        ("0.0014", "0.0019"),
        ("0.03", "0.02", "0.1"),
        "22.6",
    ),
    Row(
        "panshot/pose-test/HTdKkiu771g-3-0-no_rot_aug_0.npy",
        "panshot",
        81,
        "4e-07",
        "0.691",
        ("0.0086", "0.0542"),
        ("0.48", "0.02", "0.22"),
        "33.1",
    ),
    Row(
        "panshot/pose-test/N99hmkAJwlQ-3-0-linear_aug_0.npy",
        "panshot",
        81,
        "3e-07",
        "0.973",
        ("0.0122", "0.0153"),
        ("0.31", "0.01", "0.91"),
        "41",
    ),
    Row(
        "panshot/pose-test/N99hmkAJwlQ-3-0-yaw_aug_0.npy",
        "panshot",
        81,
        "3e-07",
        "0.973",
        ("0.0122", "0.0153"),
        ("0.31", "0.01", "0.91"),
        "7.2",
    ),
    Row(
        "tum/freiburg1_xyz-groundtruth.txt",
        "tum",
        3000,
        "1e-15",
        "9.159",
        ("0.0031", "0.0093"),
        ("0.46", "0.7", "0.44"),
        "600.9",
        span="30.1",
    ),
    Row(
        "tum/freiburg1_xyz-rgbdslam.txt",
        "tum",
        788,
        "9e-16",
        "8.652",
        ("0.011", "0.0397"),
        ("0.43", "0.7", "0.41"),
        "460.5",
        span="26.6",
    ),
    Row(
        "tum/freiburg1_xyz-rgbdslam_drift.txt",
        "tum",
        788,
        "1e-15",
        "8.652",
        ("0.011", "0.0397"),
        ("0.44", "0.57", "0.42"),
        "460.5",
        span="26.6",
    ),
    Row(
        "tum/freiburg1_xyz-ORB_kf_mono.txt",
        "tum",
        32,
        "9e-16",
        "4.146",
        ("0.1337", "0.5484"),
        ("0.6", "0.48", "0.14"),
        "189.8",
        span="18.6",
    ),
    Row(
        "rds_hq/vehicle_pose.npy",
        "rds-hq",
        300,
        "6e-08",
        "103.031",
        ("0.3446", "0.3919"),
        ("102.79", "6.32", "0.39"),
        "6.7",
    ),
    Row(
        "fisheye/aria_adt/aria_trajectory.csv",
        "aria",
        6,
        "7e-16",
        "0.009",
        ("0.0019", "0.002"),
        ("0.01", "0.0", "0.0"),
        "2.7",
    ),
)


def inspected(capsys, file, *flags):
    """What the command says of a shared file, as JSON."""
    assert run(["poses", "inspect", str(shared_file(f"data/{file}")), *flags, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def agrees(value, known, decimals):
    return abs(value - float(known)) <= 0.5001 * 10**-decimals


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file)
def test_a_trajectory_measures_what_is_known_of_it(row, capsys):
    found = inspected(capsys, row.file, "--format", row.format)
    facts, matrices = found["facts"], found["matrices"]
    assert facts["num_poses"] == row.num_poses
    assert agrees(facts["path_length"], row.path, 3 if float(row.path) < 1000 else 2)
    for value, known in zip((facts["mean_step"], facts["max_step"]), row.steps, strict=True):
        assert agrees(value, known, 4)
    for value, known in zip(facts["extent"], row.box, strict=True):
        assert agrees(value, known, 2)
    assert agrees(matrices["summed_arccos_deg"], row.rotation, 1)
    # Rounding to a matrix or a quaternion is 1e-16; how much of it adds up is the arithmetic's.
    if float(row.r_rt_error) < 1e-14:
        assert matrices["r_rt_error"] < 5e-15
    else:
        assert f"{matrices['r_rt_error']:.0e}" == row.r_rt_error
    assert matrices["left_handed"] == 0
    assert row.format in [candidate["format"] for candidate in found["candidates"]]
    if row.span is not None:
        assert agrees(facts["times"]["span"], row.span, len(row.span.split(".")[1]))
    if row.spacing is not None:
        shortest, longest = row.spacing
        assert agrees(facts["times"]["max_spacing"], longest, 4)
        assert agrees(facts["times"]["min_spacing"], shortest, 10 if "e" in shortest else 4)
    if row.coordinate is not None:
        assert agrees(facts["max_coordinate"], row.coordinate, 1)


@pytest.mark.parametrize(
    ("number", "count", "shortest", "longest", "span"),
    [("00", 4541, "0.1019", "0.1056", "470.6"), ("06", 1101, "0.1032", "0.1047", None)],
)
def test_kitti_times_beside_its_poses(number, count, shortest, longest, span, capsys):
    times = shared_file(f"data/kitti_odom/times_{number}.txt")
    found = inspected(capsys, f"kitti_odom/poses/{number}.txt", "--format", "kitti", "--times", str(times))
    facts = found["facts"]["times"]
    assert facts["count"] == count
    assert agrees(facts["min_spacing"], shortest, 4)
    assert agrees(facts["max_spacing"], longest, 4)
    assert span is None or agrees(facts["span"], span, 1)


def test_an_estimate_without_its_first_frames_says_which_it_has(capsys):
    found = inspected(capsys, "kitti_odom/estimates/09_example_0.txt", "--format", "kitti")
    assert found["frame_ids"] == [2, 1590, 0]


@pytest.mark.parametrize("unit", [[], ["--unit", "m"]])
def test_the_standing_car_is_recognised_with_and_without_its_unit(unit, capsys):
    found = inspected(
        capsys, "nuscenes/scene-0553_CAM_FRONT_transforms.json", "--format", "nerfstudio", *unit
    )
    assert found["facts"]["static"]
    assert [finding["kind"] for finding in found["findings"]] == ["static"]
    assert found["verdict"]["outcome"] == "silent"


def test_moving_cars_do_not_stand(capsys):
    for file, format in (
        ("nuscenes/scene-0061_CAM_FRONT_transforms.json", "nerfstudio"),
        ("kitti_odom/poses/04.txt", "kitti"),
        ("rds_hq/vehicle_pose.npy", "rds-hq"),
    ):
        found = inspected(capsys, file, "--format", format, "--unit", "m")
        assert not found["facts"]["static"]
        assert found["verdict"]["outcome"] == "agrees"


def test_turns_are_those_that_were_driven(capsys):
    turn = inspected(capsys, "nuscenes/scene-0061_CAM_FRONT_transforms.json", "--format", "nerfstudio")
    assert agrees(turn["facts"]["turn_deg"], "98", 0)
    city = inspected(capsys, "av2/7fab2350/city_SE3_egovehicle.feather", "--format", "argoverse2")
    assert agrees(city["facts"]["turn_range_deg"], "71", 0)


def test_a_highway_in_earth_centred_coordinates_keeps_its_digits(capsys):
    found = inspected(capsys, "comma2k19", "--format", "comma2k19")
    facts = found["facts"]
    assert facts["num_poses"] == 1200
    assert agrees(facts["path_length"], "1011.82", 2)
    assert agrees(facts["mean_step"], "0.8439", 4)
    assert agrees(facts["max_step"], "1.0005", 4)
    assert agrees(math.hypot(*facts["first_center"]), "6370205.9", 1)
    assert agrees(facts["times"]["min_spacing"], "0.0487", 4)
    assert agrees(facts["times"]["max_spacing"], "0.0513", 4)
    assert agrees(facts["times"]["fps"], "20", 0)
    # 7.9 to 20.0 m/s by the stored velocities.
    assert facts["speed"] == pytest.approx([7.9, 17.6, 20.0], abs=0.1)
    assert agrees(facts["float32_position_error"], "0.25", 2)
    assert agrees(facts["float32_step_error"], "0.49", 2)
    assert found["verdict"]["outcome"] == "agrees"
    assert found["reading"]["camera_axes"] == "frd"


@pytest.mark.parametrize(
    ("camera", "path_cm", "rotation"),
    [
        ("cam01", "0", "19.9"),
        ("cam02", "0", "19.9"),
        ("cam03", "0", "9.9"),
        ("cam04", "0", "9.9"),
        ("cam05", "198.76", "0"),
        ("cam06", "198.76", "0"),
    ],
)
def test_presets_in_centimetres_come_in_metres(camera, path_cm, rotation, capsys):
    found = inspected(
        capsys, "recammaster/camera_extrinsics.json", "--format", "recammaster", "--camera", camera
    )
    assert found["facts"]["num_poses"] == 81
    assert agrees(found["facts"]["path_length"] * 100, path_cm, 2)
    assert agrees(found["facts"]["summed_rotation_deg"], rotation, 1)
    assert found["unit"] == "m"


@pytest.mark.parametrize(
    ("camera", "steps"), [("CAMERA_01", ("1.273", "1.267")), ("CAMERA_06", ("1.273", "1.266"))]
)
def test_the_rig_moves_as_one(camera, steps, capsys):
    found = inspected(capsys, "tri_dgp/poses_calib.json", "--format", "tri-dgp", "--camera", camera)
    facts = found["facts"]
    assert facts["num_poses"] == 3
    assert agrees(facts["max_step"], steps[0], 3)
    assert agrees(facts["path_length"], str(sum(map(float, steps))), 2)
    assert agrees(facts["times"]["min_spacing"], "0.1", 3)
    assert agrees(facts["times"]["max_spacing"], "0.1", 3)


@pytest.mark.parametrize(
    ("file", "format", "flag"),
    [
        ("kitti360/semantic_suma_test_0.txt", "kitti", "--camera-axes flu"),
        ("kitti_odom/poses/09.txt", "kitti360", "--camera-axes opencv"),
        ("re10k/motionctrl/test_camera_71e6127ee98db5ee.json", "motionctrl", None),
    ],
)
def test_real_files_read_in_the_wrong_axes_are_flagged(file, format, flag, capsys):
    found = inspected(capsys, file, "--format", format)
    flags = [
        given
        for finding in found["findings"]
        if finding["kind"] == "convention"
        for given in finding["flags"]
    ]
    assert (flag in flags) if flag else not flags


def test_a_real_drive_read_the_wrong_way_round_is_flagged(capsys):
    found = inspected(
        capsys, "kitti_odom/poses/09.txt", "--format", "kitti", "--direction", "world-to-camera"
    )
    assert found["verdict"]["outcome"] == "disagrees"
    assert found["findings"][0]["flags"] == ["--direction camera-to-world"]
    assert found["facts"]["path_length"] > 3 * 1705
