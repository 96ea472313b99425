"""`merope benchmark`: reports are complete and valid whatever the weights."""

import json

import pytest

from merope.cli.main import run
from tests.support.shared import shared_file
from tests.support.standin import standin_weights

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def benchmark(which, output, *options):
    weights = ["--weights", str(standin_weights()), "--output", str(output), "--steps", "1"]
    return run(["benchmark", which, *weights, *options])


def strict_json(path):
    def refuse(name):
        raise AssertionError(f"{path} holds {name}, which is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_held_out_measures_every_model_and_the_floor(tmp_path, capsys, monkeypatch):
    # Figures over all runs take longer than all else here; example 12 and the report's own tests draw them.
    monkeypatch.setattr("merope.evaluation.report.page.overview_figures", lambda book, runs: [])
    kitti = shared_file("data/kitti_odom/poses")
    assert benchmark("held-out", tmp_path / "out", "--worlds", "2", "--kitti", str(kitti)) == 0
    content = strict_json(tmp_path / "out" / "excess.json")
    assert set(content["cammc"]) == {"MeRoPE", "no camera encoding", "noise floor"}
    for label, excess in content["excess"].items():
        assert excess == pytest.approx(content["cammc"][label] - content["cammc"]["noise floor"])
    wanted = content["excess"]["MeRoPE"] / content["excess"]["no camera encoding"]
    assert content["ratio"] == pytest.approx(wanted)
    results = strict_json(tmp_path / "out" / "results.json")
    assert "worlds-2-kitti" in json.dumps(results)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "kitti-01" in page and len(list((tmp_path / "out" / "figures").glob("*.pdf"))) >= 1
    printed = capsys.readouterr().out
    assert "6 clips" in printed
    assert "CamMC above the noise floor" in printed
    # Stand-in weights are of another size; names and number of the clips are those of the benchmark.
    assert "worlds-2-kitti: not comparable" in printed
    assert "missing" not in printed and "no clips of the split" not in printed
    assert "other weights" in printed


def test_metres_fits_a_line_for_every_model(tmp_path, capsys):
    assert benchmark("metres", tmp_path / "out", "--worlds", "2") == 0
    content = strict_json(tmp_path / "out" / "metres.json")
    assert len(content["commanded"]) == 6
    for label in ("MeRoPE", "no camera encoding", "noise floor"):
        assert len(content["recovered"][label]) == 6
        assert {"slope", "intercept", "r_squared"} == set(content["lines"][label])
    # Three commands of each prefix: half, once and twice the metres.
    half, one, two = content["commanded"][:3]
    assert half < one < two
    assert one == pytest.approx(2 * half, rel=0.05)
    assert (tmp_path / "out" / "metres.png").stat().st_size > 1000
    assert "slope" in capsys.readouterr().out


def test_metres_are_kept_where_the_drawing_fails(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr("merope.evaluation.plots.metres.plot_metres", fail)
    with pytest.raises(OSError, match="no space left"):
        benchmark("metres", tmp_path / "out", "--worlds", "1")
    assert len(strict_json(tmp_path / "out" / "metres.json")["commanded"]) == 3


def test_a_missing_plot_package_is_found_before_the_weights_are_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("merope.cli.extras.find_spec", lambda name: None)
    assert run(["benchmark", "metres", "--weights", str(tmp_path / "none")]) == 1
    assert "pip install 'merope[plot]'" in capsys.readouterr().err
    assert run(["benchmark", "held-out", "--weights", str(tmp_path / "none")]) == 1
    assert "pip install 'merope[plot]'" in capsys.readouterr().err


def test_missing_weights_are_named(tmp_path, capsys):
    assert run(["benchmark", "held-out", "--weights", str(tmp_path / "none")]) == 1
    assert "no model here" in capsys.readouterr().err


def test_missing_kitti_folder_is_one_line(tmp_path, capsys):
    assert benchmark("held-out", tmp_path / "out", "--kitti", str(tmp_path / "none")) == 1
    error = capsys.readouterr().err
    assert "00.txt" in error
    assert error.count("\n") == 1
