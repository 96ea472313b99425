"""`merope evaluate`: what it prints, what it writes, and how it ends."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch

from merope.cli.evaluate_output import unique_labels
from merope.cli.main import run
from merope.data import write_poses
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.protocol import SPECS
from merope.evaluation.runs.kept import write_kept
from tests.evaluation.trajectories import perturbed, turning
from tests.support.shared import shared_file


@pytest.fixture
def files(tmp_path):
    commanded, estimated = tmp_path / "commanded.txt", tmp_path / "estimated.txt"
    write_poses(commanded, turning(30), format="kitti")
    write_poses(estimated, perturbed(turning(30), 1), format="kitti")
    return ["evaluate", "--commanded", str(commanded), "--estimated", str(estimated), "--format", "kitti"]


def test_a_table_with_units_and_protocol_is_printed(files, capsys):
    assert run(files) == 0
    printed = capsys.readouterr().out
    for words in ("30 of 30 commanded poses", "relative to the first frame", "rot", "deg", "CamMC", "AUC@3"):
        assert words in printed


def test_json_is_one_object_with_every_metric(files, capsys):
    assert run([*files, "--json", "--window", "8", "--first-generated", "2"]) == 0
    (content,) = json.loads(capsys.readouterr().out)["results"]
    assert set(content["metrics"]) == set(SPECS)
    assert content["num_clips"] == 3
    assert content["settings"]["num_frames_left_over"] == 6
    assert [clip["clip_id"] for clip in content["clips"]] == [
        "frames 0 to 7",
        "frames 8 to 15",
        "frames 16 to 23",
    ]
    assert content["metrics_generated_frames"]["rot_deg"]["unit"] == "deg"


def test_frames_left_over_are_reported(files, capsys):
    assert run([*files, "--window", "8"]) == 0
    assert "6 poses at the end do not fill a clip of 8" in capsys.readouterr().out


def test_a_window_longer_than_the_file_fails_with_a_way_out(files, capsys):
    assert run([*files, "--window", "40"]) == 1
    assert "Use --window 30 or less" in capsys.readouterr().err


def test_a_missing_file_is_one_line(files, capsys):
    files[2] = files[2] + ".gone"
    assert run(files) == 1
    error = capsys.readouterr().err
    assert "does not exist" in error
    assert "Traceback" not in error


def test_opengl_estimates_are_flagged_and_the_flag_mends_them(files, tmp_path, capsys):
    opengl = turning(30).T_world_cam.numpy() @ np.diag([1.0, -1.0, -1.0, 1.0])
    np.save(tmp_path / "estimated.npy", opengl)
    files[4] = str(tmp_path / "estimated.npy")
    files += ["--estimated-format", "npy", "--json"]
    assert run(files) == 0
    (before,) = json.loads(capsys.readouterr().out)["results"]
    assert before["flags"]["axes_suspected"] == 1
    assert run([*files, "--camera-axes", "opengl"]) == 0
    (after,) = json.loads(capsys.readouterr().out)["results"]
    assert after["flags"]["axes_suspected"] == 0
    assert after["metrics"]["cammc"]["value"] == pytest.approx(0, abs=1e-9)


def metric_scale_error(arguments, capsys):
    """Value and reason of the metric scale error, and the units it was computed from."""
    assert run([*arguments, "--json"]) == 0
    (content,) = json.loads(capsys.readouterr().out)["results"]
    error = content["metrics"]["scale_error_percent"]
    return error["value"], error["reason"], content["settings"]["unit"]


def test_files_in_metres_have_a_metric_scale_error(files, capsys):
    value, reason, unit = metric_scale_error(files, capsys)
    assert value == pytest.approx(0, abs=5)
    assert reason is None
    assert unit == {"commanded": "m", "estimated": "m"}


@pytest.mark.parametrize("option", ["--unit", "--estimated-unit"])
def test_a_normalized_estimate_has_no_metric_scale_error(files, capsys, option):
    value, reason, unit = metric_scale_error([*files, option, "normalized"], capsys)
    assert value is None
    assert reason == "the estimate has no metric scale"
    assert unit["estimated"] == "normalized"
    # The caller may know better than the units.
    value, _, _ = metric_scale_error([*files, option, "normalized", "--scale", "metric"], capsys)
    assert value is not None


def test_up_to_scale_is_for_estimates_in_metres_too(files, capsys):
    assert metric_scale_error([*files, "--scale", "up-to-scale"], capsys)[0] is None


def test_an_array_is_in_metres_only_where_the_caller_says_so(files, tmp_path, capsys):
    np.save(tmp_path / "estimated.npy", turning(30).T_world_cam.numpy())
    files[4] = str(tmp_path / "estimated.npy")
    files += ["--estimated-format", "npy"]
    value, _, unit = metric_scale_error(files, capsys)
    assert value is None
    assert unit == {"commanded": "m", "estimated": "unknown"}
    assert metric_scale_error([*files, "--unit", "m"], capsys)[0] == pytest.approx(0, abs=1e-9)


def test_rotations_that_had_to_be_projected_are_reported(files, capsys):
    rows = turning(30).T_world_cam[:, :3].flatten(1).tolist()
    with open(files[4], "w", encoding="utf-8") as file:
        file.writelines(" ".join(f"{value:.4f}" for value in row) + "\n" for row in rows)
    assert run(files) == 0
    printed = capsys.readouterr().out
    assert f"rotations of {files[4]} were off by " in printed
    assert "(largest entry of R^T R - I) and were projected to rotations" in printed
    assert files[2] not in printed
    assert run([*files, "--json"]) == 0
    error = json.loads(capsys.readouterr().out)["results"][0]["settings"]["projection_error"]
    assert error["commanded"] < 1e-12
    assert 1e-6 < error["estimated"] < 1e-3


def test_a_missing_plot_package_is_found_before_any_file_is_read(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("merope.cli.extras.find_spec", lambda name: None)
    files[2] += ".gone"
    assert run([*files, "--out", str(tmp_path / "out")]) == 1
    assert "pip install 'merope[plot]'" in capsys.readouterr().err


def test_a_folder_of_results_is_written(files, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    assert run([*files, "--out", str(tmp_path / "out")]) == 0
    assert "report.html" in capsys.readouterr().out
    names = {entry.name for entry in (tmp_path / "out").iterdir()}
    assert {"report.html", "results.json", "results.csv", "results.md", "results.tex"} <= names


def test_a_wrong_option_is_a_usage_error(files):
    with pytest.raises(SystemExit) as stop:
        run([*files, "--window", "many"])
    assert stop.value.code == 2


def test_paths_of_files_are_compared_by_their_errors_too(files, tmp_path, capsys):
    write_poses(tmp_path / "other.txt", perturbed(turning(30), 2), format="kitti")
    assert run([*files[:5], str(tmp_path / "other.txt"), *files[5:], "--window", "10"]) == 0
    table = capsys.readouterr().out.split("A: estimated")[1]
    for label in ("CamMC", "ATE SE(3)", "ATE Sim(3)", "RPE trans", "RPE rot"):
        assert label in table


def test_key_frames_are_said_to_be_few_and_what_rpe_is_between(files, capsys):
    rows = kitti_rows(turning(30))
    with open(files[4], "w", encoding="utf-8") as file:
        file.writelines(f"{frame} {rows[frame]}\n" for frame in range(0, 30, 10))
    assert run(files) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "3 of 30 commanded poses have an estimate, and RPE is between consecutive matched poses" in words
    assert run([*files, "--fill"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "; 3 of 30 commanded poses have an estimate;" in words


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (("a/00.txt.gz", "a/01.npy"), ["00", "01"]),
        (("a/mine.txt", "a/mine.json"), ["mine.txt", "mine.json"]),
        (("a/mine.txt", "b/mine.txt"), ["a/mine", "b/mine"]),
        (("a/mine.txt", "b/mine.txt", "b/mine.json"), ["a/mine", "b/mine", "mine.json"]),
        (("run.v1", "run.v2"), ["run.v1", "run.v2"]),
        (("a/.txt",), [".txt"]),
    ],
)
def test_rows_are_named_after_files_without_their_endings_and_differ(tmp_path, paths, labels):
    assert unique_labels([tmp_path / path for path in paths]) == labels


KITTI = {
    "00": ("00_ORB.txt.gz", "00_SPTAM.txt.gz"),
    "09": ("09_example_0.txt", "09_example_1.txt"),
}


def real(sequence, *options):
    """The command line for a sequence of KITTI and the estimates of it."""
    commanded = shared_file(f"data/kitti_odom/poses/{sequence}.txt")
    estimates = [str(shared_file(f"data/kitti_odom/estimates/{name}")) for name in KITTI[sequence]]
    return [
        *("evaluate", "--commanded", str(commanded), "--estimated", *estimates),
        *("--format", "kitti", "--window", "49", *options),
    ]


def test_two_estimates_of_a_real_drive_are_two_rows_compared_clip_by_clip(capsys):
    assert run(real("00", "--json")) == 0
    content = json.loads(capsys.readouterr().out)
    orb, sptam = content["results"]
    assert (orb["label"], sptam["label"]) == ("00_ORB", "00_SPTAM")
    assert orb["num_clips"] == sptam["num_clips"] == 92
    # As in docs/reproduce.md.
    assert orb["metrics"]["rot_deg"]["value"] == pytest.approx(0.337, abs=5e-4)
    assert sptam["metrics"]["tr_percent"]["value"] == pytest.approx(1.055, abs=5e-4)
    (comparison,) = content["comparisons"]
    assert comparison["num_clips"] == 92
    worse = sptam["metrics"]["rot_deg"]["value"] - orb["metrics"]["rot_deg"]["value"]
    assert comparison["metrics"]["rot_deg"]["difference"] == pytest.approx(worse, abs=1e-12)


def test_an_estimate_with_frame_numbers_and_missing_rows_is_read_as_it_is(capsys):
    assert run(real("09")) == 0
    printed = capsys.readouterr().out
    assert (
        "09_example_0: matched by frame number: 1589 of 1591 commanded poses; the 2 without an estimate are left out "
        "of every figure" in printed
    )
    assert "09_example_1: matched one to one: 1591 of 1591 commanded poses" in printed
    assert "not compared clip by clip" in printed
    assert "--fill keeps all of them" in printed


def test_filled_rows_make_clips_of_two_estimates_the_same(capsys):
    assert run(real("09", "--fill", "--scale", "up-to-scale", "--json")) == 0
    content = json.loads(capsys.readouterr().out)
    unscaled, scaled = content["results"]
    assert unscaled["num_clips"] == scaled["num_clips"] == 32
    assert unscaled["metrics"]["scale"]["value"] == pytest.approx(21, rel=0.02)
    assert unscaled["settings"]["num_not_registered"] == 2
    assert unscaled["flags"]["partial_registration"] == 1
    assert content["comparisons"][0]["num_clips"] == 32


TUM = "data/tum/freiburg1_xyz"


@pytest.mark.parametrize("name", ["rgbdslam", "rgbdslam_drift"])
def test_files_with_times_have_the_errors_that_evo_finds(name, capsys):
    pytest.importorskip("evo", reason="evo is not installed: pip install evo")
    from evo.core import metrics, sync
    from evo.tools import file_interface

    true, mine = (str(shared_file(f"{TUM}-{part}.txt")) for part in ("groundtruth", name))
    files = ("--commanded", true, "--estimated", mine, "--format", "tum", "--json")
    assert run(["evaluate", *files, "--max-time-difference", "0.01"]) == 0
    (content,) = json.loads(capsys.readouterr().out)["results"]
    assert content["settings"]["num_scored"] == 785
    commanded, estimated = sync.associate_trajectories(
        file_interface.read_tum_trajectory_file(true),
        file_interface.read_tum_trajectory_file(mine),
        max_diff=0.01,
    )

    def evo(kind, relation, path=estimated, **options):
        error = kind(relation, **options)
        error.process_data((commanded, path))
        return error.get_statistic(metrics.StatisticsType.rmse)

    found = {key: value["value"] for key, value in content["metrics"].items()}
    step = {"delta": 1, "delta_unit": metrics.Unit.frames}
    part = metrics.PoseRelation
    moved = {"ate_se3": False, "ate_sim3": True}
    for key, with_scale in moved.items():
        path = deepcopy(estimated)
        path.align(commanded, correct_scale=with_scale)
        assert found[key] == pytest.approx(evo(metrics.APE, part.translation_part, path), rel=1e-6)
    assert found["ate_none"] == pytest.approx(evo(metrics.APE, part.translation_part), rel=1e-6)
    assert found["rpe_trans"] == pytest.approx(evo(metrics.RPE, part.translation_part, **step), rel=1e-6)
    assert found["rpe_rot_deg"] == pytest.approx(evo(metrics.RPE, part.rotation_angle_deg, **step), rel=1e-5)
    # As published with the files.
    assert found["ate_sim3"] == pytest.approx(0.0134, abs=5e-5)


def kitti_rows(poses):
    return [" ".join(map(repr, row)) for row in poses.T_world_cam[:, :3].flatten(1).tolist()]


def test_an_index_column_may_stand_in_the_estimate_alone(tmp_path, capsys):
    times = [frame / 10 for frame in range(12)]
    poses = turning(12).with_times(torch.tensor(times, dtype=torch.float64))
    write_poses(tmp_path / "true.txt", poses, format="tum")
    lines = (tmp_path / "true.txt").read_text().splitlines()[1:]
    (tmp_path / "mine.txt").write_text("".join(f"{row} {lines[row]}\n" for row in range(12) if row != 5))
    arguments = [
        "evaluate",
        "--commanded",
        str(tmp_path / "true.txt"),
        "--estimated",
        str(tmp_path / "mine.txt"),
    ]
    arguments += ["--format", "tum"]
    assert run(arguments) == 1
    assert "--index-column" in capsys.readouterr().err
    assert run([*arguments, "--estimated-index-column"]) == 0
    assert "matched by frame number: 11 of 12 commanded poses" in capsys.readouterr().out


def test_rows_of_nan_in_the_estimate_are_flagged_and_in_the_command_an_error(files, capsys):
    rows = kitti_rows(turning(30))
    rows[7] = " ".join(["nan"] * 12)
    with open(files[4], "w", encoding="utf-8") as file:
        file.write("\n".join(rows))
    assert run(files) == 0
    output = capsys.readouterr()
    assert "1 have NaN for an estimate" in output.out
    assert "nan_rows" in output.out
    assert "1 of 30 rows of the estimate are not finite (frame 7)" in output.err
    with open(files[2], "w", encoding="utf-8") as file:
        file.write("\n".join(rows))
    assert run(files) == 1
    assert "line 8 holds a value that is not finite" in capsys.readouterr().err


def test_folders_are_scored_clip_by_clip_and_missing_files_count(tmp_path, capsys):
    for side in ("true", "mine"):
        (tmp_path / side / "street").mkdir(parents=True)
        for seed, name in enumerate(("street/left", "street/right", "ahead")):
            if (side, name) != ("mine", "ahead"):
                poses = turning(9, turn_deg=10.0 + seed)
                write_poses(tmp_path / side / f"{name}.json", poses, format="merope")
    arguments = ["evaluate", "--commanded", str(tmp_path / "true"), "--estimated", str(tmp_path / "mine")]
    arguments += ["--format", "merope"]
    assert run(arguments) == 0
    output = capsys.readouterr()
    assert "1 of 3 clips have no estimated poses: ahead" in output.out
    assert "3 clips of 9 frames; poses recovered for 67 %" in output.out
    assert "not recovered: ahead" in output.err
    assert run([*arguments, "--on-failure", "skip", "--json"]) == 0
    (content,) = json.loads(capsys.readouterr().out)["results"]
    assert [clip["clip_id"] for clip in content["clips"]] == ["street/left", "street/right"]
    assert (content["num_skipped"], content["num_expected"]) == (1, 3)
    assert run([*arguments, "--on-failure", "error"]) == 1
    assert "'ahead' has no estimated trajectory" in capsys.readouterr().err


def test_cameras_that_an_earlier_call_kept_are_a_folder_of_pose_files(tmp_path, capsys):
    key = {"estimator": {}, "frames": {"count": 9}, "lens": {}, "fps": 10.0}
    (tmp_path / "true").mkdir()
    for name in ("one", "two"):
        write_poses(tmp_path / "true" / f"{name}.txt", turning(9), format="kitti")
    write_kept(tmp_path / "mine" / "one.txt", key=key, outcome=Recovered.complete(turning(9)))
    write_kept(tmp_path / "mine" / "two.txt", key=key, outcome="nothing to see")
    (tmp_path / "mine" / "manifest.json").write_text("{}")
    arguments = [
        "--commanded",
        str(tmp_path / "true"),
        "--estimated",
        str(tmp_path / "mine"),
        "--format",
        "kitti",
    ]
    assert run(["evaluate", *arguments]) == 0
    assert "not recovered: two: nothing to see" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "name folders of generated clips"),
        (("--commanded", "a.txt"), "name folders of generated clips"),
        (("--commanded", "a.txt", "--estimated", "b.txt"), "--format is missing"),
        (("--commanded", ".", "--estimated", "b.txt", "--format", "kitti"), "two folders whose files"),
        (("--commanded", "a", "--estimated", "b", "--format", "kitti", "--floor", "f"), "--floor is for"),
        (
            ("--commanded", "a", "--estimated", "b", "--format", "kitti", "--workers", "2"),
            "--workers is about",
        ),
        (("--commanded", "a", "--estimated", "b", "c", "--labels", "x", "x"), "--labels must differ"),
        (("--commanded", "a", "--estimated", "b", "./b"), "b is given twice"),
    ],
)
def test_flags_that_make_no_sense_are_a_usage_error(capsys, options, words):
    assert run(["evaluate", *options]) == 2
    assert words in capsys.readouterr().err
