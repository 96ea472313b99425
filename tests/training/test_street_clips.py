"""Rendered clips: equal bytes for any number of workers, resumable, mirrored with their motion."""

import numpy as np
import pytest
import torch

from merope.cameras import CameraModel
from merope.errors import CheckpointMismatch
from merope.geometry.poses import Poses
from merope.training.street_clips import StreetClips, render_street_clips, render_world, world_paths
from merope.worlds import build_world, render
from tests.support.tiny_run import tiny_clips, tiny_clips_config

FLIP = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0], dtype=torch.float64))


def two_worlds():
    return tiny_clips_config(num_worlds=2, num_frames=9)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Two worlds by one worker."""
    folder = tmp_path_factory.mktemp("clips")
    return render_street_clips(folder, two_worlds(), progress=False)


def contents(folder):
    return {name: (folder / f"{name}.npy").read_bytes() for name in ("frames", "poses", "done")}


def test_two_workers_write_the_same_bytes_as_one(rendered, tmp_path):
    render_street_clips(tmp_path, two_worlds(), workers=2, progress=False)
    assert contents(tmp_path) == contents(rendered.folder)


def test_interrupted_rendering_goes_on_and_keeps_what_is_there(rendered, tmp_path):
    render_street_clips(tmp_path, two_worlds(), progress=False)
    done = np.load(tmp_path / "done.npy", mmap_mode="r+")
    frames = np.load(tmp_path / "frames.npy", mmap_mode="r+")
    done[1] = False
    frames[3:] = 7
    # A mark in the finished world shows that it is not rendered again.
    frames[0, 0, 0, 0] = 255 - frames[0, 0, 0, 0]
    mark = frames[0, 0, 0, 0].copy()
    del done, frames
    with pytest.raises(CheckpointMismatch, match="1 of 2 worlds"):
        StreetClips(tmp_path)
    again = render_street_clips(tmp_path, two_worlds(), progress=False)
    first, wanted = np.load(again.folder / "frames.npy"), np.load(rendered.folder / "frames.npy")
    assert np.array_equal(first[3:], wanted[3:])
    assert np.array_equal(first[0, 0, 0, 0], mark)


def test_folder_of_another_configuration_is_refused_and_left_alone(rendered):
    before = contents(rendered.folder)
    with pytest.raises(CheckpointMismatch, match="another configuration"):
        render_street_clips(rendered.folder, tiny_clips_config(num_worlds=3, num_frames=9), progress=False)
    assert contents(rendered.folder) == before


def test_frames_and_poses_are_those_of_the_world(rendered):
    frames, matrices = render_world(4, two_worlds())
    stored, poses = rendered.window(5, start=0, num_frames=9)
    assert np.array_equal(stored.numpy(), frames[2])
    wanted = Poses.from_matrices(torch.from_numpy(matrices[2])).rebase_to_first().T_world_cam
    torch.testing.assert_close(poses, wanted, rtol=0, atol=1e-12)
    assert len(rendered) == 6


def test_clips_of_a_world_share_their_first_frames_and_then_part():
    config = tiny_clips_config()
    moving = next(seed for seed in range(50) if float(world_paths(seed, config)[0].step_lengths.min()) > 0.5)
    base, left, right = world_paths(moving, config)
    shared = slice(0, config.turn_start + 1)
    assert torch.equal(left.T_world_cam[shared], base.T_world_cam[shared])
    assert torch.equal(right.T_world_cam[shared], base.T_world_cam[shared])
    heading = [torch.atan2(p.R_world_cam[-1, 1, 2], p.R_world_cam[-1, 0, 2]) for p in (left, base, right)]
    assert heading[0] > heading[1] > heading[2]


def test_no_two_worlds_are_alike():
    frames = np.load(tiny_clips().folder / "frames.npy", mmap_mode="r")
    first = frames[::3, 0].astype(int)
    for one in range(len(first)):
        for other in range(one):
            assert np.abs(first[one] - first[other]).mean() > 2


def test_window_starts_at_its_own_first_camera():
    whole, poses = tiny_clips().window(1, start=0, num_frames=16)
    part, moved = tiny_clips().window(1, start=3, num_frames=13)
    assert torch.equal(part, whole[3:])
    torch.testing.assert_close(moved[0], torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-12)
    wanted = torch.linalg.inv(poses[3]) @ poses[3:]
    torch.testing.assert_close(moved, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("clip", "start", "count"), [(12, 0, 13), (-1, 0, 13), (0, 4, 13), (0, -1, 5), (0, 0, 0)]
)
def test_windows_outside_the_clips_are_refused(clip, start, count):
    with pytest.raises(ValueError, match="window lie in its 16 frames"):
        tiny_clips().window(clip, start=start, num_frames=count)


def test_mirrored_motion_stays_right_handed_and_turns_the_other_way():
    for clip in range(len(tiny_clips())):
        _, poses = tiny_clips().window(clip, start=2, num_frames=13)
        _, mirrored = tiny_clips().window(clip, start=2, num_frames=13, mirror=True)
        assert (torch.linalg.det(mirrored[:, :3, :3]) - 1).abs().max() < 1e-9
        torch.testing.assert_close(mirrored @ FLIP, FLIP @ poses, rtol=0, atol=1e-12)
        # Same way forward and the same height, the other way to the side.
        torch.testing.assert_close(mirrored[:, 1:3, 3], poses[:, 1:3, 3])
        torch.testing.assert_close(mirrored[:, 0, 3], -poses[:, 0, 3])
        assert torch.equal(mirrored[:, 0, 2], -poses[:, 0, 2])


def test_mirrored_frames_and_mirrored_motion_show_one_world():
    """Points unprojected from one mirrored depth image land on the depth of another, by the mirrored poses."""
    config = tiny_clips_config()
    seed = next(s for s in range(50) if float(world_paths(s, config)[1].step_lengths.min()) > 0.5)
    paths = world_paths(seed, config)
    lens = CameraModel.from_dict(config.camera).resize(height=60, width=80)
    first, last = 8, 11
    depth = torch.from_numpy(render(build_world(seed, paths=paths), lens, paths[1], samples=1).depth).double()
    poses = paths[1].rebase_to_first().T_world_cam
    straight = surface_gap(lens, depth, poses, first, last)
    mirrored = surface_gap(lens, depth.flip(2), FLIP @ poses @ FLIP, first, last)
    torch.testing.assert_close(mirrored, straight, rtol=0, atol=1e-6)
    # Half of the pixels look at the same surface again; without the mirror on the motion, few do.
    assert mirrored < 0.02
    assert surface_gap(lens, depth.flip(2), poses, first, last) > 0.05


def surface_gap(lens, depth, poses, first, last):
    """Median relative difference between where points are and how far the other camera sees at that pixel."""
    dirs, _ = lens.pixel_rays()
    near = depth[first] < 50
    points = (dirs.double() * depth[first][..., None])[near]
    T_last_first = torch.linalg.inv(poses[last]) @ poses[first]
    moved = points @ T_last_first[:3, :3].T + T_last_first[:3, 3]
    pixels, valid = lens.project(moved)
    cols, rows = pixels.floor().long().unbind(-1)
    inside = valid & (cols >= 0) & (cols < lens.width) & (rows >= 0) & (rows < lens.height)
    assert inside.sum() > 200
    seen = depth[last][rows[inside], cols[inside]]
    # The sky, infinitely far, is all wrong.
    return (1 - moved.norm(dim=-1)[inside] / seen).abs().median()
