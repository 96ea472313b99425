"""A wrong file gets a diagnosis and the flag that mends it; a right one is left alone."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.data import PoseFileError, ReadOptions, read_poses, write_poses
from merope.data.poses.inspection import flags_of, inspect_poses, recognised_formats
from merope.data.poses.readings import readings
from merope.geometry.poses import Poses
from merope.geometry.rotations import matrix_to_quaternion
from tests.support.drives import drive

R_CAM_OPENGL = torch.diag(torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64))
R_CAM_FLU = torch.tensor([[0, -1, 0], [0, 0, -1], [1, 0, 0]], dtype=torch.float64)


def write_rows(path, matrices):
    """Matrices [T, 3 or 4, 4] as KITTI rows, whatever they hold."""
    np.savetxt(path, np.asarray(matrices)[:, :3].reshape(-1, 12), fmt="%.17g")
    return path


def inspect(path, format="kitti", **options):
    return inspect_poses(path, format=format, options=ReadOptions(**options))


def flags(found, kind):
    return [finding.flags for finding in found.findings if finding.kind == kind]


def in_axes(poses, R_cam_axes):
    matrices = poses.T_world_cam.clone()
    matrices[:, :3, :3] = poses.R_world_cam @ R_cam_axes
    return matrices


def test_a_right_file_is_left_alone(tmp_path):
    write_poses(tmp_path / "a", drive(41, turn_deg=90), format="kitti")
    found = inspect(tmp_path / "a")
    assert found.findings == ()
    assert found.verdict.outcome == "agrees"
    assert (found.format, found.unit, found.body) == ("kitti", "m", "camera")
    assert found.reading.heading == pytest.approx(1, abs=1e-3)
    assert found.matrices.r_rt_error < 1e-12
    assert found.matrices.max_determinant == pytest.approx(1)


@pytest.mark.parametrize("turn", [90, -90, 30])
def test_world_to_camera_read_as_camera_to_world_is_flagged(tmp_path, turn):
    poses = drive(41, length=20, turn_deg=turn, turning=0.4)
    path = write_rows(tmp_path / "a", poses.T_cam_world)
    found = inspect(path)
    assert found.verdict.outcome == "disagrees"
    assert "--direction world-to-camera" in flags(found, "convention")[0]
    mended = inspect(path, direction="world-to-camera")
    assert mended.verdict.outcome == "agrees"
    assert mended.facts.path_length == pytest.approx(20)
    read = read_poses(path, format="kitti", options=ReadOptions(direction="world-to-camera"))
    assert (read.center_world - poses.center_world).abs().max() < 1e-9


def test_under_both_directions_path_step_and_heading_are_told(tmp_path):
    poses = drive(41, length=20, turn_deg=90, turning=0.4)
    found = inspect(write_rows(tmp_path / "a", poses.T_cam_world))
    assert flags(found, "convention") == [("--direction world-to-camera",)]
    other = next(
        reading
        for reading in found.readings
        if (reading.direction, reading.camera_axes) == ("world-to-camera", "opencv")
    )
    assert other.path_length == pytest.approx(20)
    assert other.max_step == pytest.approx(0.5)
    assert other.heading == pytest.approx(1, abs=1e-3)
    assert found.reading.path_length > 1.1 * other.path_length
    assert found.reading.max_step > 1.5 * other.max_step
    assert found.reading.heading < 0


@pytest.mark.parametrize("turn", [0, 90])
def test_on_even_curves_direction_and_axes_cannot_be_told_apart_and_both_are_named(tmp_path, turn):
    # The inverse of an even motion is the same motion, backwards.
    found = inspect(write_rows(tmp_path / "a", drive(41, turn_deg=turn).T_cam_world))
    assert flags(found, "convention") == [("--direction world-to-camera", "--camera-axes opengl")]
    assert "backwards" in found.verdict.text


@pytest.mark.parametrize(
    ("R_cam_axes", "flag"),
    [(R_CAM_OPENGL, "--camera-axes opengl"), (R_CAM_FLU, "--camera-axes flu")],
)
def test_other_axes_are_flagged(tmp_path, R_cam_axes, flag):
    poses = drive(41, turn_deg=90)
    path = write_rows(tmp_path / "a", in_axes(poses, R_cam_axes))
    found = inspect(path)
    assert found.verdict.outcome == "disagrees"
    assert flag in flags(found, "convention")[0]
    name = flag.split()[1]
    assert inspect(path, camera_axes=name).verdict.outcome == "agrees"
    read = read_poses(path, format="kitti", options=ReadOptions(camera_axes=name))
    assert (read.R_world_cam - poses.R_world_cam).abs().max() < 1e-9


@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_a_mirrored_world_is_flagged_and_measured_all_the_same(tmp_path, axis):
    mirror = np.eye(4)
    mirror["xyz".index(axis), "xyz".index(axis)] = -1
    poses = drive(41, turn_deg=90)
    path = write_rows(tmp_path / "a", mirror @ poses.T_world_cam.numpy())
    found = inspect(path)
    assert found.matrices.left_handed == 41
    assert found.matrices.min_determinant == pytest.approx(-1)
    assert f"--mirror {axis}" in flags(found, "left-handed")[0]
    assert found.facts.path_length == pytest.approx(20)
    assert found.facts.summed_rotation_deg == pytest.approx(90)
    assert inspect(path, mirror=axis).findings == ()


@pytest.mark.parametrize(
    ("factor", "flag"), [(1000, "--scale 0.001 --to-unit m"), (100, "--scale 0.01 --to-unit m")]
)
def test_small_units_are_flagged(tmp_path, factor, flag):
    write_poses(tmp_path / "a", drive(41, length=20).scaled(factor), format="kitti")
    assert flag in flags(inspect(tmp_path / "a"), "unit")[0]


def test_normalised_lengths_called_metres_are_flagged(tmp_path):
    write_poses(tmp_path / "a", drive(41, length=0.02), format="kitti")
    assert inspect(tmp_path / "a", unit="normalized").findings == ()
    # 2 cm in all is a standing camera; a longer file of such steps is not.
    assert [finding.kind for finding in inspect(tmp_path / "a").findings] == ["static"]
    write_poses(tmp_path / "b", drive(401, length=0.2), format="kitti")
    assert flags(inspect(tmp_path / "b"), "unit") == [("--unit normalized",)]


def test_an_array_does_not_say_its_unit(tmp_path):
    write_poses(tmp_path / "a.npy", drive(41), format="npy")
    assert flags(inspect(tmp_path / "a.npy", "npy"), "unit-unknown") == [("--unit m", "--unit normalized")]
    assert inspect(tmp_path / "a.npy", "npy", unit="m").findings == ()


def tum_rows(poses, times, *, order="xyzw"):
    quaternions = matrix_to_quaternion(poses.R_world_cam).numpy()
    if order == "wxyz":
        quaternions = quaternions[:, [3, 0, 1, 2]]
    return np.concatenate([np.asarray(times)[:, None], poses.center_world.numpy(), quaternions], axis=1)


def test_a_wrong_quaternion_order_is_flagged_by_the_heading(tmp_path):
    poses = drive(41, turn_deg=120)
    np.savetxt(tmp_path / "a", tum_rows(poses, np.arange(41) * 0.1, order="wxyz"), fmt="%.17g")
    found = inspect(tmp_path / "a", "tum")
    assert found.verdict.outcome == "disagrees"
    assert "--quaternion-order wxyz" in flags(found, "convention")[0]
    mended = inspect(tmp_path / "a", "tum", quaternion_order="wxyz")
    assert (mended.verdict.outcome, mended.reading.quaternion_order) == ("agrees", "wxyz")


@pytest.mark.parametrize(("yaw_deg", "outcome"), [(70, "disagrees"), (90, "agrees")])
def test_a_wrong_quaternion_order_is_not_taken_for_right_where_it_comes_out_nearly_so(
    tmp_path, yaw_deg, outcome
):
    # About one axis the other order looks along (sin, -cos) where the right one looks along (sin, cos).
    turn = torch.from_numpy(Rotation.from_euler("y", yaw_deg, degrees=True).as_matrix())
    poses = drive(41).transformed(turn, torch.zeros(3))
    np.savetxt(tmp_path / "a", tum_rows(poses, np.arange(41) * 0.1, order="wxyz"), fmt="%.17g")
    found = inspect(tmp_path / "a", "tum")
    assert found.reading.heading == pytest.approx(-np.cos(2 * np.deg2rad(yaw_deg)))
    assert found.verdict.outcome == outcome
    if outcome == "disagrees":
        assert flags(found, "convention") == [("--quaternion-order wxyz",)]
    else:
        assert "wxyz, which this motion does not tell apart" in found.verdict.text


def test_where_a_motion_fits_both_directions_an_agreement_says_so(tmp_path):
    write_poses(tmp_path / "even", drive(41), format="kitti")
    assert inspect(tmp_path / "even").verdict.text.endswith(
        "; so they do as world-to-camera opengl, which this motion does not tell apart"
    )
    write_poses(tmp_path / "uneven", drive(41, turn_deg=90, turning=0.4), format="kitti")
    assert inspect(tmp_path / "uneven").verdict.text.endswith(", as read")


def test_a_long_step_is_not_called_millimetres_where_the_direction_is_wrong(tmp_path):
    quarter = torch.tensor([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    poses = drive(41, length=40, turn_deg=90, turning=0.8)
    sideways = Poses(
        R_world_cam=poses.R_world_cam @ quarter,
        center_world=poses.center_world + torch.tensor([5e3, 0, 2e3]),
        unit="m",
    )
    found = inspect(write_rows(tmp_path / "a", sideways.T_cam_world))
    assert found.verdict.outcome != "disagrees"
    ((first, *scales),) = flags(found, "unit")
    assert first == "--direction world-to-camera"
    assert scales
    assert flags(inspect(tmp_path / "a", direction="world-to-camera"), "unit") == []


@pytest.mark.parametrize("origin", [(5e3, 0, 2e3), (-5e3, 0, 2e3), (0, 0, 5e3), (0, 0, -5e3), (5e2, 0, 0)])
def test_extrinsics_far_from_the_origin_are_told_wherever_it_lies(tmp_path, origin):
    # Read the wrong way they swing about the origin, and forwards where it lies to one side.
    moved = drive(41, length=40, turn_deg=90, turning=0.8).transformed(
        torch.eye(3, dtype=torch.float64), torch.tensor(origin, dtype=torch.float64)
    )
    found = inspect(write_rows(tmp_path / "a", moved.T_cam_world))
    assert flags(found, "convention") == [("--direction world-to-camera",)]
    assert flags(found, "unit") in ([()], [])
    assert inspect(tmp_path / "a", direction="world-to-camera").findings == ()
    assert inspect(write_rows(tmp_path / "b", moved.T_world_cam)).findings == ()


def test_rotations_that_alone_are_transposed_are_told_from_other_axes(tmp_path):
    poses = drive(41, turn_deg=150)
    matrices = poses.T_world_cam.clone()
    matrices[:, :3, :3] = poses.R_world_cam.mT
    found = inspect(write_rows(tmp_path / "a", matrices))
    assert flags(found, "transposed") == [()]
    assert flags(found, "convention") == []
    assert flags(inspect(write_rows(tmp_path / "b", poses.T_world_cam)), "transposed") == []


def test_a_camera_of_several_may_look_back(tmp_path):
    poses = drive(41, turn_deg=90, turning=0.4)
    backwards = torch.diag(torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64))
    path = write_rows(tmp_path / "a", in_axes(poses, backwards))
    assert inspect(path).verdict.outcome == "disagrees"
    found = inspect(path, camera="rear")
    assert found.verdict.outcome == "silent"
    assert "one of several" in found.verdict.text
    assert found.findings == ()


def test_centres_beyond_the_earth_are_no_metres(tmp_path):
    far = drive(41).transformed(torch.eye(3, dtype=torch.float64), torch.tensor([0, 1e20, 0]))
    write_poses(tmp_path / "a", far, format="kitti")
    assert "farther than anything on Earth" in next(f.text for f in inspect(tmp_path / "a").findings)


@pytest.mark.parametrize(("name", "per_second"), [("ns", 1e9), ("us", 1e6), ("ms", 1e3)])
def test_stamps_in_another_unit_are_flagged(tmp_path, name, per_second):
    rows = tum_rows(drive(41, turn_deg=20), np.arange(41) * 0.05 * per_second)
    np.savetxt(tmp_path / "a", rows, fmt="%.17g")
    found = inspect(tmp_path / "a", "tum")
    assert flags(found, "times") == [(f"--time-unit {name}",)]
    mended = inspect(tmp_path / "a", "tum", time_unit=name)
    assert mended.facts.times.fps == pytest.approx(20)
    assert mended.findings == ()


def test_stamps_since_1970_in_nanoseconds_are_refused_with_the_flag(tmp_path):
    rows = tum_rows(drive(5), np.arange(5) * 5e7 + 1.4e18)
    np.savetxt(tmp_path / "a", rows, fmt="%.17g")
    with pytest.raises(PoseFileError, match="--time-unit ns"):
        inspect(tmp_path / "a", "tum")


@pytest.mark.parametrize(
    ("lines", "format", "message"),
    [
        (["1,0,0,0,0,1,0,0,0,0,1,0"] * 3, "kitti", "--delimiter comma"),
        (["r11 r12 r13", "1 0 0 0 0 1 0 0 0 0 1 0"], "kitti", "--skip-lines 1"),
        (["0 1.0 0 0 0 0 0 0 1", "1 2.0 0 0 1 0 0 0 1"], "tum", "--index-column"),
        (["1 0 0 0 0 1 0 0 0 0 1 0"] * 3, "tum", "--format kitti"),
        (["1.0 0 0 0 0 0 0 1", "2.0 0 0 1 0 0 0 1"], "kitti", "--format tum"),
        (["1.0 0 0 0 0.5 0.5 0.1 1", "2.0 0 0 1 0.5 0.5 0.1 1"], "tum", "quaternion should have unit length"),
    ],
    ids=["commas", "header", "index column", "kitti as tum", "tum as kitti", "no quaternion"],
)
def test_the_wrong_format_is_refused_with_the_flag(tmp_path, lines, format, message):
    (tmp_path / "a").write_text("\n".join(lines) + "\n")
    with pytest.raises(PoseFileError, match=message):
        inspect(tmp_path / "a", format)


def test_a_file_that_nothing_recognises_says_what_its_columns_may_be(tmp_path):
    (tmp_path / "a").write_text("1 2 3 4 5 6 7 8 9 10\n" * 3)
    with pytest.raises(PoseFileError, match="has 10 numbers; no known format was recognised"):
        inspect_poses(tmp_path / "a")
    with pytest.raises(PoseFileError, match="does not exist"):
        inspect_poses(tmp_path / "b")


def test_a_euroc_file_is_no_tum_file_and_says_what_it_is(tmp_path):
    rows = [f"{1403636579758555392 + 50000000 * t},{t}.0,0,0,1,0,0,0,0.1,0,0,0,0,0,0,0,0" for t in range(5)]
    head = "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z []"
    (tmp_path / "data.csv").write_text("\n".join([head, *rows]) + "\n")
    assert [candidate.format for candidate in recognised_formats(tmp_path / "data.csv")] == ["euroc"]
    for options in ({}, {"delimiter": "comma"}):
        with pytest.raises(PoseFileError, match="--format euroc"):
            inspect(tmp_path / "data.csv", "tum", **options)
    assert inspect(tmp_path / "data.csv", None).facts.times.fps == pytest.approx(20)


@pytest.mark.parametrize("number", ["1e300", "-1e200", "1e40", "nan", "inf"])
@pytest.mark.parametrize("column", [0, 3])
def test_numbers_beyond_all_lengths_are_refused_and_not_measured(tmp_path, number, column, recwarn):
    row = ["1", "0", "0", "0", "0", "1", "0", "0", "0", "0", "1", "0"]
    row[column] = number
    (tmp_path / "a").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n" + " ".join(row) + "\n")
    with pytest.raises(PoseFileError, match=str(tmp_path)):
        inspect(tmp_path / "a")
    assert not recwarn.list


def test_what_is_no_file_of_poses_says_so(tmp_path):
    (tmp_path / "times.txt").write_text("0.0\n0.1\n")
    np.save(tmp_path / "a.npy", np.zeros((7, 3)))
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a.csv").write_text("x,y\n1,0,0,0,0,1,0,0,0,0,1,5\n")
    for name, message in (
        ("times.txt", "--times FILE"),
        ("a.npy", r"a NumPy array of shape \[7, 3\]"),
        ("a.json", "is it a file of poses"),
        ("a.csv", "12 columns may be KITTI .* It is read with --delimiter comma --skip-lines 1"),
        ("", "no folder of poses"),
    ):
        with pytest.raises(PoseFileError, match=message):
            inspect_poses(tmp_path / name)


def test_sideways_motion_does_not_tell_and_that_is_said(tmp_path):
    poses = drive(41)
    up = poses.center_world[:, [0, 2, 1]]
    write_poses(tmp_path / "a", Poses(R_world_cam=poses.R_world_cam, center_world=up), format="kitti")
    found = inspect(tmp_path / "a")
    assert found.verdict.outcome == "silent"
    assert "across their viewing direction" in found.verdict.text
    assert flags(found, "convention") == []


def test_an_orbit_does_not_tell(tmp_path):
    angle = torch.linspace(0, 2, 60, dtype=torch.float64)
    yaw = np.stack([0 * angle, angle, 0 * angle], axis=1)
    rotations = torch.from_numpy(Rotation.from_rotvec(yaw).as_matrix())
    # Five metres behind the middle, looking at it, from above.
    centers = -5 * rotations[:, :, 2] + torch.tensor([0.0, -2.0, 0.0])
    write_poses(tmp_path / "a", Poses(R_world_cam=rotations, center_world=centers), format="kitti")
    found = inspect(tmp_path / "a")
    assert found.reading.heading == pytest.approx(0, abs=0.05)
    assert found.verdict.outcome == "silent"
    assert flags(found, "convention") == []


def test_a_vehicle_is_told_from_a_camera_that_moves_sideways_by_what_it_turns_about(tmp_path):
    turning = write_rows(tmp_path / "a", in_axes(drive(41, turn_deg=90), R_CAM_FLU))
    assert "--camera-axes flu" in flags(inspect(turning), "convention")[0]
    straight = inspect(write_rows(tmp_path / "b", in_axes(drive(41), R_CAM_FLU)))
    assert straight.verdict.outcome == "silent"
    assert straight.verdict.text.endswith("only if they look where they go, the file is flu or frd or unreal")
    # The same motion of a camera that pans about its own y axis.
    poses = drive(41, turn_deg=90, turning=0.4)
    quarter = torch.tensor([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    sideways = Poses(R_world_cam=poses.R_world_cam @ quarter, center_world=poses.center_world)
    write_poses(tmp_path / "c", sideways, format="kitti")
    found = inspect(tmp_path / "c")
    assert found.verdict.outcome == "silent"
    assert flags(found, "convention") == []


def test_a_turning_head_does_not_tell(tmp_path):
    poses = drive(41, turn_deg=60)
    write_poses(
        tmp_path / "a",
        Poses(R_world_cam=poses.R_world_cam, center_world=0 * poses.center_world + 3),
        format="kitti",
    )
    found = inspect(tmp_path / "a")
    assert found.verdict.outcome == "silent"
    assert "do not move" in found.verdict.text
    assert not found.facts.static


def test_a_scaled_matrix_is_measured_and_refused(tmp_path):
    matrices = drive(41, turn_deg=90).T_world_cam.clone()
    matrices[:, :3, :3] *= 2
    found = inspect(write_rows(tmp_path / "a", matrices))
    (finding,) = (finding for finding in found.findings if finding.kind == "not-orthonormal")
    assert "scaled by 2" in finding.text
    assert found.matrices.rt_r_error == pytest.approx(3)
    assert found.reading.heading == pytest.approx(1, abs=1e-3)
    assert found.facts.summed_rotation_deg == pytest.approx(90)


def test_rough_rotations_get_the_tolerance_that_reads_them(tmp_path):
    matrices = drive(41, turn_deg=90).T_world_cam.numpy().round(2)
    path = write_rows(tmp_path / "a", matrices)
    ((flag,),) = flags(inspect(path), "not-orthonormal")
    tolerance = float(flag.split()[1])
    assert inspect(path, tolerance=tolerance).verdict.outcome == "agrees"


def test_heading_is_evidence_for_every_axes_convention():
    poses = drive(41, turn_deg=90)
    for axes, R_cam_axes in {
        "opencv": torch.eye(3, dtype=torch.float64),
        "opengl": R_CAM_OPENGL,
        "flu": R_CAM_FLU,
    }.items():
        found = readings(in_axes(poses, R_cam_axes)[:, :3].numpy())
        best = {
            reading.camera_axes
            for reading in found
            if reading.direction == "camera-to-world" and reading.heading > 0.99
        }
        assert axes in best
        assert best == ({axes} if axes != "flu" else {"flu", "frd", "unreal"})


def test_options_come_back_as_flags():
    assert flags_of(ReadOptions()) == ""
    options = ReadOptions(index_column=True, skip_lines=2, camera_axes="opengl", tolerance=0.01)
    given = {f"--{flag.strip()}" for flag in flags_of(options).split("--") if flag}
    assert given == {"--skip-lines 2", "--index-column", "--camera-axes opengl", "--tolerance 0.01"}


def test_every_recognised_format_has_a_reason(tmp_path):
    write_poses(tmp_path / "a.json", drive(5), format="merope")
    for candidate in recognised_formats(tmp_path / "a.json"):
        assert candidate.reason
