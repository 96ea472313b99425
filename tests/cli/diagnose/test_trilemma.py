"""`merope diagnose trilemma`: numbers, a plot and tables, whatever the size."""

import json

import pytest

from merope.cli.main import run
from merope.evaluation.encodings import trilemma

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def small(monkeypatch, output, *options):
    monkeypatch.setattr(trilemma, "_HELD_OUT", 12)
    monkeypatch.setattr(trilemma, "placeable", lambda: ["gta", "viewrope"])
    sizes = ["--seeds", "1", "--dims", "4", "8", "12", "--steps", "2"]
    return run(["diagnose", "trilemma", "--output", str(output), *sizes, *options])


def test_tables_files_and_plot(tmp_path, monkeypatch, capsys):
    assert small(monkeypatch, tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "gta" in printed and "viewrope" in printed
    assert str(tmp_path / "out") in printed
    content = json.loads((tmp_path / "out" / "trilemma.json").read_text(encoding="utf-8"))
    assert content["config"]["translation_range"] == 20.0
    assert {descent["dim"] for descent in content["descents"]} == {4, 8, 12}
    assert (tmp_path / "out" / "trilemma.png").stat().st_size > 10_000


def test_json_prints_what_the_file_holds(tmp_path, monkeypatch, capsys):
    assert small(monkeypatch, tmp_path / "out", "--json", "--translation-range", "5") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "trilemma.json").read_text(encoding="utf-8"))
    assert printed["config"]["translation_range"] == 5.0


def test_a_dimension_that_does_not_fit_is_one_line(tmp_path, capsys):
    assert run(["diagnose", "trilemma", "--output", str(tmp_path), "--dims", "4", "6", "8"]) == 1
    assert "multiples of 4" in capsys.readouterr().err


def test_a_folder_that_cannot_be_is_one_line_before_the_search(tmp_path, monkeypatch, capsys):
    def never(config):
        raise AssertionError("searched")

    monkeypatch.setattr("merope.evaluation.encodings.trilemma.run_trilemma", never)
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run(["diagnose", "trilemma", "--output", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"merope diagnose trilemma: {tmp_path / 'file'}: file exists\n"
