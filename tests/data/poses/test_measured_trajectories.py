"""Facts measured on files of other data sets come out of `merope poses inspect --json`, to the digits they are known to."""

import json
import math
from pathlib import Path

import pytest

from merope.cli.main import run
from tests.support.shared import shared_file

KNOWN = [
    line.split() for line in (Path(__file__).parent / "measured_trajectories.txt").read_text().splitlines()
]
"""Columns by name, then a row a file; "-" where nothing is known. rotation: summed, degrees, by arccos of the matrices."""
ROWS = [dict(zip(KNOWN[0], row, strict=True)) for row in KNOWN[1:]]


def inspected(capsys, file, *flags):
    """What the command says of a shared file, as JSON."""
    assert run(["poses", "inspect", str(shared_file(f"data/{file}")), *flags, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def agrees(value, known, decimals):
    return abs(value - float(known)) <= 0.5001 * 10**-decimals


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_a_trajectory_measures_what_is_known_of_it(row, capsys):
    found = inspected(capsys, row["file"], "--format", row["format"])
    facts, matrices, times = found["facts"], found["matrices"], found["facts"]["times"] or {}
    values = {
        "path": (facts["path_length"], 3 if float(row["path"]) < 1000 else 2),
        "mean_step": (facts["mean_step"], 4),
        "max_step": (facts["max_step"], 4),
        **{axis: (edge, 2) for axis, edge in zip("xyz", facts["extent"], strict=True)},
        "rotation": (matrices["summed_arccos_deg"], 1),
        "span": (times.get("span"), len(row["span"].partition(".")[2])),
        "min_spacing": (times.get("min_spacing"), 10 if "e" in row["min_spacing"] else 4),
        "max_spacing": (times.get("max_spacing"), 4),
        "coordinate": (facts["max_coordinate"], 1),
        "fx": ((found["camera"] or {}).get("fx"), 2),
    }
    for name, (value, decimals) in values.items():
        assert row[name] == "-" or agrees(value, row[name], decimals), name
    assert facts["num_poses"] == int(row["num_poses"])
    # Rounding to a matrix or a quaternion is 1e-16; how much of it adds up is the arithmetic's.
    if float(row["r_rt_error"]) < 1e-14:
        assert matrices["r_rt_error"] < 5e-15
    else:
        assert f"{matrices['r_rt_error']:.0e}" == row["r_rt_error"]
    assert matrices["left_handed"] == 0
    assert row["format"] in [candidate["format"] for candidate in found["candidates"]]


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
