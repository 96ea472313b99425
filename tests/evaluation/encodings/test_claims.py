"""Table 1 is a test: what the paper says of every encoding is what is measured, and so is what its class says."""

import json
import math
from dataclasses import dataclass, replace

import pytest
import torch

from merope.cameras.scenes import random_drive
from merope.encodings import HeadLayout, MeRoPE
from merope.encodings.base import Claims
from merope.encodings.crepe import CRePE
from merope.encodings.measures import measure
from merope.encodings.pairwise import operator_of, without_warnings
from merope.encodings.rayrope import RayRoPE
from merope.encodings.registry import ENCODINGS
from merope.evaluation.encodings.claims import (
    NOTES,
    PAPER_TABLE_1,
    claims_table,
    encoding_names,
)
from tests.encodings.planted import Displacement


@pytest.fixture(scope="module")
def measured():
    """Measurements of every registered encoding."""
    return {name: measure(kind()) for name, kind in ENCODINGS.items()}


@pytest.fixture(scope="module")
def table():
    """Four rows, of which each has something to say."""
    return claims_table(("merope", "rayrope", "gta", "native"))


def test_the_paper_s_table_is_what_the_paper_prints():
    printed = {
        "cape": (True, True, False),
        "gta": (True, True, False),
        "prope": (True, True, False),
        "ucpe": (True, True, False),
        "raynova": (False, True, True),
        "viewrope": (False, True, True),
        "urope": (False, False, True),
        "rayrope": (False, False, False),
        "crepe": (False, False, False),
        "merope": (True, False, True),
    }
    assert list(PAPER_TABLE_1) == list(printed)
    for name, claims in PAPER_TABLE_1.items():
        assert (claims.metric, claims.per_token, claims.norm_preserving) == printed[name]


@pytest.mark.parametrize("name", PAPER_TABLE_1)
def test_table_1_holds(name, measured):
    assert measured[name].claims == PAPER_TABLE_1[name]


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_class_says_of_itself_what_is_measured(name, measured):
    assert measured[name].claims == ENCODINGS[name]().claims


@pytest.mark.parametrize("name", ENCODINGS)
def test_no_verdict_hangs_on_its_threshold(name, measured):
    found = measured[name]
    for value, none, some in (
        (found.dependence.largest, 1e-10, 1e-2),
        (found.sensitivity.metric, 1e-12, 1e-2),
        (found.factorisation, 1e-12, 1e-1),
        (found.norm.largest, 1e-12, 1e-1),
    ):
        assert value < none or value > some


def test_nothing_has_all_three(measured):
    # Theorem 1, over what there is: an encoding that sees translation lacks one of them.
    for name, found in measured.items():
        claims = found.claims
        assert not (claims.metric and claims.per_token and claims.norm_preserving), name


@pytest.mark.parametrize("encoding", [RayRoPE(), CRePE()])
def test_the_displacement_band_beside_predicted_depths_is_the_translation_band(encoding):
    encoding, view_rays = without_warnings(encoding), random_drive(3)
    periods = 4.0, 4.0 / (243.0 if isinstance(encoding, CRePE) else 3.0**4)
    pairs = encoding.num_frequencies
    ours = MeRoPE(
        layout=HeadLayout(disp=0, rot=0, trans=6 * pairs, native=(128 - 6 * pairs, 0, 0)),
        wavelength_min=periods[1],
        wavelength_max=periods[0],
    )
    translation = ours.operator(view_rays, dtype=torch.float64)
    expected = translation.band_pairs(translation.bands[0])
    # Longest wave first in theirs, shortest first in ours, for each axis.
    expected = expected.unflatten(4, (3, pairs)).flip(5).flatten(4, 5)
    for factor in (1.0, 3.0):
        operator = operator_of(encoding, view_rays, depth_factor=factor)
        (band,) = [band for band in operator.bands if band.name == "trans"]
        found = operator.band_pairs(band).expand_as(expected.repeat_interleave(1, 2))
        torch.testing.assert_close(found, expected.expand_as(found), rtol=0, atol=1e-9)


def test_notes_say_why_and_are_about_encodings_that_exist(table):
    assert set(NOTES) <= set(ENCODINGS)
    by_name = {row.name: row for row in table.rows}
    assert by_name["merope"].notes == () and by_name["gta"].notes == ()
    assert by_name["native"].notes == ("no pose",)
    assert by_name["rayrope"].notes[0] == "depends on predicted depths"
    assert "displacement band is that of Eq. 8" in by_name["rayrope"].notes[1]


def test_a_disagreement_with_the_paper_is_a_note(table):
    row = replace(table.rows[0], paper=Claims(metric=True, per_token=True, norm_preserving=True))
    assert row.notes == ("the paper has Y Y Y",)


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("raynova", ["depends on where the clip's first view is"]),
        ("viewrope", ["no translation"]),
        ("distance-decay", ["no direction of translation", "no rotation"]),
    ],
)
def test_reasons_are_read_off_the_numbers(name, notes, measured, table):
    row = replace(table.rows[0], name=name, measured=measured[name], paper=None)
    assert list(row.notes) == notes


def test_a_projecting_encoding_loses_translation_to_depth(measured, table):
    row = replace(table.rows[0], name="urope", measured=measured["urope"], paper=None)
    assert row.notes == ("translation vanishes when the scene's depth grows with it",)


@dataclass(frozen=True, kw_only=True)
class Heights(Displacement):
    """The vertical part of a displacement alone."""

    turns: bool = True

    @property
    def head_dim(self):
        return super().head_dim - (0 if self.turns else 3)

    def coordinates(self, offsets):
        return offsets * torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)

    def bands(self, queries, keys):
        turn, moved = super().bands(queries, keys)
        return (turn, moved) if self.turns else (moved,)


@pytest.mark.parametrize(
    ("turns", "notes"), [(True, ()), (False, ("no rotation",))], ids=["with rotation", "without"]
)
def test_an_encoding_that_sees_one_axis_is_not_blind(turns, notes, monkeypatch):
    monkeypatch.setattr(
        "merope.evaluation.encodings.claims.encoding_kind", lambda name: lambda: Heights(turns=turns)
    )
    table = claims_table(("heights",))
    (row,) = table.rows
    assert row.notes == ("sees no translation right, left, ahead, behind", *notes)
    assert row.axis == "down"
    # Waves of 3 and 5 metres meet after 15.
    assert row.reach.unambiguous == pytest.approx(15, abs=0.2)
    assert "m down" in table.to_text() and "blind" not in table.to_markdown()


def test_json_has_every_number_and_no_other_thing(table):
    written = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert [row["name"] for row in written["encodings"]] == ["merope", "rayrope", "gta", "native"]
    merope, _, gta, native = written["encodings"]
    assert merope["measured"] == merope["paper"] == merope["stated"]
    assert merope["translation_range_m"]["unambiguous"] == pytest.approx(188.0, abs=0.1)
    assert len(gta["growth"]["logits"]) == len(written["baselines_m"]) == 9
    assert gta["growth"]["logit_slope"] == pytest.approx(1, abs=0.01)
    assert native["paper"] is None
    assert len(written["conventions"]) >= 5 and all(math.isfinite(v) for v in written["thresholds"].values())


def test_markdown_is_one_table_with_equal_rows(table):
    lines = table.to_markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 4
    assert {row.count("|") for row in rows} == {13}
    assert "| `merope` (MeRoPE) | Yes | No | Yes | Y N Y |" in rows[2]
    assert "188 m" in rows[2]
    assert "as b^1.00" in rows[4]


def test_text_has_a_line_per_encoding_and_fits_a_terminal(table):
    lines = table.to_text().splitlines()
    assert max(map(len, lines)) <= 110
    starts = [line.split()[0] for line in lines[:5]]
    assert starts == ["encoding", "merope", "rayrope", "gta", "native"]
    assert lines[1].split()[1:7] == ["Y", "N", "Y", "Y", "N", "Y"]


def test_the_paper_s_rows_come_first_and_all_encodings_follow():
    names = encoding_names()
    assert names[:10] == tuple(PAPER_TABLE_1)
    assert sorted(names) == sorted(ENCODINGS)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown encoding 'mrope'.*Did you mean 'merope'\?"):
        claims_table(("mrope",))
