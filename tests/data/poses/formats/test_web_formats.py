"""Camera files of published models and of nerfstudio: ReCamMaster, MotionCtrl, AC3D, transforms.json."""

import json
import math

import numpy as np
import pytest
import torch

from merope.cameras import CameraModel, KannalaBrandt, Pinhole, UnifiedCamera
from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses, write_poses
from merope.geometry.rotations import angle_from_identity, rotation_angle, rotvec_to_matrix
from tests.data.poses.test_files import sample
from tests.support.shared import shared_file

PINHOLE = Pinhole(fx=500.0, fy=501.0, cx=320.5, cy=179.5, height=360, width=640, pixel_origin="corner")


def as_json(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_text(json.dumps(content))
    return path


def identity_text(x, y, z):
    return f"[1 0 0 0] [-0 1 0 0] [0 -0 1 0] [{x} {y} {z} 1] "


@pytest.mark.parametrize("format", ["recammaster", "ac3d", "nerfstudio"])
@pytest.mark.parametrize("far", [0.0, 6.4e6])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_written_comes_back_to_a_nanometre(tmp_path, format, far, suffix):
    poses, path = sample(200, far=far), tmp_path / f"poses.json{suffix}"
    write_poses(path, poses, format=format, camera=PINHOLE.to_dict())
    loaded = load_pose_file(path, format=format)
    assert (loaded.poses.center_world - poses.center_world).abs().max() <= 1e-9
    assert (loaded.poses.R_world_cam - poses.R_world_cam).abs().max() <= 1e-9
    assert loaded.poses.unit == "m"


class TestReCamMaster:
    def test_the_unit_pose_of_the_engine_looks_along_opencv_axes_in_metres(self, tmp_path):
        path = as_json(tmp_path, {"frame0": {"cam01": identity_text(3390, 1380, 240)}})
        poses = read_poses(path, format="recammaster")
        assert poses.unit == "m"
        assert torch.equal(poses.R_world_cam[0], torch.eye(3, dtype=torch.float64))
        assert poses.center_world[0].tolist() == [13.80, -2.40, 33.90]

    def test_turns_go_the_way_they_go_in_the_engine(self, tmp_path):
        # Its yaw is about z from x (forward) to y (right), so the second bracket of this camera is its right side.
        text = "[0 1 0 0] [-1 0 0 0] [0 0 1 0] [0 0 0 1]"
        turned = read_poses(as_json(tmp_path, {"frame0": {"c": text}}), format="recammaster").R_world_cam[0]
        # A camera that looks to the right: its forward axis is world right, its right side is world back.
        assert turned[:, 2].tolist() == [1, 0, 0]
        assert turned[:, 0].tolist() == [0, 0, -1]

    def test_writing_gives_the_file_back(self, tmp_path):
        path = as_json(tmp_path, {"frame0": {"cam01": identity_text(3390.5, 1380, -240)}})
        poses = read_poses(path, format="recammaster")
        write_poses(tmp_path / "again.json", poses, format="recammaster")
        text = json.loads((tmp_path / "again.json").read_text())["frame0"]["cam01"]
        assert [float(word) for word in text.replace("[", "").replace("]", "").split()] == pytest.approx(
            [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 3390.5, 1380, -240, 1], abs=1e-9
        )

    def test_frames_are_in_the_order_of_their_numbers(self, tmp_path):
        content = {f"frame{number}": {"cam01": identity_text(100 * number, 0, 0)} for number in (10, 2, 0)}
        loaded = load_pose_file(as_json(tmp_path, content), format="recammaster")
        assert loaded.frame_ids == (0, 2, 10)
        assert loaded.poses.center_world[:, 2].tolist() == [0, 2, 10]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (
                {"frame0": {"cam01": identity_text(0, 0, 0), "cam02": ""}},
                "holds 2 cameras: cam01, cam02.*--camera",
            ),
            ({"frame0": {"cam01": "[1 0 0 0] [0 1 0 0] [0 0 1 0]"}}, r"frame0.cam01 must be four brackets"),
            ({"frame0": {"cam01": "[1 0 0] [0 1 0] [0 0 1] [0 0 0]"}}, r"frame0.cam01 must be four brackets"),
            (
                {"frame0": {"cam01": "[1 0 0 nan] [0 1 0 0] [0 0 1 0] [0 0 0 1]"}},
                "frame0.cam01 holds .* not finite",
            ),
            ({"frame0": {"cam01": "[1 0 0 x] [0 1 0 0] [0 0 1 0] [0 0 0 1]"}}, r"frame0.cam01 must be four"),
            ({"frame0": {"cam01": "[1 0 0 5] [0 1 0 0] [0 0 1 0] [0 0 0 1]"}}, "seem not to be transposed"),
            ({"frame0": {"cam01": "[2 0 0 0] [0 2 0 0] [0 0 2 0] [0 0 0 1]"}}, "frame0.cam01: .*scaled by 2"),
            (
                {"frame0": {"cam01": "[-1 0 0 0] [0 1 0 0] [0 0 1 0] [0 0 0 1]"}},
                "frame0.cam01: .*determinant -1",
            ),
            ({"frame0": {"cam01": identity_text(0, 0, 0)}, "frame1": {}}, "frame1 has no 'cam01'"),
            ({"frame0": {"cam01": 5}}, "frame0.cam01 must be a text, got 5"),
            ({"shot0": {"cam01": ""}}, "names of this format are frame0"),
            ({"frame0": {}, "frame00": {}}, "has frame 0 twice, as frame0 and frame00"),
            ({}, "holds no frames"),
        ],
    )
    def test_wrong_files_are_named(self, tmp_path, content, words):
        with pytest.raises(PoseFileError, match=words):
            read_poses(as_json(tmp_path, content), format="recammaster")

    def test_the_preset_trajectories_have_their_measures(self):
        path = shared_file("data/recammaster/camera_extrinsics.json")
        for camera, length, angle in (
            ("cam01", 0, 19.9),
            ("cam03", 0, 9.9),
            ("cam05", 1.9876, 0),
            ("cam06", 1.9876, 0),
        ):
            poses = read_poses(path, format="recammaster", options=ReadOptions(camera=camera))
            assert len(poses) == 81
            assert poses.path_length == pytest.approx(length, abs=1e-4)
            assert torch.rad2deg(
                rotation_angle(poses.R_world_cam[0], poses.R_world_cam[-1])
            ) == pytest.approx(angle, abs=0.06)
        with pytest.raises(PoseFileError, match="6 cameras: cam01, cam02, cam03, cam04, cam05, cam06"):
            read_poses(path, format="recammaster")
        with pytest.raises(PoseFileError, match="no camera 'cam07'"):
            read_poses(path, format="recammaster", options=ReadOptions(camera="cam07"))


class TestMotionCtrl:
    def test_a_file_is_relative_to_its_first_camera(self, tmp_path):
        poses = sample(far=6.4e6)
        write_poses(tmp_path / "a.json", poses, format="motionctrl")
        loaded = load_pose_file(tmp_path / "a.json", format="motionctrl")
        relative = poses.rebase_to_first()
        assert (loaded.poses.T_world_cam - relative.T_world_cam).abs().max() <= 1e-9
        assert (loaded.poses.unit, loaded.notes) == ("unknown", ())
        rows = json.loads((tmp_path / "a.json").read_text())
        assert rows[0] == pytest.approx(np.eye(3, 4).ravel().tolist(), abs=1e-12)

    def test_a_file_that_begins_elsewhere_has_a_note(self, tmp_path):
        row = np.eye(3, 4)
        row[0, 3] = 5
        path = as_json(tmp_path, [row.ravel().tolist()])
        assert "not the identity" in load_pose_file(path, format="motionctrl").notes[0]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ([[1.0] * 11], "entry 0 must be 12 numbers, got a list of 11"),
            (
                [np.eye(3, 4).ravel().tolist(), [float("nan")] * 12],
                "entry 1 holds a value that is not finite",
            ),
            ([np.eye(3, 4).ravel().tolist(), [1.0] * 12], "entry 1: the rotation is not orthonormal"),
            ([{"a": 1}], "entry 0 must be 12 numbers, got an object"),
        ],
    )
    def test_wrong_files_are_named(self, tmp_path, content, words):
        with pytest.raises(PoseFileError, match=words):
            read_poses(as_json(tmp_path, content), format="motionctrl")

    @pytest.mark.parametrize(
        ("clip", "length"),
        [
            ("018f7907401f2fef", 1.555),
            ("088b93f15ca8745d", 1.59),
            ("0f12b97e0e4c7e21", 7.77),
            ("1424acd0007d40b5", 9.533),
            ("2ceec371086f5d82", 0.18),
            ("4d162b68bb19944e", 0.795),
            ("5570474575713996", 2.45),
            ("5bdfcb2cf3ea6b54", 1.074),
            ("71e6127ee98db5ee", 2.086),
            ("754f7a46cc9770c6", 1.286),
            ("78c9f12f1f2df5a1", 2.674),
            ("828a000aaa5ac92c", 1.742),
        ],
    )
    def test_published_files_have_their_length(self, clip, length):
        path = shared_file(f"data/re10k/motionctrl/test_camera_{clip}.json")
        loaded = load_pose_file(path, format="motionctrl")
        assert (len(loaded.poses), loaded.notes) == (16, ())
        assert loaded.poses.path_length == pytest.approx(length, abs=6e-4)
        assert loaded.poses.projection_error < 3e-7

    def test_a_published_file_is_every_ninth_frame_of_ac3d_relative_to_frame_2(self):
        motionctrl = read_poses(
            shared_file("data/re10k/motionctrl/test_camera_018f7907401f2fef.json"), format="motionctrl"
        )
        path = shared_file("data/re10k/ac3d/018f7907401f2fef.camera_info.json")
        ac3d = read_poses(path, format="ac3d")[list(range(2, 138, 9))].rebase_to_first()
        assert (motionctrl.T_world_cam - ac3d.T_world_cam).abs().max() < 3e-7


class TestAC3D:
    def test_both_published_files_have_their_measures(self):
        folder = shared_file("data/re10k/ac3d")
        plain = load_pose_file(folder / "018f7907401f2fef.camera_info.json", format="ac3d")
        metric = load_pose_file(folder / "018f7907401f2fef.camera_info_metric.json", format="ac3d")
        assert len(plain.poses) == len(metric.poses) == 189
        assert plain.poses.path_length == pytest.approx(2.318, abs=5e-4)
        assert metric.poses.path_length == pytest.approx(1.575, abs=5e-4)
        assert metric.poses.path_length / plain.poses.path_length == pytest.approx(0.679452, abs=1e-6)
        assert (plain.poses.R_world_cam - metric.poses.R_world_cam).abs().max() < 1e-6
        assert plain.poses.projection_error < 1e-7
        assert float(plain.poses.step_lengths.max()) == pytest.approx(0.0164, abs=6e-5)
        angles = rotation_angle(plain.poses.R_world_cam[:-1], plain.poses.R_world_cam[1:])
        assert float(torch.rad2deg(angles).sum()) == pytest.approx(39.5, abs=0.06)
        assert (plain.poses.unit, metric.poses.unit) == ("unknown", "m")
        assert plain.notes == ()
        assert "metric_scale 0.679452" in metric.notes[0]
        lens = CameraModel.from_dict(plain.camera)
        assert (lens.fx, lens.cx, lens.cy, lens.width, lens.height) == (
            484.13482666015625,
            512,
            288,
            1024,
            576,
        )

    def test_the_unit_of_poses_in_metres_is_stated(self, tmp_path):
        for unit, read in (("m", "m"), ("normalized", "unknown"), ("unknown", "unknown")):
            write_poses(tmp_path / "a", sample(unit=unit), format="ac3d", camera=PINHOLE.to_dict())
            assert read_poses(tmp_path / "a", format="ac3d").unit == read

    def test_intrinsics_that_change_cost_the_lens_and_not_the_poses(self, tmp_path):
        write_poses(tmp_path / "a", sample(3), format="ac3d", camera=PINHOLE.to_dict())
        content = json.loads((tmp_path / "a").read_text())
        content["intrinsics"][2][0][0] += 1
        loaded = load_pose_file(as_json(tmp_path, content), format="ac3d")
        assert loaded.camera is None
        assert "intrinsics[2] differs from intrinsics[0]" in loaded.notes[0]

    def test_other_lenses_and_other_counts_are_refused(self, tmp_path):
        fisheye = KannalaBrandt.from_fov(fov_x_deg=160.0, height=10, width=20)
        with pytest.raises(ValueError, match="holds pinholes alone"):
            write_poses(tmp_path / "a", sample(), format="ac3d", camera=fisheye.to_dict())
        write_poses(tmp_path / "a", sample(3), format="ac3d", camera=PINHOLE.to_dict())
        content = json.loads((tmp_path / "a").read_text())
        content["w2c"].pop()
        with pytest.raises(PoseFileError, match="2 matrices in w2c and 3 in intrinsics"):
            read_poses(as_json(tmp_path, content), format="ac3d")


def transforms(*, count=3, **more):
    poses = sample(count)
    opengl = poses.T_world_cam @ torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    frames = [
        {"file_path": f"images/{index:04d}.jpg", "transform_matrix": matrix}
        for index, matrix in enumerate(opengl.tolist())
    ]
    return poses, {"frames": frames, **more}


INTRINSICS = {"w": 640, "h": 360, "fl_x": 500.0, "fl_y": 501.0, "cx": 320.5, "cy": 179.5}


class TestNerfstudio:
    def test_camera_axes_turn_and_centres_keep_every_bit(self, tmp_path):
        poses, content = transforms(**INTRINSICS)
        loaded = load_pose_file(as_json(tmp_path, content), format="nerfstudio")
        assert torch.equal(loaded.poses.center_world, poses.center_world)
        assert torch.allclose(loaded.poses.R_world_cam, poses.R_world_cam, atol=1e-12)
        assert loaded.names == ("images/0000.jpg", "images/0001.jpg", "images/0002.jpg")
        assert (loaded.poses.unit, loaded.notes) == ("unknown", ())
        assert CameraModel.from_dict(loaded.camera) == PINHOLE

    @pytest.mark.parametrize("scale", [None, 0.25])
    def test_an_applied_transform_is_reported_and_taken_out_on_request_alone(self, tmp_path, scale):
        poses, content = transforms()
        turn = rotvec_to_matrix(torch.tensor([0.3, -1.0, 0.4], dtype=torch.float64))
        offset = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        content["applied_transform"] = torch.cat([turn, offset[:, None]], dim=1).tolist()
        if scale is not None:
            content["applied_scale"] = scale
        path = as_json(tmp_path, content)
        kept = load_pose_file(path, format="nerfstudio")
        assert torch.equal(kept.poses.center_world, poses.center_world)
        assert "applied_transform" in kept.notes[0]
        assert "--undo-applied-transform" in kept.notes[0]
        undone = load_pose_file(path, format="nerfstudio", options=ReadOptions(undo_applied_transform=True))
        assert "was taken out" in undone.notes[0]
        # Applying what the file states leads back to what it holds.
        again = undone.poses.transformed(turn, offset).scaled(scale or 1.0)
        assert torch.allclose(again.T_world_cam, poses.T_world_cam, atol=1e-12)

    def test_what_is_not_there_or_is_no_motion_cannot_be_taken_out(self, tmp_path):
        options = ReadOptions(undo_applied_transform=True)
        _, content = transforms()
        with pytest.raises(PoseFileError, match="states no applied_transform"):
            read_poses(as_json(tmp_path, content), format="nerfstudio", options=options)
        content["applied_transform"] = (2 * np.eye(3, 4)).tolist()
        with pytest.raises(PoseFileError, match="applied_transform is no rotation"):
            read_poses(as_json(tmp_path, content), format="nerfstudio", options=options)
        content["applied_transform"] = np.diag([1.0, 1.0, -1.0, 1.0])[:3].tolist()
        with pytest.raises(PoseFileError, match=r"applied_transform is no rotation .*determinant -1"):
            read_poses(as_json(tmp_path, content), format="nerfstudio", options=options)
        del content["applied_transform"]
        content["applied_scale"] = -1
        with pytest.raises(PoseFileError, match="applied_scale must be a positive number"):
            read_poses(as_json(tmp_path, content), format="nerfstudio", options=options)

    def test_a_field_of_view_is_about_the_middle_of_the_image(self, tmp_path):
        _, content = transforms(camera_angle_x=math.pi / 2, w=640, h=360)
        lens = load_pose_file(as_json(tmp_path, content), format="nerfstudio").camera
        assert (lens["fx"], lens["fy"], lens["cx"], lens["cy"]) == (
            pytest.approx(320),
            pytest.approx(320),
            320,
            180,
        )

    @pytest.mark.parametrize(
        ("more", "model", "values"),
        [
            (
                {"camera_model": "OPENCV", "k1": 0.1, "p2": 0.01, "k3": 0.2},
                "opencv",
                {"k1": 0.1, "p2": 0.01, "k3": 0.2},
            ),
            ({"k1": 0.0, "k2": 0.0}, "pinhole", {}),
            (
                {"camera_model": "OPENCV_FISHEYE", "k1": 0.1, "k4": 0.2},
                "kannala_brandt",
                {"k1": 0.1, "k4": 0.2},
            ),
        ],
    )
    def test_lenses_are_those_of_opencv(self, tmp_path, more, model, values):
        _, content = transforms(**INTRINSICS, **more)
        lens = load_pose_file(as_json(tmp_path, content), format="nerfstudio").camera
        assert lens["model"] == model
        assert {key: lens[key] for key in values} == values

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"camera_model": "EQUIRECTANGULAR"}, "no lens here for its camera_model 'EQUIRECTANGULAR'"),
            ({"k4": 0.1}, "k4 of a perspective lens"),
            ({"camera_model": "OPENCV_FISHEYE", "p1": 0.1}, "has no p1 and p2"),
            ({"w": None}, "does not say its image size (w)"),
            ({"cx": None}, "no principal point"),
            ({"fl_x": None}, "neither fl_x nor camera_angle_x"),
            ({"fl_x": None, "camera_angle_x": 4.0}, "between 0 and pi"),
            ({"cx": 1e9}, "cx must lie within the width"),
        ],
    )
    def test_a_lens_that_is_none_here_is_left_out_with_its_reason(self, tmp_path, more, words):
        _, content = transforms(**{**INTRINSICS, **more})
        loaded = load_pose_file(as_json(tmp_path, content), format="nerfstudio")
        assert loaded.camera is None
        assert words in loaded.notes[0]

    def test_intrinsics_of_each_frame_are_one_lens_or_none(self, tmp_path):
        _, content = transforms(count=2)
        for frame in content["frames"]:
            frame.update(INTRINSICS)
        assert (
            CameraModel.from_dict(load_pose_file(as_json(tmp_path, content), format="nerfstudio").camera)
            == PINHOLE
        )
        content["frames"][1]["fl_x"] = 510.0
        loaded = load_pose_file(as_json(tmp_path, content), format="nerfstudio")
        assert loaded.camera is None
        assert "the lens of frames[1] differs from that of frames[0]" in loaded.notes[0]

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                lambda frame: frame.pop("transform_matrix"),
                r"frames\[1\] has no 'transform_matrix'; it holds file_path",
            ),
            (
                lambda frame: frame["transform_matrix"][2].pop(),
                r"frames\[1\].transform_matrix must be 4 x 4 numbers",
            ),
            (lambda frame: frame["transform_matrix"][3].__setitem__(0, 5.0), "the last row must be 0 0 0 1"),
            (
                lambda frame: frame["transform_matrix"][0].__setitem__(3, math.nan),
                r"frames\[1\].* not finite",
            ),
            (lambda frame: frame["transform_matrix"][0].__setitem__(3, 10**400), r"frames\[1\].* not finite"),
            (
                lambda frame: frame["transform_matrix"][0].__setitem__(3, "7"),
                r"frames\[1\].* must be 4 x 4 numbers",
            ),
            (lambda frame: frame.__setitem__("file_path", 5), r"frames\[1\].file_path must be a text, got 5"),
        ],
    )
    def test_wrong_frames_are_named(self, tmp_path, change, words):
        _, content = transforms()
        change(content["frames"][1])
        with pytest.raises(PoseFileError, match=words):
            read_poses(as_json(tmp_path, content), format="nerfstudio")

    def test_a_folder_stands_for_its_transforms_json(self, tmp_path):
        poses, content = transforms()
        (tmp_path / "transforms.json").write_text(json.dumps(content))
        assert torch.equal(read_poses(tmp_path, format="nerfstudio").center_world, poses.center_world)

    @pytest.mark.parametrize(
        "lens",
        [
            PINHOLE.with_pixel_origin("center"),
            CameraModel.from_dict({**PINHOLE.to_dict(), "model": "opencv", "k1": 0.1, "p1": 0.01, "k3": 0.1}),
            KannalaBrandt.from_fov(fov_x_deg=170.0, height=20, width=30),
        ],
    )
    def test_lenses_are_written_so_that_pixels_keep_their_rays(self, tmp_path, lens):
        write_poses(tmp_path / "a", sample(), format="nerfstudio", camera=lens.to_dict())
        read = CameraModel.from_dict(load_pose_file(tmp_path / "a", format="nerfstudio").camera)
        assert type(read) is type(lens)
        rays, valid = lens.pixel_rays()
        again, also = read.pixel_rays()
        assert (rays - again)[valid & also].abs().max() < 1e-12

    def test_other_lenses_are_refused(self, tmp_path):
        lens = UnifiedCamera.from_fov(fov_x_deg=120.0, xi=0.8, height=20, width=30)
        with pytest.raises(ValueError, match="has no lens like 'unified'"):
            write_poses(tmp_path / "a", sample(), format="nerfstudio", camera=lens.to_dict())

    def test_the_published_scenes_have_their_measures(self):
        moving = load_pose_file(
            shared_file("data/nuscenes/scene-0061_CAM_FRONT_transforms.json"), format="nerfstudio"
        )
        poses = moving.poses
        assert (len(poses), poses.unit, moving.notes) == (39, "unknown", ())
        assert poses.path_length == pytest.approx(91.496, abs=5e-4)
        assert float(poses.step_lengths.max()) == pytest.approx(4.8063, abs=6e-5)
        assert poses.projection_error < 1e-14
        assert float(poses.center_world.abs().max()) == pytest.approx(1179.6, abs=0.06)
        assert moving.names[0] == "images/0000.jpg"
        assert (moving.camera["model"], moving.camera["fx"]) == ("pinhole", 1266.417203046554)
        # The car drives forward: a camera in OpenGL axes read as OpenCV would drive backward.
        steps = torch.einsum("tji,tj->ti", poses.R_world_cam[:-1], poses.center_world.diff(dim=0))
        assert float(steps[:, 2].min()) > 0
        still = read_poses(
            shared_file("data/nuscenes/scene-0553_CAM_FRONT_transforms.json"), format="nerfstudio"
        )
        assert len(still) == 41
        assert still.path_length == pytest.approx(0.013, abs=5e-4)
        turned = angle_from_identity(still.R_world_cam[:-1].mT @ still.R_world_cam[1:])
        assert float(torch.rad2deg(turned).sum()) == pytest.approx(0.4, abs=0.06)
