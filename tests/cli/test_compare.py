"""`merope compare`: what it prints, which runs it takes, and how it ends."""

import json

import pytest

from merope.cli.main import run as command
from merope.evaluation import ClipPair, evaluate_clips
from merope.evaluation.results_files import write_results
from tests.evaluation.scored import clip, run, with_cammc
from tests.evaluation.trajectories import perturbed, turning


def scored(label, turn_deg, seeds, **kwargs):
    clips = [
        ClipPair(
            clip_id=f"scene {seed}",
            commanded=turning(8),
            estimated=perturbed(turning(8), seed, turn_deg=turn_deg),
            first_generated=2,
        )
        for seed in seeds
    ]
    return evaluate_clips(clips, label=label, **kwargs)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Results of two runs, each in a folder, with a noise floor beside the second."""
    place = tmp_path_factory.mktemp("runs")
    floor = scored("noise floor", 0.1, [90, 91])
    write_results(place / "a", [scored("rough", 4.0, range(6), settings={"weights_sha256": "ab12"})])
    fine = scored("fine", 1.0, range(1, 8), settings={"weights_sha256": "cd34"})
    write_results(place / "b", [fine, floor], references=["noise floor"])
    return [str(place / "a"), str(place / "b")]


def test_a_readable_comparison_is_printed(folders, capsys):
    assert command(["compare", *folders]) == 0
    printed = capsys.readouterr().out
    for words in (
        "A: rough",
        "B: fine",
        "over the 5 clip(s) that both have (5 of 6 of A, 5 of 7 of B)",
        "left out, only A has them: 1 clip(s): scene 0",
        "left out, only B has them: 2 clip(s): scene 6, scene 7",
        "exact two-sided sign test",
        "least squares (Eq. 37)",
        "max norm (Eq. 38)",
        "settings that differ:",
        "clips that differ most, by CamMC:",
    ):
        assert words in printed
    row = next(line for line in printed.splitlines() if line.startswith("rot "))
    assert "5/0/0" in row
    assert f"{2 / 2**5:.4f}" in row
    assert [line.split() for line in printed.splitlines() if "weights_sha256" in line] == [
        ["weights_sha256", "ab12", "cd34"]
    ]


def test_files_are_taken_as_folders_are(folders, capsys):
    assert command(["compare", *folders]) == 0
    whole = capsys.readouterr().out
    assert command(["compare", *(f"{folder}/results.json" for folder in folders)]) == 0
    assert capsys.readouterr().out == whole


def test_named_metrics_alone_are_shown_with_their_clips(folders, capsys):
    assert command(["compare", *folders, "--metric", "tr_percent", "auc_3", "--largest", "2"]) == 0
    printed = capsys.readouterr().out
    assert "CamMC" not in printed
    for label in ("tr", "AUC@3"):
        listed = printed.split(f"clips that differ most, by {label}:\n")[1].split("\n\n")[0].splitlines()
        assert sum(line.strip().startswith("scene") for line in listed) <= 2
    assert command(["compare", *folders, "--largest", "0"]) == 0
    assert "clips that differ most" not in capsys.readouterr().out


def test_json_is_one_object_with_every_clip(folders, capsys):
    assert command(["compare", *folders, "--json", "--metric", "cammc", "--seed", "4"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["a"], content["b"], content["num_clips"]) == ("rough", "fine", 5)
    assert list(content["metrics"]) == ["cammc"]
    assert len(content["metrics"]["cammc"]["clips"]) == 5
    assert content["only_b"] == ["scene 6", "scene 7"]
    assert content["settings_that_differ"]["weights_sha256"] == ["ab12", "cd34"]
    assert "seed 4" in content["protocol"]


def test_generated_frames_are_compared_on_request(folders, capsys):
    assert command(["compare", *folders, "--frames", "generated"]) == 0
    assert "generated frames alone" in capsys.readouterr().out


def test_a_reference_is_compared_only_by_name(folders, capsys):
    assert command(["compare", *folders, "--run-b", "noise floor"]) == 1
    assert "share no clip" in capsys.readouterr().err


def test_one_of_several_runs_has_to_be_named(tmp_path, capsys):
    runs = [with_cammc(label, {"a": value, "b": value}) for label, value in (("x", 1.0), ("y", 2.0))]
    write_results(tmp_path, runs)
    twice = ["compare", str(tmp_path), str(tmp_path)]
    assert command(twice) == 2
    assert "Say which: --run-a 'x' or 'y'" in capsys.readouterr().err
    assert command([*twice, "--run-a", "x", "--run-b", "y"]) == 0
    assert "+1.000" in capsys.readouterr().out
    assert command([*twice, "--run-a", "x", "--run-b", "z"]) == 1
    assert "has no run 'z'; --run-b can be 'x' or 'y'" in capsys.readouterr().err


def test_runs_of_one_label_are_told_apart_by_their_place(tmp_path, capsys):
    for name, value in (("one", 1.0), ("two", 2.0)):
        write_results(tmp_path / name, [with_cammc("generated", {"a": value, "b": value})])
    assert command(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    printed = capsys.readouterr().out
    assert f"A: generated in {tmp_path / 'one'}" in printed
    assert f"B: generated in {tmp_path / 'two'}" in printed


def test_another_command_is_refused_and_the_flag_accepts_it(tmp_path, capsys):
    for name in ("one", "two"):
        clips = [clip("a", cammc=1.0, commanded_digest=name), clip("b", cammc=1.0)]
        write_results(tmp_path / name, [run(name, clips)])
    arguments = ["compare", str(tmp_path / "one"), str(tmp_path / "two")]
    assert command(arguments) == 1
    assert "the same commanded trajectory, and 1 of 2 do not, such as a" in capsys.readouterr().err
    assert command([*arguments, "--despite", "commanded"]) == 0
    assert "warning: compared although" in capsys.readouterr().out


def test_a_misspelt_metric_is_a_usage_error_with_the_closest_name(folders, capsys):
    assert command(["compare", *folders, "--metric", "camcc"]) == 2
    assert "did you mean cammc?" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--largest", "-1"], ["--resamples", "0"]])
def test_counts_that_make_no_sense_are_usage_errors(folders, flags, capsys):
    assert command(["compare", *folders, *flags]) == 2
    assert "--largest must be 0 or more and --resamples 1 or more" in capsys.readouterr().err


def test_a_missing_file_and_another_kind_of_file_are_one_line(folders, tmp_path, capsys):
    assert command(["compare", folders[0], str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "results.json: no such file" in error
    assert error.count("\n") == 1
    (tmp_path / "results.json").write_text('{"title": "old"}', encoding="utf-8")
    assert command(["compare", folders[0], str(tmp_path)]) == 1
    assert "is not a file of evaluation results" in capsys.readouterr().err


def test_a_single_result_printed_as_json_can_be_compared(folders, tmp_path, capsys):
    scored("fine", 1.0, range(6)).write_json(tmp_path / "printed.json")
    assert command(["compare", folders[0], str(tmp_path / "printed.json")]) == 0
    assert "over the 6 clip(s)" in capsys.readouterr().out
