"""Poses from file to file: nothing changes that was not asked for, and what is lost is said."""

import os

import numpy as np
import pytest
import torch

from merope.cameras import CameraModel, Pinhole
from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses, write_poses
from merope.data.poses.conversion import Changes, convert_poses, read_mount
from merope.data.poses.formats import FORMATS
from merope.geometry.poses import Poses
from tests.support.drives import drive

BARE = [name for name, kind in FORMATS.items() if kind.bare]


def timed(num=11, **options):
    poses = drive(num, turn_deg=40, **options)
    return Poses(
        R_world_cam=poses.R_world_cam,
        center_world=poses.center_world,
        times=torch.arange(num, dtype=torch.float64) * 0.1,
        unit=poses.unit,
    )


def same(read, poses, tolerance=1e-9):
    return bool((read.T_world_cam - poses.T_world_cam).abs().max() <= tolerance)


def test_poses_arrive_as_they_are(tmp_path):
    write_poses(tmp_path / "a", timed(), format="tum")
    done = convert_poses(tmp_path / "a", tmp_path / "b", format="tum", to="merope")
    assert done.difference <= 1e-12
    assert done.lost == ()
    read = read_poses(tmp_path / "b", format="merope")
    assert same(read, timed())
    assert torch.equal(read.times, timed().times)


def test_what_the_new_format_cannot_hold_is_said(tmp_path):
    write_poses(tmp_path / "a", timed(unit="normalized"), format="merope", camera={"model": "pinhole"})
    done = convert_poses(tmp_path / "a", tmp_path / "b", format="merope", to="kitti")
    times, lens, unit = done.lost
    assert "times" in times
    assert "lens" in lens
    assert "'m' where the unit is 'normalized'" in unit
    assert "--unit normalized" in unit


def test_a_lens_can_be_given_where_the_source_has_none(tmp_path):
    lens = Pinhole(fx=70.0, fy=70.0, cx=61.0, cy=18.0, height=37, width=122, pixel_origin="center")
    write_poses(tmp_path / "a", timed(), format="kitti")
    with pytest.raises(ValueError, match=r"'colmap' needs a lens and none was given.*--lens FILE"):
        convert_poses(tmp_path / "a", tmp_path / "b", format="kitti", to="colmap")
    done = convert_poses(tmp_path / "a", tmp_path / "b", format="kitti", to="colmap", lens=lens)
    assert done.difference <= 1e-9
    loaded = load_pose_file(tmp_path / "b", format="colmap")
    assert CameraModel.from_dict(loaded.camera).with_pixel_origin("center") == lens


def test_poses_of_a_camera_in_a_format_of_vehicles_are_called_that(tmp_path):
    write_poses(tmp_path / "a", drive(5), format="kitti")
    done = convert_poses(tmp_path / "a", tmp_path / "b", format="kitti", to="rds-hq")
    assert done.lost == ("its readers take these poses for those of the vehicle",)
    back = convert_poses(tmp_path / "b", tmp_path / "c", format="rds-hq", to="kitti")
    assert back.lost == ()
    assert any("poses of the vehicle, not of a camera" in note for note in back.notes)


def test_windows_rebasing_and_scale(tmp_path):
    write_poses(tmp_path / "a", timed(), format="merope")
    changes = Changes(start=2, count=3, step=2, rebase=True, scale=0.5, to_unit="normalized")
    done = convert_poses(tmp_path / "a", tmp_path / "b", format="merope", to="merope", changes=changes)
    read = read_poses(tmp_path / "b", format="merope")
    expected = timed()[2:8:2].rebase_to_first().scaled(0.5)
    assert same(read, expected)
    assert read.unit == done.poses.unit == "normalized"
    assert torch.equal(read.times, timed().times[2:8:2])


def test_a_scale_needs_the_unit_that_it_leads_to():
    with pytest.raises(ValueError, match="--scale, --to-unit"):
        Changes(scale=0.01)
    with pytest.raises(ValueError, match="--scale, --to-unit"):
        Changes(to_unit="m")
    with pytest.raises(ValueError, match="must be > 0"):
        Changes(scale=-1.0, to_unit="m")


@pytest.mark.parametrize("axes", [None, "opengl", "flu", "frd", "unreal"])
@pytest.mark.parametrize("direction", [None, "world-to-camera"])
@pytest.mark.parametrize("to", BARE)
def test_bare_matrices_in_any_convention_read_back(tmp_path, axes, direction, to):
    poses = timed()
    write_poses(tmp_path / "a", poses, format=to, direction=direction, axes=axes)
    read = read_poses(
        tmp_path / "a", format=to, options=ReadOptions(direction=direction, camera_axes=axes, unit="m")
    )
    assert same(read, poses, 1e-12)
    if axes or direction:
        plain = read_poses(tmp_path / "a", format=to)
        assert not same(plain, poses, 1e-3)


def test_written_matrices_are_those_of_the_convention(tmp_path):
    poses = timed()
    write_poses(tmp_path / "a.npy", poses, format="npy", direction="world-to-camera")
    assert np.abs(np.load(tmp_path / "a.npy") - poses.T_cam_world.numpy()).max() < 1e-12
    write_poses(tmp_path / "b.npy", poses, format="npy", axes="opengl")
    flipped = poses.T_world_cam.numpy() @ np.diag([1, -1, -1, 1])
    assert np.abs(np.load(tmp_path / "b.npy") - flipped).max() < 1e-12


@pytest.mark.parametrize("to", [name for name, kind in FORMATS.items() if kind.write and not kind.bare])
def test_formats_that_state_their_convention_have_no_other(tmp_path, to):
    with pytest.raises(ValueError, match="has one convention"):
        write_poses(tmp_path / "a", timed(), format=to, axes="opengl")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_unless_it_may_go(tmp_path):
    write_poses(tmp_path / "a", timed(), format="kitti")
    (tmp_path / "b").write_text("old")
    with pytest.raises(PoseFileError, match="--overwrite"):
        convert_poses(tmp_path / "a", tmp_path / "b", format="kitti", to="merope")
    assert (tmp_path / "b").read_text() == "old"
    convert_poses(tmp_path / "a", tmp_path / "b", format="kitti", to="merope", overwrite=True)
    assert same(read_poses(tmp_path / "b", format="merope"), timed())


@pytest.mark.parametrize("rows", [3, 4, 1])
def test_a_vehicles_poses_become_its_cameras(tmp_path, rows):
    # A vehicle with x forward and z up; its camera looks forward, 1.5 m ahead of its origin, 0.5 m to the left and 2 m up.
    mount = np.array([[0, 0, 1, 1.5], [-1, 0, 0, 0.5], [0, -1, 0, 2.0], [0, 0, 0, 1]])
    np.savetxt(tmp_path / "mount.txt", mount if rows == 4 else mount[:3].reshape(rows, -1))
    poses = timed()
    write_poses(tmp_path / "a", poses, format="kitti", axes="flu")
    convert_poses(
        tmp_path / "a",
        tmp_path / "b",
        format="kitti",
        to="merope",
        options=ReadOptions(camera_axes="flu"),
        changes=Changes(mount=tmp_path / "mount.txt", mount_axes="flu"),
    )
    read = load_pose_file(tmp_path / "b", format="merope").poses
    assert (read.R_world_cam - poses.R_world_cam).abs().max() < 1e-12
    offset = poses.R_world_cam @ torch.tensor([-0.5, -2.0, 1.5], dtype=torch.float64)
    assert (read.center_world - poses.center_world - offset).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("text", "message"),
    [("1 0 0 0 0 1 0 0 0 0 1", "12 or 16 numbers; got 11"), ("2 0 0 0 0 2 0 0 0 0 2 0", "R^T R is off by 3")],
)
def test_a_mount_that_is_none_is_refused(tmp_path, text, message):
    (tmp_path / "mount").write_text(text)
    with pytest.raises(PoseFileError) as error:
        read_mount(tmp_path / "mount", "opencv")
    assert message in str(error.value)


def test_folders_pipes_and_devices_are_never_written_over(tmp_path, monkeypatch):
    write_poses(tmp_path / "a", timed(), format="kitti")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for target, word in (("folder", "folder"), (".", "folder"), ("pipe", "pipe"), ("/dev/null", "device")):
        for to in ("kitti", "comma2k19"):
            with pytest.raises(PoseFileError, match=word):
                convert_poses("a", target, format="kitti", to=to, overwrite=True, times=timed().times)


# With and without times, a lens, metres, names of frames, frame numbers, and poses of a camera.
SOURCES = ["kitti", "npy", "merope", "realestate10k", "aria", "argoverse2", "tri-dgp", "colmap"]


@pytest.mark.parametrize("source", SOURCES)
def test_to_every_format_poses_arrive_or_the_cure_is_named(tmp_path, source):
    lens = Pinhole(fx=70.0, fy=72.0, cx=61.0, cy=18.0, height=37, width=122, pixel_origin="corner")
    start = timed(3).transformed(
        torch.eye(3, dtype=torch.float64), torch.tensor([4e6, -3e5, 5e6], dtype=torch.float64)
    )
    path = tmp_path / f"{source}.npy"
    write_poses(path, start, format=source, camera=lens.to_dict())
    loaded = load_pose_file(path, format=source)
    for to in FORMATS:
        target = tmp_path / f"to-{to}.npy"
        done = message = None
        try:
            done = convert_poses(path, target, format=source, to=to)
        except ValueError as refusal:
            message = str(refusal)
        if done is None:
            lacks = {
                "--times": loaded.poses.times is None,
                "--unit m": loaded.poses.unit != "m",
                "--lens": loaded.camera is None,
            }
            assert any(flag in message for flag, is_missing in lacks.items() if is_missing), message
            assert not target.exists()
            continue
        assert done.difference <= 1e-9, to
        read = load_pose_file(target, format=to)
        told = " ".join(done.lost)
        for lost, word in (
            (loaded.poses.times is not None and read.poses.times is None, "times"),
            (loaded.camera is not None and read.camera is None, "lens"),
            (loaded.poses.unit != read.poses.unit, "--unit"),
            (loaded.names is not None and read.names != loaded.names, "names"),
            (not FORMATS[to].keeps_world, "first camera"),
        ):
            assert not lost or word in told, (to, word)


def test_times_that_are_rounded_or_count_from_elsewhere_and_frame_numbers_are_told(tmp_path):
    poses = timed()
    late = Poses(
        R_world_cam=poses.R_world_cam,
        center_world=poses.center_world,
        times=poses.times + 1000 + 1 / 3e6,
        unit="m",
    )
    write_poses(tmp_path / "a", late, format="tum")
    done = convert_poses(tmp_path / "a", tmp_path / "b", format="tum", to="aria")
    assert any("rounded, by up to 3e-07 s" in clause for clause in done.lost)
    done = convert_poses(tmp_path / "a", tmp_path / "c", format="tum", to="argoverse2")
    assert any("count from another moment: -1000.0000003" in clause for clause in done.lost)
    rows = np.c_[np.arange(3, 14), poses.T_world_cam[:, :3].reshape(-1, 12)]
    np.savetxt(tmp_path / "d", rows, fmt="%.17g")
    assert convert_poses(tmp_path / "d", tmp_path / "e", format="kitti", to="npz").lost == (
        "frame numbers have no place in it",
    )
