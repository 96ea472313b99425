"""The folder of a generated clip: whole or not there, and an old one kept until the new one is complete."""

import json

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.data.clips import generated
from merope.data.clips.generated import find_generated, read_generated, read_result, write_generated
from merope.errors import MeropeError
from tests.evaluation.trajectories import turning

LENS = Pinhole.from_fov(fov_x_deg=90, height=16, width=24)


def frames(shade):
    return np.full((5, 16, 24, 3), shade, dtype=np.uint8)


def write(folder, shade=10, **changes):
    values = {"commanded": turning(5), "lens": LENS, "fps": 12.5, "prefix_frames": 1, "result": {"seed": 3}}
    write_generated(folder, frames(shade), **{**values, **changes})


def test_what_is_written_is_read_back(tmp_path):
    write(tmp_path / "a" / "left")
    clip = read_generated(tmp_path / "a" / "left")
    assert clip.clip_id == "a/left"
    assert np.array_equal(clip.frames(), frames(10))
    torch.testing.assert_close(clip.commanded.T_world_cam, turning(5).T_world_cam, atol=1e-9, rtol=0)
    assert (clip.lens, clip.fps, clip.prefix_frames, clip.result["seed"]) == (LENS, 12.5, 1, 3)


def test_an_old_clip_stays_until_the_new_one_is_complete(tmp_path, monkeypatch):
    write(tmp_path / "a" / "left", 10)

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(generated, "write_video", fails)
        with pytest.raises(OSError, match="No space"):
            write(tmp_path / "a" / "left", 20)
    assert np.array_equal(read_generated(tmp_path / "a" / "left").frames(), frames(10))
    write(tmp_path / "a" / "left", 20)
    assert np.array_equal(read_generated(tmp_path / "a" / "left").frames(), frames(20))
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["left"]


def test_leftovers_of_a_killed_process_go_and_those_of_other_clips_stay(tmp_path):
    for name in (".left.12.tmp", ".left.0a1b.old", ".left.b.12.tmp", ".right.12.tmp"):
        (tmp_path / "a" / name).mkdir(parents=True)
    write(tmp_path / "a" / "left")
    assert sorted(entry.name for entry in (tmp_path / "a").iterdir()) == [
        ".left.b.12.tmp",
        ".right.12.tmp",
        "left",
    ]


def test_two_runs_that_write_one_clip_do_not_take_each_other_s_files(tmp_path, monkeypatch):
    folder, write_video = tmp_path / "a" / "left", generated.write_video

    def meanwhile(*given, **options):
        with monkeypatch.context() as patched:
            patched.setattr(generated, "write_video", write_video)
            write(folder, 20)
        write_video(*given, **options)

    monkeypatch.setattr(generated, "write_video", meanwhile)
    write(folder, 10)
    assert np.array_equal(read_generated(folder).frames(), frames(10))
    assert [entry.name for entry in folder.parent.iterdir()] == ["left"]


def test_the_old_clip_is_there_while_the_new_one_is_written(tmp_path, monkeypatch):
    write(tmp_path / "a" / "left", 10)
    there = []

    def looks(*_, **__):
        there.append(read_generated(tmp_path / "a" / "left").frames())

    monkeypatch.setattr(generated, "write_video", looks)
    write(tmp_path / "a" / "left", 20)
    assert np.array_equal(there[0], frames(10))


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path, there):
    if there:
        write(tmp_path / "elsewhere", 10)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "left").symlink_to(tmp_path / "elsewhere")
    write(tmp_path / "a" / "left", 20)
    assert [(entry.name, entry.is_symlink()) for entry in (tmp_path / "a").iterdir()] == [("left", False)]
    assert (tmp_path / "elsewhere").exists() == there
    assert np.array_equal(read_generated(tmp_path / "a" / "left").frames(), frames(20))


def test_poses_lens_and_frames_have_to_agree(tmp_path):
    with pytest.raises(ValueError, match="got 4 poses"):
        write(tmp_path / "a", commanded=turning(4))
    with pytest.raises(ValueError, match="a lens for 8 x 12"):
        write(tmp_path / "a", lens=LENS.resize(height=8, width=12))
    assert not (tmp_path / "a").exists()


def test_clips_are_found_by_case_and_trajectory(tmp_path):
    for name in ("b/left", "a/right", "a/left"):
        write(tmp_path / name)
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "metrics.json").write_text("{}")
    assert [clip.clip_id for clip in find_generated(tmp_path)] == ["a/left", "a/right", "b/left"]
    assert [clip.clip_id for clip in find_generated(tmp_path / "a" / "left")] == ["a/left"]


def test_what_is_no_clip_is_said(tmp_path):
    assert read_result(tmp_path / "none") is None
    (tmp_path / "a" / "left").mkdir(parents=True)
    (tmp_path / "a" / "left" / "result.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(MeropeError, match="is no generated clip"):
        find_generated(tmp_path)
    with pytest.raises(MeropeError, match="is no folder"):
        find_generated(tmp_path / "none")
