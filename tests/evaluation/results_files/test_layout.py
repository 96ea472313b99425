"""Order and marks of a table, on the numbers of the paper's own Tables 2 to 4, whose marks are printed there."""

import pytest

from merope.evaluation.results_files.layout import Column, Entry, lay_out

UP = {"auc_3", "auc_10"}
TABLE_2_COLUMNS = ("rot_deg", "tr_percent", "auc_3", "auc_10", "cammc", "fid", "fvd")
# Typed from the paper in another order than it prints.
TABLE_2 = {
    "MeRoPE": (1.37, 2.84, 42.11, 79.47, 2.32, 19.82, 134.15),
    "GTA": (1.44, 3.03, 40.53, 77.72, 2.49, 20.00, 141.84),
    "No camera PE": (5.57, 5.94, 17.21, 52.05, 7.96, 21.06, 153.31),
    "UCPE": (1.39, 2.95, 41.21, 78.38, 2.45, 20.20, 136.40),
    "RayNova": (1.56, 3.02, 41.19, 78.42, 2.66, 20.15, 144.91),
    "CameraCtrl-style": (1.54, 3.07, 42.57, 78.90, 2.63, 20.13, 142.23),
    "RayRoPE": (1.83, 2.97, 36.56, 76.62, 2.78, 21.21, 150.26),
    "URoPE": (1.66, 2.67, 44.41, 79.92, 2.53, 19.98, 135.63),
    "PRoPE": (1.53, 3.10, 42.11, 78.58, 2.67, 20.40, 142.16),
}
TABLE_3 = {
    "MeRoPE": (1.37, 2.84, 42.11, 79.47, 2.32),
    "Rot. + trans.": (1.36, 3.09, 38.82, 77.50, 2.40),
    "Disparity + trans.": (1.66, 2.88, 40.60, 78.82, 2.56),
    "Disparity + rot.": (1.48, 4.31, 44.42, 79.78, 3.66),
    "Disparity only": (1.59, 4.01, 43.19, 79.53, 3.56),
    "Rotation only": (1.41, 4.01, 42.52, 78.33, 3.35),
    "Translation only": (2.59, 3.09, 30.64, 73.50, 3.50),
}
TABLE_4_COLUMNS = ("rot_err_rad", "trans_err", "cammc")
TABLE_4A = {
    "GTA": (5.14, 19.85, 22.59),
    "PRoPE": (5.10, 20.38, 23.02),
    "UCPE": (4.22, 15.15, 17.50),
    "MeRoPE": (4.57, 10.99, 13.88),
}
TABLE_4B = {
    "GTA": (5.30, 22.70, 25.34),
    "PRoPE": (5.11, 23.04, 25.58),
    "UCPE": (4.40, 17.91, 20.13),
    "MeRoPE": (4.82, 12.66, 15.56),
}


def columns(keys, digits=2):
    return [
        Column(
            key=key,
            heading=key,
            better="higher" if key in UP else "lower",
            digits=digits,
            group="no scale",
        )
        for key in keys
    ]


def entries(keys, rows):
    return [Entry(label=label, values=dict(zip(keys, row, strict=True))) for label, row in rows.items()]


def marks(table, mark):
    """By column key, the labels of the rows that carry the mark."""
    return {
        column.key: [row.label for row in table.rows if row.cells[place].mark == mark]
        for place, column in enumerate(table.columns)
    }


def test_table_2_is_ordered_and_marked_as_the_paper_prints_it():
    table = lay_out("driving", columns(TABLE_2_COLUMNS), entries(TABLE_2_COLUMNS, TABLE_2))
    assert [row.label for row in table.rows] == [
        "No camera PE",
        "RayRoPE",
        "PRoPE",
        "RayNova",
        "CameraCtrl-style",
        "URoPE",
        "GTA",
        "UCPE",
        "MeRoPE",
    ]
    assert marks(table, "best") == {
        "rot_deg": ["MeRoPE"],
        "tr_percent": ["URoPE"],
        "auc_3": ["URoPE"],
        "auc_10": ["URoPE"],
        "cammc": ["MeRoPE"],
        "fid": ["MeRoPE"],
        "fvd": ["MeRoPE"],
    }
    # As the text beside the table says: MeRoPE is second on tr% and AUC@10, CameraCtrl-style on AUC@3, and UCPE is the
    # strongest baseline by CamMC.
    assert marks(table, "second") == {
        "rot_deg": ["UCPE"],
        "tr_percent": ["MeRoPE"],
        "auc_3": ["CameraCtrl-style"],
        "auc_10": ["MeRoPE"],
        "cammc": ["UCPE"],
        "fid": ["URoPE"],
        "fvd": ["URoPE"],
    }
    assert [cell.text for cell in table.rows[-1].cells] == [
        "1.37",
        "2.84",
        "42.11",
        "79.47",
        "2.32",
        "19.82",
        "134.15",
    ]


def test_the_best_of_table_3_are_those_in_bold_there():
    keys = TABLE_2_COLUMNS[:5]
    table = lay_out("ablation", columns(keys), entries(keys, TABLE_3))
    assert marks(table, "best") == {
        "rot_deg": ["Rot. + trans."],
        "tr_percent": ["MeRoPE"],
        "auc_3": ["Disparity + rot."],
        "auc_10": ["Disparity + rot."],
        "cammc": ["MeRoPE"],
    }


@pytest.mark.parametrize("rows", [TABLE_4A, TABLE_4B])
def test_both_panels_of_table_4_are_marked_as_the_paper_prints_them(rows):
    table = lay_out("panshot", columns(TABLE_4_COLUMNS), entries(TABLE_4_COLUMNS, rows))
    assert marks(table, "best") == {
        "rot_err_rad": ["UCPE"],
        "trans_err": ["MeRoPE"],
        "cammc": ["MeRoPE"],
    }
    assert marks(table, "second") == {
        "rot_err_rad": ["MeRoPE"],
        "trans_err": ["UCPE"],
        "cammc": ["UCPE"],
    }


def test_a_reference_stands_apart_and_takes_no_mark():
    rivals = entries(TABLE_2_COLUMNS, TABLE_2)
    floor = Entry(label="floor", values=dict.fromkeys(TABLE_2_COLUMNS, 0.01), reference=True)
    table = lay_out("driving", columns(TABLE_2_COLUMNS), [floor, *rivals])
    assert [row.label for row in table.references] == ["floor"]
    assert {cell.mark for cell in table.references[0].cells} == {"none"}
    assert marks(table, "best") == marks(lay_out("driving", columns(TABLE_2_COLUMNS), rivals), "best")


def test_a_run_that_is_not_comparable_keeps_its_place_and_takes_no_mark():
    rivals = [
        Entry(
            label=entry.label,
            values=entry.values,
            problem="few clips" if entry.label == "MeRoPE" else None,
        )
        for entry in entries(TABLE_2_COLUMNS, TABLE_2)
    ]
    table = lay_out("driving", columns(TABLE_2_COLUMNS), rivals)
    assert (table.rows[-1].label, table.rows[-1].problem) == ("MeRoPE", "few clips")
    assert {cell.mark for cell in table.rows[-1].cells} == {"none"}
    assert marks(table, "best")["cammc"] == ["UCPE"]
    assert marks(table, "second")["cammc"] == ["GTA"]


def simple(*values, **kwargs):
    found = [Entry(label=f"run {n}", values={"cammc": value}) for n, value in enumerate(values)]
    return lay_out("t", columns(["cammc"], **kwargs), found)


def test_equal_digits_are_both_best_and_the_next_is_second():
    table = simple(2.321, 2.319, 2.5, 3.0)
    assert marks(table, "best")["cammc"] == ["run 0", "run 1"]
    assert marks(table, "second")["cammc"] == ["run 2"]
    # With three digits one of them is better.
    assert marks(simple(2.321, 2.319, 2.5, digits=3), "best")["cammc"] == ["run 1"]


def test_one_run_has_no_best_and_two_have_no_second():
    assert marks(simple(1.0), "best")["cammc"] == []
    assert marks(simple(1.0, 2.0), "best")["cammc"] == ["run 0"]
    assert marks(simple(1.0, 2.0), "second")["cammc"] == []


def test_what_should_be_one_is_ranked_by_its_distance():
    column = Column(key="scale", heading="s*", better="one", digits=2, group="x")
    values = {"far": 3.0, "below": 0.9, "above": 1.1, "negative": -1.0}
    rows = [Entry(label=label, values={"scale": value}) for label, value in values.items()]
    table = lay_out("beside", [column], rows)
    assert sorted(marks(table, "best")["scale"]) == ["above", "below"]
    assert sorted(marks(table, "second")["scale"]) == ["far", "negative"]


def test_a_metric_without_a_direction_is_never_marked():
    column = Column(key="x", heading="x", better="none", digits=2, group="x")
    rows = [Entry(label=str(n), values={"x": float(n)}) for n in range(4)]
    assert {cell.mark for row in lay_out("t", [column], rows).rows for cell in row.cells} == {"none"}


def test_undefined_cells_are_empty_and_runs_without_cammc_come_first():
    found = [Entry(label="a", values={"cammc": 9.0}), Entry(label="b", values={"rot_deg": 0.1})]
    table = lay_out("t", columns(["rot_deg", "cammc"]), found)
    assert [(row.label, [cell.text for cell in row.cells]) for row in table.rows] == [
        ("b", ["0.10", ""]),
        ("a", ["", "9.00"]),
    ]


def test_neighbours_with_one_scale_treatment_share_a_heading():
    made = [
        Column(key=key, heading=key, better="lower", digits=2, group=group)
        for key, group in zip("abcd", ["x", "y", "y", "x"], strict=True)
    ]
    assert lay_out("t", made, []).groups == [("x", 1), ("y", 2), ("x", 1)]
