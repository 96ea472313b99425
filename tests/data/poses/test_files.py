"""Pose files: conventions come in right, wrong files are diagnosed with the option that mends them."""

import gzip
import json

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.data import PoseFileError, ReadOptions, load_pose_file, read_poses, write_poses
from merope.data.poses import files as pose_files
from merope.data.poses.files import FORMATS, kitti_camera, read_times, window
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from tests.support.shared import shared_file


def sample(num=6, *, far=0.0, times=True, unit="m") -> Poses:
    rng = np.random.default_rng(num)
    centers = torch.from_numpy(rng.normal(size=(num, 3)) + np.array([far, -far / 3, 1.0]))
    return Poses(
        R_world_cam=torch.from_numpy(Rotation.random(num, random_state=num).as_matrix()),
        center_world=centers,
        times=torch.arange(num, dtype=torch.float64) * 0.1 + 1305031102.175304 if times else None,
        unit=unit,
    )


def kitti_text(num=4):
    rows = sample(num).T_world_cam[:, :3].flatten(1).tolist()
    return [" ".join(map(repr, row)) for row in rows]


def tum_text(num=4):
    return [f"{1000 + t} {t}.5 0 0 0 0 0 1" for t in range(num)]


def read_lines(tmp_path, lines, format, **options):
    path = tmp_path / "poses.txt"
    path.write_text("\n".join(lines) + "\n")
    return read_poses(path, format=format, options=ReadOptions(**options))


@pytest.mark.parametrize("format", ["kitti", "tum", "npy", "npz", "merope"])
@pytest.mark.parametrize("far", [0.0, 5572094.155])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_own_format_round_trips_to_a_nanometre(tmp_path, format, far, suffix):
    poses, path = sample(far=far), tmp_path / f"poses.{format}{suffix}"
    write_poses(path, poses, format=format)
    read = read_poses(path, format=format)
    assert (read.center_world - poses.center_world).abs().max() <= 1e-9
    assert (read.R_world_cam - poses.R_world_cam).abs().max() <= 1e-9
    if format in ("tum", "npz", "merope"):
        assert torch.equal(read.times, poses.times)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == bool(suffix)


def test_writing_the_same_poses_twice_gives_the_same_bytes(tmp_path):
    for name in ("a.txt.gz", "b.txt.gz"):
        write_poses(tmp_path / name, sample(), format="kitti")
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "poses.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match="needs a time for each pose"):
        write_poses(path, sample(times=False), format="tum")
    assert path.read_text() == "old"


@pytest.mark.parametrize("unit", ["m", "normalized", "unknown"])
def test_own_format_describes_itself(tmp_path, unit):
    path, lens = tmp_path / "poses.json", {"model": "pinhole", "fx": 100.0}
    write_poses(path, sample(unit=unit), format="merope", camera=lens)
    content = json.loads(path.read_text())
    assert "camera-to-world" in content["convention"]
    loaded = load_pose_file(path, format="merope")
    assert (loaded.poses.unit, loaded.camera) == (unit, lens)


def test_no_array_becomes_metres_silently(tmp_path):
    matrices = sample().T_world_cam.numpy()
    np.save(tmp_path / "a.npy", matrices)
    np.savez(tmp_path / "a.npz", T_world_cam=matrices)
    for format in ("npy", "npz"):
        path = tmp_path / f"a.{format}"
        assert read_poses(path, format=format).unit == "unknown"
        for unit in ("m", "normalized", "unknown"):
            assert read_poses(path, format=format, options=ReadOptions(unit=unit)).unit == unit


@pytest.mark.parametrize("format", ["kitti", "tum"])
def test_text_formats_are_metres_unless_the_caller_knows_better(tmp_path, format):
    write_poses(tmp_path / "a", sample(), format=format)
    assert read_poses(tmp_path / "a", format=format).unit == "m"
    assert (
        read_poses(tmp_path / "a", format=format, options=ReadOptions(unit="normalized")).unit == "normalized"
    )


@pytest.mark.parametrize("format", ["npz", "merope"])
def test_a_unit_that_the_file_states_is_kept_and_not_contradicted(tmp_path, format):
    path = tmp_path / f"a.{format}"
    write_poses(path, sample(unit="normalized"), format=format)
    assert read_poses(path, format=format).unit == "normalized"
    assert read_poses(path, format=format, options=ReadOptions(unit="normalized")).unit == "normalized"
    with pytest.raises(PoseFileError, match="unit is 'normalized', not 'm'"):
        read_poses(path, format=format, options=ReadOptions(unit="m"))
    write_poses(path, sample(unit="unknown"), format=format)
    assert read_poses(path, format=format, options=ReadOptions(unit="m")).unit == "m"


def test_an_unknown_unit_is_refused():
    # beartype refuses it first under the shape checks.
    with pytest.raises((ValueError, TypeError)):
        ReadOptions(unit="feet")


def test_rotations_off_by_more_than_rounding_have_a_note_with_the_file_and_the_error(tmp_path):
    rows = sample(4).T_world_cam[:, :3].flatten(1)
    for decimals, has_note in ((4, True), (9, False)):
        path = tmp_path / f"{decimals}.txt"
        path.write_text(
            "\n".join(" ".join(f"{value:.{decimals}f}" for value in row) for row in rows.tolist())
        )
        loaded = load_pose_file(path, format="kitti")
        wanted = (
            f"rotations of {path} were off by {loaded.poses.projection_error:.1e} (largest entry of R^T R - I) "
            "and were projected to rotations"
        )
        assert loaded.projection_note == (wanted if has_note else None)


def test_kitti_rows_are_camera_to_world_row_by_row(tmp_path):
    poses = read_lines(tmp_path, ["0 0 1 10 0 1 0 20 -1 0 0 30"], "kitti")
    # The camera looks along its z axis: column 2 of the matrix, here world x.
    assert poses.R_world_cam[0, :, 2].tolist() == [1, 0, 0]
    assert poses.center_world[0].tolist() == [10, 20, 30]


def test_thirteen_columns_are_a_frame_number_and_a_kitti_row(tmp_path):
    path = tmp_path / "poses.txt"
    path.write_text("\n".join(f"{3 * row} {text}" for row, text in enumerate(kitti_text())))
    loaded = load_pose_file(path, format="kitti")
    assert loaded.frame_ids == (0, 3, 6, 9)
    assert torch.allclose(loaded.poses.center_world, sample(4).center_world)


def test_tum_quaternion_order_is_x_y_z_w(tmp_path):
    half = np.sqrt(0.5)
    turn_about_y = torch.tensor([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    xyzw = read_lines(tmp_path, [f"0 1 2 3 0 {half} 0 {half}"], "tum")
    wxyz = read_lines(tmp_path, [f"0 1 2 3 {half} 0 {half} 0"], "tum", quaternion_order="wxyz")
    for poses in (xyzw, wxyz):
        assert torch.allclose(poses.R_world_cam[0], turn_about_y)


@pytest.mark.parametrize("rows", [3, 4])
def test_arrays_come_as_3x4_or_4x4(tmp_path, rows):
    np.save(tmp_path / "a.npy", sample().T_world_cam[:, :rows].numpy().astype(np.float32))
    read = read_poses(tmp_path / "a.npy", format="npy", times=sample().times)
    assert torch.allclose(read.center_world, sample().center_world, atol=1e-6)
    assert torch.equal(read.times, sample().times)
    assert 0 < read.projection_error < 1e-6


def test_comments_blank_lines_byte_order_mark_and_windows_line_ends_are_no_problem(tmp_path):
    lines = kitti_text()
    text = "\ufeff# a comment\r\n\r\n" + "\r\n".join(lines) + "  # end\r\n"
    (tmp_path / "poses.txt").write_bytes(text.encode())
    assert len(read_poses(tmp_path / "poses.txt", format="kitti")) == 4


def test_a_broken_row_is_named_by_its_line(tmp_path):
    lines = kitti_text()
    lines[2] = lines[2].rsplit(" ", 1)[0]
    with pytest.raises(PoseFileError, match="line 3 has 11 numbers where line 1 has 12"):
        read_lines(tmp_path, lines, "kitti")


DIAGNOSES = {
    "commas": ("kitti", [line.replace(" ", ", ") for line in kitti_text()], "line 1 .*--delimiter comma"),
    "header": ("tum", ["timestamp tx ty tz", *tum_text()], "line 1 .*--skip-lines 1"),
    "word": ("tum", [*tum_text(), "end of file"], "line 5: 'end' is not a number"),
    "index and TUM": ("tum", [f"{i} {row}" for i, row in enumerate(tum_text())], "9 numbers.*--index-column"),
    "KITTI as TUM": ("tum", kitti_text(), "12 numbers.*--format kitti"),
    "index and KITTI as TUM": ("tum", [f"{i} {r}" for i, r in enumerate(kitti_text())], "13.*--format kitti"),
    "TUM as KITTI": ("kitti", tum_text(), "8 numbers.*--format tum"),
    "KITTI without last": ("kitti", [row.rsplit(" ", 1)[0] for row in kitti_text()], "11 numbers.*damaged"),
    "4x4 rows": ("kitti", [row + " 0 0 0 1" for row in kitti_text()], "16 numbers.*first 12"),
    "nanoseconds": ("tum", [f"13050311021753{i}0000 0 0 0 0 0 0 1" for i in range(3)], "--time-unit ns"),
    "NaN": ("kitti", [*kitti_text(), " ".join(["nan"] * 12)], "line 5 holds a value that is not finite"),
    "infinity": ("tum", [*tum_text(), "2000 inf 0 0 0 0 0 1"], "line 5 holds"),
    "quaternion": (
        "tum",
        ["0 1 2 3 0 0 0 2"],
        "line 1: the quaternion should have unit length, but has length 2",
    ),
    "time backwards": ("tum", list(reversed(tum_text())), "line 2: the stamp .* does not come after"),
    "scaled": ("kitti", ["2 0 0 1 0 2 0 2 0 0 2 3"], "line 1: .*scaled by 2"),
    "sheared": (
        "kitti",
        [*kitti_text(), "1 0.1 0 1 0 1 0 2 0 0 1 3"],
        "line 5: .*not orthonormal.*--tolerance",
    ),
    "left-handed": (
        "kitti",
        [*kitti_text(), "1 0 0 1 0 -1 0 2 0 0 1 3"],
        "line 5: .*determinant -1.*--mirror y",
    ),
    "index falls": (
        "kitti",
        [f"{9 - i} {r}" for i, r in enumerate(kitti_text())],
        "line 2: the first column",
    ),
    "empty": ("kitti", [""], "is empty"),
    "comments only": ("kitti", ["# nothing"], "no line of numbers"),
    "not JSON": ("merope", kitti_text(), "is not JSON.*poses inspect"),
    "other JSON": ("merope", ['{"frames": []}'], "not this project's pose format"),
    "text as array": ("npy", kitti_text(), "no NumPy array.*poses inspect"),
}


@pytest.mark.parametrize("case", DIAGNOSES)
def test_wrong_files_are_diagnosed_with_line_and_cure(tmp_path, case):
    format, lines, words = DIAGNOSES[case]
    with pytest.raises(PoseFileError, match=words):
        read_lines(tmp_path, lines, format)


@pytest.mark.parametrize(("format", "lines"), [("kitti", kitti_text()), ("tum", tum_text())])
def test_an_index_column_that_is_not_there_is_to_be_left_out(tmp_path, format, lines):
    with pytest.raises(PoseFileError, match=r"leave index_column \(--index-column\) out"):
        read_lines(tmp_path, lines, format, index_column=True)


CURES = {
    "commas": {"delimiter": "comma"},
    "header": {"skip_lines": 1},
    "index and TUM": {"index_column": True},
    "nanoseconds": {"time_unit": "ns"},
    "sheared": {"tolerance": 0.2},
}


@pytest.mark.parametrize("case", CURES)
def test_the_option_that_a_diagnosis_names_reads_the_file(tmp_path, case):
    format, lines, _ = DIAGNOSES[case]
    assert len(read_lines(tmp_path, lines, format, **CURES[case])) >= 3


def test_nanoseconds_become_seconds(tmp_path):
    format, lines, _ = DIAGNOSES["nanoseconds"]
    poses = read_lines(tmp_path, lines, format, time_unit="ns")
    assert poses.times[0] == pytest.approx(1305031102.1753, abs=1)


@pytest.mark.parametrize("direction", ["camera-to-world", "world-to-camera"])
def test_the_mirror_option_mends_a_left_handed_world(tmp_path, direction):
    poses = sample(5)
    flip = torch.diag(torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64))
    mirrored = flip @ poses.T_world_cam
    stored = mirrored if direction == "camera-to-world" else torch.linalg.inv(mirrored)
    lines = [" ".join(map(repr, row)) for row in stored[:, :3].flatten(1).tolist()]
    read = read_lines(tmp_path, lines, "kitti", mirror="y", direction=direction)
    assert torch.allclose(read.T_world_cam, poses.T_world_cam, atol=1e-12)


def test_world_to_camera_and_opengl_files_come_in_right(tmp_path):
    poses = sample(5)
    opengl = poses.T_world_cam @ torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    np.save(tmp_path / "w2c.npy", torch.linalg.inv(opengl).numpy())
    options = ReadOptions(direction="world-to-camera", camera_axes="opengl")
    read = read_poses(tmp_path / "w2c.npy", format="npy", options=options)
    assert torch.allclose(read.T_world_cam, poses.T_world_cam, atol=1e-12)
    assert torch.equal(
        read_poses_from(tmp_path, opengl, camera_axes="opengl").center_world, poses.center_world
    )


def read_poses_from(tmp_path, matrices, **options):
    np.save(tmp_path / "m.npy", matrices.numpy())
    return read_poses(tmp_path / "m.npy", format="npy", options=ReadOptions(**options))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 4)), r"got shape \[4, 4\]"),
        (np.zeros((0, 4, 4)), r"got shape \[0, 4, 4\]"),
        (np.eye(4, dtype=complex)[None], "real numbers"),
        (sample().T_world_cam.mT.numpy(), "transposed"),
        (np.full((2, 3, 4), np.nan), "entry 0 holds a value that is not finite"),
    ],
)
def test_wrong_arrays_are_diagnosed(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(PoseFileError, match=words):
        read_poses(tmp_path / "a.npy", format="npy")


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(PoseFileError, match="no NumPy array"):
        read_poses(tmp_path / "a.npy", format="npy")


def test_an_archive_without_poses_lists_what_it_has(tmp_path):
    np.savez(tmp_path / "a.npz", left=np.eye(4), right=np.eye(4))
    with pytest.raises(PoseFileError, match="left, right"):
        read_poses(tmp_path / "a.npz", format="npz")


def test_missing_files_folders_and_damage_are_told_apart(tmp_path):
    with pytest.raises(PoseFileError, match="does not exist"):
        read_poses(tmp_path / "none.txt", format="kitti")
    with pytest.raises(PoseFileError, match="is a folder"):
        read_poses(tmp_path, format="kitti")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"1 2 3 4" * 1000)[:-20])
    with pytest.raises(PoseFileError, match="damaged gzip"):
        read_poses(tmp_path / "cut.txt.gz", format="kitti")
    np.save(tmp_path / "array.npy", np.eye(4)[None])
    with pytest.raises(PoseFileError, match="--format npy"):
        read_poses(tmp_path / "array.npy", format="kitti")


def test_an_unknown_format_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="kitti, tum, npy, npz, merope"):
        read_poses(tmp_path / "a", format="bvh")


def test_times_must_match_the_poses(tmp_path):
    write_poses(tmp_path / "a.txt", sample(), format="kitti")
    with pytest.raises(PoseFileError, match="6 poses and 3 times"):
        read_poses(tmp_path / "a.txt", format="kitti", times=torch.arange(3, dtype=torch.float64))


def test_a_window_takes_every_step_th_pose():
    poses = sample(20)
    assert torch.equal(
        window(poses, start=2, count=4, step=3).center_world, poses.center_world[[2, 5, 8, 11]]
    )
    assert len(window(poses, start=3)) == 17
    assert len(window(poses, start=1, count=7, step=3)) == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"start": 18, "count": 5},
            "has 20 poses; 5 from 18 on need 23. Use start=15 or less, or count=2 or less",
        ),
        ({"start": 0, "count": 8, "step": 3}, "need 22. Use start=0 or less, or count=7 or less"),
        ({"start": 25}, "has 20 poses"),
    ],
)
def test_a_window_beyond_the_end_says_what_would_fit(arguments, words):
    with pytest.raises(TrajectoryError, match=words):
        window(sample(20), **arguments)


def test_another_kitti_camera_is_shifted_along_the_turned_rig(tmp_path):
    (tmp_path / "calib.txt").write_text(
        "P0: 700 0 600 0 0 700 180 0 0 0 1 0\nP2: 700 0 600 42 0 700 180 0 0 0 1 0\n"
    )
    turn = torch.tensor([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    poses = Poses(
        R_world_cam=torch.stack([torch.eye(3, dtype=torch.float64), turn]),
        center_world=torch.tensor([[0, 0, 0], [5, 0, 5]], dtype=torch.float64),
    )
    shift = kitti_camera(poses, tmp_path / "calib.txt", camera=2).center_world - poses.center_world
    # 0.06 m to the left: world -x before the turn, and after it (camera x is world -z) world +z.
    assert torch.allclose(shift, torch.tensor([[-0.06, 0, 0], [0, 0, 0.06]], dtype=torch.float64))
    with pytest.raises(PoseFileError, match="P3"):
        kitti_camera(poses, tmp_path / "calib.txt", camera=3)


def test_adding_a_format_is_one_entry(tmp_path, monkeypatch):
    monkeypatch.setitem(
        pose_files.FORMATS,
        "mine",
        pose_files.PoseFormat(about="KITTI by another name", read=FORMATS["kitti"].read),
    )
    (tmp_path / "a").write_text("\n".join(kitti_text()))
    assert len(read_poses(tmp_path / "a", format="mine")) == 4
    with pytest.raises(ValueError, match="read, not written"):
        write_poses(tmp_path / "b", sample(), format="mine")


@pytest.mark.parametrize(
    ("name", "num", "path_length"),
    [
        ("poses/00.txt", 4541, 3724.19),
        ("poses/04.txt", 271, 393.645),
        ("poses/06.txt", 1101, 1232.88),
        ("poses/09.txt", 1591, 1705.05),
        ("estimates/00_ORB.txt.gz", 4541, 3705.1),
        ("estimates/00_SPTAM.txt.gz", 4541, 3718.5),
        ("estimates/09_example_0.txt", 1589, 84.309),
        ("estimates/09_example_1.txt", 1591, 1661.73),
    ],
)
def test_real_kitti_files_have_their_documented_length(name, num, path_length):
    poses = read_poses(shared_file(f"data/kitti_odom/{name}"), format="kitti")
    assert len(poses) == num
    assert poses.path_length == pytest.approx(
        path_length, abs=0.006 if path_length > 1000 else 6e-4 + 0.05 * (num == 4541)
    )


def test_real_kitti_times_belong_to_the_poses():
    times = read_times(shared_file("data/kitti_odom/times_00.txt"))
    poses = read_poses(shared_file("data/kitti_odom/poses/00.txt"), format="kitti", times=times)
    assert 0.1019 <= float(poses.times.diff().min()) <= float(poses.times.diff().max()) <= 0.1057


@pytest.mark.parametrize(
    ("name", "num"),
    [
        ("freiburg1_xyz-groundtruth.txt", 3000),
        ("freiburg1_xyz-rgbdslam.txt", 788),
        ("freiburg1_xyz-rgbdslam_drift.txt", 788),
        ("freiburg1_xyz-ORB_kf_mono.txt", 32),
    ],
)
def test_real_tum_files_open(name, num):
    assert len(read_poses(shared_file(f"data/tum/{name}"), format="tum")) == num


def test_real_kitti_360_rows_of_six_decimals_are_projected_and_reported():
    poses = read_poses(shared_file("data/kitti360/orbslam_test_0.txt"), format="kitti")
    assert len(poses) == 933
    assert poses.path_length == pytest.approx(783.021, abs=1e-3)
    assert 1e-7 < poses.projection_error < 5e-6


@pytest.mark.parametrize(
    ("axes", "forward"), [("opencv", 2), ("opengl", 2), ("flu", 0), ("frd", 0), ("unreal", 0)]
)
def test_the_forward_axis_of_every_convention_becomes_z(tmp_path, axes, forward):
    """A body at rest in its world: its forward axis is a column of the identity, and has to come out as the third."""
    np.save(tmp_path / "still.npy", np.eye(4)[None])
    read = read_poses(tmp_path / "still.npy", format="npy", options=ReadOptions(camera_axes=axes))
    wanted = torch.zeros(3, dtype=torch.float64)
    wanted[forward] = -1 if axes == "opengl" else 1
    if axes == "unreal":
        # A left-handed world turns with its cameras.
        wanted = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    assert torch.equal(read.R_world_cam[0, :, 2], wanted)
    assert torch.det(read.R_world_cam[0]) == 1


def test_an_engine_with_a_left_handed_world_keeps_its_metres(tmp_path):
    """Forward 33.9, right 13.8, up 2.4: in OpenCV's axes that is x 13.8, y -2.4, z 33.9, and the camera still at rest."""
    matrix = np.eye(4)
    matrix[:3, 3] = 33.9, 13.8, 2.4
    np.save(tmp_path / "engine.npy", matrix[None])
    read = read_poses(tmp_path / "engine.npy", format="npy", options=ReadOptions(camera_axes="unreal"))
    assert read.center_world[0].tolist() == [13.8, -2.4, 33.9]
    assert torch.equal(read.R_world_cam[0], torch.eye(3, dtype=torch.float64))
