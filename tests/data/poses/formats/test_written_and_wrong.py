"""Formats of data sets: round trips to a nanometre, and files that are something else, with line and cure."""

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from merope.data import PoseFileError, read_poses, write_poses
from merope.data.poses import table as pose_table
from merope.geometry.poses import Poses
from tests.support.trajectories import (
    LENS,
    drive,
)

FORMATS = ("kitti360", "euroc", "realestate10k", "panshot", "comma2k19", "rds-hq", "aria")
# Stamps of these are whole: times come back to half a unit.
STAMP = {"euroc": 1e-9, "realestate10k": 1e-6, "aria": 1e-6}


@pytest.mark.parametrize("format", FORMATS)
@given(
    seed=st.integers(0, 2**31 - 1),
    far=st.sampled_from([0.0, 1e3, 6.4e6]),
    step=st.sampled_from([0.0, 1e-7, 1.0, 50.0]),
    suffix=st.sampled_from(["", ".gz"]),
)
def test_what_is_written_comes_back_to_a_nanometre(tmp_path_factory, format, seed, far, step, suffix):
    poses = drive(seed, far=far, step=step)
    path = tmp_path_factory.mktemp("round") / f"poses{suffix}"
    write_poses(path, poses, format=format, camera=LENS.to_dict())
    read = read_poses(path, format=format)
    assert (read.center_world - poses.center_world).abs().max() <= 1e-9
    assert (read.R_world_cam - poses.R_world_cam).abs().max() <= 1e-9
    if read.times is not None:
        # Beside the stamp's own unit, float64 holds 1.5e9 s to 0.24 us.
        assert (read.times - poses.times).abs().max() <= 0.51 * STAMP.get(format, 0) + 1e-12 * (seed % 2 == 0)


@pytest.mark.parametrize("format", ["euroc", "realestate10k", "comma2k19", "aria"])
def test_formats_with_stamps_need_times(tmp_path, format):
    poses = drive(0)
    bare = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world)
    with pytest.raises(ValueError, match="needs a time for each pose"):
        write_poses(tmp_path / "a", bare, format=format, camera=LENS.to_dict())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("format", "apart"), [("euroc", 3e-10), ("aria", 3e-7)])
def test_times_that_round_to_one_stamp_are_refused(tmp_path, format, apart):
    poses = drive(0, num=2)
    close = Poses(
        R_world_cam=poses.R_world_cam,
        center_world=poses.center_world,
        times=torch.tensor([2.0, 2.0 + apart], dtype=torch.float64),
    )
    with pytest.raises(ValueError, match="poses 0 and 1 have the same stamp"):
        write_poses(tmp_path / "a", close, format=format)


@pytest.mark.parametrize(
    ("format", "row"),
    [("euroc", "{},0,0,0,1,0,0,0"), ("realestate10k", "{} 0.5 0.9 0.5 0.5 0 0 1 0 0 0 0 1 0 0 0 0 1 0")],
)
def test_stamps_that_repeat_or_fall_are_named_and_never_sorted(tmp_path, format, row):
    head = ["#timestamp"] if format == "euroc" else ["https://a.example/watch"]
    for second in (1403636579758555392, 1403636579758555391):
        (tmp_path / "a").write_text("\n".join([*head, row.format(1403636579758555392), row.format(second)]))
        with pytest.raises(PoseFileError, match=f"line 3: the stamp {second} does not come after"):
            read_poses(tmp_path / "a", format=format)


ARIA = "graph_uid,tracking_timestamp_us,tx_world_device,ty_world_device,tz_world_device"
ARIA += ",qx_world_device,qy_world_device,qz_world_device,qw_world_device"
ROW = "{} {fx} {fy} 0.5 0.5 0 0 0 0 1 2 0 1 0 0 -1 0 0 3"
EUROC = "1403636579758555392,1,2,3,1,0,0,0"
KITTI = "1 0 0 0 0 1 0 0 0 0 1 0"
WRONG = {
    "EuRoC without rotation": ("euroc", ["1403636579758555392,1,2,3"], "no rotation"),
    "EuRoC by a SLAM system": ("euroc", ["1403636579758555392 1 2 3 0 0 0 1"], "--format tum --time-unit ns"),
    "EuRoC in seconds": (
        "euroc",
        ["1403636579.75,1,2,3,1,0,0,0"],
        "whole nanoseconds.*--quaternion-order wxyz",
    ),
    "EuRoC of another order": ("euroc", ["1403636579758555392,1,2,3,1,0,0,0.5"], "line 1: the quaternion"),
    "KITTI as EuRoC": ("euroc", [KITTI.replace(" ", ",")], "12 numbers.*--format kitti"),
    "KITTI as EuRoC with blanks": ("euroc", [KITTI], "has no commas"),
    "EuRoC as TUM": ("tum", [EUROC], "--format euroc"),
    "EuRoC as KITTI-360": ("kitti360", [EUROC], "--format euroc"),
    "17 columns that are no matrix": (
        "kitti360",
        [" ".join(["1", *"1000010000105678"])],
        "line 1: the last four.*euroc",
    ),
    "TUM as KITTI-360": ("kitti360", ["0 1 2 3 0 0 0 1"], "8 numbers.*--format tum"),
    "frame numbers that fall": ("kitti360", ["2 " + KITTI, "1 " + KITTI], "line 2: the first column"),
    "RealEstate10K as KITTI": (
        "kitti",
        ["https://a/b", ROW.format(1, fx=0.5, fy=1)],
        "--format realestate10k",
    ),
    "its rows as KITTI": ("kitti", [ROW.format(1, fx=0.5, fy=1)], "19 numbers.*--format realestate10k"),
    "KITTI as RealEstate10K": ("realestate10k", [KITTI], "12 numbers.*--format kitti"),
    "RealEstate10K without address": ("realestate10k", [ROW.format(1, fx=0.5, fy=1)], "begins with numbers"),
    "18 numbers": (
        "realestate10k",
        ["https://a/b", ROW.format(1, fx=0.5, fy=1)[:-2]],
        "line 2 has 18 numbers",
    ),
    "20 numbers": (
        "realestate10k",
        ["https://a/b", ROW.format(1, fx=0.5, fy=1) + " 0"],
        "line 2 has 20 numbers",
    ),
    "pixels": (
        "realestate10k",
        ["https://a/b", ROW.format(1, fx=484.13, fy=484.13)],
        "line 2: .*those of pixels",
    ),
    "distortion": (
        "realestate10k",
        ["https://a/b", ROW.format(1, fx=0.5, fy=1).replace("0.5 0 0", "0.5 0.1 0")],
        "line 2: the numbers 6 and 7 should be zeros",
    ),
    "seconds": (
        "realestate10k",
        ["https://a/b", ROW.format(1.5, fx=0.5, fy=1)],
        "line 2: .*whole microseconds",
    ),
    "negative focal length": (
        "realestate10k",
        ["https://a/b", ROW.format(1, fx=-0.5, fy=1)],
        "line 2: the numbers 2 to 5",
    ),
    "JSON as RealEstate10K": ("realestate10k", ['{"frames":[]}'], "begins like JSON"),
    "Aria as TUM": ("tum", [ARIA, "a,1,0,0,0,0,0,0,1"], "--format aria"),
    "TUM as Aria": ("aria", ["0 1 2 3 0 0 0 1"], "8 numbers.*--format tum"),
    "EuRoC as Aria": ("aria", [EUROC], "--format euroc"),
    "open loop": ("aria", ["tracking_timestamp_us,tx_odometry_device", "1,2"], "closed_loop_trajectory.csv"),
    "Aria without rotation": ("aria", [ARIA.split(",qx")[0], "a,1,0,0,0"], "no column qx_world_device, qy"),
    "Aria cut": (
        "aria",
        [ARIA, "a,1,0,0,0,0,0,0,1", "a,2,0,0"],
        "line 3 has 4 columns where the header has 9",
    ),
    "Aria word": ("aria", [ARIA, "a,1,0,0,x,0,0,0,1"], "line 2: 'x' is not a number"),
    "Aria NaN": ("aria", [ARIA, "a,1,0,0,nan,0,0,0,1"], "line 2 holds a value that is not finite"),
    "Aria without rows": ("aria", [ARIA], "a header and no rows"),
    "digits with marks": ("kitti", [KITTI.replace("1", "1_0", 1)], "'1_0'"),
    "digits of another script": (
        "kitti",
        [KITTI, KITTI.replace("1", "\u0661", 1)],
        "line 2: '\u0661' is not a number",
    ),
    "squares beyond float64": (
        "kitti",
        [" ".join(["1e200", "-1e200", "1e200", "0"] * 3)],
        "line 1: .*not orthonormal",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files_are_diagnosed_with_line_and_cure(tmp_path, case):
    format, lines, words = WRONG[case]
    (tmp_path / "poses").write_text("\n".join(lines) + "\n")
    with pytest.raises(PoseFileError, match=words):
        read_poses(tmp_path / "poses", format=format)


def test_every_damage_to_a_gzip_file_is_an_error_of_ours(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.txt.gz"
    write_poses(path, drive(0, num=40), format="kitti")
    whole = path.read_bytes()
    # Behind the ten bytes of the header.
    for at in range(10, len(whole), 61):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ int(rng.integers(1, 256))]) + whole[at + 1 :])
        with pytest.raises(PoseFileError, match="damaged gzip file"):
            read_poses(path, format="kitti")


def test_what_unpacks_to_more_than_a_trajectory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pose_table, "LARGEST_UNPACKED", 1 << 20)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(2 << 20)))
    with pytest.raises(PoseFileError, match="unpacks to more than 1 MiB"):
        read_poses(tmp_path / "a.gz", format="kitti")
