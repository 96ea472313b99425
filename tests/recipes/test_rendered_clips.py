"""Rendered clips: the same bytes for any number of workers, resumable, and what stands in them is true."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from merope.cameras import KannalaBrandt, Pinhole
from merope.data.clips.folder import clip_ids, read_clip
from merope.errors import CheckpointMismatch
from merope.recipes.rendered_clips import RenderedClipsConfig, render_clips, world_clip_ids
from merope.worlds import build_world, render
from merope.worlds.clips import caption, world_drives

CONFIG = RenderedClipsConfig(
    lens=Pinhole.from_fov(fov_x_deg=90.0, height=24, width=40).to_dict(),
    num_frames=6,
    fps=10.0,
    turn_start=2,
    samples=1,
    depth=True,
)


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Two worlds by one worker."""
    root = tmp_path_factory.mktemp("rendered")
    assert render_clips(root, CONFIG, count=2, progress=False) == 6
    return root


def test_two_workers_write_the_same_bytes_as_one(rendered, tmp_path):
    assert render_clips(tmp_path, CONFIG, count=2, workers=2, progress=False) == 6
    assert files(tmp_path) == files(rendered)


def test_what_is_there_is_kept_and_what_is_missing_is_rendered(rendered, tmp_path):
    shutil.copytree(rendered, tmp_path / "again")
    lost = world_clip_ids(1)[2]
    shutil.rmtree(tmp_path / "again" / lost)
    mark = tmp_path / "again" / world_clip_ids(1)[0] / "caption.txt"
    mark.write_text("not rendered again")
    assert render_clips(tmp_path / "again", CONFIG, count=2, progress=False) == 1
    assert mark.read_text() == "not rendered again"
    assert files(tmp_path / "again" / lost) == files(rendered / lost)


def test_two_machines_make_one_data_set(rendered, tmp_path):
    render_clips(tmp_path, CONFIG, count=1, first_seed=1, progress=False)
    render_clips(tmp_path, CONFIG, count=1, progress=False)
    assert files(tmp_path) == files(rendered)


def test_another_configuration_is_refused(rendered):
    before = files(rendered)
    with pytest.raises(CheckpointMismatch, match="other values of fps, samples"):
        render_clips(rendered, replace(CONFIG, fps=12.0, samples=2), count=3, progress=False)
    assert files(rendered) == before


def test_clips_are_the_world_along_its_drives(rendered):
    drives = world_drives(1, num_frames=6, fps=10.0, turn_start=2)
    world = build_world(1, paths=[drive.poses for drive in drives])
    assert clip_ids(rendered) == sorted([*world_clip_ids(0), *world_clip_ids(1)])
    for clip_id, drive in zip(world_clip_ids(1), drives, strict=True):
        clip = read_clip(rendered / clip_id)
        seen = render(world, clip.lens, drive.poses, samples=1)
        assert np.array_equal(clip.frames(), seen.rgb)
        assert torch.equal(clip.poses.T_world_cam, drive.poses.T_world_cam)
        depth = clip.depth()
        assert np.array_equal(depth, seen.depth.astype(np.float16))
        assert np.isinf(depth[:, 0]).any()
        assert (clip.source, clip.cluster, clip.unit) == ("rendered", drive.motion, "m")
        assert clip.caption == caption(world, drive.poses)
        assert clip.provenance["world_seed"] == 1
        # Up is where the sky is: no ray that ends nowhere points below the horizon.
        dirs, _ = clip.lens.pixel_rays()
        heights = (clip.poses.R_world_cam[0] @ dirs[..., None])[..., 0] @ torch.tensor(clip.up_world).double()
        assert heights[torch.from_numpy(np.isinf(depth[0]))].min() > 0


def test_a_fisheye_has_no_depth_outside_its_circle(tmp_path):
    fisheye = KannalaBrandt.from_fov(fov_x_deg=190.0, height=24, width=24)
    render_clips(tmp_path, replace(CONFIG, lens=fisheye.to_dict(), num_frames=4), count=1, progress=False)
    clip = read_clip(tmp_path / world_clip_ids(0)[0])
    assert clip.lens == fisheye
    _, valid = fisheye.pixel_rays()
    assert np.array_equal(clip.depth()[0] > 0, valid.numpy())
    assert 0 < int(valid.sum()) < valid.numel()


@pytest.mark.parametrize(
    "change", [{"num_frames": 1}, {"fps": 0.0}, {"samples": 0}, {"turn_start": 5}, {"turn_start": -1}]
)
def test_impossible_configurations_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(CONFIG, **change)
    with pytest.raises(ValueError, match="count and workers"):
        render_clips("nowhere", CONFIG, count=0)
