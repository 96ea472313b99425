"""PanShot: near depths, level worlds, lenses of the list of shots, shaking clips, poses with and without videos."""

import json
import math

import numpy as np
import pytest
import torch

from merope.data.clips.clip import ClipError
from merope.data.clips.jitter import jitter_deg
from merope.data.clips.video import write_video
from merope.data.datasets import open_dataset
from merope.data.datasets.panshot import read_shots
from merope.errors import MeropeError
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotation_angle, rotvec_to_matrix
from tests.support.shared import shared_file

NUM = 5


def track(num=NUM, *, yaw=0.7, shake=0.0):
    """Matrices [T, 3, 4] of a camera that turns and moves evenly from a yaw and a pitch on, and shakes if told to."""
    steps = torch.arange(num, dtype=torch.float64)
    zero = torch.zeros_like(steps)
    wobble = shake * torch.where(steps % 2 == 0, 1.0, -1.0)
    R_world_cam = rotvec_to_matrix(torch.stack([zero, yaw + 0.05 * steps + wobble, zero], -1))
    pitch = rotvec_to_matrix(torch.tensor([0.2, 0.0, 0.0], dtype=torch.float64))
    center_world = torch.stack([0.02 * steps, zero, 0.1 * steps], -1)
    return torch.cat([R_world_cam @ pitch, center_world[..., None]], dim=2).numpy()


def write_root(root, names=("abc-5-0-yaw_aug_0", "-x_y-16-1-no_rot_aug_0"), videos=(), **tracks):
    poses = root / "PanShot" / "pose-test"
    poses.mkdir(parents=True)
    for name in names:
        np.save(poses / f"{name}.npy", tracks.get(name, track()).astype(np.float32))
    (root / "PanFlow").mkdir()
    depths = [
        {"video_id": "abc", "clip_id": 5, "near_depth": 0.5},
        {"video_id": "-x_y", "clip_id": 16, "near_depth": 2.0},
    ]
    (root / "PanFlow" / "near_plane_depth-test.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in depths)
    )
    for name, count in videos:
        frames = np.full((count, 32, 48, 3), 90, np.uint8)
        write_video(root / "PanShot" / "video-test" / f"{name}.mp4", frames, fps=16)
    return root


def test_near_depth_yaw_and_up(tmp_path):
    clips = open_dataset("panshot", write_root(tmp_path), fov_x_deg=120.0, xi=0.8)
    assert clips.ids == ("x-x_y-16-1-no_rot_aug_0", "abc-5-0-yaw_aug_0")
    clip = clips[1]
    given = torch.tensor(track().astype(np.float32), dtype=torch.float64)
    assert (clip.unit, clip.fps, clip.up_world, clip.source) == (
        "normalized",
        16.0,
        (0.0, -1.0, 0.0),
        "panshot",
    )
    assert float(clip.poses.step_lengths[0]) == pytest.approx(math.hypot(0.02, 0.1) / 0.5, rel=1e-6)
    forward = clip.poses.R_world_cam[0, :, 2]
    # No yaw, and the pitch that it had: the world was turned about y alone.
    assert abs(float(forward[0])) < 1e-9
    assert float(forward[2]) > 0
    assert float(forward[1]) == pytest.approx(float(given[0, 1, 2]), abs=1e-7)
    assert (
        float(
            rotation_angle(
                clip.poses.R_world_cam[0].mT @ clip.poses.R_world_cam[3], given[0, :, :3].mT @ given[3, :, :3]
            )
        )
        < 1e-6
    )
    assert clip.lens.xi == 0.8
    middle = torch.tensor([[0.0, clip.lens.cy], [float(clip.lens.width), clip.lens.cy]], dtype=torch.float64)
    rays, _ = clip.lens.unproject(middle)
    assert math.degrees(math.acos(float(rays[0] @ rays[1]))) == pytest.approx(120.0)
    assert clip.provenance["near_depth"] == 0.5


def test_lengths_can_stay_as_they_are(tmp_path):
    clip = open_dataset(
        "panshot", write_root(tmp_path), fov_x_deg=100.0, xi=0.0, normalize=False, zero_yaw=False
    )[1]
    assert clip.unit == "unknown"
    assert np.abs(clip.poses.T_world_cam[:, :3].numpy() - track()).max() < 1e-7


def test_poses_without_a_video_say_so_when_frames_are_asked_for(tmp_path):
    clip = open_dataset("panshot", write_root(tmp_path), fov_x_deg=100.0, xi=0.0)[1]
    assert (len(clip), clip.lens.height, clip.lens.width) == (NUM, 480, 832)
    with pytest.raises(
        ClipError, match=r"^panshot/abc-5-0-yaw_aug_0: there is no video abc-5-0-yaw_aug_0 for its poses"
    ):
        clip.frames()


def test_videos_give_frames_and_the_size_of_the_lens(tmp_path):
    write_root(tmp_path, videos=(("abc-5-0-yaw_aug_0", NUM), ("-x_y-16-1-no_rot_aug_0", NUM - 1)))
    clips = open_dataset("panshot", tmp_path, fov_x_deg=100.0, xi=0.0)
    assert clips[1].frames([1, 3]).shape == (2, 32, 48, 3)
    assert clips[1].lens.cx == 24
    with pytest.raises(ClipError, match=r"x-x_y-16-1-no_rot_aug_0: .*has 4 frames and there are 5 poses"):
        clips[0]


def test_a_list_of_shots_gives_lens_and_caption(tmp_path):
    write_root(tmp_path)
    shots = [
        {
            "pose_path": "elsewhere/pose-test/abc-5-0-yaw_aug_0.npy",
            "x_fov": 160.0,
            "xi": 1.5,
            "caption": "a cat",
        },
        {"pose_path": "elsewhere/pose-test/abc-5-0-yaw_aug_0.npy", "x_fov": 100.0, "xi": 0.0},
        {"pose_path": "re10k/f7.txt", "x_fov": 100.0, "xi": 0.0, "caption": "a cat"},
        {"pose_path": "elsewhere/none-5-0-yaw_aug_0.npy", "x_fov": 100.0, "xi": 0.0},
    ]
    (tmp_path / "shots.json").write_text(json.dumps(shots))
    clips = open_dataset("panshot", tmp_path, shots="shots.json")
    assert clips.ids[0] == "0000-abc-5-0-yaw_aug_0-fov160-xi1.5"
    assert [(clips[number].lens.xi, clips[number].caption) for number in (0, 1)] == [
        (1.5, "a cat"),
        (0.0, ""),
    ]
    found = list(clips.clips(skip_broken=True))
    assert "is no track of PanShot" in found[2].reason
    assert "none-5-0-yaw_aug_0.npy does not exist" in found[3].reason


def test_clips_are_chosen_by_a_list(tmp_path):
    write_root(tmp_path)
    (tmp_path / "steady.txt").write_text("abc-5-0-yaw_aug_0.npy\nzzz-1-0-yaw_aug_0\n")
    clips = open_dataset("panshot", tmp_path, fov_x_deg=100.0, xi=0.0, clips="steady.txt")
    assert clips.ids == ("abc-5-0-yaw_aug_0",)
    assert clips.notes == ("1 of the 2 names of steady.txt are not there: zzz-1-0-yaw_aug_0 ...",)


def test_clips_that_shake_are_left_out_and_named(tmp_path):
    shaking = track(9, shake=0.02)
    write_root(tmp_path, **{"abc-5-0-yaw_aug_0": shaking, "-x_y-16-1-no_rot_aug_0": track(9)})
    clips = open_dataset("panshot", tmp_path, fov_x_deg=100.0, xi=0.0, max_jitter_deg=1.0)
    assert clips.ids == ("x-x_y-16-1-no_rot_aug_0",)
    (note,) = clips.notes
    assert note.startswith("abc-5-0-yaw_aug_0: left out, jitter of 4.")
    assert clips[0].provenance["jitter_deg"] < 0.01
    with pytest.raises(MeropeError, match="all 2 clips shake more than 0 degrees"):
        open_dataset("panshot", tmp_path, fov_x_deg=100.0, xi=0.0, max_jitter_deg=0.0)


def test_jitter_is_what_leaves_constant_motion():
    even = Poses.from_matrices(torch.tensor(track(9)))
    assert jitter_deg(even, near_depth=1.0) < 1e-6
    shaking = Poses.from_matrices(torch.tensor(track(9, shake=0.01)))
    # A turn of 0.01 to either side: neighbouring turns differ by four times that.
    assert jitter_deg(shaking) == pytest.approx(math.degrees(0.04), rel=1e-6)
    bumpy = torch.tensor(track(9))
    bumpy[::2, 1, 3] += 0.03
    moved = Poses.from_matrices(bumpy)
    assert jitter_deg(moved) < 1e-6
    assert jitter_deg(moved, near_depth=2.0) == pytest.approx(math.degrees(0.06 / 2), rel=1e-6)
    # Neither the world nor its scale matters.
    turned = moved.transformed(
        rotvec_to_matrix(torch.randn(3, dtype=torch.float64)), torch.ones(3, dtype=torch.float64)
    )
    assert jitter_deg(turned.scaled(7.0), near_depth=14.0) == pytest.approx(math.degrees(0.03), rel=1e-6)
    assert jitter_deg(even[:2]) == 0
    with pytest.raises(ValueError, match="near_depth must be positive"):
        jitter_deg(even, near_depth=0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"the lens is not known: give the list of shots \(--option shots=FILE\)"),
        ({"fov_x_deg": 100.0, "xi": 0.0, "near_depths": "none.jsonl"}, "does not exist"),
        ({"shots": "bad.json"}, r"bad\.json, entry 0 must have pose_path, numbers x_fov and xi"),
    ],
)
def test_what_is_missing_is_named(tmp_path, options, message):
    write_root(tmp_path)
    (tmp_path / "bad.json").write_text('[{"pose_path": "a.npy", "x_fov": "wide", "xi": 0}]')
    with pytest.raises(MeropeError, match=message):
        open_dataset("panshot", tmp_path, **options)


def test_a_table_of_near_depths_is_needed_to_divide_by_them(tmp_path):
    write_root(tmp_path)
    (tmp_path / "PanFlow" / "near_plane_depth-test.jsonl").unlink()
    with pytest.raises(
        MeropeError, match=r"near_plane_depth-test\.jsonl is neither there.*--option normalize=no"
    ):
        open_dataset("panshot", tmp_path, fov_x_deg=100.0, xi=0.0)
    assert len(open_dataset("panshot", tmp_path, fov_x_deg=100.0, xi=0.0, normalize=False)) == 2


def test_options_that_contradict_each_other_are_refused(tmp_path):
    write_root(tmp_path)
    with pytest.raises(ValueError, match="leave fov_x_deg and xi out"):
        open_dataset("panshot", tmp_path, shots="a.json", xi=0.0)
    with pytest.raises(ValueError, match="give clips"):
        open_dataset("panshot", tmp_path, split="test")


def test_the_released_tracks_and_lists_open():
    root = shared_file("data/panshot")
    lenses = [(shot.fov_x_deg, shot.xi) for shot in read_shots(root / "demo_lens.json")]
    wanted = [(100, 0), (120, 0), (140, 0.8), (160, 1.5), (180, 2.0), (200, 2.3)]
    assert lenses == wanted * 2
    clips = open_dataset("panshot", root, fov_x_deg=100.0, xi=0.0)
    assert len(clips) == 4
    lengths = {"1jVPI3bNCBc-5-0-no_rot_aug_0": 0.109, "HTdKkiu771g-3-0-no_rot_aug_0": 0.691}
    raw = open_dataset("panshot", root, fov_x_deg=100.0, xi=0.0, normalize=False)
    for clip_id, length in lengths.items():
        assert raw.clip(clip_id).poses.path_length == pytest.approx(length, abs=5e-4)
    for clip in clips:
        assert len(clip) == 81
        near_depth = clip.provenance["near_depth"]
        same = raw.clip(clip.clip_id).poses
        assert clip.poses.path_length == pytest.approx(same.path_length / near_depth, rel=1e-12)
        assert abs(float(clip.poses.R_world_cam[0, 0, 2])) < 1e-9
    linear, yaw = (clips.clip(f"N99hmkAJwlQ-3-0-{kind}_aug_0").poses for kind in ("linear", "yaw"))
    assert torch.allclose(linear.step_lengths, yaw.step_lengths, atol=1e-9)
    # One path seen with two rotations. The arccos of Eq. 36 gives 41.0 and 7.2 degrees: it loses what turns of less than 0.1
    # degrees a frame have to say in matrices of three decimals.
    for poses, turned_deg in ((linear, 40.99), (yaw, 6.81)):
        angles = rotation_angle(poses.R_world_cam[:-1], poses.R_world_cam[1:])
        assert math.degrees(float(angles.sum())) == pytest.approx(turned_deg, abs=0.01)
    listed = open_dataset("panshot", root, shots="demo_pose.json")
    assert len(listed) == 22
    opened = [clip for clip in listed.clips(skip_broken=True) if not isinstance(clip, ClipError)]
    assert len(opened) == 6
    assert all(clip.caption for clip in opened)
