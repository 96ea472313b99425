"""PanShot, comma2k19 and RDS-HQ: arrays whose conventions no header states, and archives that are not trusted."""

import json
import tarfile

import numpy as np
import pytest
import torch

from merope.data import PoseFileError, load_pose_file, read_poses, write_poses
from merope.data.poses.formats.panshot import (
    divide_by_near_depth,
    near_depth_key,
    read_near_depths,
    without_first_yaw,
)
from merope.geometry.poses import Poses
from tests.support.shared import shared_file
from tests.support.trajectories import (
    arccos_turn_deg,
    array_bytes,
    assert_steps,
    drive,
    summed_turn_deg,
    tar_of,
    vehicle_files,
)

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
        (folder / name).unlink(missing_ok=True)
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
        ({"frame_velocities": np.zeros((4, 2))}, r"must hold an array \[T, 3\]; got shape \[4, 2\]"),
        ({"frame_gps_times": np.zeros((3, 2))}, "frame_times has 4, frame_gps_times has 3"),
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
