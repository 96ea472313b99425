"""`merope diagnose claims`: what it prints, what it writes, and how it ends."""

import json
import sys
from pathlib import Path

import pytest

from merope.cli.diagnose.claims import _folder
from merope.cli.main import run


def test_the_table_is_printed_and_written(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    out = tmp_path / "new"
    assert run(["diagnose", "claims", "--encoding", "viewrope", "gta", "--output", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "viewrope  N Y Y  N Y Y" in printed
    assert "viewrope: no translation." in printed
    assert str(out) in printed
    assert sorted(path.name for path in out.iterdir()) == ["claims.json", "claims.md", "growth.png"]
    assert [row["name"] for row in json.loads((out / "claims.json").read_text())["encodings"]] == [
        "viewrope",
        "gta",
    ]


def test_some_encodings_have_a_folder_of_their_own_and_each_is_measured_once(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    monkeypatch.chdir(tmp_path)
    assert run(["diagnose", "claims", "--encoding", "none", "native", "none"]) == 0
    capsys.readouterr()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["claims-none-native"]
    written = json.loads((tmp_path / "out" / "claims-none-native" / "claims.json").read_text())
    assert [row["name"] for row in written["encodings"]] == ["none", "native"]


@pytest.mark.parametrize(
    ("names", "folder"),
    [((), "claims"), (("gta", "ucpe"), "claims-gta-ucpe"), (tuple("abcde"), "claims-a-b-c-and-2-more")],
)
def test_the_default_folder_names_a_few_encodings_and_counts_the_others(names, folder):
    assert _folder(names) == Path("out") / folder


@pytest.mark.parametrize("flag", ["--markdown", "--json"])
def test_for_other_programs_it_prints_and_writes_nothing(flag, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["diagnose", "claims", "--encoding", "none", flag]) == 0
    printed = capsys.readouterr().out
    if flag == "--json":
        assert json.loads(printed)["encodings"][0]["notes"] == ["no pose"]
    else:
        assert printed.startswith("| encoding | (A) | (B) | (C) | paper |")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_encoding_is_one_line_with_the_nearest(capsys):
    assert run(["diagnose", "claims", "--encoding", "viewrop", "--json"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("merope diagnose claims: unknown encoding 'viewrop'")
    assert error.endswith("Did you mean 'viewrope'?\n")


def test_help_names_what_is_measured(capsys):
    with pytest.raises(SystemExit) as stop:
        run(["diagnose", "claims", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "Table 1" in text and "--markdown" in text


def test_a_folder_that_cannot_be_is_one_line_before_the_measurements(tmp_path, monkeypatch, capsys):
    def never(names, progress):
        raise AssertionError("measured")

    monkeypatch.setattr("merope.evaluation.encodings.claims.claims_table", never)
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run(["diagnose", "claims", "--output", str(tmp_path / "file" / "out")]) == 1
    assert "not a directory" in capsys.readouterr().err


def test_progress_is_on_stderr_of_a_terminal_and_leaves_json_alone(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(["diagnose", "claims", "--encoding", "none", "native", "--json"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["encodings"]) == 2
    assert "encodings: 100%" in printed.err and "2/2" in printed.err
