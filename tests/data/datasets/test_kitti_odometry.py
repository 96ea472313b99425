"""KITTI odometry: the camera that was asked for, real times, and the layout of the data set or one of one's own."""

import numpy as np
import pytest
import torch
from PIL import Image

from merope.data.clips.clip import ClipError
from merope.data.datasets import open_dataset
from merope.errors import MeropeError
from tests.support.numbered_video import numbered_frame, numbers_shown, write_numbered_video
from tests.support.shared import shared_file

# K of 700 px, and cameras 0.06 m to the left and 0.54 m to the right of camera 0, as in the real rig.
CALIBRATION = """P0: 700 0 32.5 0 0 700 16.5 0 0 0 1 0
P1: 700 0 32.5 -378 0 700 16.5 0 0 0 1 0
P2: 700 0 32.5 42 0 700 16.5 0 0 0 1 0
Tr: 1 0 0 0 0 1 0 0 0 0 1 0
"""
TIMES = np.cumsum([0.0, 0.1045, 0.1033, 0.1038, 0.104])


def write_sequence(root, sequence="04", *, cameras=("image_0", "image_2"), count=5):
    """A drive along z with a turn of 90 degrees to the right half-way."""
    turned = [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]
    rows = []
    for number in range(count):
        rotation = np.eye(3) if number < 3 else np.array(turned)
        rows.append(np.hstack([rotation, [[0.0], [0.0], [float(number)]]]).flatten())
    (root / "poses").mkdir(parents=True, exist_ok=True)
    np.savetxt(root / "poses" / f"{sequence}.txt", rows)
    folder = root / "sequences" / sequence
    folder.mkdir(parents=True)
    (folder / "calib.txt").write_text(CALIBRATION)
    np.savetxt(folder / "times.txt", TIMES)
    for camera in cameras:
        (folder / camera).mkdir()
        for number in range(count):
            Image.fromarray(numbered_frame(number)).convert("L").save(folder / camera / f"{number:06d}.png")
    return root


def test_the_layout_of_the_data_set(tmp_path):
    clips = open_dataset("kitti_odometry", write_sequence(tmp_path))
    assert clips.ids == ("04-image_0",)
    clip = clips[0]
    assert numbers_shown(clip.frames()) == [0, 1, 2, 3, 4]
    assert numbers_shown(clip.frames([1, 4])) == [1, 4]
    assert np.abs(clip.times - TIMES).max() < 1e-12
    assert clip.fps == pytest.approx(4 / TIMES[-1])
    assert clip.unit == "m"
    assert (clip.lens.fx, clip.lens.cx, clip.lens.cy, clip.lens.pixel_origin) == (700, 32.5, 16.5, "center")
    assert (clip.lens.height, clip.lens.width) == (32, 64)


def test_another_camera_sits_at_its_offset_in_the_direction_it_is_turned(tmp_path):
    write_sequence(tmp_path)
    first, second = (open_dataset("kitti_odometry", tmp_path, camera=f"image_{n}")[0] for n in (0, 2))
    assert second.clip_id == "04-image_2"
    offsets = second.poses.center_world - first.poses.center_world
    # P2's 42 / 700 m along camera 0's negative x; after the turn that is the world's z.
    assert torch.allclose(offsets[0], torch.tensor([-0.06, 0, 0], dtype=torch.float64), atol=1e-12)
    assert torch.allclose(offsets[4], torch.tensor([0, 0, 0.06], dtype=torch.float64), atol=1e-12)
    assert torch.equal(second.poses.R_world_cam, first.poses.R_world_cam)


def test_a_video_in_place_of_pictures(tmp_path):
    write_sequence(tmp_path, cameras=())
    with pytest.raises(
        ClipError, match=r"neither a folder sequences/04/image_0 nor a video sequences/04/video.mp4"
    ):
        open_dataset("kitti_odometry", tmp_path)[0]
    write_numbered_video(tmp_path / "sequences" / "04" / "video.mp4", np.arange(5) / 10)
    clip = open_dataset("kitti_odometry", tmp_path)[0]
    assert numbers_shown(clip.frames()) == [0, 1, 2, 3, 4]
    # Real times, not the video's clock.
    assert np.abs(clip.times - TIMES).max() < 1e-12


def test_sequences_that_do_not_fit_cost_themselves_alone(tmp_path):
    write_sequence(tmp_path, "00")
    write_sequence(tmp_path, "01")
    write_sequence(tmp_path, "02")
    (tmp_path / "sequences" / "00" / "image_0" / "000003.png").unlink()
    (tmp_path / "poses" / "01.txt").write_text(" ".join(["1"] * 11) + "\n")
    found = list(open_dataset("kitti_odometry", tmp_path).clips(skip_broken=True))
    assert "image_0 has 4 frames and there are 5 poses" in found[0].reason
    assert "line 1 has 11 numbers" in found[1].reason
    assert numbers_shown(found[2].frames()) == [0, 1, 2, 3, 4]


def test_rows_with_frame_numbers_are_not_taken_for_the_data_sets_own(tmp_path):
    write_sequence(tmp_path)
    rows = np.loadtxt(tmp_path / "poses" / "04.txt")
    np.savetxt(tmp_path / "poses" / "04.txt", np.column_stack([[2, 3, 4, 5, 6], rows]))
    with pytest.raises(ClipError, match=r"has 13 numbers a row.*match=number"):
        open_dataset("kitti_odometry", tmp_path)[0]


def test_times_of_a_whole_sequence_serve_a_part_of_it(tmp_path):
    write_sequence(tmp_path)
    whole = np.concatenate([np.arange(-3, 0) * 0.1, TIMES, [9.0]])
    np.savetxt(tmp_path / "sequences" / "04" / "times.txt", whole)
    with pytest.raises(ClipError, match=r"has 9 times for 5 poses.*first_frame"):
        open_dataset("kitti_odometry", tmp_path)[0]
    assert np.abs(open_dataset("kitti_odometry", tmp_path, first_frame=3)[0].times - TIMES).max() < 1e-12


def test_a_camera_without_a_projection_is_named(tmp_path):
    write_sequence(tmp_path, cameras=("image_3",))
    with pytest.raises(ClipError, match=r"calib.txt has no line 'P3:'"):
        open_dataset("kitti_odometry", tmp_path, camera="image_3")[0]
    with pytest.raises(
        MeropeError, match=r"holds nothing that matches gt/\*.txt. Say where it is with poses"
    ):
        open_dataset("kitti_odometry", tmp_path, poses="gt/*.txt")


def test_the_real_sequence_06():
    root = shared_file("data/kitti_odom")
    clips = open_dataset(
        "kitti_odometry",
        root,
        poses="video/*_poses_first51.txt",
        frames="video/*_first51_gray.mp4",
        calibration="video/*_calib.txt",
        times="times_*.txt",
        first_frame=0,
    )
    assert clips.ids == ("06-image_0",)
    clip = clips[0]
    assert len(clip) == 51
    assert (clip.lens.height, clip.lens.width) == (370, 1226)
    assert (clip.lens.fx, clip.lens.cx, clip.lens.cy) == (707.0912, 601.8873, 183.1104)
    assert clip.poses.path_length == pytest.approx(59.86, abs=5e-3)
    assert clip.timing.dt_min > 0.1032 - 5e-5
    assert clip.timing.dt_max < 0.1047 + 5e-5
    # The file says 10 frames a second.
    assert clip.fps == pytest.approx(9.63, abs=0.02)
    assert clip.frames([0, 50]).shape == (2, 370, 1226, 3)
    right = open_dataset(
        "kitti_odometry",
        root,
        camera="image_1",
        poses="video/*_poses_first51.txt",
        frames="video/*_first51_gray.mp4",
        calibration="video/*_calib.txt",
        times="times_*.txt",
        first_frame=0,
    )[0]
    baseline = (right.poses.center_world - clip.poses.center_world).norm(dim=1)
    assert baseline.tolist() == pytest.approx([0.5372] * 51, abs=5e-5)
