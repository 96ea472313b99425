"""Argoverse 2 and TRI's DGP scenes: stamps, mountings, lenses, and what real logs measure."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import feather

from merope.cameras import CameraModel, KannalaBrandt, OpenCV, Pinhole
from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses, write_poses
from merope.data.poses.formats import FORMATS
from merope.data.poses.table import R_AXES_OPENCV
from merope.geometry.poses import Poses
from merope.geometry.rotations import quaternion_to_matrix
from tests.data.poses.test_files import sample
from tests.support.shared import shared_file

PINHOLE = Pinhole(fx=500.0, fy=501.0, cx=320.5, cy=179.5, height=360, width=640, pixel_origin="center")
EGO = {
    "timestamp_ns": [315967376859506000, 315967376859506001, 315967376864506001],
    "qw": [1.0, 1.0, 1.0],
    "qx": [0.0, 0.0, 0.0],
    "qy": [0.0, 0.0, 0.0],
    "qz": [0.0, 0.0, 0.0],
    "tx_m": [5000.0, 5000.0, 5000.1],
    "ty_m": [1.0, 1.0, 1.0],
    "tz_m": [2.0, 2.0, 2.0],
}
# Looks along the vehicle's x axis: its x is the vehicle's -y, its y the vehicle's -z.
MOUNTS = {
    "sensor_name": ["front", "up_lidar"],
    "qw": [0.5, 1.0],
    "qx": [-0.5, 0.0],
    "qy": [0.5, 0.0],
    "qz": [-0.5, 0.0],
    "tx_m": [1.5, 0.0],
    "ty_m": [0.0, 0.0],
    "tz_m": [1.25, 2.0],
}
INTRINSICS = {
    "sensor_name": ["front"],
    "fx_px": [500.0],
    "fy_px": [501.0],
    "cx_px": [320.5],
    "cy_px": [179.5],
    "k1": [-0.25],
    "k2": [-0.1],
    "k3": [0.2],
    "height_px": [360],
    "width_px": [640],
}


def log(folder, *, ego=EGO, mounts=MOUNTS, intrinsics=INTRINSICS):
    (folder / "calibration").mkdir(parents=True)
    feather.write_feather(pa.table(ego), folder / "city_SE3_egovehicle.feather")
    feather.write_feather(pa.table(mounts), folder / "calibration" / "egovehicle_SE3_sensor.feather")
    feather.write_feather(pa.table(intrinsics), folder / "calibration" / "intrinsics.feather")
    return folder


class TestArgoverse2:
    def test_stamps_a_nanosecond_apart_stay_apart(self, tmp_path):
        loaded = load_pose_file(log(tmp_path / "log"), format="argoverse2")
        assert loaded.poses.times.tolist() == [0.0, 1e-9, 0.005000001]
        assert loaded.names == tuple(map(str, EGO["timestamp_ns"]))
        assert loaded.notes == (
            "times count from the first stamp, 315967376859506000 ns",
            "1 of 3 poses are less than 1 us from the one before: resample by time before taking speeds",
        )

    def test_a_vehicle_drives_along_its_first_axis_and_a_camera_on_it_along_its_third(self, tmp_path):
        path = log(tmp_path / "log")
        vehicle = load_pose_file(path, format="argoverse2")
        assert (vehicle.body, vehicle.poses.unit, vehicle.camera) == ("vehicle", "m", None)
        # In OpenCV axes of the vehicle, forward is the third column: the city's x.
        assert vehicle.poses.R_world_cam[0].tolist() == R_AXES_OPENCV["flu"].tolist()
        camera = load_pose_file(path, format="argoverse2", options=ReadOptions(camera="front"))
        assert (camera.body, camera.poses.unit) == ("camera", "m")
        assert torch.allclose(camera.poses.R_world_cam, vehicle.poses.R_world_cam, atol=1e-15)
        assert camera.poses.center_world[0].tolist() == [5001.5, 1.0, 3.25]

    def test_the_lens_is_that_of_the_published_images(self, tmp_path):
        options = ReadOptions(camera="front")
        loaded = load_pose_file(log(tmp_path / "log"), format="argoverse2", options=options)
        assert CameraModel.from_dict(loaded.camera) == PINHOLE
        assert "k1 -0.25, k2 -0.1, k3 0.2 are those of the original lens" in loaded.notes[-1]

    def test_a_camera_without_intrinsics_keeps_its_poses(self, tmp_path):
        path = log(tmp_path / "log", intrinsics={**INTRINSICS, "sensor_name": ["rear"]})
        loaded = load_pose_file(path, format="argoverse2", options=ReadOptions(camera="front"))
        assert loaded.camera is None
        assert "has no front" in loaded.notes[-1]

    def test_other_cameras_are_listed_and_a_lidar_is_none(self, tmp_path):
        path = log(tmp_path / "log")
        for name in ("rear", "up_lidar"):
            with pytest.raises(PoseFileError, match=f"no camera '{name}'; .*must be one of front"):
                read_poses(path, format="argoverse2", options=ReadOptions(camera=name))

    def test_rows_out_of_order_are_sorted_and_repeats_left_out_and_both_said(self, tmp_path):
        order = [2, 0, 1, 0]
        ego = {name: [column[row] for row in order] for name, column in EGO.items()}
        loaded = load_pose_file(log(tmp_path / "log", ego=ego), format="argoverse2")
        assert loaded.names == tuple(map(str, EGO["timestamp_ns"]))
        assert "sorted" in loaded.notes[0]
        assert loaded.notes[1] == "1 repeated rows were left out"
        ego["tx_m"][3] += 1
        with pytest.raises(
            PoseFileError, match=r"rows 1 and 3 have the stamp 315967376859506000 and different poses"
        ):
            read_poses(log(tmp_path / "other", ego=ego), format="argoverse2")

    @pytest.mark.parametrize("far", [0.0, 6.4e6])
    def test_what_is_written_comes_back_to_a_nanometre_and_a_nanosecond(self, tmp_path, far):
        poses = sample(50, far=far)
        write_poses(tmp_path / "ego.feather", poses, format="argoverse2")
        read = read_poses(tmp_path / "ego.feather", format="argoverse2")
        assert (read.center_world - poses.center_world).abs().max() <= 1e-9
        assert (read.R_world_cam - poses.R_world_cam).abs().max() <= 1e-9
        assert (read.times - (poses.times - poses.times[0])).abs().max() <= 1e-9
        assert FORMATS["argoverse2"].recognise(tmp_path / "ego.feather")

    def test_times_that_nanoseconds_cannot_hold_are_refused(self, tmp_path):
        def timed(*times):
            return Poses(
                R_world_cam=sample(2).R_world_cam,
                center_world=sample(2).center_world,
                times=torch.tensor(times, dtype=torch.float64),
            )

        for times, words in (((0.0, 1e-10), "have the same stamp"), ((0.0, 1e11), "292 years")):
            with pytest.raises(ValueError, match=words):
                write_poses(tmp_path / "a", timed(*times), format="argoverse2")
        with pytest.raises(ValueError, match="needs a time for each pose"):
            write_poses(tmp_path / "a", sample(times=False), format="argoverse2")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"tx_m": [0.0, math.nan, 0.0]}, "row 1: tx_m is not finite"),
            ({"tx_m": [0.0, None, 0.0]}, "row 1 has no 'tx_m'"),
            ({"tx_m": ["a", "b", "c"]}, "column 'tx_m' holds string"),
            ({"tx_m": [1, 2, 3]}, "column 'tx_m' holds int64"),
            ({"timestamp_ns": [0.0, 1.0, 2.0]}, "column 'timestamp_ns' holds double"),
            ({"timestamp_ns": pa.array([1, 2, 2**64 - 1], pa.uint64())}, "numbers that are too large"),
            ({"qw": [1.0, 1.0, 2.0]}, "row 2: the quaternion should have unit length, but has length 2"),
            ({"qw": [1e308, 1.0, 1.0]}, "row 0: the quaternion should have unit length"),
            ({"qw": None}, "should have one column 'qw'; it has timestamp_ns, qx"),
        ],
    )
    def test_wrong_tables_are_named_by_column_and_row(self, tmp_path, change, words):
        ego = {name: column for name, column in {**EGO, **change}.items() if column is not None}
        with pytest.raises(PoseFileError, match=words):
            read_poses(log(tmp_path / "log", ego=ego), format="argoverse2")

    def test_what_is_no_table_is_refused(self, tmp_path):
        path = tmp_path / "city_SE3_egovehicle.feather"
        write_poses(path, sample(), format="argoverse2")
        whole = path.read_bytes()
        for broken in (b"", b"ARROW1", whole[:50], whole[: len(whole) // 2], whole[:-10], b"x" * 200):
            path.write_bytes(broken)
            with pytest.raises(PoseFileError, match=r"city_SE3_egovehicle.feather is"):
                read_poses(tmp_path, format="argoverse2")
        for at in range(8, len(whole), 97):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            try:
                poses = read_poses(path, format="argoverse2")
            except PoseFileError:
                continue
            assert torch.isfinite(poses.T_world_cam).all()
        path.unlink()
        with pytest.raises(PoseFileError, match="does not exist"):
            read_poses(tmp_path, format="argoverse2")
        feather.write_feather(pa.table({name: column[:0] for name, column in EGO.items()}), path)
        with pytest.raises(PoseFileError, match="has no rows"):
            read_poses(path, format="argoverse2")

    @pytest.mark.parametrize(
        ("name", "num", "length", "longest", "farthest", "seconds", "turn"),
        [
            ("7fab2350", 2706, 75.044, 0.1317, 5236.3, 15.95, 93.0),
            ("adcf7d18", 2637, 40.413, 0.0642, 1506.7, 15.94, 13.3),
        ],
    )
    def test_real_logs_have_their_measures(self, name, num, length, longest, farthest, seconds, turn):
        path = shared_file(f"data/av2/{name}")
        loaded = load_pose_file(path, format="argoverse2")
        poses = loaded.poses
        assert (len(poses), loaded.body) == (num, "vehicle")
        assert poses.path_length == pytest.approx(length, abs=6e-4)
        assert float(poses.step_lengths.max()) == pytest.approx(longest, abs=6e-5)
        assert float(poses.center_world.abs().max()) == pytest.approx(farthest, abs=0.06)
        assert float(poses.times[-1]) == pytest.approx(seconds, abs=6e-3)
        spacing = poses.times.diff()
        assert float(spacing.min()) == pytest.approx(1e-9, abs=1e-14)
        assert float(spacing.max()) == pytest.approx(0.01, abs=6e-5)
        assert float(spacing.median()) == pytest.approx(5.07e-3, abs=0.06e-3)
        assert float((spacing < 1e-6).double().mean()) == pytest.approx(1 / 9, abs=0.02)
        cosines = (
            (poses.R_world_cam[:-1].mT @ poses.R_world_cam[1:]).diagonal(dim1=1, dim2=2).sum(1) - 1
        ) / 2
        assert float(cosines.clamp(-1, 1).arccos().rad2deg().sum()) == pytest.approx(turn, abs=0.6)
        assert FORMATS["argoverse2"].recognise(path) is not None

    def test_a_real_log_turns_by_71_degrees_and_its_cameras_look_where_they_are_named(self):
        path = shared_file("data/av2/7fab2350")
        poses = read_poses(path, format="argoverse2")
        forward = poses.R_world_cam[:, :, 2]
        yaw = np.unwrap(np.arctan2(forward[:, 1].numpy(), forward[:, 0].numpy()))
        assert np.rad2deg(np.ptp(yaw)) == pytest.approx(71, abs=0.5)
        for camera, angle in (("ring_front_center", 0), ("ring_side_left", 100), ("ring_rear_right", 153)):
            loaded = load_pose_file(path, format="argoverse2", options=ReadOptions(camera=camera))
            cosine = float((loaded.poses.R_world_cam[0, :, 2] * forward[0]).sum())
            assert math.degrees(math.acos(cosine)) == pytest.approx(angle, abs=3)
            apart = (loaded.poses.center_world - poses.center_world).norm(dim=1)
            assert float(apart.max() - apart.min()) < 1e-9
            assert loaded.camera["model"] == "pinhole"
            assert 1683 < loaded.camera["fx"] < 1777
        with pytest.raises(PoseFileError, match=r"must be one of ring_front_center, .*stereo_front_right"):
            read_poses(path, format="argoverse2", options=ReadOptions(camera="CAM_FRONT"))


def scene(folder, poses=None, lens=PINHOLE):
    write_poses(folder, sample(4) if poses is None else poses, format="tri-dgp", camera=lens.to_dict())
    return next(folder.glob("scene_*.json"))


def changed(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


class TestTriDgp:
    @pytest.mark.parametrize("far", [0.0, 6.4e6])
    @pytest.mark.parametrize(
        "lens", [PINHOLE, OpenCV(**{k: v for k, v in PINHOLE.to_dict().items() if k != "model"}, k1=0.1)]
    )
    def test_scenes_round_trip_to_a_nanometre(self, tmp_path, far, lens):
        poses = sample(12, far=far)
        write_poses(tmp_path / "scene", poses, format="tri-dgp", camera=lens.to_dict())
        loaded = load_pose_file(tmp_path / "scene", format="tri-dgp")
        assert (loaded.poses.center_world - poses.center_world).abs().max() <= 1e-9
        assert (loaded.poses.R_world_cam - poses.R_world_cam).abs().max() <= 1e-9
        assert torch.equal(loaded.poses.times, poses.times)
        assert CameraModel.from_dict(loaded.camera) == lens
        assert (loaded.poses.unit, loaded.notes) == ("m", ())
        assert loaded.names[:2] == ("rgb/CAMERA_01/frame_00000.png", "rgb/CAMERA_01/frame_00001.png")
        assert FORMATS["tri-dgp"].recognise(tmp_path / "scene") is not None

    def test_images_are_ordered_by_time_and_other_sensors_left_out(self, tmp_path):
        path = scene(tmp_path / "scene")
        lidar = {"id": {"name": "LIDAR"}, "key": "x", "datum": {"point_cloud": {}}}
        changed(path, lambda content: content["data"].reverse() or content["data"].append(lidar))
        read = read_poses(path, format="tri-dgp")
        assert torch.allclose(read.T_world_cam, sample(4).T_world_cam, atol=1e-12)

    def test_an_image_under_a_damaged_name_is_not_left_out_in_silence(self, tmp_path):
        path = scene(tmp_path / "scene")
        changed(path, lambda content: content["data"][1].update(datum={"kmage": {}}))
        with pytest.raises(PoseFileError, match="a datum of the kind image, point_cloud"):
            read_poses(path, format="tri-dgp")

    def test_several_cameras_have_to_be_chosen_from(self, tmp_path):
        path = scene(tmp_path / "scene")
        changed(path, lambda content: content["data"][1]["id"].update(name="CAMERA_06"))
        with pytest.raises(PoseFileError, match="holds 2 cameras: CAMERA_01, CAMERA_06"):
            read_poses(path, format="tri-dgp")
        loaded = load_pose_file(path, format="tri-dgp", options=ReadOptions(camera="CAMERA_06"))
        assert len(loaded.poses) == 1
        assert loaded.camera is None
        assert "has no CAMERA_06" in loaded.notes[0]

    def test_a_missing_calibration_costs_the_lens_alone(self, tmp_path):
        path = scene(tmp_path / "scene")
        next(path.parent.glob("calibration/*.json")).unlink()
        loaded = load_pose_file(path, format="tri-dgp")
        assert loaded.camera is None
        assert "is not there" in loaded.notes[0]

    def test_a_calibration_outside_its_folder_is_not_opened(self, tmp_path):
        path = scene(tmp_path / "scene")
        calibration = next(path.parent.glob("calibration/*.json"))
        calibration.rename(path.parent / "elsewhere.json")
        changed(
            path,
            lambda content: [sample.update(calibration_key="../elsewhere") for sample in content["samples"]],
        )
        assert load_pose_file(path, format="tri-dgp").camera is None

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"skew": 0.1}, "skew"),
            ({"fisheye": 1}, "fisheye"),
            ({"xi": 0.2, "alpha": 0.5}, "alpha, xi"),
            ({"fx": 0}, "fx"),
        ],
    )
    def test_lenses_that_are_none_here_are_left_out_with_their_reason(self, tmp_path, values, words):
        path = scene(tmp_path / "scene")
        changed(
            next(path.parent.glob("calibration/*.json")),
            lambda content: content["intrinsics"][0].update(values),
        )
        loaded = load_pose_file(path, format="tri-dgp")
        assert loaded.camera is None
        assert words in loaded.notes[0]

    def test_stamps_of_another_century_are_no_times_of_capture(self, tmp_path):
        path = scene(tmp_path / "scene")
        content = json.loads(path.read_text())
        for index, datum in enumerate(content["data"]):
            datum["id"]["timestamp"] = f"2464-11-12T01:04:{index:02d}.93653Z"
        path.write_text(json.dumps(content))
        loaded = load_pose_file(path, format="tri-dgp")
        assert loaded.notes == ("the stamps lie in the year 2464, so they are no times of capture",)
        assert loaded.poses.times.diff().tolist() == pytest.approx([1.0] * 3, abs=1e-5)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                lambda c: c["data"][1]["id"].update(timestamp="yesterday"),
                r"data\[1\].id.timestamp must be a time such as",
            ),
            (
                lambda c: c["data"][1]["id"].update(timestamp="2019-02-30T00:00:00Z"),
                r"data\[1\].id.timestamp must be a time",
            ),
            (
                lambda c: c["data"][1]["id"].update(timestamp=5),
                r"data\[1\].id.timestamp must be a text, got 5",
            ),
            (
                lambda c: c["data"][1]["id"].update(timestamp=c["data"][0]["id"]["timestamp"]),
                r"data\[1\].datum.image.pose: the stamp .* is that of data\[0\]",
            ),
            (
                lambda c: c["data"][1]["datum"]["image"]["pose"]["rotation"].pop("qw"),
                r"data\[1\].*has no 'qw'; it holds qx",
            ),
            (
                lambda c: c["data"][1]["datum"]["image"]["pose"]["rotation"].update(qw=9.0),
                r"data\[1\].datum.image.pose: the quaternion should have unit length",
            ),
            (
                lambda c: c["data"][1]["datum"]["image"]["pose"]["translation"].update(x=math.nan),
                r"data\[1\].datum.image.pose.translation.x holds a value that is not finite",
            ),
            (
                lambda c: c["data"][1]["datum"]["image"].update(width=1.5),
                r"data\[1\].*width must be a whole number",
            ),
            (lambda c: [datum["datum"].pop("image") for datum in c["data"]], "holds no images"),
            (lambda c: c.pop("samples"), "has no 'samples'"),
        ],
    )
    def test_wrong_scenes_are_named_by_their_place(self, tmp_path, change, words):
        with pytest.raises(PoseFileError, match=words):
            read_poses(changed(scene(tmp_path / "scene"), change), format="tri-dgp")

    def test_a_folder_without_one_scene_is_refused(self, tmp_path):
        with pytest.raises(PoseFileError, match=r"should hold one scene_.*; it holds none"):
            read_poses(tmp_path, format="tri-dgp")
        for name in ("scene_a.json", "scene_b.json"):
            (tmp_path / name).write_text("{}")
        with pytest.raises(PoseFileError, match=r"it holds scene_a.json, scene_b.json. Name the file"):
            read_poses(tmp_path, format="tri-dgp")

    def test_what_the_format_cannot_hold_is_not_written(self, tmp_path):
        with pytest.raises(ValueError, match="pinholes and OpenCV's"):
            write_poses(
                tmp_path / "a",
                sample(),
                format="tri-dgp",
                camera=KannalaBrandt.from_fov(fov_x_deg=150.0, height=4, width=6).to_dict(),
            )
        poses = Poses(
            R_world_cam=sample(1).R_world_cam,
            center_world=sample(1).center_world,
            times=torch.tensor([1e12], dtype=torch.float64),
        )
        with pytest.raises(ValueError, match="years 1 to 9999"):
            write_poses(tmp_path / "a", poses, format="tri-dgp", camera=PINHOLE.to_dict())
        assert not (tmp_path / "a").exists()

    def test_cameras_of_a_real_rig_agree_on_their_vehicle_and_its_speed(self):
        path = shared_file("data/tri_dgp/poses_calib.json")
        vehicles = []
        for camera, steps, focal in (
            ("CAMERA_01", [1.273, 1.267], 2181.5),
            ("CAMERA_06", [1.273, 1.266], 1060.8),
        ):
            loaded = load_pose_file(path, format="tri-dgp", options=ReadOptions(camera=camera))
            poses = loaded.poses
            assert (len(poses), poses.unit, loaded.notes) == (3, "m", ())
            assert poses.step_lengths.tolist() == pytest.approx(steps, abs=6e-4)
            assert poses.times.diff().tolist() == pytest.approx([0.1, 0.1], abs=1e-4)
            assert loaded.camera["fx"] == pytest.approx(focal, abs=0.06)
            assert (loaded.camera["width"], loaded.camera["height"]) == (1936, 1216)
            assert loaded.names[0] == f"rgb/{camera}/15616458249936530.jpg"
            mount = json.loads(path.read_text())["calibration"][camera]["T_ego_camera"]
            quaternion = [mount["rotation"][key] for key in ("qx", "qy", "qz", "qw")]
            R_ego_cam = quaternion_to_matrix(torch.tensor(quaternion, dtype=torch.float64))
            center_ego = torch.tensor([mount["translation"][key] for key in "xyz"], dtype=torch.float64)
            vehicles.append(poses.mounted(R_ego_cam.T, -R_ego_cam.T @ center_ego))
        assert (vehicles[0].center_world - vehicles[1].center_world).norm(dim=1).max() < 0.01
        assert float(vehicles[0].step_lengths.mean()) == pytest.approx(1.27, abs=5e-3)
        with pytest.raises(PoseFileError, match=r"holds 2 cameras: CAMERA_01, CAMERA_06.*--camera"):
            read_poses(path, format="tri-dgp")
