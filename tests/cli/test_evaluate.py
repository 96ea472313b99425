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
