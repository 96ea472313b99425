"""Videos with pose files of any format: names, lenses, times, and what is said when they do not fit."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from merope.cameras import Pinhole
from merope.data.clips.clip import ClipError
from merope.data.datasets import DATASETS, open_dataset
from merope.data.poses.files import write_poses
from merope.errors import MeropeError
from merope.geometry.poses import Poses
from tests.support.numbered_video import numbered_frame, numbers_shown, write_numbered_video
from tests.support.shared import shared_file

UNEVEN = np.cumsum([0.0, 0.04, 0.05, 0.03, 0.04, 0.05])


def drive(times=None):
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(6, 1, 1)
    T_world_cam[:, 2, 3] = torch.arange(6, dtype=torch.float64)
    return Poses.from_matrices(T_world_cam, times=None if times is None else torch.tensor(times))


def lens():
    return Pinhole.from_fov(fov_x_deg=70.0, height=32, width=64)


def write_lens(path):
    path.write_text(json.dumps(lens().to_dict()))


def test_files_belong_together_by_name(tmp_path):
    for name in ("one", "two"):
        write_poses(tmp_path / f"{name}_poses.txt", drive(), format="kitti")
        write_numbered_video(tmp_path / f"{name}.mp4", UNEVEN)
    write_lens(tmp_path / "lens.json")
    clips = open_dataset("videos", tmp_path, poses="*_poses.txt", format="kitti", lens="lens.json")
    assert clips.ids == ("one", "two")
    clip = clips[1]
    assert numbers_shown(clip.frames()) == [0, 1, 2, 3, 4, 5]
    assert clip.lens == lens()
    # KITTI has no stamps, so the times are those at which the video shows its frames.
    assert np.abs(clip.times - UNEVEN).max() < 1e-4
    assert (clip.unit, clip.provenance["times"]) == ("m", "video")
    assert open_dataset("videos", tmp_path, poses="*_poses.txt", format="kitti", lens="lens.json", fps=10.0)[
        0
    ].times[3] == pytest.approx(0.3)


def test_stamps_of_the_pose_file_go_before_the_videos_clock(tmp_path):
    write_poses(tmp_path / "a.txt", drive(UNEVEN * 10), format="tum")
    write_numbered_video(tmp_path / "a.mp4", UNEVEN)
    write_lens(tmp_path / "a.json")
    clip = open_dataset("videos", tmp_path, format="tum", lens="*.json")[0]
    assert clip.times[5] == pytest.approx(2.1)
    (tmp_path / "a.times").write_text("\n".join(map(str, UNEVEN + 7)))
    clip = open_dataset("videos", tmp_path, format="tum", lens="*.json", times="*.times")[0]
    assert clip.times[0] == 7.0


def test_the_format_has_to_be_said(tmp_path):
    with pytest.raises(ValueError, match="format must say what the pose files are: one of kitti"):
        open_dataset("videos", tmp_path)
    with pytest.raises(ValueError, match="videos has no option pose; its options are poses"):
        open_dataset("videos", tmp_path, pose="*.txt")
    with pytest.raises(ValueError, match="the data set must be one of folder, videos"):
        open_dataset("kitti", tmp_path)


def test_what_does_not_fit_is_named(tmp_path):
    write_poses(tmp_path / "a.txt", drive(), format="kitti")
    write_numbered_video(tmp_path / "a.mp4", UNEVEN[:5])
    options = {"format": "kitti"}
    with pytest.raises(ClipError, match=r"a: there are 5 frames and 6 poses"):
        open_dataset("videos", tmp_path, **options)[0]
    write_numbered_video(tmp_path / "a.mp4", UNEVEN)
    with pytest.raises(ClipError, match="its pose file has no lens; name a file of it with the option lens"):
        open_dataset("videos", tmp_path, **options)[0]
    for pattern in ("*/*.txt", "a.txt", "/tmp/*.txt"):
        with pytest.raises(ValueError, match=r"with one '\*' for the clip's name"):
            open_dataset("videos", tmp_path, poses=pattern, **options)


def test_a_pose_file_may_leave_frames_out_and_say_so(tmp_path):
    rows = ["0 1 0 0 0 0 1 0 0 0 0 1 0", "2 1 0 0 0 0 1 0 0 0 0 1 2", "5 1 0 0 0 0 1 0 0 0 0 1 5"]
    (tmp_path / "a.txt").write_text("\n".join(rows))
    write_numbered_video(tmp_path / "a.mp4", UNEVEN)
    write_lens(tmp_path / "lens.json")
    options = {"format": "kitti", "lens": "lens.json"}
    with pytest.raises(ClipError, match=r"6 frames and 3 poses; the pose file says which.*match=number"):
        open_dataset("videos", tmp_path, **options)[0]
    clip = open_dataset("videos", tmp_path, match="number", **options)[0]
    assert numbers_shown(clip.frames()) == clip.poses.center_world[:, 2].tolist() == [0, 2, 5]
    assert np.abs(clip.times - UNEVEN[[0, 2, 5]]).max() < 1e-4
    write_numbered_video(tmp_path / "a.mp4", UNEVEN[:3])
    with pytest.raises(ClipError, match="leaves frames out"):
        open_dataset("videos", tmp_path, **options)[0]
    with pytest.raises(ClipError, match="is of frames up to 5, counted from 0, and there are 3"):
        open_dataset("videos", tmp_path, match="number", **options)[0]
    with pytest.raises(ClipError, match="does not name its frames, which match=name needs"):
        open_dataset("videos", tmp_path, match="name", **options)[0]


def test_pictures_are_matched_by_name(tmp_path):
    pictures = tmp_path / "a" / "images"
    pictures.mkdir(parents=True)
    frames = []
    for number in (3, 0, 1):
        Image.fromarray(numbered_frame(number)).save(pictures / f"p{number}.png")
        matrix = np.diag([1.0, -1.0, -1.0, 1.0])
        matrix[2, 3] = number
        frames.append({"file_path": f"images/p{number}.png", "transform_matrix": matrix.tolist()})
    lens = {"fl_x": 50.0, "fl_y": 50.0, "cx": 32.0, "cy": 16.0, "w": 64, "h": 32}
    (tmp_path / "a" / "transforms.json").write_text(json.dumps({**lens, "frames": frames}))
    options = {"poses": "*/transforms.json", "videos": "*/images", "format": "nerfstudio", "fps": 10.0}
    with pytest.raises(
        ClipError, match=r"names its frames p3.png, p0.png, p1.png, and the pictures are p0.png.*match=name"
    ):
        open_dataset("videos", tmp_path, **options)[0]
    clip = open_dataset("videos", tmp_path, match="name", **options)[0]
    assert numbers_shown(clip.frames()) == clip.poses.center_world[:, 2].tolist() == [0, 1, 3]
    (pictures / "p0.png").unlink()
    with pytest.raises(ClipError, match=r"pictures p0.png are missing"):
        open_dataset("videos", tmp_path, match="name", **options)[0]


def test_every_kind_describes_itself():
    for kind in DATASETS.values():
        assert kind.about
        assert kind.layout


def test_a_real_clip_of_another_projects_camera_file():
    root = shared_file("data/re10k/ac3d")
    clip = open_dataset("videos", root, poses="*.camera_info.json", format="ac3d")[0]
    assert clip.clip_id == "018f7907401f2fef"
    assert len(clip) == 189
    assert (clip.lens.height, clip.lens.width) == (576, 1024)
    assert clip.fps == pytest.approx(29.97, abs=0.01)
    assert clip.poses.path_length == pytest.approx(2.318, abs=5e-4)
    assert clip.frames([0, 5]).shape == (2, 576, 1024, 3)
    metric = open_dataset("videos", root, poses="*.camera_info_metric.json", format="ac3d")[0]
    assert metric.unit == "m"
    assert metric.poses.path_length == pytest.approx(1.575, abs=5e-4)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_dataset("videos", tmp_path / "nowhere", format="kitti")
    with pytest.raises(MeropeError, match=r"holds nothing that matches \*.txt"):
        open_dataset("videos", tmp_path, format="kitti")
