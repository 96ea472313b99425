"""Videos with pose files of any format: names, lenses, times, and what is said when they do not fit."""

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.data.clip import ClipError
from merope.data.datasets import DATASETS, open_dataset
from merope.data.pose_files import write_poses
from merope.errors import MeropeError
from merope.geometry.poses import Poses
from tests.support.numbered_video import numbers_shown, write_numbered_video
from tests.support.shared import shared_file

UNEVEN = np.cumsum([0.0, 0.04, 0.05, 0.03, 0.04, 0.05])


def drive(times=None):
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(6, 1, 1)
    T_world_cam[:, 2, 3] = torch.arange(6, dtype=torch.float64)
    return Poses.from_matrices(T_world_cam, times=None if times is None else torch.tensor(times))


def lens():
    return Pinhole.from_fov(fov_x_deg=70.0, height=32, width=64)


def write_lens(path):
    import json

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
    with pytest.raises(ClipError, match=r"a: a.mp4 has 5 frames and there are 6 poses"):
        open_dataset("videos", tmp_path, **options)[0]
    write_numbered_video(tmp_path / "a.mp4", UNEVEN)
    with pytest.raises(ClipError, match="its pose file has no lens; name a file of it with the option lens"):
        open_dataset("videos", tmp_path, **options)[0]
    for pattern in ("*/*.txt", "a.txt", "/tmp/*.txt"):
        with pytest.raises(ValueError, match=r"with one '\*' for the clip's name"):
            open_dataset("videos", tmp_path, poses=pattern, **options)


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
