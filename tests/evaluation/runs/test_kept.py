"""Files of recovered cameras: they give back every bit, gaps and failures included, and other readers see the gaps."""

import json

import pytest
import torch

from merope.data import ReadOptions, load_pose_file
from merope.errors import MeropeError
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.runs.kept import kept_failure, read_kept, write_kept, write_manifest
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import wandering

KEY = {
    "estimator": {"name": "some", "options": {"k": 1.5}},
    "frames": {"sha256": "ab", "count": 7, "height": 4, "width": 6},
    "lens": {"model": "pinhole"},
    "fps": 10.0,
}


def recovered(registered=(True,) * 7, unit="m"):
    poses = wandering(7, 3)
    return Recovered(
        poses=Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world / 3, unit=unit),
        registered=torch.tensor(registered),
        scale="up_to_scale",
        fill="held",
        notes=("one", "tüo"),
    )


@pytest.mark.parametrize("registered", [(True,) * 7, (False, True, True, False, True, False, False)])
def test_what_was_written_comes_back_to_the_last_bit(tmp_path, registered):
    found = recovered(registered, unit="unknown")
    write_kept(tmp_path / "a" / "b.txt", key=KEY, outcome=found, versions={"torch": "x"})
    kept = read_kept(tmp_path / "a" / "b.txt")
    assert kept.key == KEY
    assert kept.failure is None
    assert kept.versions == {"torch": "x"}
    assert torch.equal(kept.recovered.poses.T_world_cam, found.poses.T_world_cam)
    assert torch.equal(kept.recovered.registered, found.registered)
    assert kept.recovered.poses.unit == "unknown"
    assert (kept.recovered.scale, kept.recovered.fill, kept.recovered.notes) == (
        "up_to_scale",
        "held",
        ("one", "tüo"),
    )


def test_a_reader_of_pose_files_sees_registered_frames_alone(tmp_path):
    found = recovered((False, True, True, False, True, False, False))
    write_kept(tmp_path / "b.txt", key=KEY, outcome=found)
    file = load_pose_file(tmp_path / "b.txt", format="kitti", options=ReadOptions(index_column=True))
    assert file.frame_ids == (1, 2, 4)
    torch.testing.assert_close(file.poses.T_world_cam, found.poses.T_world_cam[[1, 2, 4]], atol=1e-12, rtol=0)


def test_a_failure_is_kept_with_its_reason(tmp_path):
    write_kept(tmp_path / "b.txt", key=KEY, outcome="nothing to see")
    kept = read_kept(tmp_path / "b.txt")
    assert kept.recovered is None
    assert kept.failure == kept_failure(tmp_path / "b.txt") == "nothing to see"


def test_other_files_are_none_of_these(tmp_path):
    (tmp_path / "b.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n")
    (tmp_path / "c.txt").write_text("# frame, then camera-to-world\n")
    assert [read_kept(tmp_path / name) for name in ("b.txt", "c.txt", "gone.txt")] == [None] * 3
    assert [kept_failure(tmp_path / name) for name in ("b.txt", "c.txt")] == [None] * 2


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: text.replace("\n3 ", "\n2 ")]
)
def test_a_damaged_file_says_what_to_do(tmp_path, damage):
    path = tmp_path / "b.txt"
    write_kept(path, key=KEY, outcome=recovered())
    path.write_text(damage(path.read_text()))
    with pytest.raises(MeropeError, match=r"b.txt is damaged: .* Delete it"):
        read_kept(path)


def test_the_manifest_has_the_estimator_once_and_every_clip(tmp_path):
    files = {"a/x": tmp_path / "a" / "x.txt", "a/y": tmp_path / "a" / "y.txt"}
    write_kept(files["a/x"], key=KEY, outcome=recovered((True, False) + (True,) * 5))
    write_kept(files["a/y"], key=KEY, outcome="nothing to see")
    content = json.loads(write_manifest(tmp_path, files).read_text())
    assert content["estimator"] == KEY["estimator"]
    assert content["clips"]["a/x"]["unregistered_frames"] == [1]
    assert content["clips"]["a/x"]["frames"] == KEY["frames"]
    assert content["clips"]["a/y"]["failure"] == "nothing to see"
    assert "estimator" not in content["clips"]["a/x"]
