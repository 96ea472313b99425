"""`merope encodings`: every encoding is there, with what the code says of it and nothing else."""

import json

import pytest

from merope.cli.encodings import described
from merope.cli.main import run
from merope.encodings import MeRoPE
from merope.encodings.registry import ENCODINGS


@pytest.fixture(scope="module")
def listed():
    return {name: described(kind()) for name, kind in ENCODINGS.items()}


def test_every_encoding_is_a_row_and_a_source(capsys):
    assert run(["encodings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split()[0] for line in lines if line]
    for name in ENCODINGS:
        assert starts.count(name) == 2
    assert all(line == line.rstrip() for line in lines)


def test_json_is_one_object_by_name(capsys, listed):
    assert run(["encodings", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == listed


def test_merope_redoes_disparity_and_translation_per_query_camera(listed):
    layout = MeRoPE().resolved_layout
    assert listed["merope"]["grouped_channels"] == layout.disp + layout.trans == 60
    assert listed["merope"]["claims"] == {"metric": True, "per_token": False, "norm_preserving": True}
    assert listed["merope"]["needs"] == []


def test_what_is_needed_is_named(listed):
    assert listed["rayrope"]["needs"] == ["lens", "depth", "scale"]
    assert listed["urope"]["needs"] == ["lens"]
    assert listed["recammaster"]["added_features"] == 12
    assert listed["none"]["placement"] == "none"


def test_an_encoding_costs_more_than_once_per_token_exactly_if_it_does_not_claim_to_factor(listed):
    for name, entry in listed.items():
        assert (entry["grouped_channels"] > 0) == (not entry["claims"]["per_token"]), name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("merope", "per token and query camera on 60 of 128 channels"),
        ("gta", "per token"),
        ("scope", "per token, and a learned map of 7 numbers"),
        ("none", "none"),
    ],
)
def test_the_cost_is_said_in_words(name, words, capsys):
    run(["encodings"])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{name} "))
    assert row.endswith(words)
