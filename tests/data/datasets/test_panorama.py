"""Panoramas as clips: pictures, videos and folders, paths of directions, depth, and what may not be guessed."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from merope.cameras import Equirectangular, KannalaBrandt
from merope.data.clips.clip import ClipError
from merope.data.clips.video import write_frames, write_video
from merope.data.datasets import open_dataset
from merope.data.datasets.panorama import turning
from merope.data.poses.files import write_poses
from merope.errors import MeropeError
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotation_angle, rotvec_to_matrix
from tests.support.shared import shared_file

HEIGHT, WIDTH = 64, 128
SMALL = {"height": 18, "width": 32, "frames": 5}


def colours(dirs):
    return 127.5 + 100 * dirs


def painted(height=HEIGHT):
    rays, _ = Equirectangular.full_sphere(height=height, width=2 * height).pixel_rays()
    return colours(rays.numpy()).round().astype(np.uint8)


def drive(num):
    T_world_pano = torch.eye(4, dtype=torch.float64).repeat(num, 1, 1)
    T_world_pano[:, :3, :3] = rotvec_to_matrix(torch.tensor([0.0, 0.4, 0.0], dtype=torch.float64))
    T_world_pano[:, 0, 3] = 4.65e6 + torch.arange(num, dtype=torch.float64) / 3
    return Poses.from_matrices(T_world_pano, times=torch.arange(num) / 10.0)


def test_a_picture_is_seen_by_a_camera_that_turns(tmp_path):
    Image.fromarray(painted()).save(tmp_path / "park.png")
    clips = open_dataset(
        "panorama", tmp_path, yaw_deg=30.0, pitch_deg=20.0, turn_deg=60.0, level=True, **SMALL
    )
    clip = clips[0]
    assert (clip.clip_id, clip.source, clip.fps, clip.unit) == ("park", "panorama", 12.0, "m")
    assert clip.up_world == (0.0, -1.0, 0.0)
    assert clip.poses.path_length == 0
    rays, _ = clip.lens.pixel_rays()
    frames = clip.frames()
    for number, R_pano_cam in enumerate(clip.poses.R_world_cam):
        assert np.abs(frames[number] - colours((rays @ R_pano_cam.mT).numpy())).max() < 2
    assert np.array_equal(clip.frames([1, 4]), frames[[1, 4]])
    assert open_dataset("panorama", tmp_path, **SMALL)[0].up_world is None


def test_turning_is_what_its_angles_say():
    R_pano_cam = turning(5, yaw_deg=90.0, pitch_deg=30.0, roll_deg=0.0, turn_deg=-40.0)
    forward = R_pano_cam[:, :, 2]
    yaw = torch.rad2deg(torch.atan2(forward[:, 0], forward[:, 2]))
    assert torch.allclose(yaw, torch.tensor([90.0, 80, 70, 60, 50], dtype=torch.float64))
    # y points down.
    assert torch.allclose(-forward[:, 1], torch.full((5,), 0.5, dtype=torch.float64))
    steps = rotation_angle(R_pano_cam[:-1], R_pano_cam[1:])
    assert float(steps.max() - steps.min()) < 1e-12
    rolled = turning(1, yaw_deg=0.0, pitch_deg=0.0, roll_deg=90.0, turn_deg=0.0)[0]
    # Tilted clockwise by a quarter, the camera's right side is down.
    assert torch.allclose(rolled[:, 0], torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))


def test_a_path_of_rotations_and_a_lens_from_files(tmp_path):
    Image.fromarray(painted()).save(tmp_path / "park.png")
    lens = KannalaBrandt.from_fov(fov_x_deg=190.0, height=24, width=24)
    (tmp_path / "lens.json").write_text(json.dumps(lens.to_dict()))
    R_pano_cam = rotvec_to_matrix(torch.randn(4, 3, dtype=torch.float64))
    still = Poses(R_world_cam=R_pano_cam, center_world=torch.full((4, 3), 9.0, dtype=torch.float64))
    write_poses(tmp_path / "path.json", still, format="merope")
    clip = open_dataset("panorama", tmp_path, lens="lens.json", path="path.json")[0]
    assert clip.lens == lens
    assert torch.allclose(clip.poses.R_world_cam, R_pano_cam, atol=1e-15)
    rays, valid = lens.pixel_rays()
    seen = valid.numpy()
    error = clip.frames([3])[0] - colours((rays @ R_pano_cam[3].mT).numpy())
    # A pixel on the rim is the mean of its part that has rays.
    assert np.abs(error[seen]).max() < 4
    assert np.abs(error[seen]).mean() < 0.5
    write_poses(tmp_path / "path.json", drive(4), format="merope")
    with pytest.raises(MeropeError, match="seen from one place"):
        open_dataset("panorama", tmp_path, path="path.json")


@pytest.mark.parametrize("kind", ["folder", "video"])
def test_a_moving_panorama_has_a_pose_for_each_frame(tmp_path, kind):
    frames = np.stack([np.roll(painted(), 4 * number, axis=1) for number in range(3)])
    if kind == "folder":
        write_frames(tmp_path / "drive", frames)
    else:
        write_video(tmp_path / "drive.mp4", frames, fps=10, crf=4)
    with pytest.raises(ClipError, match=r"panorama/drive: there is no drive_poses\.json.*--option still=yes"):
        open_dataset("panorama", tmp_path, **SMALL)[0]
    resting = open_dataset("panorama", tmp_path, still=True, **SMALL)[0]
    assert (len(resting), resting.poses.path_length) == (3, 0.0)
    write_poses(tmp_path / "drive_poses.json", drive(3), format="merope")
    clip = open_dataset("panorama", tmp_path, turn_deg=20.0, **SMALL)[0]
    R_pano_cam = turning(3, yaw_deg=0.0, pitch_deg=0.0, roll_deg=0.0, turn_deg=20.0)
    assert torch.equal(clip.poses.center_world, drive(3).center_world)
    assert torch.allclose(clip.poses.R_world_cam, drive(3).R_world_cam @ R_pano_cam, atol=1e-14)
    assert torch.equal(clip.poses.times, drive(3).times)
    assert clip.fps == (12.0 if kind == "folder" else 10.0)
    rays, _ = clip.lens.pixel_rays()
    roll = rotvec_to_matrix(torch.tensor([0.0, -8 * 2 * math.pi / WIDTH, 0.0], dtype=torch.float64))
    expected = colours((rays @ (roll @ R_pano_cam[2]).mT).numpy())
    # An mp4 keeps colours at half the size and rounds them.
    assert np.abs(clip.frames([2])[0] - expected).mean() < (1 if kind == "folder" else 4)
    write_poses(tmp_path / "drive_poses.json", drive(4), format="merope")
    with pytest.raises(ClipError, match="there are 3 frames and 4 poses"):
        open_dataset("panorama", tmp_path, **SMALL)[0]


def test_what_is_no_panorama_costs_its_clip_alone(tmp_path):
    Image.fromarray(painted()).save(tmp_path / "a.png")
    Image.fromarray(painted()[:, :-1]).save(tmp_path / "b.png")
    (tmp_path / "c.png").write_bytes(b"no picture")
    clips = open_dataset("panorama", tmp_path, **SMALL)
    assert clips[0].frames([0]).shape == (1, 18, 32, 3)
    with pytest.raises(ClipError, match=r"panorama/b: .*twice as wide as high"):
        clips[1].frames([0])
    with pytest.raises(ClipError, match=r"panorama/c: .*cannot be read as a picture"):
        clips[2]
    Image.fromarray(painted()).save(tmp_path / "a.jpg")
    with pytest.raises(MeropeError, match=r"a\.jpg and a\.png would be one clip"):
        open_dataset("panorama", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MeropeError, match="holds no panoramas"):
        open_dataset("panorama", tmp_path / "empty")


def test_depth_is_in_metres_along_the_ray(tmp_path):
    Image.fromarray(painted()).save(tmp_path / "room.png")
    depth = np.full((HEIGHT, WIDTH), 2500, np.uint16)
    depth[: HEIGHT // 2] = 7000
    Image.fromarray(depth).save(tmp_path / "room_depth.png")
    clips = open_dataset("panorama", tmp_path, **SMALL)
    assert clips.ids == ("room",)
    found = clips[0].depth([0, 2])
    assert np.unique(found).tolist() == [2.5, 7.0]
    assert (found[:, :9] == 7).all()
    assert open_dataset("panorama", tmp_path, depth="*.none", depth_scale=500.0, **SMALL).ids == (
        "room",
        "room_depth",
    )
    Image.fromarray(painted()).save(tmp_path / "room_depth.png")
    with pytest.raises(ClipError, match=r"panorama/room: .*depth is one 16-bit channel"):
        open_dataset("panorama", tmp_path, **SMALL)[0].depth([0])


def test_real_panoramas_through_a_fisheye(tmp_path):
    bedroom = shared_file("data/panorama/hohonet_bedroom.png")
    for name in ("hohonet_bedroom.png", "hohonet_bedroom_depth.png"):
        shutil.copy(bedroom.with_name(name), tmp_path / name)
    options = {"fov_x_deg": 180.0, "xi": 1.5, "height": 64, "width": 64, "frames": 3, "turn_deg": 360.0}
    clip = open_dataset("panorama", tmp_path, **options)[0]
    frames, depth = clip.frames(), clip.depth()
    _, valid = clip.lens.pixel_rays()
    assert (frames[:, ~valid.numpy()] == 0).all()
    assert (depth[:, ~valid.numpy()] == 0).all()
    seen = depth[:, valid.numpy()]
    assert 0.9 <= seen.min() < 1.2
    assert 6 < seen.max() <= 7.34
    # After a full turn the camera sees what it saw.
    assert np.abs(frames[0].astype(int) - frames[2]).max() <= 1
    # Half-way it looks at the seam, which shows no more than any other column.
    steps = np.abs(np.diff(frames[1, 8:56].astype(int), axis=1)).mean(axis=(0, 2))
    assert steps[31] < 1.5 * np.median(steps[8:56])


def test_the_park_opens_beside_a_room_with_depth():
    clips = open_dataset("panorama", shared_file("data/panorama"), height=18, width=32, fov_x_deg=60.0)
    assert clips.ids == ("equilib_park", "hohonet_bedroom")
    assert [clip.depth([0]) is None for clip in clips] == [True, False]
    assert clips[0].frames([0]).std() > 20


@pytest.mark.parametrize(
    ("name", "seam", "opposite"), [("equilib_park", 3.6, 38.9), ("hohonet_bedroom", 2.0, 51.6)]
)
def test_both_are_full_spheres(tmp_path, name, seam, opposite):
    # The first, the middle and the last column, each through the part of a panorama's own lens that has it.
    (path,) = shared_file("data/panorama").glob(f"{name}.*")
    (tmp_path / path.name).symlink_to(path)
    width, height = Image.open(path).size
    whole = Equirectangular.full_sphere(height=height, width=width)
    columns = []
    for left in (0, width // 2, width - 1):
        part = whole.crop(top=0, left=left, height=height, width=1)
        (tmp_path / "lens.json").write_text(json.dumps(part.to_dict()))
        clip = open_dataset("panorama", tmp_path, lens="lens.json", frames=1)[0]
        columns.append(np.asarray(Image.fromarray(clip.frames()[0]).convert("L"))[:, 0].astype(int))
    first, middle, last = columns
    assert np.array_equal(first, np.asarray(Image.open(path).convert("RGB").convert("L"))[:, 0])
    assert np.abs(first - last).mean() == pytest.approx(seam, abs=0.05)
    assert np.abs(first - middle).mean() == pytest.approx(opposite, abs=0.05)


def test_the_depth_of_the_room_is_in_metres(tmp_path):
    for name in ("hohonet_bedroom.png", "hohonet_bedroom_depth.png"):
        (tmp_path / name).symlink_to(shared_file(f"data/panorama/{name}"))
    (tmp_path / "lens.json").write_text(
        json.dumps(Equirectangular.full_sphere(height=512, width=1024).to_dict())
    )
    clip = open_dataset("panorama", tmp_path, lens="lens.json", frames=1)[0]
    depth = clip.depth()
    assert (round(float(depth.min()), 2), round(float(depth.max()), 2)) == (0.90, 7.34)
    assert float(np.median(depth)) == pytest.approx(2.05, abs=0.005)
    assert clip.unit == "m"
