"""Tables of runs: their columns, the protocol in the caption, and who may not stand beside the others."""

from dataclasses import replace

import pytest

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.protocol import SPECS, Metric
from merope.evaluation.results_files.tables import problem_of, tables_of
from tests.evaluation.scored import clip, pairs, run, with_cammc

FULL = {"rot_deg": 1.0, "tr_percent": 2.0, "cammc": 3.0, "rot_err_rad": 0.5, "trans_err": 0.25}


def full(label, names="abc", *, cammc=3.0, given=None, **kwargs):
    values = FULL | {"cammc": cammc}
    return run(label, [clip(name, pairs((40,)), given=given, **values) for name in names], **kwargs)


def test_the_papers_tables_have_the_papers_columns():
    driving, panshot, *_ = tables_of([full("A")])
    assert (driving.name, panshot.name) == ("driving", "panshot")
    assert [f"{column.heading} {column.arrow}" for column in driving.columns] == [
        "rot° ↓",
        "tr% ↓",
        "AUC@3 ↑",
        "AUC@10 ↑",
        "CamMC ↓",
    ]
    assert [column.heading for column in panshot.columns] == ["RotErr (rad)", "TransErr", "CamMC"]
    assert [cell.text for cell in driving.rows[0].cells] == ["1.00", "2.00", "40.00", "40.00", "3.00"]


def test_lengths_are_in_the_unit_that_all_rows_share():
    def heading(*units):
        rows = [run(str(n), [clip("a", ate_se3=1.0, cammc=1.0, unit=unit)]) for n, unit in enumerate(units)]
        table = next(table for table in tables_of(rows) if table.name == "trajectory")
        return table.columns[0].heading

    assert heading("m", "m") == "ATE SE(3) (m)"
    assert heading("m", "normalized") == "ATE SE(3) (commanded unit)"


def test_scale_treatments_stand_over_their_columns():
    driving, panshot, *_ = tables_of([full("A")])
    assert driving.groups == [
        ("no scale", 1),
        ("least squares (Eq. 37)", 1),
        ("no scale", 2),
        ("max norm (Eq. 38)", 1),
    ]
    assert panshot.groups == [("no scale", 1), ("max norm (Eq. 38)", 2)]


def test_the_caption_says_the_protocol_in_words():
    a, b = (
        full(label, settings={"estimator": {"name": "vggt-omega"}}, cammc=cammc)
        for label, cammc in (("A", 3.0), ("B", 2.0))
    )
    caption = tables_of([a, b])[0].caption
    for words in (
        "T = 49 frames",
        "3 of 3 clips",
        "all T frames of a clip count.",
        "relative to the first frame",
        "tr%: least squares (Eq. 37)",
        "CamMC: max norm (Eq. 38)",
        "Cameras: vggt-omega.",
        "AUC is pooled",
        "highest CamMC to the lowest",
        "Best in bold.",
    ):
        assert words in caption
    assert "underlined" not in caption
    assert "underlined" in tables_of([a, b, full("C")])[0].caption
    assert "bold" not in tables_of([a])[0].caption


def test_different_estimators_are_named_with_their_rows():
    caption = tables_of([full("A", settings={"estimator": "colmap"}), full("B")])[0].caption
    assert "Cameras: colmap (A); poses as given (B)." in caption


def test_a_run_with_missing_clips_is_marked_with_the_count():
    whole, part = full("whole", "abcd"), full("part", "abc", num_expected=4)
    assert problem_of(whole, [whole, part]) is None
    problem = problem_of(part, [whole, part])
    assert "3 of 4 clips are scored" in problem
    assert "1 of their 4 are missing, 0 are others" in problem
    table = tables_of([whole, part])[0]
    assert any(note.startswith("† part: 3 of 4 clips") for note in table.notes)
    assert "3 of 4 clips (part)" in table.caption
    assert "† not comparable." in table.caption
    assert {cell.mark for row in table.rows for cell in row.cells} == {"none"}


def test_a_verdict_speaks_before_the_count():
    verdict = Verdict(
        benchmark="nuscenes-384", num_expected=384, num_used=3, reasons=("381 clips are missing.",)
    )
    result = full("A", verdict=verdict, num_expected=384)
    assert problem_of(result, [result]) == "nuscenes-384: 381 clips are missing."


def test_most_rows_say_which_clips_are_the_usual_ones():
    usual = [full(label, "abc") for label in ("one", "two")]
    more = full("more", "abcd")
    assert [problem_of(result, [*usual, more]) for result in usual] == [None, None]
    assert "0 of their 3 are missing, 1 are others" in problem_of(more, [*usual, more])


def test_two_runs_on_other_clips_are_both_not_comparable():
    one, other = full("one", "ab"), full("other", "xy")
    for result in (one, other):
        assert problem_of(result, [one, other]) == "no two rows are on the same clips"


def test_another_command_is_not_comparable():
    usual = [full(label) for label in ("one", "two")]
    changed = [clip(name, pairs((40,)), **FULL) for name in "ab"]
    changed.append(clip("c", pairs((40,)), commanded_digest="another", **FULL))
    odd = run("odd", changed)
    assert problem_of(usual[0], [*usual, odd]) is None
    assert problem_of(odd, [*usual, odd]) == "1 clip(s) followed another command than in the other rows"
    # Of two alone neither is the right one.
    assert all(problem_of(result, [usual[0], odd]) for result in (usual[0], odd))


def test_a_reference_may_be_on_clips_of_its_own():
    rivals, floor = [full("A"), full("B", cammc=2.0)], full("floor", "xyz", cammc=0.1)
    assert problem_of(floor, [*rivals, floor], ["floor"]) is None
    assert problem_of(rivals[0], [*rivals, floor], ["floor"]) is None
    table = tables_of([floor, *rivals], references=["floor"])[0]
    assert [row.label for row in table.rows] == ["A", "B"]
    assert [row.label for row in table.references] == ["floor"]
    assert "references and do not compete" in table.caption


def metric(value, protocol="512 clips, I3D", reason=None):
    return Metric(value=value, unit="1", protocol=protocol, reason=reason)


def test_fid_and_fvd_are_columns_of_the_first_table_alone():
    fidelity = {"A": {"fid": metric(19.82), "fvd": metric(134.15)}, "B": {"fid": metric(21.0)}}
    first, second, *_ = tables_of([full("A"), full("B", cammc=2.0)], fidelity=fidelity)
    assert [column.heading for column in first.columns][-2:] == ["FID", "FVD"]
    assert [[cell.text for cell in row.cells][-2:] for row in first.rows] == [
        ["19.82", "134.15"],
        ["21.00", ""],
    ]
    assert first.rows[0].cells[-2].mark == "best"
    assert "FID: 512 clips, I3D" in first.notes
    assert "FID" not in [column.heading for column in second.columns]


def test_figures_of_two_detectors_never_share_a_column():
    fidelity = {"A": {"fvd": metric(100.0, "I3D one")}, "B": {"fvd": metric(50.0, "I3D two")}}
    table = tables_of([full("A"), full("B", cammc=2.0)], fidelity=fidelity)[0]
    assert [column.heading for column in table.columns][-2:] == ["FVD (1)", "FVD (2)"]
    assert [[cell.text for cell in row.cells][-2:] for row in table.rows] == [["100.00", ""], ["", "50.00"]]
    assert {cell.mark for row in table.rows for cell in row.cells[-2:]} == {"none"}
    assert {"FVD (1): I3D one", "FVD (2): I3D two"} <= set(table.notes)


def test_fidelity_of_no_run_and_undefined_fidelity_are_said():
    fidelity = {"A": {"fid": metric(None, reason="too few frames")}, "stranger": {"fid": metric(3.0)}}
    notes = tables_of([full("A")], fidelity=fidelity)[0].notes
    assert "FID of A: too few frames" in notes
    assert any("stranger" in note and "no run here has that label" in note for note in notes)


def test_generated_frames_have_tables_of_their_own():
    tables = tables_of([full("A", given=9)])
    assert [table.name for table in tables][:2] == ["driving", "panshot"]
    generated = next(table for table in tables if table.name == "driving-generated")
    assert "generated frames alone" in generated.caption
    assert all("generated" not in table.name for table in tables_of([full("A")]))


def test_metrics_that_no_run_has_take_no_column_and_excluded_clips_are_noted():
    why = {"tr_percent": "the command stands still (chord 0 m)"}
    result = run("A", [clip("a", cammc=1.0, reasons=why), clip("b", cammc=2.0, tr_percent=5.0)])
    driving = tables_of([result])[0]
    assert [column.key for column in driving.columns] == ["tr_percent", "auc_3", "auc_10", "cammc"]
    assert "tr: 1 of 2 clips of A excluded: the command stands still" in driving.notes


@pytest.mark.parametrize("num", [1, 2])
def test_runs_without_any_number_make_no_table(num):
    empty = [run(f"run {n}", [clip("a", pairs(num=0))]) for n in range(num)]
    assert tables_of(empty) == []
    assert tables_of([with_cammc("A", {"a": 1.0})]) != []


@pytest.mark.parametrize(("units", "named"), [(("m", "m"), "m"), (("m", "normalized"), "commanded unit")])
def test_a_column_has_the_unit_that_all_clips_share(units, named):
    rows = [run(label, [clip("a", ate_se3=1.0, unit=unit)]) for label, unit in zip("AB", units, strict=True)]
    columns = [column for table in tables_of(rows) for column in table.columns if column.key == "ate_se3"]
    assert [(column.unit, column.heading) for column in columns] == [(named, f"ATE SE(3) ({named})")]
    assert SPECS["ate_se3"].in_unit(columns[0].unit).unit == named
    assert rows[0].summary()["ate_se3"].metric.unit == "m"


def test_the_caption_has_given_frames_only_where_a_clip_has_some():
    assert "given ones" not in tables_of([full("A")])[0].caption
    row = full("A")
    given = replace(row, clips=tuple(replace(one, first_generated=9) for one in row.clips))
    assert "all T frames of a clip count, given ones included" in tables_of([given])[0].caption
