"""`merope evaluate RUN...`: what it prints, keeps and writes for folders of clips, and how it ends."""

import json

import numpy as np
import pytest

from merope.cameras import Pinhole
from merope.cli.main import run
from merope.data import write_poses
from merope.data.clips.folder import write_clip as write_true_clip
from merope.data.clips.generated import note_asked
from merope.files import only_process
from merope.worlds import build_world, place_on_ground, render
from tests.evaluation.runs.clips import write_clip
from tests.evaluation.trajectories import turning

# The lens of the network that comes with the package.
LENS = Pinhole.from_fov(fov_x_deg=90, height=40, width=64)


@pytest.fixture
def clips(tmp_path):
    root = tmp_path / "ours"
    for name in ("a/one", "a/two"):
        write_clip(root, name, lens=LENS)
    return root


def evaluate(*arguments):
    return run(["evaluate", *map(str, arguments)])


def results(capsys, *arguments):
    """The parsed output of --json."""
    assert evaluate(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_table_is_printed_with_what_it_took_and_that_the_floor_is_unknown(clips, capsys):
    assert evaluate(clips) == 0
    printed = capsys.readouterr().out
    for words in (
        "ours: cameras by network: 2 clips: 2 recovered now",
        "ours: 2 clips of 9 frames; poses recovered for 100 %",
        "generated only",
        "the noise floor of the estimator was not measured",
        "--floor CLIPS measures it",
    ):
        assert words in printed


def test_cameras_are_kept_and_a_second_run_leaves_them_alone(clips, tmp_path, capsys):
    other = tmp_path / "theirs"
    write_clip(other, "a/one", lens=LENS, fill=90)
    alone = evaluate(clips, "--out", tmp_path / "out", "--share", "1/1")
    assert alone == 0
    assert "share 1 of 1 is in" in capsys.readouterr().out
    kept = tmp_path / "out" / "recovered" / "ours" / "a" / "one.txt"
    before = kept.read_bytes(), kept.stat().st_mtime_ns
    assert evaluate(clips, other, "--out", tmp_path / "out", "--share", "1/1") == 0
    printed = capsys.readouterr().out
    assert "ours: cameras by network: 2 clips: 0 recovered now, 2 reused from an earlier run" in printed
    assert "theirs: cameras by network: 1 clip: 1 recovered now" in printed
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before


def test_a_report_and_its_files_are_written_and_scoring_again_changes_no_digit(clips, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    out = tmp_path / "out"
    assert evaluate(clips, "--out", out) == 0
    assert "written to" in capsys.readouterr().out
    names = {entry.name for entry in out.iterdir()}
    assert {"report.html", "results.json", "results.csv", "recovered"} <= names
    assert (out / "recovered" / "ours" / "manifest.json").exists()
    first = (out / "results.json").read_bytes()
    fresh = results(capsys, clips)
    assert json.loads(first)["results"] == fresh["results"]


def test_a_floor_is_a_row_that_does_not_compete(clips, tmp_path, capsys):
    for name in ("x", "y", "z"):
        frames = np.random.default_rng(ord(name)).integers(0, 256, (9, 40, 64, 3), dtype=np.uint8)
        write_true_clip(tmp_path / "true", name, frames, poses=turning(9), lens=LENS, fps=10.0, source="s")
    content = results(capsys, clips, "--floor", tmp_path / "true")
    label = "noise floor (network on 3 true clips)"
    assert content["references"] == [label]
    assert [row["label"] for row in content["results"]] == ["ours", label]
    # The same frames are left out of its figures over generated ones.
    assert {clip["first_generated"] for clip in content["results"][1]["clips"]} == {5}
    assert content["comparisons"] == []


def test_true_clips_alone_measure_the_estimator(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    for seed, name in enumerate(("x", "y")):
        poses = place_on_ground(turning(9))
        frames = render(build_world(seed, paths=[poses]), LENS, poses, samples=1).rgb
        write_true_clip(tmp_path / "true", name, frames, poses=poses, lens=LENS, fps=10.0, source="s")
    out = tmp_path / "out"
    assert evaluate("--floor", tmp_path / "true", "--out", out) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "true clips: cameras by network: 2 clips: 2 recovered now" in printed
    assert "network on 2 true clips: 2 clips of 9 frames" in printed
    assert "these errors are the estimator's own" in printed
    assert "was not measured" not in printed
    content = json.loads((out / "results.json").read_text())
    (row,) = content["results"]
    assert (row["label"], content["references"]) == ("network on 2 true clips", [])
    page = (out / "report.html").read_text()
    assert "<h1>How well network recovers the cameras of true clips</h1>" in page
    assert "How closely the estimator recovers the true cameras from true frames" in page
    assert "Not measured" not in page and "None was measured" not in page
    # The same cameras are the floor of runs that are added later.
    write_clip(tmp_path / "ours", "a/one", lens=LENS)
    assert evaluate(tmp_path / "ours", "--floor", tmp_path / "true", "--out", out, "--share", "1/1") == 0
    assert "noise floor: cameras by network: 2 clips: 0 recovered now, 2 reused" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--benchmark", "nuscenes-384"), "--floor alone measures an estimator"),
        (("--estimator", "poses", "--estimates", "e"), "--floor needs an estimator"),
        (("--labels", "a", "b"), "--labels must name each of the 1 rows"),
    ],
)
def test_true_clips_alone_take_no_flags_of_runs(tmp_path, capsys, options, words):
    assert evaluate("--floor", tmp_path, *options) == 2
    assert words in capsys.readouterr().err


def test_a_clip_that_fails_is_named_and_counts(clips, capsys):
    write_clip(clips, "b/narrow", lens=Pinhole.from_fov(fov_x_deg=40, height=40, width=64))
    assert evaluate(clips) == 0
    output = capsys.readouterr()
    assert "3 clips of 9 frames; poses recovered for 67 %" in output.out
    assert "not recovered: b/narrow: these frames show" in output.err
    content = results(capsys, clips, "--on-failure", "skip")
    assert content["results"][0]["num_skipped"] == 1
    assert content["results"][0]["num_expected"] == 3


def test_clips_that_were_asked_for_and_never_made_are_named_and_not_passed_over(clips, capsys):
    note_asked(clips, ["a/one", "a/two", "a/right", "b/left"])
    assert evaluate(clips) == 1
    error = capsys.readouterr().err
    assert "2 of 4 clips" in error and "a/right, b/left" in error
    assert evaluate(clips, "--on-failure", "skip") == 0
    output = capsys.readouterr()
    assert "left out, since they were not generated: ours: a/right, b/left" in output.err
    assert results(capsys, clips, "--on-failure", "skip")["results"][0]["num_expected"] == 4


def test_two_runs_are_compared_clip_by_clip(clips, tmp_path, capsys):
    for name in ("a/one", "a/two"):
        write_clip(tmp_path / "other" / "ours", name, lens=LENS, fill=90)
    content = results(capsys, clips, tmp_path / "other" / "ours")
    labels = [row["label"] for row in content["results"]]
    assert labels[1] == "other/ours"
    assert len(set(labels)) == 2
    (comparison,) = content["comparisons"]
    assert comparison["num_clips"] == 2
    named = results(capsys, clips, tmp_path / "other" / "ours", "--labels", "new", "old")
    assert [row["label"] for row in named["results"]] == ["new", "old"]


def test_estimates_of_another_program_are_read(clips, tmp_path, capsys):
    for name in ("one", "two"):
        write_poses(tmp_path / "est" / "a" / f"{name}.json", turning(9), format="merope")
    content = results(capsys, clips, "--estimator", "poses", "--estimates", tmp_path / "est")
    assert content["results"][0]["metrics"]["rot_deg"]["value"] == pytest.approx(0, abs=1e-9)
    assert content["results"][0]["metrics"]["scale_error_percent"]["value"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--estimator", "poses"), "belong together"),
        (("--estimates", "est"), "belong together"),
        (("--commanded", "a.txt"), "bring their own commands"),
        (("--estimated", "a.txt"), "bring their own commands"),
        (("--window", "4"), "--window is for pose files"),
        (("--split", "s.json"), "--split is the file of a --benchmark"),
        (("--labels", "a", "b"), "--labels must name each of the 1 rows"),
        (("--share", "1/2"), "--share needs --out"),
        (("--share", "3/2", "--out", "out"), "a share is K/N"),
        (("--seed", "-1"), "--seed must be 0 or more"),
        (("--share", "1/2", "--out", "out", "--json"), "--share scores nothing"),
        (("--set", "speed=1"), "has no options"),
        (
            ("--weights", "w", "--estimator", "poses", "--estimates", "e"),
            "--weights is for estimators that look",
        ),
        (("--floor", "f", "--estimator", "poses", "--estimates", "e"), "--floor needs an estimator"),
        (("--estimator", "colmap", "--set", "max_featurs=9"), "Did you mean 'max_features'"),
        (("--benchmark", "nuscenes-383"), "nuscenes-384"),
    ],
)
def test_flags_that_make_no_sense_are_a_usage_error(clips, capsys, options, words):
    try:
        code = evaluate(clips, *options)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_clips_says_who_writes_them(tmp_path, capsys):
    assert evaluate(tmp_path) == 1
    assert "`merope generate --out` writes them" in capsys.readouterr().err


def test_a_clip_whose_frames_are_gone_is_named(clips, capsys):
    (clips / "a" / "one" / "frames" / "frame_00008.png").unlink()
    assert evaluate(clips) == 1
    assert "holds 8 frames of 40 x 64; poses and lens are for 9" in capsys.readouterr().err


def test_a_run_counts_once_and_a_link_keeps_its_own_name(clips, tmp_path, capsys):
    assert evaluate(clips, f"{clips}/../{clips.name}") == 2
    assert "is given twice" in capsys.readouterr().err
    link = tmp_path / "linked"
    link.symlink_to(clips)
    assert evaluate(clips, link) == 2
    assert f"linked, the same as {clips}, is given twice" in capsys.readouterr().err
    (row,) = results(capsys, link)["results"]
    assert (row["label"], row["settings"]["generated"]) == ("linked", "linked")


def test_a_report_has_one_writer_at_a_time(clips, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    out = tmp_path / "out"
    out.mkdir()
    with only_process(out / ".evaluating"):
        assert evaluate(clips, "--out", out) == 1
        assert "another `merope evaluate` is writing to" in capsys.readouterr().err
        # Shares write no report, and meet in one folder.
        assert evaluate(clips, "--out", out, "--share", "1/1") == 0


def test_a_folder_that_cannot_be_written_is_found_before_any_work(clips, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert evaluate(clips, "--out", tmp_path / "file") == 1
    error = capsys.readouterr().err
    assert "file" in error and "recovering" not in error and "Traceback" not in error


def test_a_report_inside_the_run_is_no_clip_of_it(clips, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    for out in (clips, clips / "a", clips / "report"):
        assert evaluate(clips, "--out", out, "--share", "1/1") == 0
    capsys.readouterr()
    (row,) = results(capsys, clips)["results"]
    assert row["num_clips"] == 2


def test_a_second_look_is_a_flag_and_changes_no_figure(clips, capsys):
    (plain,) = results(capsys, clips)["results"]
    (looked,) = results(capsys, clips, "--check-reliability")["results"]
    assert looked["metrics"] == plain["metrics"]
    # Frames of noise: what the network says of them hangs on nothing.
    assert (plain["flags"]["unreliable"], looked["flags"]["unreliable"]) == (0, 2)
    assert evaluate(clips, "--check-reliability") == 0
    assert "a second pass disagrees on 2 of 2 clips" in capsys.readouterr().out


def test_help_groups_the_flags(capsys):
    with pytest.raises(SystemExit) as stop:
        evaluate("--help")
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for words in (
        "What is scored",
        "How pose files are read",
        "How cameras are recovered",
        "What is written",
        "--commanded",
        "--floor",
        "--workers",
    ):
        assert words in printed
    assert "scored.commanded" not in printed
    assert "(default: )" not in printed
    assert "[[" not in printed
