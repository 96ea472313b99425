"""Trajectories from folders, pose files and arrays: windows, units, names, and what is wrong with an input."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from merope.cameras import Pinhole
from merope.data.clips.clip import ClipError
from merope.data.clips.folder import write_clip
from merope.data.datasets import open_dataset
from merope.data.poses.files import write_poses
from merope.data.poses.table import ReadOptions
from merope.data.selection.prototypes import InputOptions, read_trajectories, tabulate
from merope.data.selection.prototypes.path_files import PathFileError, read_path_file, write_path_file
from merope.data.selection.splits import Split, SplitClip
from merope.errors import MeropeError
from merope.geometry.poses import Poses
from tests.support.shared import shared_file


def drive(num: int, *, unit: str = "m", start: float = 6.4e6) -> Poses:
    """Straight ahead by 0.1 per frame, turned by a right angle to the left in its world, far from its origin."""
    R_world_cam = torch.tensor([[0.0, 0, -1], [0, 1, 0], [1, 0, 0]], dtype=torch.float64)
    centers = torch.zeros(num, 3, dtype=torch.float64)
    centers[:, 0] = start - 0.1 * torch.arange(num, dtype=torch.float64)
    return Poses(R_world_cam=R_world_cam.expand(num, 3, 3), center_world=centers, unit=unit)


def names(found):
    return [f"{each.source}/{each.clip_id}" for each in found]


@pytest.fixture
def folder(tmp_path):
    root, lens = tmp_path / "streets", Pinhole.from_fov(fov_x_deg=90.0, height=8, width=8)
    for name, num in (("a", 10), ("b", 4), ("c", 5)):
        frames = np.zeros((num, 8, 8, 3), dtype=np.uint8)
        write_clip(
            root, name, frames, poses=drive(num), lens=lens, fps=12.0, source="rendered", up_world=(0, -1, 0)
        )
    return root


def test_clips_are_cut_into_windows_and_a_short_one_costs_itself(folder):
    found = list(read_trajectories([folder], InputOptions(num_frames=5)))
    assert isinstance(found[2], ClipError)
    assert "4 frames" in str(found.pop(2))
    assert names(found) == ["rendered/a@00000", "rendered/a@00005", "rendered/c@00000"]
    for each in found:
        assert (each.fps, each.up_world) == (12.0, (0.0, -1.0, 0.0))
        np.testing.assert_allclose(each.centers[:, 2], 0.1 * np.arange(5), atol=1e-8)
        np.testing.assert_allclose(each.centers[:, :2], 0, atol=1e-8)
        assert len(each.load_poses()) == 5


def test_whole_clips_of_any_length_make_one_table(folder):
    table = tabulate(read_trajectories([folder], InputOptions(num_frames=None, source="own")), num_points=7)
    assert table.sources == ("own",) * 3
    assert table.clip_ids == ("a", "b", "c")
    np.testing.assert_allclose(table.paths[:, -1, 2], [0.9, 0.3, 0.4], atol=1e-6)


def test_a_split_leaves_out_the_others(folder):
    options = InputOptions(num_frames=5)
    window = Split("some", (SplitClip("rendered", "a@00005"), SplitClip("elsewhere", "c@00000")))
    assert names(read_trajectories([folder], options, only=window)) == ["rendered/a@00005"]
    whole = Split("some", (SplitClip("rendered", "a"),))
    assert names(read_trajectories([folder], options, only=whole)) == ["rendered/a@00000", "rendered/a@00005"]


@pytest.mark.parametrize("format", ["kitti", "merope"])
def test_pose_files_are_cut_into_windows(tmp_path, format):
    path = tmp_path / "scenes" / "one.txt"
    write_poses(path, drive(11), format=format)
    options = InputOptions(num_frames=5, stride=3, format=format)
    found = list(read_trajectories([path], options))
    assert names(found) == ["scenes/one@00000", "scenes/one@00003", "scenes/one@00006"]
    (short,) = read_trajectories([path], InputOptions(num_frames=12, format=format))
    assert isinstance(short, ClipError)
    (whole,) = read_trajectories([path], InputOptions(num_frames=None, format=format))
    np.testing.assert_allclose(whole.centers[-1], [0, 0, 1.0], atol=1e-8)


@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_arrays_of_matrices_are_taken_relative_to_their_first_camera(tmp_path, rows, ending):
    matrices = np.stack([drive(6).T_world_cam.numpy()[:, :rows]] * 2)
    path = tmp_path / f"many.{ending}"
    if ending == "npy":
        np.save(path, matrices)
        found = list(read_trajectories([path], InputOptions(read=ReadOptions(unit="m"))))
        assert names(found) == ["many/0000000", "many/0000001"]
    else:
        np.savez(path, T_world_cam=matrices, ids=["x", "y"], sources=["s", "t"], unit="m")
        found = list(read_trajectories([path], InputOptions()))
        assert names(found) == ["s/x", "t/y"]
    np.testing.assert_allclose(found[1].centers[:, 2], 0.1 * np.arange(6), atol=1e-8)
    torch.testing.assert_close(found[1].load_poses().center_world, drive(6).center_world)


def test_a_file_of_paths_that_was_written_comes_back(tmp_path):
    centers = np.random.default_rng(0).normal(size=(3, 13, 3)).astype(np.float32)
    write_path_file(
        tmp_path / "p.npz", centers, clip_ids=["a", "b", "ü"], sources=["s"] * 3, unit="m", sizes=np.arange(3)
    )
    file = read_path_file(tmp_path / "p.npz")
    np.testing.assert_array_equal(file.centers, centers)
    assert (list(file.clip_ids), list(file.sources), file.unit) == (["a", "b", "ü"], ["s"] * 3, "m")
    assert file.matrices is None


LINE = np.zeros((2, 5, 3))
FAR = np.full((2, 5, 3), 6.4e6, dtype=np.float32)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"paths": LINE}, "it needs one of centers"),
        ({"centers": LINE, "T_world_cam": np.zeros((2, 5, 4, 4))}, "it needs one of centers"),
        ({"centers": LINE[0]}, "of shape"),
        ({"centers": np.zeros((2, 5, 2))}, "of shape"),
        ({"centers": LINE.astype(int)}, "float64 or float32"),
        ({"centers": LINE.astype(np.float16)}, "float64 or float32"),
        ({"centers": LINE[:, :0]}, "of shape"),
        ({"centers": np.where(np.arange(10).reshape(2, 5, 1) == 7, np.nan, LINE)}, "path 1 holds"),
        ({"centers": FAR}, "steps are 0.5 there"),
        ({"T_world_cam": np.zeros((2, 5, 4, 4))}, "paths 0 to 1"),
        ({"centers": LINE, "ids": ["a"]}, "ids is"),
        ({"centers": LINE, "ids": [0.5, 1.5]}, "ids is"),
        ({"centers": LINE, "sources": np.zeros((2, 2), dtype="U1")}, "sources is"),
        ({"centers": LINE, "unit": "cm"}, "unit is 'cm'"),
    ],
)
def test_what_is_wrong_with_an_array_is_named(tmp_path, arrays, words):
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(PathFileError, match=words) as caught:
        read_path_file(tmp_path / "p.npz")
    assert "p.npz" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more", b"\x93NUMPY\x01\x00v\x00{"])
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_broken_file_is_named(tmp_path, content, ending):
    (tmp_path / f"p.{ending}").write_bytes(content)
    with pytest.raises(PathFileError, match=f"p.{ending} is no NumPy file"):
        read_path_file(tmp_path / f"p.{ending}")


def test_any_damage_to_an_archive_is_told(tmp_path):
    write_path_file(tmp_path / "p.npz", LINE, clip_ids=["a", "b"], sources=["s"] * 2, unit="m")
    whole, rng = (tmp_path / "p.npz").read_bytes(), np.random.default_rng(0)
    for _ in range(150):
        content = bytearray(whole[: rng.integers(1, len(whole) + 1)])
        for place in rng.integers(0, len(content), 3):
            content[place] = rng.integers(256)
        (tmp_path / "p.npz").write_bytes(content)
        # Bytes that nothing checks, such as dates in the archive, may change without harm.
        try:
            file = read_path_file(tmp_path / "p.npz")
        except PathFileError:
            continue
        np.testing.assert_array_equal(file.centers, LINE)


def test_a_pickle_is_not_loaded(tmp_path):
    np.save(tmp_path / "p.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(PathFileError, match="no NumPy file"):
        read_path_file(tmp_path / "p.npy")


def test_units_have_to_be_known_and_one(tmp_path):
    np.save(tmp_path / "p.npy", LINE)
    with pytest.raises(MeropeError, match="--unit m"):
        tabulate(read_trajectories([tmp_path / "p.npy"], InputOptions()))
    write_poses(tmp_path / "n.json", drive(5, unit="normalized"), format="merope")
    write_poses(tmp_path / "m.json", drive(5), format="merope")
    files = [tmp_path / "n.json", tmp_path / "m.json"]
    with pytest.raises(MeropeError, match="several units"):
        tabulate(read_trajectories(files, InputOptions(num_frames=None, format="merope")))
    alone = tabulate(read_trajectories(files[:1], InputOptions(num_frames=None, format="merope")))
    assert alone.unit == "normalized"
    np.savez(tmp_path / "p.npz", centers=LINE, unit="normalized")
    with pytest.raises(PathFileError, match="not 'm'"):
        read_path_file(tmp_path / "p.npz", unit="m")


def test_clips_of_one_name_are_refused_and_a_giant_costs_itself(tmp_path):
    write_poses(tmp_path / "a.json", drive(5), format="merope")
    options = InputOptions(num_frames=None, format="merope")
    with pytest.raises(MeropeError, match="two trajectories are called"):
        tabulate(read_trajectories([tmp_path / "a.json"] * 2, options))
    write_poses(tmp_path / "b.json", drive(5).scaled(1e6), format="merope")
    table = tabulate(read_trajectories([tmp_path / "a.json", tmp_path / "b.json"], options))
    assert table.clip_ids == ("a",)
    assert "is its unit right?" in str(table.skipped[0])
    with pytest.raises(MeropeError, match=r"no trajectory that can be read: .*is its unit right"):
        tabulate(read_trajectories([tmp_path / "b.json"], options))


def test_a_table_grows_over_many_lengths(tmp_path):
    rng = np.random.default_rng(0)
    inputs = []
    for number, (count, length) in enumerate([(3000, 5), (2500, 9), (1, 1), (3500, 9)]):
        np.savez(tmp_path / f"{number}.npz", centers=rng.normal(size=(count, length, 3)), unit="m")
        inputs.append(tmp_path / f"{number}.npz")
    table = tabulate(read_trajectories(inputs, InputOptions()), num_points=5)
    assert table.paths.shape == (9001, 5, 3)
    assert np.isfinite(table.paths).all()
    last = np.load(inputs[-1])["centers"][-1]
    np.testing.assert_allclose(table.paths[-1, -1], last[-1] - last[0], atol=1e-6)
    assert (table.paths[5500] == 0).all()
    backwards = tabulate(read_trajectories(inputs[::-1], InputOptions()), num_points=5)
    assert (backwards.sources, backwards.clip_ids) == (table.sources, table.clip_ids)
    np.testing.assert_array_equal(backwards.paths, table.paths)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_frames": 0}, "num_frames"),
        ({"stride": -1}, "stride"),
        ({"fps": 0.0}, "fps"),
        ({"num_frames": None, "stride": 3}, "--frames"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        InputOptions(**options)


def test_what_a_reader_has_to_say_is_told(folder, monkeypatch):
    opened = open_dataset("folder", folder)
    noted = replace(opened, notes=("clip d was left out",))
    monkeypatch.setattr("merope.data.selection.prototypes.inputs.open_dataset", lambda *_: noted)
    told = []
    assert list(read_trajectories([folder], InputOptions(num_frames=4), tell=told.append))
    assert told == ["clip d was left out"]


def test_wrong_inputs_are_named(tmp_path):
    with pytest.raises(ValueError, match="inputs must"):
        list(read_trajectories([], InputOptions()))
    with pytest.raises(FileNotFoundError):
        list(read_trajectories([tmp_path / "none.npz"], InputOptions()))
    (tmp_path / "poses.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n")
    with pytest.raises(ValueError, match="never guessed"):
        list(read_trajectories([tmp_path / "poses.txt"], InputOptions()))


def test_kitti_windows_are_one_trajectory_each_and_move():
    path = shared_file("data/kitti_odom/poses/04.txt")
    table = tabulate(read_trajectories([path], InputOptions(format="kitti")))
    assert len(table) == len(path.read_text().splitlines()) // 49
    assert table.unit == "m"
