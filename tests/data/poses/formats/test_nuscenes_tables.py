"""nuScenes' tables as a pose format: choices, the round trip, and tables that are damaged."""

import json

import pytest
import torch

from merope.cameras import KannalaBrandt, Pinhole
from merope.data.foreign_files import record_stream
from merope.data.foreign_files.record_stream import read_records
from merope.data.nuscenes.tables import NuScenesTables
from merope.data.poses.files import load_pose_file, read_poses, write_poses
from merope.data.poses.formats.nuscenes import recognise_nuscenes
from merope.data.poses.table import PoseFileError, ReadOptions
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.nuscenes import write_nuscenes_root
from tests.support.shared import shared_file


def poses(num=7, **changes):
    values = {
        "R_world_cam": rotvec_to_matrix(torch.randn(num, 3, dtype=torch.float64) * 2),
        "center_world": torch.randn(num, 3, dtype=torch.float64) * 1e3 + 6.4e6,
        "times": 1.5e9 + torch.arange(num, dtype=torch.float64) / 12,
    }
    return Poses(**{**values, **changes})


def test_tables_that_are_written_read_back(tmp_path):
    lens = Pinhole.from_fov(fov_x_deg=70.0, height=90, width=160)
    given = poses()
    write_poses(tmp_path / "v1.0-own", given, format="nuscenes", camera=lens.to_dict())
    found = load_pose_file(tmp_path, format="nuscenes")
    assert float((found.poses.R_world_cam - given.R_world_cam).abs().max()) < 1e-12
    assert float((found.poses.center_world - given.center_world).abs().max()) < 1e-9
    assert float((found.poses.times - given.times).abs().max()) < 1e-6
    assert (found.poses.unit, found.body) == ("m", "camera")
    back = Pinhole(**{key: value for key, value in found.camera.items() if key != "model"})
    assert torch.allclose(back.pixel_rays()[0], lens.pixel_rays()[0], atol=1e-14)
    # An even, short time keeps what whole microseconds would lose.
    even = poses(times=torch.arange(7, dtype=torch.float64) / 12)
    write_poses(tmp_path / "b", even, format="nuscenes")
    back_even = load_pose_file(tmp_path / "b", format="nuscenes")
    assert float((back_even.poses.times - even.times).abs().max()) < 1e-15
    assert back_even.camera is None
    assert any("no intrinsics" in note for note in back_even.notes)


def test_whole_microseconds_stay_whole(tmp_path):
    stamps = [1532402927612460 + 83_333 * number for number in range(7)]
    write_poses(
        tmp_path / "a",
        poses(times=torch.tensor([stamp / 1e6 for stamp in stamps], dtype=torch.float64)),
        format="nuscenes",
    )
    rows = json.loads((tmp_path / "a" / "sample_data.json").read_text())
    assert [row["timestamp"] for row in rows] == stamps
    assert [row["next"] for row in rows[:-1]] == [row["token"] for row in rows[1:]]


def test_what_the_tables_cannot_hold_is_refused(tmp_path):
    timeless = poses(times=None)
    with pytest.raises(ValueError, match="needs a time for each pose"):
        write_poses(tmp_path / "a", timeless, format="nuscenes")
    with pytest.raises(ValueError, match=r"is in metres and these poses have unit 'normalized'.*--to-unit m"):
        write_poses(tmp_path / "a", poses(unit="normalized"), format="nuscenes")
    fisheye = KannalaBrandt.from_fov(fov_x_deg=190.0, height=90, width=160)
    with pytest.raises(ValueError, match=r"pinhole lenses alone and this one is .*format 'merope'"):
        write_poses(tmp_path / "a", poses(), format="nuscenes", camera=fisheye.to_dict())
    assert not (tmp_path / "a").exists()


def test_scene_and_camera_have_to_be_named_where_there_are_several(tmp_path):
    write_nuscenes_root(tmp_path, scenes=("scene-0001", "scene-0002"), dropped=(10,), pictures=False)
    with pytest.raises(
        PoseFileError, match=r"several scenes: name one of scene-0001, scene-0002 with scene \(--scene\)"
    ):
        read_poses(tmp_path, format="nuscenes")
    with pytest.raises(PoseFileError, match=r"has no camera 'CAM_BACK': name one of CAM_FRONT"):
        read_poses(tmp_path, format="nuscenes", options=ReadOptions(scene="scene-0002", camera="CAM_BACK"))
    found = load_pose_file(tmp_path, format="nuscenes", options=ReadOptions(scene="scene-0002"))
    assert len(found.poses) == 23
    assert found.names[1] == "sweeps/CAM_FRONT/i-scene-0002-1.jpg"
    assert found.notes == ("images 9 and 10 are 0.200 s apart, more than 1.5 spacings at 12 a second",)


def test_a_folder_of_tables_is_recognised(tmp_path):
    folder = write_nuscenes_root(tmp_path, count=1, pictures=False)
    assert "v1.0-mini" in recognise_nuscenes(tmp_path)
    assert recognise_nuscenes(folder) is not None
    assert recognise_nuscenes(folder / "sample.json") is None
    assert recognise_nuscenes(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("sample_data", lambda text: text[: len(text) // 2], r"sample_data\.json"),
        ("sample_data", lambda text: text + "]", "no JSON list of records"),
        ("sample_data", lambda text: "{}", r"at entry 0 '\[' should stand, not '\{'"),
        ("sample_data", lambda text: "[1, 2]", r"at entry 0 '\{' should stand, not '1'"),
        ("sample_data", lambda text: text.replace("},", "}", 1), r"at entry 1 ',' should stand"),
        ("sample_data", lambda text: text.replace("}\n]", "},\n]"), r"should stand, not '\]'"),
        ("sample_data", lambda text: "", "at entry 0"),
        ("sample_data", lambda text: "[]", "lists no image of a camera"),
        (
            "sample_data",
            lambda text: text.replace('"c-cam"', '"c-none"'),
            "calibrated_sensor_token is not in",
        ),
        ("sample_data", lambda text: text.replace('"timestamp": 15', '"timestamp": "15"+', 1), "is not JSON"),
        (
            "sample_data",
            lambda text: text.replace('"height": 36', '"height": 36.5'),
            "whole number of pixels",
        ),
        (
            "sample_data",
            lambda text: text.replace("true", '"yes"', 1),
            "'is_key_frame' must be true or false",
        ),
        ("ego_pose", lambda text: text.replace("e-i-", "e-j-", 1), "lacks 1 of the 24 poses"),
        ("ego_pose", lambda text: text.replace("1000.0", "NaN"), "'translation' must hold finite numbers"),
        (
            "ego_pose",
            lambda text: text.replace("1000.0", "1" + "0" * 400),
            "'translation' must hold finite numbers",
        ),
        ("ego_pose", lambda text: text.replace("1000.0", "1" + "0" * 9000), "is not JSON"),
        (
            "ego_pose",
            lambda text: text.replace('e-i-scene-0061-1"', 'e-i-scene-0061-2"'),
            "token has been there before",
        ),
        (
            "sample_data",
            lambda text: text.replace('"timestamp": 15', '"timestamp": 15e300, "x": 15', 1),
            "since 1970",
        ),
        (
            "sample_data",
            lambda text: text.replace("samples/CAM_FRONT", "\\ud800", 1),
            "holds half a character",
        ),
        ("ego_pose", lambda text: text.replace("0.0", "7.0"), "must be a unit quaternion w, x, y, z"),
        ("ego_pose", lambda text: "[" * 100_000, r"'\{' should stand"),
        ("ego_pose", lambda text: '[{"a": ' + "[" * 200_000, "is not JSON"),
        ("calibrated_sensor", lambda text: text.replace("50.5", "null"), "3 x 3 matrix of finite numbers"),
        ("calibrated_sensor", lambda text: text.replace("c-cam", "c-lidar"), "token has been there before"),
        ("scene", lambda text: text[:-1] + "," + text[1:], "a second scene has the name 'scene-0061'"),
    ],
)
def test_damaged_tables_are_named_with_their_entry(tmp_path, table, change, message):
    folder = write_nuscenes_root(tmp_path, pictures=False)
    path = folder / f"{table}.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(PoseFileError, match=message) as caught:
        NuScenesTables.read(folder)
    assert f"{table}.json" in str(caught.value)


def test_binary_tables_are_refused(tmp_path):
    folder = write_nuscenes_root(tmp_path, count=1, pictures=False)
    (folder / "ego_pose.json").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(PoseFileError, match=r"ego_pose\.json"):
        NuScenesTables.read(folder)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_records_do_not_depend_on_where_the_reading_stops(tmp_path, monkeypatch, chunk):
    rows = [{"token": "a]},{", "n": [1.25, -3e-7], "é": {"deep": [{}, []]}} for _ in range(3)]
    path = tmp_path / "table.json"
    path.write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")
    monkeypatch.setattr(record_stream, "_CHUNK", chunk)
    assert [record.values for record in read_records(path)] == rows


def test_the_one_sample_reads_as_poses_of_a_camera():
    root = shared_file("data/nuscenes/scene-0061_one_sample")
    known = json.loads(shared_file("data/nuscenes/scene-0061_CAM_FRONT_transforms.json").read_text())
    found = load_pose_file(root, format="nuscenes", options=ReadOptions(camera="CAM_FRONT"))
    T_world_opengl = torch.tensor(known["frames"][0]["transform_matrix"], dtype=torch.float64)
    error = found.poses.T_world_cam[0] - T_world_opengl * torch.tensor([1.0, -1.0, -1.0, 1.0])
    assert float(error.abs().max()) <= 7e-16
    assert (found.camera["fx"], found.camera["cx"]) == (known["fl_x"], known["cx"])
