"""Formats of data sets: conventions measured on real files, round trips to a nanometre, wrong files diagnosed."""

import io
import json
import tarfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from merope.cameras import Pinhole
from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses, write_poses
from merope.data.pose_formats.kitti360 import kitti360_camera
from merope.data.pose_formats.panshot import (
    divide_by_near_depth,
    near_depth_key,
    read_near_depths,
    without_first_yaw,
)
from merope.data.pose_formats.realestate10k import realestate10k_lens
from merope.geometry.poses import Poses
from tests.support.shared import shared_file

FORMATS = ("kitti360", "euroc", "realestate10k", "panshot", "comma2k19", "rds-hq", "aria")
# Stamps of these are whole: times come back to half a unit.
STAMP = {"euroc": 1e-9, "realestate10k": 1e-6, "aria": 1e-6}
LENS = Pinhole(fx=900.0, fy=880.0, cx=641.0, cy=357.0, width=1280, height=720, pixel_origin="center")


def drive(seed, *, far=0.0, step=1.0, num=7) -> Poses:
    """A body that turns every way, far from the origin or at it, in large steps or tiny ones."""
    rng = np.random.default_rng(seed)
    centers = np.cumsum(rng.normal(size=(num, 3)) * step, axis=0) + far * np.array([-0.42, -0.67, 0.61])
    return Poses(
        R_world_cam=torch.from_numpy(Rotation.random(num, random_state=seed).as_matrix()),
        center_world=torch.from_numpy(centers),
        times=torch.from_numpy(1.5e9 * (seed % 2) + np.cumsum(rng.uniform(0.01, 0.2, size=num))),
    )


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


# KITTI-360


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


def assert_steps(poses, mean, largest, digits=4):
    assert round(float(poses.step_lengths.mean()), digits) == mean
    assert round(float(poses.step_lengths.max()), digits) == largest


def summed_turn_deg(poses) -> float:
    R = Rotation.from_matrix(poses.R_world_cam.numpy())
    return float(np.degrees((R[:-1].inv() * R[1:]).magnitude().sum()))


def arccos_turn_deg(matrices) -> float:
    """The sum as it was documented for arrays: by arccos of unprojected matrices, which loses digits for small angles."""
    R = matrices[:, :3, :3].astype(np.float64)
    traces = np.trace(R[:-1].transpose(0, 2, 1) @ R[1:], axis1=1, axis2=2)
    return float(np.degrees(np.arccos(np.clip((traces - 1) / 2, -1, 1))).sum())


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


# RealEstate10K

RE10K = [
    ("cameractrl/0bf152ef84195293_16f.txt", 16, 2.998, 0.1999, 0.2344, 0.4748, 0.8441, (0.2669, 0.3003)),
    ("cameractrl/0bf152ef84195293_25f.txt", 25, 2.825, 0.1177, 0.166, 0.4748, 0.8441, (0.1668, 0.2002)),
    ("cameractrl/0c11dbe781b1c11c_16f.txt", 16, 2.896, 0.193, 0.2318, 0.4854, 0.8629, (0.2669, 0.3003)),
    ("cameractrl/0c11dbe781b1c11c_25f.txt", 25, 2.864, 0.1193, 0.1507, 0.4854, 0.8629, (0.1668, 0.2002)),
    ("cameractrl/0c9b371cc6225682_16f.txt", 16, 2.692, 0.1795, 0.2272, 0.4793, 0.852, (0.2670, 0.3010)),
    ("cameractrl/0c9b371cc6225682_25f.txt", 25, 2.411, 0.1004, 0.1331, 0.4793, 0.852, (0.1660, 0.2000)),
    ("cameractrl/0f47577ab3441480_16f.txt", 16, 1.827, 0.1218, 0.198, 0.5077, 0.9025, (0.2669, 0.3003)),
    ("cameractrl/0f47577ab3441480_25f.txt", 25, 1.634, 0.0681, 0.1137, 0.5077, 0.9025, (0.1668, 0.2002)),
    ("cameractrl/0f68374b76390082_16f.txt", 16, 2.362, 0.1575, 0.1891, 0.4742, 0.843, (0.2669, 0.3003)),
    ("cameractrl/0f68374b76390082_25f.txt", 25, 2.301, 0.0959, 0.1277, 0.4742, 0.843, (0.1668, 0.2002)),
    ("ucpe_pose_files/20e7a3651ec30386.txt", 279, 4.251, 0.0153, 0.0211, 0.4932, 0.8768, (0.0334, 0.0334)),
    ("ucpe_pose_files/38f7ba7fd9a83069.txt", 102, 1.517, 0.015, 0.027, 0.4963, 0.8823, (0.0334, 0.0334)),
    ("ucpe_pose_files/5451cefde53f06f1.txt", 106, 0.744, 0.0071, 0.01, 0.5014, 0.8913, (0.0334, 0.0334)),
]


@pytest.mark.parametrize(("name", "num", "path_length", "mean", "largest", "fx", "fy", "spacing"), RE10K)
def test_real_realestate10k_files_have_their_documented_numbers(
    name, num, path_length, mean, largest, fx, fy, spacing
):
    path = shared_file(f"data/re10k/{name}")
    file = load_pose_file(path, format="realestate10k")
    poses = file.poses
    assert (len(poses), poses.unit, file.body) == (num, "unknown", "camera")
    assert round(poses.path_length, 3) == path_length
    assert_steps(poses, mean, largest)
    assert poses.projection_error < 1e-7
    assert poses.times.diff().min() == pytest.approx(spacing[0], abs=6e-5)
    assert poses.times.diff().max() == pytest.approx(spacing[1], abs=6e-5)
    assert file.notes[0].startswith("the video is https://www.youtube.com/watch?v=")
    lens = realestate10k_lens(path, height=256, width=384)
    assert (round(lens.fx / 384, 4), round(lens.fy / 256, 4)) == (fx, fy)
    assert (lens.cx, lens.cy, lens.pixel_origin) == (192, 128, "corner")


def re10k(tmp_path, *rows, address="https://www.youtube.com/watch?v=abc"):
    path = tmp_path / "clip.txt"
    path.write_text("\n".join([address, *rows]) + "\n")
    return path


ROW = "{} {fx} {fy} 0.5 0.5 0 0 0 0 1 2 0 1 0 0 -1 0 0 3"


def test_realestate10k_matrices_are_world_to_camera_and_intrinsics_shares_of_the_picture(tmp_path):
    path = re10k(tmp_path, ROW.format(1000000, fx=0.482334223, fy=0.9))
    poses = read_poses(path, format="realestate10k")
    # The camera sees the origin at (2, 0, 3); its x, y, z are the world's z, y, -x.
    assert poses.center_world[0].tolist() == [3, 0, -2]
    assert poses.times.tolist() == [1.0]
    lens = realestate10k_lens(path, height=200, width=256)
    assert round(lens.fx, 4) == 123.4776
    assert (lens.fy, lens.cx, lens.cy) == (180, 128, 100)


def test_intrinsics_that_vary_are_noted_and_kept_per_frame(tmp_path):
    path = re10k(tmp_path, ROW.format(0, fx=0.5, fy=0.9), ROW.format(40000, fx=0.6, fy=0.9))
    assert "vary from line to line: fx 0.5 to 0.6" in load_pose_file(path, format="realestate10k").notes[1]
    lens = realestate10k_lens(path, height=100, width=100)
    assert lens.fx.tolist() == [50, 60]
    poses = drive(2, num=2)
    write_poses(tmp_path / "again.txt", poses, format="realestate10k", camera=lens.to_dict())
    assert realestate10k_lens(tmp_path / "again.txt", height=100, width=100) == lens


def test_a_written_lens_comes_back_from_the_shares(tmp_path):
    write_poses(tmp_path / "a", drive(1), format="realestate10k", camera=LENS.to_dict())
    lens = realestate10k_lens(tmp_path / "a", height=720, width=1280).with_pixel_origin("center")
    for name in ("fx", "fy", "cx", "cy"):
        assert getattr(lens, name) == pytest.approx(getattr(LENS, name), abs=1e-9)


def test_realestate10k_is_written_for_pinholes_with_a_size(tmp_path):
    with pytest.raises(ValueError, match="needs a lens with the size"):
        write_poses(tmp_path / "a", drive(1), format="realestate10k")
    fisheye = {**LENS.to_dict(), "model": "unified", "xi": 1.2}
    with pytest.raises(ValueError, match="pinholes alone, got 'unified'"):
        write_poses(tmp_path / "a", drive(1), format="realestate10k", camera=fisheye)


# PanShot

TRACKS = [
    ("1jVPI3bNCBc-5-0-no_rot_aug_0", 0.109, 0.0014, 0.0019, 22.6, 0.08683279156684875),
    ("HTdKkiu771g-3-0-no_rot_aug_0", 0.691, 0.0086, 0.0542, 33.1, 0.6066437363624573),
    ("N99hmkAJwlQ-3-0-linear_aug_0", 0.973, 0.0122, 0.0153, 41.0, None),
    ("N99hmkAJwlQ-3-0-yaw_aug_0", 0.973, 0.0122, 0.0153, 7.2, None),
]


@pytest.mark.parametrize(("name", "path_length", "mean", "largest", "turn_deg", "near"), TRACKS)
def test_real_panshot_tracks_have_their_documented_numbers(name, path_length, mean, largest, turn_deg, near):
    path = shared_file(f"data/panshot/pose-test/{name}.npy")
    poses = read_poses(path, format="panshot")
    assert (len(poses), poses.unit) == (81, "unknown")
    assert round(poses.path_length, 3) == path_length
    assert_steps(poses, mean, largest)
    assert round(arccos_turn_deg(np.load(path)), 1) == turn_deg
    assert summed_turn_deg(poses) == pytest.approx(turn_deg, abs=0.4)
    assert 1e-7 < poses.projection_error < 4.5e-7
    assert poses.center_world[0].abs().max() < 1e-6
    depths = read_near_depths(shared_file("data/panshot/near_plane_depth-test.jsonl"))
    assert len(depths) == 59
    divided = divide_by_near_depth(poses, depths, path)
    assert divided.unit == "normalized"
    if near is not None:
        assert depths[near_depth_key(path)] == near
        assert divided.path_length == pytest.approx(poses.path_length / near)
    turned = without_first_yaw(divided)
    assert turned.R_world_cam[0, 0, 2].abs() < 1e-12
    assert turned.R_world_cam[0, 2, 2] > 0
    # Gravity stays where it was, and so does every camera's height and pitch.
    assert torch.allclose(turned.R_world_cam[:, 1], divided.R_world_cam[:, 1], atol=1e-6)
    assert torch.allclose(turned.center_world[:, 1], divided.center_world[:, 1], atol=1e-6)


def test_the_two_tracks_of_one_video_share_their_path():
    linear, yaw = (
        read_poses(shared_file(f"data/panshot/pose-test/N99hmkAJwlQ-3-0-{kind}_aug_0.npy"), format="panshot")
        for kind in ("linear", "yaw")
    )
    assert torch.equal(linear.center_world, yaw.center_world)
    assert not torch.allclose(linear.R_world_cam, yaw.R_world_cam, atol=0.1)


def test_a_video_may_have_the_separator_in_its_name():
    assert near_depth_key("a/-x-Y_z-12-0-yaw_aug_3.npy") == "-x-Y_z-12"
    with pytest.raises(ValueError, match="VIDEO-CLIP-NUMBER-KIND"):
        near_depth_key("pose-1.npy")


def depths_file(tmp_path, *entries):
    path = tmp_path / "near.jsonl"
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return path


def near(depth, clip=1):
    return {"video_id": "v", "clip_id": clip, "near_depth": depth}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([near(1.0), "{"], "line 2 is no JSON object"),
        ([{"video_id": "v", "clip_id": 1}], "line 1 is no JSON object"),
        (["[1, 2]"], "line 1 is no JSON object"),
        ([near(0.0)], "must be above 0, got 0"),
        (['{"video_id": "v", "clip_id": 1, "near_depth": NaN}'], "must be above 0, got nan"),
        ([near(1.0), near(2.0)], "line 2: the clip v-1 has the near depth 2 and, further up, 1"),
    ],
)
def test_tables_of_near_depths_are_diagnosed(tmp_path, entries, words):
    with pytest.raises(PoseFileError, match=words):
        read_near_depths(depths_file(tmp_path, *entries))


def test_a_clip_without_a_near_depth_is_named(tmp_path):
    depths = read_near_depths(depths_file(tmp_path, near(1.0), near(1.0), near(2.5, clip=2)))
    assert depths == {"v-1": 1.0, "v-2": 2.5}
    with pytest.raises(
        PoseFileError, match=r"table of 2 near depths has none for v-3 \(v-3-0-yaw_aug_0.npy\)"
    ):
        divide_by_near_depth(drive(0), depths, "v-3-0-yaw_aug_0.npy")


def test_a_camera_that_looks_straight_down_has_no_yaw():
    down = torch.tensor([[[1, 0, 0], [0, 0, 1], [0, -1, 0]]], dtype=torch.float64)
    with pytest.raises(ValueError, match="has no yaw"):
        without_first_yaw(Poses(R_world_cam=down, center_world=torch.zeros(1, 3, dtype=torch.float64)))


# comma2k19


def test_the_real_comma2k19_minute_has_its_documented_numbers():
    folder = shared_file("data/comma2k19")
    file = load_pose_file(folder, format="comma2k19")
    poses = file.poses
    assert (len(poses), poses.unit, file.body) == (1200, "m", "camera")
    assert round(poses.path_length, 2) == 1011.82
    assert_steps(poses, 0.8439, 1.0005)
    assert poses.times.diff().min() >= 0.0487
    assert poses.times.diff().max() < 0.05135
    assert poses.center_world.norm(dim=-1).mean() == pytest.approx(6370206, abs=200)
    positions = np.load(folder / "frame_positions.npy")
    # Every digit of the file, a few nanometres apart, is there.
    assert np.array_equal(poses.center_world.numpy(), positions)
    velocity = torch.from_numpy(np.load(folder / "frame_velocities.npy"))
    in_camera = (poses.R_world_cam.mT @ velocity[..., None])[..., 0]
    forward_right_down = in_camera[:, [2, 0, 1]].mean(0)
    assert forward_right_down.tolist() == pytest.approx((16.8, 0.2, -1.1), abs=0.15)
    up = poses.center_world[0] / poses.center_world[0].norm()
    assert (poses.R_world_cam[0].mT @ up)[[2, 0, 1]].tolist() == pytest.approx(
        (-0.06, -0.02, -0.997), abs=0.02
    )


def test_float32_would_lose_half_a_metre_a_step_there():
    positions = read_poses(shared_file("data/comma2k19"), format="comma2k19").center_world
    lost = (positions.float().double().diff(dim=0) - positions.diff(dim=0)).abs().max()
    assert 0.4 < float(lost) < 0.8


def comma(tmp_path, **changes):
    poses = drive(5, num=4)
    folder = tmp_path / "global_pose"
    write_poses(folder, poses, format="comma2k19")
    for name, array in changes.items():
        (folder / name).unlink()
        if array is not None:
            np.save(folder / f"{name}.npy", array)
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frame_times": None}, "has no file frame_times or frame_times.npy"),
        (
            {"frame_times": np.arange(3.0)},
            "frame_positions has 4, frame_orientations has 4, frame_times has 3",
        ),
        ({"frame_times": np.array([0.0, 1, 1, 2])}, "entry 2: the stamp 1.0 does not come after"),
        ({"frame_positions": np.zeros((4, 2))}, r"must hold an array \[T, 3\]; got shape \[4, 2\]"),
        ({"frame_positions": np.full((4, 3), np.nan)}, "entry 0 holds a value that is not finite"),
        ({"frame_orientations": np.full((4, 4), 1.0)}, "entry 0: the quaternion should have unit length"),
        ({"frame_orientations": np.full((4, 4), "a")}, "must hold real numbers"),
    ],
)
def test_broken_comma2k19_folders_are_diagnosed(tmp_path, changes, words):
    with pytest.raises(PoseFileError, match=words):
        read_poses(comma(tmp_path, **changes), format="comma2k19")


def test_comma2k19_wants_the_folder(tmp_path):
    folder = comma(tmp_path)
    with pytest.raises(PoseFileError, match="is a file; name the folder with frame_positions"):
        read_poses(folder / "frame_times", format="comma2k19")
    with pytest.raises(PoseFileError, match="does not exist"):
        read_poses(tmp_path / "nothing", format="comma2k19")


# RDS-HQ


def test_the_real_rds_hq_clip_has_its_documented_numbers():
    path = shared_file("data/rds_hq/vehicle_pose.npy")
    file = load_pose_file(path, format="rds-hq")
    poses = file.poses
    assert (len(poses), poses.unit, file.body, poses.times) == (300, "m", "vehicle", None)
    assert round(poses.path_length, 3) == 103.031
    assert_steps(poses, 0.3446, 0.3919)
    assert 0 < poses.projection_error < 1e-7
    assert round(arccos_turn_deg(np.load(path)), 1) == 6.7
    assert summed_turn_deg(poses) == pytest.approx(6.7, abs=0.4)
    steps = poses.center_world.diff(dim=0)
    assert ((poses.R_world_cam[:-1, :, 2] * steps).sum(-1) / steps.norm(dim=-1)).mean() > 0.99
    assert poses.R_world_cam[0, :, 1].tolist() == pytest.approx([0, 0, -1], abs=1e-6)
    assert "does not say how many poses there are in a second" in file.notes[0]


def array_bytes(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def vehicle_files(poses, numbers=(8, 9, 10, 11)) -> dict[str, bytes]:
    to_flu = torch.tensor([[0, -1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    return {
        f"{number}.vehicle_pose.npy": array_bytes((matrix @ to_flu).numpy().astype(np.float32))
        for number, matrix in zip(numbers, poses.T_world_cam, strict=True)
    }


def tar_of(path, parts, **attributes):
    with tarfile.open(path, "w") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in attributes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_one_array_a_frame_is_read_in_the_order_of_the_frame_numbers(tmp_path, kind):
    poses = drive(4, num=4)
    parts = {**vehicle_files(poses), "8.other.npy": array_bytes(np.eye(3)), "notes.txt": b"hello"}
    path = tmp_path / kind
    if kind == "tar":
        tar_of(path, {f"clip/{name}": part for name, part in reversed(parts.items())})
    else:
        path.mkdir()
        for name, part in parts.items():
            (path / name).write_bytes(part)
    file = load_pose_file(path, format="rds-hq")
    assert file.frame_ids == (8, 9, 10, 11)
    assert torch.allclose(file.poses.T_world_cam, poses.T_world_cam, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "attributes", "words"),
    [
        ("../a.vehicle_pose.npy", {}, "leaves its folder"),
        ("x/../../a.vehicle_pose.npy", {}, "leaves its folder"),
        ("/etc/a.vehicle_pose.npy", {}, "leaves its folder"),
        ("a.vehicle_pose.npy", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0}, "is a link"),
        ("a.vehicle_pose.npy", {"type": tarfile.LNKTYPE, "linkname": "b", "size": 0}, "is a link"),
        ("a.vehicle_pose.npy", {"type": tarfile.CHRTYPE, "size": 0}, "no plain file"),
    ],
)
def test_archives_that_reach_outside_are_refused(tmp_path, name, attributes, words):
    part = array_bytes(np.eye(4, dtype=np.float32))
    with pytest.raises(PoseFileError, match=words):
        read_poses(tar_of(tmp_path / "a.tar", {name: part}, **attributes), format="rds-hq")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"a.txt": b"x"}, "holds no file that ends in .vehicle_pose.npy"),
        (
            {"0.vehicle_pose.npy": array_bytes(np.eye(3))},
            r"0.vehicle_pose.npy of .* must hold real numbers \[4, 4\]",
        ),
        ({"0.vehicle_pose.npy": array_bytes(np.eye(4))[:-8]}, "cut short"),
        ({"0.vehicle_pose.npy": b"\x93NUMPY\x01"}, "no NumPy array"),
        ({"a/0.vehicle_pose.npy": b"1", "b/0.vehicle_pose.npy": b"1"}, "two files 0.vehicle_pose.npy"),
        ({"0.vehicle_pose.npy": bytes(1 << 17)}, "131072 bytes, which is no 4 x 4 matrix"),
        (
            {f"{name}.vehicle_pose.npy": array_bytes(np.eye(4)) for name in ("1", "01")},
            "two files for one frame number",
        ),
        (
            {"0.vehicle_pose.npy": array_bytes(2 * np.diag([1, 1, 1, 0.5]))},
            "0.vehicle_pose.npy: .*scaled by 2",
        ),
    ],
)
def test_broken_archives_are_diagnosed(tmp_path, parts, words):
    with pytest.raises(PoseFileError, match=words):
        read_poses(tar_of(tmp_path / "a.tar", parts), format="rds-hq")


def test_a_cut_archive_and_other_files_are_no_vehicle_poses(tmp_path):
    content = tar_of(tmp_path / "a.tar", vehicle_files(drive(4, num=4))).read_bytes()
    (tmp_path / "a.tar").write_bytes(content[:700])
    with pytest.raises(PoseFileError, match="damaged tar archive"):
        read_poses(tmp_path / "a.tar", format="rds-hq")
    (tmp_path / "text").write_text("1 2 3")
    with pytest.raises(PoseFileError, match="neither a NumPy array nor a tar archive"):
        read_poses(tmp_path / "text", format="rds-hq")
    np.save(tmp_path / "track.npy", np.zeros((81, 3, 4)))
    with pytest.raises(PoseFileError, match="--format npy"):
        read_poses(tmp_path / "track.npy", format="rds-hq")


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


# Files that are something else

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


def test_binary_files_say_what_they_are(tmp_path):
    np.save(tmp_path / "npy", np.eye(4)[None])
    np.savez(tmp_path / "npz", T_world_cam=np.eye(4)[None])
    (tmp_path / "npz.npz").rename(tmp_path / "npz") if (tmp_path / "npz.npz").exists() else None
    (tmp_path / "npy.npy").rename(tmp_path / "npy")
    tar_of(tmp_path / "rds-hq", vehicle_files(drive(4, num=4)))
    for format in ("npy", "npz", "rds-hq"):
        with pytest.raises(PoseFileError, match=f"--format {format}"):
            read_poses(tmp_path / format, format="euroc")


def test_a_header_that_promises_more_than_there_is_costs_no_memory(tmp_path):
    content = array_bytes(np.zeros((2, 4, 4)))
    for count in (10**6, 10**15):
        promise = content.replace(b"(2, 4, 4), }", f"({count}, 4, 4), }}".encode(), 1)
        (tmp_path / "a.npy").write_bytes(promise)
        for format in ("npy", "panshot", "rds-hq"):
            with pytest.raises(PoseFileError, match=r"is cut short|no NumPy array"):
                read_poses(tmp_path / "a.npy", format=format)


def test_times_in_an_archive_must_be_numbers(tmp_path):
    for times in (np.array(["a"]), np.zeros((1, 1))):
        np.savez(tmp_path / "a.npz", T_world_cam=np.eye(4)[None], times=times)
        with pytest.raises(PoseFileError, match=r"times must be numbers \[T\]"):
            read_poses(tmp_path / "a.npz", format="npz")
