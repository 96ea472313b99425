"""Pose files as runs: windows, rows of NaN, missing rows, and folders whose files have the same names."""

import numpy as np
import pytest
import torch

from merope.data import ReadOptions, load_pose_file, write_poses
from merope.data.poses.table import PoseFileError
from merope.errors import MeropeError, TrajectoryError
from merope.evaluation.runs.kept import write_kept
from merope.evaluation.runs.pose_files import (
    clips_of_folders,
    clips_of_pair,
    clips_with_files,
    pose_files_in,
)
from merope.evaluation.runs.scored import score_run
from merope.evaluation.runs.sources import generated_sources
from tests.evaluation.runs.clips import Knowing, write_clip
from tests.evaluation.trajectories import perturbed, turning, wandering

LEAVE_OUT = ReadOptions(nan_rows="leave out")


def kitti(path, poses, *, ids=None, lost=()):
    """A KITTI file, with frame numbers if given, and NaN for the poses of some rows."""
    rows = poses.T_world_cam[:, :3].flatten(1).tolist()
    lines = []
    for row, values in enumerate(rows):
        words = ["nan"] * 12 if row in lost else list(map(repr, values))
        lines.append(" ".join(([str(ids[row])] if ids is not None else []) + words))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return load_pose_file(path, format="kitti", options=LEAVE_OUT)


def test_windows_do_not_overlap_and_the_rest_is_said(tmp_path):
    true = kitti(tmp_path / "true.txt", turning(30))
    found = clips_of_pair(true, kitti(tmp_path / "mine.txt", perturbed(turning(30), 1)), window=8)
    assert [clip.clip_id for clip in found.clips] == ["frames 0 to 7", "frames 8 to 15", "frames 16 to 23"]
    assert torch.equal(found.clips[1].commanded.center_world, true.poses.center_world[8:16])
    assert found.settings["num_frames_left_over"] == 6
    assert found.notes[1] == "6 poses at the end do not fill a clip of 8 and are left out"


def test_frames_keep_the_numbers_of_the_command_where_rows_are_missing(tmp_path):
    true = kitti(tmp_path / "true.txt", turning(12))
    kept = [2, 3, 4, 6, 7, 8, 9, 10, 11]
    mine = kitti(tmp_path / "mine.txt", turning(12)[kept], ids=kept)
    left_out = clips_of_pair(true, mine, window=4)
    assert [clip.clip_id for clip in left_out.clips] == ["frames 2 to 6", "frames 7 to 10"]
    assert left_out.settings["num_commanded"] == 12
    assert left_out.settings["num_scored"] == 8
    assert "the 3 without an estimate are left out of every figure" in left_out.notes[0]


def test_filled_rows_are_interpolated_and_not_registered(tmp_path):
    true = kitti(tmp_path / "true.txt", turning(12))
    kept = [2, 3, 4, 6, 7, 8, 9, 10, 11]
    mine = kitti(tmp_path / "mine.txt", turning(12)[kept], ids=kept)
    filled = clips_of_pair(true, mine, window=4, missing="interpolate")
    assert [clip.clip_id for clip in filled.clips] == ["frames 0 to 3", "frames 4 to 7", "frames 8 to 11"]
    first, second, third = (clip.recovered for clip in filled.clips)
    assert first.registered.tolist() == [False, False, True, True]
    assert second.registered.tolist() == [True, False, True, True]
    assert third.fill == "none needed"
    # Held before the first; halfway between neighbours in the middle.
    centers = mine.poses.center_world
    assert torch.equal(first.poses.center_world[:3], centers[0].expand(3, 3))
    torch.testing.assert_close(second.poses.center_world[1], (centers[2] + centers[3]) / 2)
    # What the file has is untouched to the last bit.
    assert torch.equal(second.poses.T_world_cam[[0, 2, 3]], mine.poses.T_world_cam[[2, 3, 4]])
    assert filled.settings["num_not_registered"] == 3


def test_a_row_of_nan_is_a_frame_without_a_pose_and_never_a_zero(tmp_path):
    path = wandering(10, 5)
    true, mine = kitti(tmp_path / "true.txt", path), kitti(tmp_path / "mine.txt", path, lost=(3, 9))
    assert [nan.row for nan in mine.nan_rows] == [3, 9]
    (clip,) = clips_of_pair(true, mine).clips
    assert clip.recovered.registered.tolist() == [frame not in (3, 9) for frame in range(10)]
    assert clip.nan_rows == (3, 9)
    (scores,) = score_run([clip], label="x").result.clips
    assert "nan_rows" in scores.flags
    assert scores.num_registered == 8
    # The mean of two neighbours, and the last but one held: errors of a step, where zeros were errors of the path.
    centers = path.center_world
    torch.testing.assert_close(clip.recovered.poses.center_world[3], (centers[2] + centers[4]) / 2)
    assert torch.equal(clip.recovered.poses.center_world[9], centers[8])


def test_nan_is_an_error_in_a_command_and_where_nobody_asked(tmp_path):
    kitti(tmp_path / "true.txt", turning(5), lost=(2,))
    with pytest.raises(PoseFileError, match="line 3 holds a value that is not finite"):
        load_pose_file(tmp_path / "true.txt", format="kitti")


def test_infinity_and_nan_for_everything_are_refused_always(tmp_path):
    with pytest.raises(PoseFileError, match="holds no pose: each of its 4 rows is NaN"):
        kitti(tmp_path / "mine.txt", turning(4), lost=range(4))
    (tmp_path / "inf.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 inf\n1 0 0 0 0 1 0 0 0 0 1 1\n")
    with pytest.raises(PoseFileError, match="not finite"):
        load_pose_file(tmp_path / "inf.txt", format="kitti", options=LEAVE_OUT)


@pytest.mark.parametrize("format", ["npy", "npz", "tum"])
def test_nan_is_read_in_arrays_and_with_times(tmp_path, format):
    poses = turning(6)
    matrices = poses.T_world_cam.numpy().copy()
    matrices[2] = np.nan
    path = tmp_path / f"mine.{format}"
    if format == "npy":
        np.save(path, matrices)
    elif format == "npz":
        np.savez(path, T_world_cam=matrices, times=np.arange(6) / 10)
    else:
        write_poses(path, poses.with_times(torch.arange(6).double() / 10), format="tum")
        lines = path.read_text().splitlines()
        lines[3] = "0.2 " + " ".join(["nan"] * 7)
        path.write_text("\n".join(lines) + "\n")
    file = load_pose_file(path, format=format, options=LEAVE_OUT)
    assert [nan.row for nan in file.nan_rows] == [2]
    assert len(file.poses) == 5
    if format != "npy":
        assert file.nan_rows[0].time == pytest.approx(0.2)
    true = tmp_path / "true.tum"
    write_poses(true, poses.with_times(torch.arange(6).double() / 10), format="tum")
    (clip,) = clips_of_pair(load_pose_file(true, format="tum"), file).clips
    assert clip.recovered.registered.tolist() == [True, True, False, True, True, True]


def test_a_window_without_any_pose_is_a_failure(tmp_path):
    true = kitti(tmp_path / "true.txt", turning(12))
    mine = kitti(tmp_path / "mine.txt", turning(12), lost=(4, 5, 6, 7))
    found = clips_of_pair(true, mine, window=4)
    assert found.clips[1].recovered is None
    assert found.clips[1].failure == "none of its 4 frames has an estimated pose"
    assert score_run(found.clips, label="x").result.success_rate == pytest.approx(2 / 3)


def test_a_window_that_is_too_long_or_short_is_refused(tmp_path):
    true = kitti(tmp_path / "true.txt", turning(12))
    with pytest.raises(TrajectoryError, match="Use --window 12 or less"):
        clips_of_pair(true, true, window=13)
    with pytest.raises(ValueError, match="must be 2 or more"):
        clips_of_pair(true, true, window=1)


def folder(root, **files):
    return {name: kitti(root / f"{name}.txt", poses) for name, poses in files.items()}


def test_files_of_two_folders_belong_together_by_name(tmp_path):
    true = folder(tmp_path / "true", a=turning(8), b=turning(9), c=turning(8, turn_deg=20.0))
    mine = folder(tmp_path / "mine", c=turning(8, turn_deg=20.0), a=perturbed(turning(8), 1), d=turning(5))
    found = clips_of_folders(true, mine)
    assert [(clip.clip_id, clip.recovered is None) for clip in found.clips] == [
        ("a", False),
        ("c", False),
        ("b", True),
    ]
    assert found.settings["without_estimate"] == ["b"]
    assert found.settings["without_command"] == ["d"]
    assert any("1 of 3 clips have no estimated poses: b" in note for note in found.notes)
    result = score_run(found.clips, label="x").result
    assert result.clip("c").rot_deg == pytest.approx(0, abs=1e-9)
    assert "failed" in result.clip("b").flags


def test_folders_are_cut_into_windows_too(tmp_path):
    true = folder(tmp_path / "true", a=turning(8), b=turning(9))
    found = clips_of_folders(true, folder(tmp_path / "mine", a=turning(8)), window=4)
    assert [clip.clip_id for clip in found.clips] == [
        *("a, frames 0 to 3", "a, frames 4 to 7", "b, frames 0 to 3", "b, frames 4 to 7")
    ]


def test_folders_without_a_common_name_show_both_sides(tmp_path):
    true, mine = folder(tmp_path / "true", a=turning(8)), folder(tmp_path / "mine", b=turning(8))
    with pytest.raises(MeropeError, match="commanded are a, estimated b"):
        clips_of_folders(true, mine)


def test_lengths_that_do_not_match_name_the_clip(tmp_path):
    true, mine = folder(tmp_path / "true", a=turning(8)), folder(tmp_path / "mine", a=turning(7))
    with pytest.raises(TrajectoryError, match="clip a: commanded has 8 poses, estimated 7"):
        clips_of_folders(true, mine)


def test_names_go_without_endings_and_hidden_files_are_passed_over(tmp_path):
    for name in ("street/left.txt.gz", "street/v1.2.txt", ".hidden.txt", "manifest.json", ".git/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert set(pose_files_in(tmp_path)) == {"street/left", "street/v1.2"}
    (tmp_path / "street" / "left.json").write_text("x")
    with pytest.raises(MeropeError, match="two files for clip street/left"):
        pose_files_in(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MeropeError, match="holds no files"):
        pose_files_in(tmp_path / "empty")


@pytest.fixture
def sources(tmp_path):
    for name in ("a/one", "a/two", "b/three"):
        write_clip(tmp_path / "clips", name)
    return generated_sources(tmp_path / "clips")


def test_estimates_of_another_program_are_read_without_looking_at_a_frame(sources, tmp_path):
    write_poses(tmp_path / "est" / "a" / "one.json", turning(9), format="merope")
    write_poses(tmp_path / "est" / "a" / "two.json", turning(8), format="merope")
    for source in sources:
        for frame in (source.folder / "frames").iterdir():
            frame.unlink()
    one, two, three = clips_with_files(sources, tmp_path / "est", format="merope")
    assert score_run([one], label="x").result.clips[0].rot_deg < 1e-9
    assert "commanded has 9 poses, estimated 8" in two.failure
    assert "there is no file of estimated poses for it" in three.failure


def test_rows_without_a_frame_are_filled(sources, tmp_path):
    kitti(tmp_path / "est" / "a" / "one.txt", turning(9)[[1, 2, 3, 5, 6, 7]], ids=[1, 2, 3, 5, 6, 7])
    (clip,) = clips_with_files(sources[:1], tmp_path / "est", format="kitti")
    assert clip.recovered.registered.tolist() == [frame in (1, 2, 3, 5, 6, 7) for frame in range(9)]


def test_kept_cameras_say_themselves_what_they_are(sources, tmp_path):
    key = {"estimator": {}, "frames": {"count": 9}, "lens": {}, "fps": 10.0}
    found = Knowing().estimate(sources[0].frames(), sources[0].lens, fps=10.0)
    write_kept(tmp_path / "est" / "a" / "one.txt", key=key, outcome=found)
    write_kept(tmp_path / "est" / "a" / "two.txt", key=key, outcome="nothing to see")
    one, two, _ = clips_with_files(sources, tmp_path / "est", format="merope")
    assert torch.equal(one.recovered.poses.T_world_cam, found.poses.T_world_cam)
    assert one.recovered.scale == found.scale
    assert two.failure == "nothing to see"
