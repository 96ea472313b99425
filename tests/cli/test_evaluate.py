"""`merope evaluate`: what it prints, what it writes, and how it ends."""

import json

import numpy as np
import pytest

from merope.cli.main import run
from merope.data import write_poses
from merope.evaluation.protocol import SPECS
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
    content = json.loads(capsys.readouterr().out)
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
    before = json.loads(capsys.readouterr().out)
    assert before["flags"]["axes_suspected"] == 1
    assert run([*files, "--camera-axes", "opengl"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["flags"]["axes_suspected"] == 0
    assert after["metrics"]["cammc"]["value"] == pytest.approx(0, abs=1e-9)


def metric_scale_error(arguments, capsys):
    """Value and reason of the metric scale error, and the units it was computed from."""
    assert run([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
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
    error = json.loads(capsys.readouterr().out)["settings"]["projection_error"]
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
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == [
        "bev.png",
        "metrics.json",
        "report.html",
    ]


def test_a_wrong_option_is_a_usage_error(files):
    with pytest.raises(SystemExit) as stop:
        run([*files, "--window", "many"])
    assert stop.value.code == 2


def test_real_estimates_run_in_windows(capsys):
    commanded = shared_file("data/kitti_odom/poses/09.txt")
    estimated = shared_file("data/kitti_odom/estimates/09_example_0.txt")
    arguments = [
        "evaluate",
        "--commanded",
        str(commanded),
        "--estimated",
        str(estimated),
        "--format",
        "kitti",
    ]
    assert run([*arguments, "--window", "49", "--scale", "up-to-scale", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["num_clips"] == 32
    assert content["metrics"]["scale"]["value"] == pytest.approx(21, rel=0.02)
    assert "1589 of 1591" in content["settings"]["matching"]
