"""What a file may be: each format knows its own, says why, and never raises for what is none."""

import gzip

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.data import PoseFileError, read_poses, write_poses
from merope.data.poses.formats import FORMATS
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.shared import shared_file

OWN = ("kitti", "tum", "npy", "npz", "merope")
OF_DATA_SETS = ("kitti360", "euroc", "realestate10k", "panshot", "comma2k19", "rds-hq", "aria")
LENS = Pinhole(fx=90.0, fy=90.0, cx=64.0, cy=36.0, width=128, height=72, pixel_origin="corner").to_dict()


def reasons(path) -> dict[str, str]:
    found = {name: FORMATS[name].recognise(path) for name in (*OWN, *OF_DATA_SETS)}
    return {name: reason for name, reason in found.items() if reason}


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("kitti_odom/poses/00.txt", {"kitti"}),
        ("kitti_odom/poses/04.txt", {"kitti"}),
        ("kitti_odom/video/06_poses_first51.txt", {"kitti"}),
        ("kitti_odom/estimates/00_ORB.txt.gz", {"kitti"}),
        ("kitti_odom/estimates/09_example_0.txt", {"kitti"}),
        ("kitti360/orbslam_test_0.txt", {"kitti", "kitti360"}),
        ("kitti360/semantic_suma_test_0.txt", {"kitti", "kitti360"}),
        ("tum/freiburg1_xyz-groundtruth.txt", {"tum"}),
        ("tum/freiburg1_xyz-ORB_kf_mono.txt", {"tum"}),
        ("re10k/cameractrl/0bf152ef84195293_16f.txt", {"realestate10k"}),
        ("re10k/ucpe_pose_files/20e7a3651ec30386.txt", {"realestate10k"}),
        ("re10k/ucpe_pose_files/traj_normalization.txt", set()),
        ("panshot/pose-test/N99hmkAJwlQ-3-0-yaw_aug_0.npy", {"npy", "panshot"}),
        ("panshot/near_plane_depth-test.jsonl", set()),
        ("comma2k19", {"comma2k19"}),
        ("comma2k19/frame_positions.npy", set()),
        ("comma2k19/preview_frame0.png", set()),
        ("rds_hq/vehicle_pose.npy", {"npy", "rds-hq"}),
        ("rds_hq/ftheta_front_wide_120fov.npy", set()),
        ("fisheye/aria_adt/aria_trajectory.csv", {"aria"}),
        ("fisheye/aria_adt/camera-rgb_rays.csv", set()),
        ("kitti_odom/times_00.txt", set()),
        ("kitti_odom", set()),
        ("kitti_odom/video/06_first51_gray.mp4", set()),
    ],
)
def test_real_files_are_recognised_as_what_they_are(name, formats):
    found = reasons(shared_file(f"data/{name}"))
    assert set(found) == formats
    assert all(len(reason) < 160 for reason in found.values())


def test_the_heading_tells_an_imu_from_a_camera():
    imu = reasons(shared_file("data/kitti360/orbslam_test_0.txt"))
    assert "along the first axis" in imu["kitti360"]
    assert "along the third axis" not in imu["kitti"]
    assert "along the third axis" in reasons(shared_file("data/kitti_odom/poses/00.txt"))["kitti"]


def curve(num=12) -> Poses:
    """A camera that drives forward along its own axis and turns."""
    angles = torch.linspace(0, 1, num, dtype=torch.float64)
    R_world_cam = rotvec_to_matrix(torch.stack([0 * angles, angles, 0 * angles], -1))
    steps = R_world_cam[:, :, 2]
    return Poses(R_world_cam=R_world_cam, center_world=steps.cumsum(0), times=1.7e9 + angles * 3)


WRITTEN = {
    "kitti360": {"kitti", "kitti360"},
    "panshot": {"npy", "panshot"},
    "rds-hq": {"npy", "rds-hq"},
}
NAMES = {"panshot": "V-1-0-yaw_aug_0.npy", "rds-hq": "vehicle_pose.npy"}


@pytest.mark.parametrize("format", [*OWN, *OF_DATA_SETS])
def test_what_a_format_writes_it_recognises(tmp_path, format):
    path = tmp_path / NAMES.get(format, "poses")
    write_poses(path, curve(), format=format, camera=LENS)
    assert set(reasons(path)) == WRITTEN.get(format, {format})
    if not path.is_dir() and format != "npz":
        packed = tmp_path / f"{path.name}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert reasons(packed) == reasons(path)


def test_nanoseconds_in_a_tum_file_are_told_with_their_flag(tmp_path):
    (tmp_path / "a").write_text("1403636579758555392 0 0 0 0 0 0 1\n1403636579763555584 0 0 1 0 0 0 1\n")
    assert "--time-unit ns" in reasons(tmp_path / "a")["tum"]


def damaged(content: bytes, rng) -> bytes:
    """The bytes cut, changed, repeated or with something else between them."""
    at = int(rng.integers(len(content)))
    kinds = (
        content[:at],
        content[at:],
        content[:at] + bytes(rng.integers(0, 256, size=8, dtype=np.uint8)) + content[at + 8 :],
        content[:at] + b" 1e999 " + content[at:],
        content[:at] + b"\r" + content[at:],
        content[:at] + b"-1e200" + content[at + 6 :],
        content.replace(b" ", b",", 3),
        content.replace(b"\n", b"\x0c", 2),
        content[:at] + b"nan" + content[at + 3 :],
        content[:at] + b"9" * 400 + content[at:],
    )
    return kinds[int(rng.integers(len(kinds)))]


@pytest.mark.parametrize("format", [*OWN, *OF_DATA_SETS])
def test_damage_is_an_error_of_ours_or_sound_poses(tmp_path, format):
    rng = np.random.default_rng(0)
    path = tmp_path / NAMES.get(format, "poses")
    write_poses(path, curve(), format=format, camera=LENS)
    refused = longest = 0
    for _ in range(60):
        victim = sorted(path.iterdir())[int(rng.integers(3))] if path.is_dir() else path
        whole = victim.read_bytes()
        victim.write_bytes(damaged(whole, rng))
        for name in (*OWN, *OF_DATA_SETS):
            FORMATS[name].recognise(path)
        try:
            poses = read_poses(path, format=format)
        except PoseFileError as error:
            refused += 1
            longest = max(longest, len(str(error)))
        else:
            assert 0 < len(poses) <= 12
        victim.write_bytes(whole)
    assert refused > 10
    assert longest < 1500
