"""nuScenes as clips: the camera's own ego pose, gaps, windows, sizes, captions, and tables that are not all there."""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.data.clips.clip import ClipError
from merope.data.datasets import open_dataset
from merope.errors import MeropeError
from tests.support.nuscenes import (
    CAMERA_CENTER_EGO,
    CAMERA_WXYZ,
    HEIGHT,
    INTRINSICS,
    WIDTH,
    ego,
    image_times,
    write_nuscenes_root,
)
from tests.support.shared import shared_file


def matrix(center, wxyz):
    out = np.eye(4)
    out[:3, :3] = Rotation.from_quat(np.asarray(wxyz)[[1, 2, 3, 0]]).as_matrix()
    out[:3, 3] = center
    return out


def test_a_camera_has_the_ego_pose_of_its_own_image(tmp_path):
    write_nuscenes_root(tmp_path)
    clips = open_dataset("nuscenes", tmp_path)
    assert clips.ids == ("scene-0061_CAM_FRONT",)
    clip = clips[0]
    stamps = image_times(24)
    seconds = [(stamp - stamps[0]) / 1e6 for stamp in stamps]
    mounting = matrix(CAMERA_CENTER_EGO, CAMERA_WXYZ)
    expected = np.stack([matrix(*ego(time)) @ mounting for time in seconds])
    assert np.abs(clip.poses.T_world_cam.numpy() - expected).max() < 1e-12
    # The lidar's ego pose, 35 ms later, is 0.35 m away: more than any rounding could hide.
    lidar = np.stack([matrix(*ego(time + 0.035)) @ mounting for time in seconds])
    assert np.linalg.norm((lidar - expected)[:, :3, 3], axis=1).min() > 0.3
    assert clip.poses.times.tolist() == [stamp / 1e6 for stamp in stamps]
    assert (clip.unit, clip.fps, clip.up_world, clip.source) == ("m", 12.0, (0.0, 0.0, 1.0), "nuscenes")
    # The camera looks along the drive and is upright in a world with z up.
    ahead = clip.poses.R_world_cam[:-1, :, 2]
    steps = clip.poses.center_world.diff(dim=0)
    assert float(((ahead * steps).sum(-1) / steps.norm(dim=-1)).min()) > 0.99
    assert float(clip.poses.R_world_cam[:, 2, 1].max()) < -0.99


def test_frames_are_those_of_the_poses(tmp_path):
    write_nuscenes_root(tmp_path)
    clip = open_dataset("nuscenes", tmp_path)[0]
    stamps = image_times(24)
    greys = clip.frames([0, 5, 23]).mean(axis=(1, 2, 3))
    wanted = [(stamps[number] - stamps[0]) / 50_000 for number in (0, 5, 23)]
    assert np.abs(greys - wanted).max() < 1
    lens = clip.lens.matrix()
    assert torch.equal(lens, torch.tensor(INTRINSICS, dtype=torch.float64))
    assert (clip.lens.height, clip.lens.width, clip.lens.pixel_origin) == (HEIGHT, WIDTH, "center")


def test_the_uneven_steps_of_the_cameras_are_no_gaps(tmp_path):
    # 0.05 and 0.1 s alternate; a nominal spacing is 0.083 s.
    write_nuscenes_root(tmp_path, pictures=False)
    clips = open_dataset("nuscenes", tmp_path, frames=7)
    assert clips.ids == tuple(f"scene-0061_CAM_FRONT@{start:05d}" for start in (0, 7, 14))
    assert clips.notes == ()
    steps = clips[0].provenance
    assert steps["step_min_s"] == pytest.approx(0.05, abs=1e-6)
    assert steps["step_max_s"] == pytest.approx(0.1, abs=1e-6)
    assert steps["step_mean_s"] == pytest.approx(np.diff(image_times(7)).mean() / 1e6, abs=1e-6)


def test_no_clip_crosses_dropped_images(tmp_path):
    write_nuscenes_root(tmp_path, count=30, dropped=(10, 19), pictures=False)
    clips = open_dataset("nuscenes", tmp_path, frames=9)
    # 28 images: 0-9 (number 10 is missing), 9 more, and 10 after number 19.
    assert clips.ids == tuple(f"scene-0061_CAM_FRONT@{start:05d}" for start in (0, 18))
    assert [note for note in clips.notes if "apart" in note] == [
        "scene-0061_CAM_FRONT: images 9 and 10 are 0.200 s apart, more than 1.5 spacings at 12 a second",
        "scene-0061_CAM_FRONT: images 17 and 18 are 0.200 s apart, more than 1.5 spacings at 12 a second",
    ]
    assert any("@00010: left out, 8 images" in note for note in clips.notes)
    for clip in clips:
        assert float(clip.poses.times.diff().max()) < 0.125
        assert torch.equal(clip.poses.times, torch.sort(clip.poses.times).values)
    crossed = open_dataset("nuscenes", tmp_path, frames=9, stride=1, allow_gaps=True)
    assert len(crossed) == 20
    assert max(float(clip.poses.times.diff().max()) for clip in crossed) > 0.125
    stretches = open_dataset("nuscenes", tmp_path)
    assert [len(clip) for clip in stretches] == [10, 8, 10]
    # What a command cuts out of the whole scene keeps to the same rule.
    whole = open_dataset("nuscenes", tmp_path, allow_gaps=True)[0]
    assert len(whole) == 28
    assert [window.clip_id[-5:] for window in whole.windows(9)] == ["00000", "00018"]


def test_images_with_one_time_are_in_no_clip_together(tmp_path):
    write_nuscenes_root(tmp_path, count=24, pictures=False)
    table = tmp_path / "v1.0-mini" / "sample_data.json"
    records = json.loads(table.read_text())
    images = sorted(
        (row for row in records if "CAM_FRONT" in row["filename"]), key=lambda row: row["timestamp"]
    )
    images[12]["timestamp"] = images[11]["timestamp"]
    table.write_text(json.dumps(records))
    clips = open_dataset("nuscenes", tmp_path, frames=9)
    assert [clip_id[-5:] for clip_id in clips.ids] == ["00000", "00013"]
    assert any(note.endswith("images 11 and 12 have the same time") for note in clips.notes)
    for clip in clips:
        assert (clip.poses.times.diff() > 0).all()


def test_key_frames_come_twice_a_second(tmp_path):
    write_nuscenes_root(tmp_path, pictures=False)
    clip = open_dataset("nuscenes", tmp_path, images="key")[0]
    assert (len(clip), clip.fps) == (4, 2.0)
    assert clip.poses.times.diff().tolist() == pytest.approx([0.5] * 3, abs=1e-6)
    assert open_dataset("nuscenes", tmp_path, images="key", fps=2.5).notes == ()
    late = open_dataset("nuscenes", tmp_path, images="key", fps=4.0)
    assert len(late) == 4
    assert "0.500 s apart" in late.notes[0]


def test_a_smaller_frame_keeps_its_rays(tmp_path):
    write_nuscenes_root(tmp_path, count=2)
    own = open_dataset("nuscenes", tmp_path)[0]
    small = open_dataset("nuscenes", tmp_path, height=18, width=32)[0]
    assert small.frames().shape == (2, 18, 32, 3)
    # The centre of a small pixel is the corner between four large ones: the same place of the image, the same ray.
    corners = own.lens.pixel_centers()[::2, ::2] + 0.5
    assert torch.allclose(own.lens.unproject(corners)[0], small.lens.pixel_rays()[0], atol=1e-14)
    with pytest.raises(ClipError, match=r"nuscenes/scene-0061_CAM_FRONT: .*another shape.*--crop"):
        open_dataset("nuscenes", tmp_path, height=18, width=18)[0]
    square = open_dataset("nuscenes", tmp_path, height=18, width=18, crop=True)[0]
    assert square.frames().shape == (2, 18, 18, 3)
    assert torch.allclose(own.lens.unproject(corners[:, 7:25])[0], square.lens.pixel_rays()[0], atol=1e-14)


def test_a_missing_image_costs_its_clip_and_names_it(tmp_path):
    write_nuscenes_root(tmp_path, scenes=("scene-0001", "scene-0002"))
    (tmp_path / "sweeps/CAM_FRONT/i-scene-0001-3.jpg").unlink()
    clips = open_dataset("nuscenes", tmp_path)
    with pytest.raises(ClipError, match=r"nuscenes/scene-0001_CAM_FRONT: .*i-scene-0001-3\.jpg"):
        clips[0].frames()
    assert clips[1].frames([0]).shape == (1, HEIGHT, WIDTH, 3)


def test_tables_may_be_missing(tmp_path):
    folder = write_nuscenes_root(tmp_path, scenes=("scene-0001", "scene-0002"), pictures=False)
    (folder / "scene.json").unlink()
    assert open_dataset("nuscenes", tmp_path).ids == ("t-scene-0001_CAM_FRONT", "t-scene-0002_CAM_FRONT")
    (folder / "sensor.json").unlink()
    assert open_dataset("nuscenes", tmp_path, cameras="all").ids[1] == "t-scene-0002_CAM_FRONT"
    # Samples of the second scene alone: the others are counted, not silently gone.
    samples = json.loads((folder / "sample.json").read_text())
    (folder / "sample.json").write_text(json.dumps([row for row in samples if "0002" in row["scene_token"]]))
    clips = open_dataset("nuscenes", folder)
    assert clips.ids == ("t-scene-0002_CAM_FRONT",)
    assert clips.notes == ("24 images are left out, whose samples are not in sample.json",)
    (folder / "sample.json").unlink()
    rows = json.loads((folder / "sample_data.json").read_text())
    (folder / "sample_data.json").write_text(json.dumps([row for row in rows if "0001" in row["token"]]))
    assert open_dataset("nuscenes", tmp_path).ids == ("all_CAM_FRONT",)
    (folder / "ego_pose.json").unlink()
    with pytest.raises(MeropeError, match=r"no folder with nuScenes' tables: sample_data\.json"):
        open_dataset("nuscenes", tmp_path)


def test_captions_come_from_scenes_or_a_file(tmp_path):
    write_nuscenes_root(tmp_path, scenes=("scene-0001", "scene-0002"), pictures=False)
    (tmp_path / "captions.json").write_text(
        '{"scene-0001": "a scene", "scene-0001_CAM_FRONT@00012": "a clip"}'
    )
    (tmp_path / "captions.csv").write_text('name,caption\nscene-0001,"a scene, quoted"\n')
    plain = open_dataset("nuscenes", tmp_path, frames=12)
    assert [clip.caption for clip in plain][1:3] == ["Turn left, scene-0001", "Turn left, scene-0002"]
    by_json = open_dataset("nuscenes", tmp_path, frames=12, captions="captions.json")
    assert [clip.caption for clip in by_json][:3] == ["a scene", "a clip", "Turn left, scene-0002"]
    assert open_dataset("nuscenes", tmp_path, captions="captions.csv")[0].caption == "a scene, quoted"
    (tmp_path / "captions.csv").write_text("scene-0001;a scene\n")
    with pytest.raises(MeropeError, match='first line is "name,caption"'):
        open_dataset("nuscenes", tmp_path, captions="captions.csv")


def test_scenes_are_chosen_by_a_list(tmp_path):
    write_nuscenes_root(tmp_path, scenes=("scene-0001", "scene-0002"), pictures=False)
    (tmp_path / "val.txt").write_text("# val\nscene-0002\nscene-0999\n")
    (tmp_path / "splits.json").write_text('{"train": ["scene-0001"], "val": ["scene-0002"]}')
    clips = open_dataset("nuscenes", tmp_path, scenes="val.txt")
    assert clips.ids == ("scene-0002_CAM_FRONT",)
    assert clips.notes == ("1 of the 2 scenes of val.txt are not in the tables: scene-0999",)
    assert open_dataset("nuscenes", tmp_path, scenes="splits.json", split="train").ids == (
        "scene-0001_CAM_FRONT",
    )
    with pytest.raises(MeropeError, match=r"lists 'train', 'val'; name one"):
        open_dataset("nuscenes", tmp_path, scenes="splits.json")
    with pytest.raises(MeropeError, match=r"no image was taken by CAM_BACK; there are CAM_FRONT"):
        open_dataset("nuscenes", tmp_path, cameras="CAM_BACK,CAM_FRONT")
    with pytest.raises(MeropeError, match=r"gives no clip.*24 images without a gap where a clip has 49"):
        open_dataset("nuscenes", tmp_path, frames=49)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 288}, "belong together"),
        ({"stride": 3}, "give frames"),
        ({"frames": 0}, "frames must be at least 1"),
        ({"split": "val"}, "give scenes"),
        ({"fps": 0.0}, "fps must be positive"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path, options, message):
    write_nuscenes_root(tmp_path, count=1, pictures=False)
    with pytest.raises(ValueError, match=message):
        open_dataset("nuscenes", tmp_path, **options)


def test_an_index_spares_the_tables_until_they_change(tmp_path):
    folder = write_nuscenes_root(tmp_path, pictures=False)
    first = open_dataset("nuscenes", tmp_path, index="tables.npz")
    assert (tmp_path / "tables.npz").exists()
    content = (folder / "sample_data.json").read_bytes()
    stat = (folder / "sample_data.json").stat()
    # Unreadable, but of the same size and time: only the index can answer.
    (folder / "sample_data.json").write_bytes(b"x" * len(content))
    os.utime(folder / "sample_data.json", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    again = open_dataset("nuscenes", tmp_path, index="tables.npz")
    assert again.ids == first.ids
    assert torch.equal(again[0].poses.T_world_cam, first[0].poses.T_world_cam)
    assert again[0].caption == first[0].caption
    (folder / "sample_data.json").write_bytes(content.replace(b"1532402927612460", b"1532402927612461"))
    changed = open_dataset("nuscenes", tmp_path, index="tables.npz")
    assert float(changed[0].poses.times[0] - first[0].poses.times[0]) == pytest.approx(1e-6, abs=3e-7)
    (tmp_path / "notes.npz").write_bytes(b"mine")
    with pytest.raises(MeropeError, match="is no index of nuScenes' tables"):
        open_dataset("nuscenes", tmp_path, index="notes.npz")
    assert (tmp_path / "notes.npz").read_bytes() == b"mine"


def test_no_table_leads_out_of_the_data_set(tmp_path):
    folder = write_nuscenes_root(tmp_path / "data", count=1, pictures=False)
    rows = (folder / "sample_data.json").read_text()
    (folder / "sample_data.json").write_text(rows.replace("samples/CAM_FRONT", "samples/CAM_FRONT/../../.."))
    with pytest.raises(ClipError, match="leads out of the folder"):
        open_dataset("nuscenes", tmp_path / "data")[0]


def test_a_set_can_be_sent_to_another_process(tmp_path):
    write_nuscenes_root(tmp_path, count=3)
    clips = pickle.loads(pickle.dumps(open_dataset("nuscenes", tmp_path)))
    assert clips[0].frames([2]).shape == (1, HEIGHT, WIDTH, 3)


def test_the_one_sample_of_scene_0061_is_frame_0_of_its_transforms():
    root = shared_file("data/nuscenes/scene-0061_one_sample")
    known = json.loads(shared_file("data/nuscenes/scene-0061_CAM_FRONT_transforms.json").read_text())
    clips = open_dataset("nuscenes", root, cameras="all")
    assert len(clips) == 6
    clip = clips.clip("scene-0061_CAM_FRONT")
    T_world_opengl = torch.tensor(known["frames"][0]["transform_matrix"], dtype=torch.float64)
    flipped = T_world_opengl * torch.tensor([1.0, -1.0, -1.0, 1.0])
    assert float((clip.poses.T_world_cam[0] - flipped).abs().max()) <= 7e-16
    assert (clip.lens.fx, clip.lens.cx) == (known["fl_x"], known["cx"])
    assert clip.caption == "Parked truck, construction, intersection, turn left, following a van"
    small = open_dataset("nuscenes", root, height=288, width=512)[0]
    assert small.frames().shape == (1, 288, 512, 3)
    assert small.lens.fx == pytest.approx(known["fl_x"] * 0.32)
