"""`merope benchmark list`, `show`, `clips` and `cases`, and `merope evaluate --benchmark`."""

import json

import numpy as np
import pytest

from merope.cli.main import run
from merope.data.clips.generated import write_generated
from merope.data.poses.command_files import read_command
from merope.data.poses.files import write_poses
from merope.evaluation.benchmarks.registry import BENCHMARKS, find_benchmark
from merope.generation.manifest import read_manifest
from tests.evaluation.benchmarks.selections import CASES, SMALL, select, write_clips


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("benchmark")
    write_clips(root / "clips" / "val", 5)
    select(root / "clips" / "val", root / "evaluation")
    return root


def test_list_names_every_benchmark_for_readers_and_machines(capsys):
    assert run(["benchmark", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in BENCHMARKS) and "worlds-N" in printed
    assert run(["benchmark", "list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content) == list(BENCHMARKS)
    assert content["nuscenes-384"]["num_clips"] == 384 and content["nuscenes-384"]["needs_split"]
    assert not content["worlds-64"]["needs_split"]


def test_show_has_protocol_commands_and_the_papers_numbers(capsys):
    assert run(["benchmark", "show", "panshot-272"]) == 0
    printed = capsys.readouterr().out
    for part in ("RotErr, TransErr, CamMC", "merope data convert", "Table 4 (a)", "10.99"):
        assert part in printed
    assert max(len(line) for line in printed.splitlines() if not line.startswith("  merope")) <= 110
    assert run(["benchmark", "show", "nuscenes-384", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [table["source"].split(",")[0] for table in content["published"]] == [
        "Table 2",
        "Table 3",
        "Table 5",
        "Table 7",
    ]
    # What is folded stands below its own words.
    assert "one a line, and\n" + " " * 17 + "shots.json" in printed


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show nuscene-384", "did you mean 'nuscenes-384'? There are"),
        ("show wrlds", "There are nuscenes-384"),
        ("clips nope", "no benchmark 'nope'. There are"),
        ("clips worlds-4 --out {}/list.txt", "must end in .json or .csv"),
        ("cases nope --split {} --clips {} --out {}/cases.jsonl", "no benchmark 'nope'"),
        ("cases worlds-4 --split {} --clips {} --out {}/cases.jsonl", "need no manifest"),
        (
            "cases nuscenes-384 --split {}/list.json --clips {} --out {}/cases.jsonl",
            "no poses to drive along",
        ),
        ("held-out --worlds 0", "--worlds must be at least 1"),
        ("held-out --steps 0", "--steps must be at least 1"),
        ("metres --worlds -1", "--worlds must be at least 1"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_before_any_work(tmp_path, capsys, command, words):
    (tmp_path / "list.json").write_text("[]")
    assert run(["benchmark", *command.replace("{}", str(tmp_path)).split()]) == 2
    assert words in capsys.readouterr().err


def test_a_split_that_is_not_there_is_a_failure(tmp_path, capsys):
    here = ["--split", str(tmp_path / "none"), "--clips", str(tmp_path)]
    assert run(["benchmark", "cases", "nuscenes-384", *here, "--out", str(tmp_path / "cases.jsonl")]) == 1
    assert "no such file" in capsys.readouterr().err


def test_clips_are_listed_and_written_with_their_digests(root, tmp_path, capsys):
    command = ["benchmark", "clips", "nuscenes-384", "--split", str(root / "evaluation")]
    assert run([*command, "--out", str(tmp_path / "list.json")]) == 0
    printed = capsys.readouterr().out
    assert f"{3 * CASES} clips, written to" in printed and "not comparable" in printed
    benchmark = find_benchmark("nuscenes-384")
    digests = [clip.digest for clip in benchmark.expected(root / "evaluation")]
    assert [clip.digest for clip in benchmark.expected(tmp_path / "list.json")] == digests
    assert run(command) == 0
    assert digests[0] in capsys.readouterr().out
    assert run(["benchmark", "clips", "nuscenes-384"]) == 2
    assert "needs --split" in capsys.readouterr().err


def test_cases_make_the_clips_that_the_benchmark_expects(root, capsys):
    out = root / "manifests" / "cases.jsonl"
    out.parent.mkdir()
    command = ["benchmark", "cases", "nuscenes-384", "--split", str(root / "evaluation"), "--out", str(out)]
    assert run([*command, "--clips", str(root / "clips" / "val")]) == 0
    assert f"{CASES} cases, {3 * CASES} clips" in capsys.readouterr().out
    expected = {clip.clip_id: clip for clip in find_benchmark("nuscenes-384").expected(root / "evaluation")}
    cases = read_manifest(out)
    assert {f"{case.id}/{name}" for case in cases for name in case.trajectories} == set(expected)
    for case in cases:
        assert case.prompt.startswith("a street") and case.prefix.is_dir() and case.lens.is_file()
        for name, drive in case.trajectories.items():
            poses = read_command(drive.poses, format=drive.format, num_frames=49, fps=12.0).poses
            wanted = expected[f"{case.id}/{name}"].commanded
            assert (poses.T_world_cam == wanted.T_world_cam).all()
            assert drive.up_world == (0, 0, 1)
    assert run([*command, "--clips", str(root / "manifests")]) == 1
    assert "exactly one of the folders" in capsys.readouterr().err


def test_evaluate_says_what_keeps_a_run_from_the_benchmark(root, tmp_path, capsys):
    expected = find_benchmark("nuscenes-384").expected(root / "evaluation")

    for clip in expected[:2]:
        write_generated(
            tmp_path / "videos" / clip.clip_id,
            np.zeros((49, 9, 16, 3), np.uint8),
            commanded=clip.commanded,
            lens=SMALL,
            fps=12.0,
            prefix_frames=9,
            result={},
        )
        write_poses(tmp_path / "found" / f"{clip.clip_id}.json", clip.commanded, format="merope")
    command = [
        "evaluate",
        str(tmp_path / "videos"),
        "--estimator",
        "poses",
        "--estimates",
        str(tmp_path / "found"),
    ]
    judged = ["--benchmark", "nuscenes-384", "--split", str(root / "evaluation"), "--json"]
    assert run([*command, *judged]) == 0
    text = json.dumps(json.loads(capsys.readouterr().out))
    for words in ("10 of 12 clips are missing", "The split names 12 clips", "288 x 512", "nothing says that"):
        assert words in text
    assert run([*command, "--benchmark", "nuscenes-384", "--json"]) == 0
    assert "No split file was given" in capsys.readouterr().out
