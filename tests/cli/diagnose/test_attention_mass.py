"""`merope diagnose attention-mass`: trained folders and fresh models side by side."""

import json

import pytest

from merope.cli import street
from merope.cli.main import run
from tests.support.standin import standin_weights

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")

SMALL = ("--clips", "1", "--steps", "1", "4")


def mass(output, *options):
    return run(["diagnose", "attention-mass", "--output", str(output), *SMALL, *options])


def test_trained_folders_give_a_table_numbers_and_a_plot(tmp_path, capsys):
    folders = [str(standin_weights() / name) for name in ("merope", "native")]
    assert mass(tmp_path / "out", "--weights", *folders) == 0
    printed = capsys.readouterr().out
    assert "merope" in printed and "frames back" in printed and str(tmp_path / "out") in printed
    content = json.loads((tmp_path / "out" / "attention-mass.json").read_text(encoding="utf-8"))
    assert list(content["models"]) == ["merope", "native"]
    for name, result in content["models"].items():
        assert result["encoding"]["name"] == name
        assert result["steps"] == [1.0, 4.0]
        assert set(result["blocks"]) == {"0", "1"}
        assert all(sum(row) == pytest.approx(1) for row in result["mass"])
    native = content["models"]["native"]["mass"]
    assert native[0] == native[1]
    assert (tmp_path / "out" / "attention-mass.png").stat().st_size > 10_000


def test_fresh_models_have_a_scale_and_equal_seeds_give_equal_numbers(tmp_path, capsys):
    for output in ("one", "two"):
        assert mass(tmp_path / output, "--encoding", "gta", "--json") == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed == json.loads((tmp_path / output / "attention-mass.json").read_text(encoding="utf-8"))
    one, two = ((tmp_path / name / "attention-mass.json").read_text() for name in ("one", "two"))
    assert one == two
    assert printed["models"]["gta, untrained"]["encoding"]["scale"]["per_metre"] < 1


def test_by_default_the_shipped_models_stand_beside_fresh_ones(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(street, "WEIGHTS", standin_weights())
    monkeypatch.setattr("merope.cli.diagnose.attention_mass._FRESH", ())
    assert mass(tmp_path / "out") == 0
    content = json.loads((tmp_path / "out" / "attention-mass.json").read_text(encoding="utf-8"))
    assert list(content["models"]) == ["merope", "native"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--weights", "nowhere"), "no model here"),
        (("--encoding", "nobody"), "unknown encoding"),
        (("--sigma", "1.5"), "--sigma must lie"),
        (("--encoding", "none"), "none has no camera attention to look at"),
    ],
)
def test_a_wrong_wish_is_one_line(tmp_path, capsys, options, message):
    assert mass(tmp_path, *options) == 1
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


@pytest.mark.parametrize(("last", "message"), [("none", "use native"), ("nobody", "unknown encoding")])
def test_every_name_is_looked_at_before_anything_is_computed(tmp_path, capsys, monkeypatch, last, message):
    def never(*arguments, **options):
        raise AssertionError("computed")

    monkeypatch.setattr("merope.generation.load_video_model", never)
    monkeypatch.setattr("merope.cli.diagnose.attention_mass._fresh", never)
    assert mass(tmp_path / "out", "--encoding", "gta", last) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
