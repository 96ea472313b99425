"""KITTI-360, EuRoC and Aria: conventions measured on real files, and what a body's poses say of a camera's."""

import json

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses
from merope.data.poses.formats.kitti360 import kitti360_camera
from tests.support.shared import shared_file
from tests.support.trajectories import (
    assert_steps,
    drive,
    summed_turn_deg,
)


@pytest.mark.parametrize(
    ("name", "path_length", "mean", "largest", "extent", "turn_deg"),
    [
        ("orbslam_test_0.txt", 783.021, 0.8402, 1.2049, (301.18, 15.7, 167.4), 864.5),
        ("semantic_suma_test_0.txt", 769.224, 0.8253, 1.2302, (156.18, 293.53, 3.4), 874),
    ],
)
def test_real_kitti360_rows_have_their_documented_numbers(name, path_length, mean, largest, extent, turn_deg):
    file = load_pose_file(shared_file(f"data/kitti360/{name}"), format="kitti360")
    poses = file.poses
    assert (len(poses), poses.unit, file.body) == (933, "m", "imu")
    assert poses.path_length == pytest.approx(path_length, abs=5e-4)
    assert_steps(poses, mean, largest)
    assert poses.projection_error < 2.5e-6
    spread = poses.center_world.amax(0) - poses.center_world.amin(0)
    assert spread.tolist() == pytest.approx(extent, abs=0.006)
    assert summed_turn_deg(poses) == pytest.approx(turn_deg, abs=0.6)


def test_the_imu_of_kitti360_has_x_forward_y_right_z_down():
    """SuMa's world has z up and ORB-SLAM's is a camera's: in both the body goes forward and its down points down."""
    for name, down in (("semantic_suma_test_0.txt", (0, 0, -1)), ("orbslam_test_0.txt", (0, 1, 0))):
        poses = read_poses(shared_file(f"data/kitti360/{name}"), format="kitti360")
        steps = poses.center_world.diff(dim=0)
        heading = (poses.R_world_cam[:-1, :, 2] * steps).sum(-1) / steps.norm(dim=-1).clamp(min=1e-9)
        assert heading[poses.step_lengths > 0.1].mean() > 0.99
        assert (poses.R_world_cam[0, :, 1] @ torch.tensor(down, dtype=torch.float64)) > 0.99


def matrix_rows(poses, *, first="", last="") -> str:
    rows = poses.T_world_cam[:, :3].flatten(1).tolist()
    return "\n".join(
        f"{first and 7 * i + 3} {' '.join(map(repr, row))} {last}".strip() for i, row in enumerate(rows)
    )


def test_kitti360_files_with_frame_numbers(tmp_path):
    poses = drive(3)
    (tmp_path / "cam0_to_world.txt").write_text(matrix_rows(poses, first="n", last="0 0 0 1"))
    camera = load_pose_file(tmp_path / "cam0_to_world.txt", format="kitti360")
    assert camera.body == "camera"
    assert camera.frame_ids == tuple(range(3, 3 + 7 * 7, 7))
    assert torch.allclose(camera.poses.T_world_cam, poses.T_world_cam, rtol=0, atol=1e-12)
    (tmp_path / "poses.txt").write_text(matrix_rows(poses, first="n"))
    imu = load_pose_file(tmp_path / "poses.txt", format="kitti360")
    assert (imu.body, imu.frame_ids) == ("imu", camera.frame_ids)
    # The body's x, forward, is the third axis here.
    assert torch.allclose(imu.poses.R_world_cam[:, :, 2], poses.R_world_cam[:, :, 0])
    assert torch.allclose(imu.poses.R_world_cam[:, :, 0], poses.R_world_cam[:, :, 1])


def test_a_kitti360_camera_is_mounted_by_the_calibration(tmp_path):
    rng = np.random.default_rng(0)
    T_imu_cam = np.eye(4)
    T_imu_cam[:3, :3] = [[0, 0, 1], [1, 0, 0], [0, 1, 0]] @ Rotation.from_rotvec(
        [0.01, -0.03, 0.02]
    ).as_matrix()
    T_imu_cam[:3, 3] = 1.57, 0.004, -0.65
    T_world_imu = np.tile(np.eye(4), (4, 1, 1))
    T_world_imu[:, :3, :3] = Rotation.random(4, random_state=1).as_matrix()
    T_world_imu[:, :3, 3] = rng.normal(size=(4, 3)) * 100
    rows = [" ".join(map(repr, row)) for row in T_world_imu[:, :3].reshape(4, 12).tolist()]
    (tmp_path / "a.txt").write_text("\n".join(rows))
    (tmp_path / "calib.txt").write_text(
        "image_01: 1 2\nimage_00: " + " ".join(map(repr, T_imu_cam[:3].ravel().tolist())) + "\n"
    )
    imu = read_poses(tmp_path / "a.txt", format="kitti360")
    camera = kitti360_camera(imu, tmp_path / "calib.txt", camera="image_00")
    assert np.allclose(camera.T_world_cam.numpy(), T_world_imu @ T_imu_cam, rtol=0, atol=1e-10)
    for name in ("image_01", "image_02"):
        with pytest.raises(
            PoseFileError, match=f"no line '{name}:' with 12 numbers; its lines are image_01, image_00"
        ):
            kitti360_camera(imu, tmp_path / "calib.txt", camera=name)


# EuRoC


def test_euroc_rows_are_nanoseconds_and_scalar_first(tmp_path):
    half = np.sqrt(0.5)
    (tmp_path / "data.csv").write_text(
        "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w []\r\n"
        f"1403636579758555392,1,2,3,{half},0,{half},0,9,9,9,9,9,9,9,9,9\r\n"
        f"1403636579763555584,1,2,3.5,{half},0,{half},0,9,9,9,9,9,9,9,9,9\r\n"
    )
    file = load_pose_file(tmp_path / "data.csv", format="euroc")
    assert file.body == "imu"
    assert file.poses.times.tolist() == [1403636579.758555392, 1403636579.763555584]
    turn_about_y = torch.tensor([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    assert torch.allclose(file.poses.R_world_cam[1], turn_about_y)
    assert file.poses.center_world[1].tolist() == [1, 2, 3.5]


# Aria


def test_the_real_aria_trajectory_has_its_documented_numbers():
    path = shared_file("data/fisheye/aria_adt/aria_trajectory.csv")
    file = load_pose_file(path, format="aria")
    poses = file.poses
    assert (len(poses), poses.unit, file.body) == (6, "m", "device")
    assert round(poses.path_length, 3) == 0.009
    assert_steps(poses, 0.0019, 0.002)
    assert summed_turn_deg(poses) == pytest.approx(2.7, abs=0.06)
    assert poses.projection_error < 1e-15 * 4
    assert poses.times[0] == 87551.170910
    assert file.notes == ("gravity is (0, -9.81, 0) m/s^2 in the world: up_world is (0, 1, 0)",)
    # Of three frames of the left camera and their poses the clocks agree to a microsecond.
    calibration = json.loads((path.parent / "calibration.json").read_text())
    shots = calibration["cameras"]["camera-slam-left"]["timestamps_ns"]
    assert poses.times[:3].tolist() == pytest.approx([stamp / 1e9 for stamp in shots], abs=1.1e-6)


ARIA = "graph_uid,tracking_timestamp_us,tx_world_device,ty_world_device,tz_world_device"
ARIA += ",qx_world_device,qy_world_device,qz_world_device,qw_world_device"


def test_a_trajectory_in_several_worlds_needs_a_choice(tmp_path):
    rows = ["a,1000000,0,0,0,0,0,0,1", "b,1000000,5,0,0,0,0,0,1", "a,2000000,1,0,0,0,0,0,1"]
    (tmp_path / "a.csv").write_text("\n".join([ARIA, *rows]))
    with pytest.raises(PoseFileError, match=r"--scene\) one of the graph_uid a, b"):
        read_poses(tmp_path / "a.csv", format="aria")
    with pytest.raises(PoseFileError, match="has none 'c'"):
        read_poses(tmp_path / "a.csv", format="aria", options=ReadOptions(scene="c"))
    poses = read_poses(tmp_path / "a.csv", format="aria", options=ReadOptions(scene="a"))
    assert poses.center_world[:, 0].tolist() == [0, 1]
    assert poses.times.tolist() == [1, 2]
