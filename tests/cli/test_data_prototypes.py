"""`merope data prototypes`, `select` and `motions`: from inputs to files."""

import json

import numpy as np
import pytest
import torch
from benchmarks.prototypes import drives

from merope.cli.main import run
from merope.data.poses.files import read_poses, write_poses
from merope.data.selection.prototypes.path_files import read_path_file
from merope.data.selection.splits import read_split
from merope.geometry.poses import Poses
from tests.support.shared import shared_file


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two files of trajectories: positions of "real" drives, poses of "rendered" ones that look along their paths."""
    folder = tmp_path_factory.mktemp("drives")
    centers, real = drives(400, seed=11)
    positions = centers[real]
    ids = [f"scene-{number}" for number in range(len(positions))]
    np.savez(folder / "real.npz", centers=positions, ids=ids, sources="nuscenes", unit="m")
    moving = centers[~real]
    matrices = np.zeros((len(moving), 49, 4, 4))
    matrices[:, :, :3, 3] = moving + 6.4e6
    matrices[:, :, 3, 3] = 1
    ahead = np.gradient(moving, axis=1)[..., [0, 2]]
    heading = np.arctan2(ahead[..., 0], ahead[..., 1]) * (np.hypot(*np.moveaxis(ahead, -1, 0)) > 0.05)
    heading -= heading[:, :1]
    matrices[:, :, 0, 0] = matrices[:, :, 2, 2] = np.cos(heading)
    matrices[:, :, 0, 2], matrices[:, :, 2, 0] = np.sin(heading), -np.sin(heading)
    matrices[:, :, 1, 1] = 1
    np.savez(folder / "rendered.npz", T_world_cam=matrices, sources="rendered", unit="m")
    return [str(folder / "real.npz"), str(folder / "rendered.npz")]


def test_every_clip_gets_a_cluster(files, tmp_path, capsys):
    flags = ["--groups", "8", "--keep-paths"]
    assert run(["data", "prototypes", *files, "--out", str(tmp_path), *flags]) == 0
    output = capsys.readouterr().out
    split, kept = read_split(tmp_path / "split.json"), read_path_file(tmp_path / "prototypes.npz")
    assert len(split) == 400
    assert split.sources == ("nuscenes", "rendered")
    assert f"{len(kept.clip_ids) - 1} prototypes in 8 groups" in output
    assert split.made["threshold"] == 1.0
    assert split.made["inputs"] == ["real.npz", "rendered.npz"]
    paths = read_path_file(tmp_path / "trajectories.npz")
    assert list(zip(paths.sources, paths.clip_ids, strict=True)) == [
        (clip.source, clip.clip_id) for clip in split.clips
    ]
    with np.load(tmp_path / "prototypes.npz") as archive:
        assert archive["sizes"].sum() == 400
        assert archive["medoid"].sum() == 8
        # A prototype is in its own cluster.
        for source, clip_id, label in zip(kept.sources, kept.clip_ids, archive["labels"], strict=True):
            assert split.cluster_of(source, clip_id) == label


def test_the_same_inputs_in_any_order_write_the_same_bytes_and_prototypes_are_an_input(files, tmp_path):
    for out, inputs in (("one", files), ("two", files[::-1])):
        assert run(["data", "prototypes", *inputs, "--out", str(tmp_path / out), "--clusters", "shape"]) == 0
    for name in ("split.json", "prototypes.npz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    again = [str(tmp_path / "one" / "prototypes.npz"), "--out", str(tmp_path / "again")]
    assert run(["data", "prototypes", *again]) == 0
    count = len(read_path_file(tmp_path / "one" / "prototypes.npz").clip_ids)
    assert len(read_split(tmp_path / "again" / "split.json")) == count


def test_a_selection_has_its_turns(files, tmp_path, capsys):
    out = tmp_path / "evaluation"
    command = ["data", "select", files[1], "--count", "6", "--out", str(out)]
    assert run(command) == 1
    # Said before anything is clustered.
    assert "has neither times nor a rate" in (told := capsys.readouterr().err)
    assert "--rate" in told
    assert not out.exists()
    unstated = tmp_path / "unstated.npy"
    np.save(unstated, np.tile(np.eye(4), (3, 49, 1, 1)))
    assert run(["data", "select", str(unstated), "--count", "1", "--out", str(out), "--rate", "12"]) == 1
    assert "turns need metres" in capsys.readouterr().err
    command += ["--rate", "12"]
    assert run(command) == 0
    assert "poses of 6: original, left, right" in capsys.readouterr().out
    split, paths = read_split(out / "split.json"), read_path_file(out / "trajectories.npz")
    assert len(split) == len(paths.clip_ids) == 6
    for clip in split.clips:
        folder = out / "poses" / clip.source / clip.clip_id
        drive = {
            name: read_poses(folder / f"{name}.json", format="merope")
            for name in ("original", "left", "right")
        }
        sideways = {name: poses.rebase_to_first().center_world[-1, 0] for name, poses in drive.items()}
        assert sideways["left"] < sideways["original"] < sideways["right"]
    assert run(command) == 1
    error = capsys.readouterr().err
    # Before anything is read.
    assert "already there" in error and "trajectories" not in error


def test_positions_alone_are_selected_without_poses(files, tmp_path, capsys):
    out = tmp_path / "evaluation"
    assert run(["data", "select", files[0], "--count", "5", "--out", str(out)]) == 0
    assert "no poses and no turns of 5: their files hold positions alone" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["split.json", "trajectories.npz"]
    assert run(["data", "select", files[0], "--count", "5000", "--out", str(tmp_path / "none")]) == 1
    assert "--count" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_motions_are_drawn_for_the_clips_of_a_split(files, tmp_path, capsys):
    assert run(["data", "prototypes", *files, "--out", str(tmp_path)]) == 0
    split = json.loads((tmp_path / "split.json").read_text())
    split["clips"] = split["clips"][:20]
    (tmp_path / "few.json").write_text(json.dumps(split))
    capsys.readouterr()
    command = ["data", "motions", *files, "--split", str(tmp_path / "few.json")]
    assert run([*command, "--out", str(tmp_path / "m.svg")]) == 0
    assert "nuscenes: 20 clips" in capsys.readouterr().out
    assert (tmp_path / "m.svg").read_text().startswith("<?xml")
    assert run([*command, "--out", str(tmp_path / "m.bmp")]) == 1
    assert "--out" in capsys.readouterr().err


def test_what_is_left_out_is_named_and_a_contradiction_is_refused(tmp_path, capsys):
    poses = Poses(R_world_cam=torch.eye(3).expand(60, 3, 3), center_world=torch.zeros(60, 3))
    write_poses(tmp_path / "s" / "long.json", poses, format="merope")
    write_poses(tmp_path / "s" / "short.json", poses[:9], format="merope")
    inputs = [str(tmp_path / "s" / name) for name in ("long.json", "short.json")]
    command = ["data", "prototypes", *inputs, "--format", "merope", "--out", str(tmp_path / "out")]
    assert run(command) == 0
    output = capsys.readouterr().out
    assert "left out: s/short: it has 9 poses" in output
    assert "static: 1, displacement of 0.5 m or less" in output
    assert run([*command, "--whole", "--stride-windows", "3"]) == 2
    assert run(["data", "prototypes", "--out", str(tmp_path / "out")]) == 2


def test_the_car_that_stands_in_nuscenes_is_static(tmp_path):
    from merope.data.poses.files import FORMATS

    if "nerfstudio" not in FORMATS:
        pytest.skip("no reader of nerfstudio's format")
    scenes = [
        shared_file(f"data/nuscenes/scene-{name}_CAM_FRONT_transforms.json") for name in ("0061", "0553")
    ]
    flags = ["--format", "nerfstudio", "--unit", "m", "--whole", "--out", str(tmp_path)]
    assert run(["data", "prototypes", *map(str, scenes), *flags]) == 0
    split = read_split(tmp_path / "split.json")
    assert [clip.cluster for clip in split.clips] == ["prototype-000000", "static"]
