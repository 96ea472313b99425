"""Any data set into the plain folder: what comes out, what a broken clip costs, and going on after a stop."""

import json

import numpy as np
import pytest
import torch

from merope.data.clips.clip import ClipError
from merope.data.clips.folder import clip_ids, read_clip
from merope.data.datasets import open_dataset
from merope.errors import CheckpointMismatch
from merope.recipes import convert as recipe
from merope.recipes.convert import REPORT, ConvertConfig, convert_clips
from tests.data.datasets.test_realestate10k import write_poses
from tests.support.numbered_video import numbers_shown, truncate, write_numbered_video

BROKEN = ("c02-cut", "c05-empty", "c07-short")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Ten clips at 10 Hz, three of which are broken in ways that real folders have."""
    root = tmp_path_factory.mktemp("recordings")
    names = [f"c{n:02d}" for n in range(10)]
    for broken in BROKEN:
        names[int(broken[1:3])] = broken
    for name in names:
        count = 5 if name.endswith("short") else 8
        write_poses(root / f"{name}.txt", 50 + np.arange(8) / 10)
        write_numbered_video(root / f"{name}.mp4", np.arange(count) / 10, header_rate=10)
    truncate(root / f"{BROKEN[0]}.mp4")
    (root / f"{BROKEN[1]}.mp4").write_bytes(b"")
    return root


def converted(recordings, out, **changes):
    clips = open_dataset("realestate10k", recordings)
    return convert_clips(clips, out, ConvertConfig(**changes), progress=False)


def test_broken_clips_cost_themselves_alone_and_are_named(recordings, tmp_path):
    report = converted(recordings, tmp_path)
    assert (report.through, report.written, report.there) == (7, 7, 0)
    assert sorted(error.clip_id for error in report.broken) == list(BROKEN)
    listed = json.loads((tmp_path / REPORT).read_text())
    assert sorted(listed["broken"]) == list(BROKEN)
    assert "7-short.mp4 has 5 frames" in listed["broken"]["c07-short"]
    assert len(clip_ids(tmp_path)) == 7
    # Nothing half-written stays behind.
    assert sorted(path.name for path in tmp_path.iterdir()) == [*clip_ids(tmp_path), REPORT]
    clip, original = read_clip(tmp_path / "c03"), open_dataset("realestate10k", recordings).clip("c03")
    assert np.array_equal(clip.frames(), original.frames())
    assert numbers_shown(clip.frames()) == list(range(8))
    assert torch.equal(clip.poses.T_world_cam, original.poses.T_world_cam)
    assert np.array_equal(clip.times, original.times)
    assert (clip.lens, clip.unit, clip.source) == (original.lens, "unknown", "realestate10k")
    assert clip.fps == original.fps
    assert clip.provenance["frames"]["joined"] == "sampled"


def test_it_goes_on_where_it_was_stopped(recordings, tmp_path, monkeypatch):
    written = []

    def write_three(root, clip_id, *arguments, **settings):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(clip_id)
        return recipe_write(root, clip_id, *arguments, **settings)

    recipe_write = recipe.write_clip
    monkeypatch.setattr(recipe, "write_clip", write_three)
    with pytest.raises(KeyboardInterrupt):
        converted(recordings, tmp_path)
    monkeypatch.setattr(recipe, "write_clip", recipe_write)
    assert clip_ids(tmp_path) == written
    report = converted(recordings, tmp_path)
    assert (report.through, report.written, report.there) == (7, 4, 3)
    # What is there is not opened again; what was broken is, since it may have been mended.
    clips = open_dataset("realestate10k", recordings)
    opened = []
    monkeypatch.setattr(type(clips), "open_clip", lambda self, name: opened.append(name) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        convert_clips(clips, tmp_path, ConvertConfig(), progress=False)
    assert set(opened) <= set(BROKEN)


def test_windows_at_a_rate_and_a_size(recordings, tmp_path):
    report = converted(recordings, tmp_path, num_frames=2, fps=5.0, height=16, width=32)
    assert report.written == 14
    assert clip_ids(tmp_path)[:2] == ["c00@00000", "c00@00004"]
    clip = read_clip(tmp_path / "c00@00004")
    assert (len(clip), clip.fps, clip.lens.height, clip.lens.width) == (2, 5.0, 16, 32)
    assert clip.times == pytest.approx([50.4, 50.6])
    assert clip.lens.fx == pytest.approx(0.5 * 32)


def test_the_same_bytes_for_any_number_of_threads(recordings, tmp_path):
    clips = open_dataset("realestate10k", recordings)
    for workers in (1, 3):
        convert_clips(clips, tmp_path / str(workers), ConvertConfig(), workers=workers, progress=False)
    one, three = (
        {p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*.*")} for n in "13"
    )
    assert one == three


def test_another_configuration_needs_another_folder(recordings, tmp_path):
    converted(recordings, tmp_path)
    with pytest.raises(CheckpointMismatch, match=r"converted otherwise.*config"):
        converted(recordings, tmp_path, fps=5.0)
    (tmp_path / REPORT).write_text("[]")
    with pytest.raises(CheckpointMismatch, match="is no report of a conversion"):
        converted(recordings, tmp_path)


def test_a_first_try_of_which_nothing_came_does_not_bind(recordings, tmp_path):
    tried = converted(recordings, tmp_path, num_frames=1000)
    assert tried.written == 0 and tried.broken
    assert converted(recordings, tmp_path).written > 0
    with pytest.raises(CheckpointMismatch, match=r"converted otherwise.*config"):
        converted(recordings, tmp_path, num_frames=1000)


def test_a_full_disk_is_not_a_broken_clip(recordings, tmp_path, monkeypatch):
    def full(*arguments, **settings):
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr(recipe, "write_clip", full)
    with pytest.raises(OSError, match="No space left"):
        converted(recordings, tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"height": 4}, "height and width go together"),
        ({"fps": -1.0}, "fps must be positive"),
        ({"window_stride": 3}, "window_stride needs num_frames"),
    ],
)
def test_configurations_that_mean_nothing(values, message):
    with pytest.raises(ValueError, match=message):
        ConvertConfig(**values)


def test_depth_is_kept_but_not_resized(tmp_path):
    from tests.data.clips.test_folder import write

    write(tmp_path / "in", "a", depth=np.full((5, 32, 48), np.float32(2.0)))
    clips = open_dataset("folder", tmp_path / "in")
    kept = convert_clips(clips, tmp_path / "kept", ConvertConfig(), progress=False)
    assert kept.written == 1
    assert read_clip(tmp_path / "kept" / "a").depth().max() == 2.0
    small = ConvertConfig(height=16, width=24)
    report = convert_clips(clips, tmp_path / "small", small, progress=False)
    assert isinstance(report.broken[0], ClipError)
    assert "cannot be resized" in report.broken[0].reason
    without = ConvertConfig(height=16, width=24, depth=False)
    assert convert_clips(clips, tmp_path / "none", without, progress=False).written == 1
