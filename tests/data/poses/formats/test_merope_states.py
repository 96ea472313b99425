"""This project's own files state convention, unit, lens, times and pose policy; older ones are read as before."""

import io
import json

import numpy as np
import pytest
import torch

from merope.cameras import KannalaBrandt, latent_poses
from merope.data import PoseFileError, load_pose_file, write_poses
from merope.data.clips.clip import ClipError
from merope.data.clips.folder import read_clip
from merope.data.poses.command_files import read_command
from merope.data.poses.formats.raw import CONVENTION
from merope.errors import TrajectoryError
from tests.data.poses.test_files import sample

OWN = ("merope", "npz")
LENS = KannalaBrandt.from_fov(fov_x_deg=180.0, height=288, width=512).to_dict()


@pytest.mark.parametrize("format", OWN)
@pytest.mark.parametrize("policy", [None, "last", "first", "mean"])
def test_everything_that_is_stated_comes_back(tmp_path, format, policy):
    poses = sample(13, unit="normalized", far=6.4e6)
    if policy is not None:
        poses = latent_poses(poses, policy=policy)
    path = tmp_path / "poses"
    write_poses(path, poses, format=format, camera=LENS, pose_policy=policy)
    loaded = load_pose_file(path, format=format)
    assert (loaded.pose_policy, loaded.camera, loaded.poses.unit) == (policy, LENS, "normalized")
    assert torch.equal(loaded.poses.times, poses.times)
    assert (loaded.poses.T_world_cam - poses.T_world_cam).abs().max() <= 1e-9


def test_what_a_file_states_can_be_seen_without_this_library(tmp_path):
    write_poses(tmp_path / "a.json", sample(), format="merope", camera=LENS, pose_policy="last")
    write_poses(tmp_path / "a.npz", sample(), format="npz", camera=LENS, pose_policy="last")
    content, archive = json.loads((tmp_path / "a.json").read_text()), np.load(tmp_path / "a.npz")
    assert content["convention"] == str(archive["convention"]) == CONVENTION
    assert content["pose_policy"] == str(archive["pose_policy"]) == "last"
    assert content["camera"] == json.loads(str(archive["camera"])) == LENS
    assert content["unit"] == str(archive["unit"]) == "m"


def test_version_1_is_still_read(tmp_path):
    poses = sample(4)
    content = {
        "format": "merope-poses",
        "version": 1,
        "convention": CONVENTION,
        "unit": "m",
        "camera": LENS,
        "times": poses.times.tolist(),
        "T_world_cam": poses.T_world_cam[:, :3].flatten(1).tolist(),
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    loaded = load_pose_file(tmp_path / "a.json", format="merope")
    assert torch.equal(loaded.poses.center_world, poses.center_world)
    assert torch.equal(loaded.poses.times, poses.times)
    assert (loaded.pose_policy, loaded.camera) == (None, LENS)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("version", 3, "version 3 of the format; this release reads 1 and 2"),
        ("version", True, "version True"),
        ("convention", "OpenGL", "states the convention 'OpenGL'"),
        ("pose_policy", "middle", "pose_policy must be 'last', 'first' or 'mean', got 'middle'"),
        ("unit", "feet", "got 'feet'"),
        ("unit", None, "has no 'unit'"),
        ("camera", [1], "camera must be an object, got a list of 1"),
        ("times", [1.0, "2", 3.0], r"times\[1\] must be a number, got \"2\""),
        ("times", [1.0, 2.0], "3 poses and 2 times"),
        ("times", [1.0, 1.0, 2.0], "times must increase"),
        ("T_world_cam", [[1.0] * 12, [1.0] * 11], r"T_world_cam\[1\] must be 12 numbers, got a list of 11"),
        ("T_world_cam", [], "T_world_cam must be a list with at least one element"),
    ],
)
def test_a_wrong_statement_is_named(tmp_path, key, value, words):
    path = tmp_path / "a.json"
    write_poses(path, sample(3), format="merope")
    content = {**json.loads(path.read_text()), key: value}
    path.write_text(json.dumps(content))
    with pytest.raises(PoseFileError, match=words):
        load_pose_file(path, format="merope")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("convention", "camera-to-world, OpenGL", "states the convention"),
        ("pose_policy", "middle", "got 'middle'"),
        ("camera", "{", "camera is no JSON"),
        ("camera", "[" * 100_000, "camera is no JSON"),
        ("camera", "[1]", "must be a JSON object"),
    ],
)
def test_a_wrong_statement_in_an_archive_is_named(tmp_path, name, value, words):
    path = tmp_path / "a.npz"
    write_poses(path, sample(3), format="npz")
    np.savez(path, **{**np.load(path), name: np.asarray(value)})
    with pytest.raises(PoseFileError, match=words):
        load_pose_file(path, format="npz")


def test_other_archives_may_hold_other_things_under_these_names(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, c2w=sample().T_world_cam.numpy(), camera=np.eye(3), pose_policy=np.arange(3))
    (tmp_path / "a.npz").write_bytes(buffer.getvalue())
    loaded = load_pose_file(tmp_path / "a.npz", format="npz")
    assert (loaded.camera, loaded.pose_policy) == (None, None)


def test_other_formats_have_no_place_for_a_pose_policy(tmp_path):
    with pytest.raises(
        ValueError, match=r"'kitti' has no place for pose_policy. Use format 'npz' or 'merope'"
    ):
        write_poses(tmp_path / "a", sample(), format="kitti", pose_policy="last")
    assert not (tmp_path / "a").exists()


def test_poses_of_latent_frames_are_no_poses_of_frames(tmp_path):
    write_poses(
        tmp_path / "poses.json", latent_poses(sample(13)), format="merope", pose_policy="last", camera=LENS
    )
    with pytest.raises(TrajectoryError, match=r"poses are those of latent frames \(pose_policy 'last'\)"):
        read_command(tmp_path / "poses.json", format="merope", num_frames=3, fps=10.0)
    with pytest.raises(ClipError, match=r"poses.json says that its poses are those of latent frames"):
        read_clip(tmp_path)


def test_what_a_file_has_to_say_reaches_the_command(tmp_path):
    matrix = np.eye(3, 4)
    matrix[0, 3] = 1.0
    (tmp_path / "a.json").write_text(json.dumps([matrix.ravel().tolist()] * 3))
    command = read_command(
        tmp_path / "a.json", format="motionctrl", num_frames=3, fps=10.0, wanted_unit="unknown"
    )
    assert any("the first pose is not the identity" in note for note in command.notes)
