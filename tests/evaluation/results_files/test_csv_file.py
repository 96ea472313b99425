"""results.csv: a row for each clip, run and set of frames, and numbers that come back with every digit."""

import csv
import io

from merope.evaluation.protocol import SPECS
from merope.evaluation.results_files.csv_file import csv_text
from tests.evaluation.scored import clip, pairs, run


def rows(results, **kwargs):
    return list(csv.DictReader(io.StringIO(csv_text(results, **kwargs))))


def test_every_clip_of_every_run_has_a_row_for_each_set_of_frames():
    one = run("one", [clip("a", given=9, cammc=1.0), clip("b", cammc=2.0)])
    other = run("other", [clip("a", cammc=3.0)])
    found = rows([one, other], references=["other"])
    assert [(row["run"], row["clip"], row["frames"], row["reference"]) for row in found] == [
        ("one", "a", "all", "false"),
        ("one", "a", "generated", "false"),
        ("one", "b", "all", "false"),
        ("other", "a", "all", "true"),
    ]
    assert [row["first_generated"] for row in found] == ["9", "9", "", ""]


def test_numbers_come_back_with_every_digit_and_undefined_cells_are_empty():
    row = rows([run("one", [clip("a", pairs((7,), num=30, vanishing=2), cammc=0.1 + 0.2, scale=-1e-17)])])[0]
    assert float(row["cammc"]) == 0.1 + 0.2
    assert float(row["scale"]) == -1e-17
    assert float(row["auc_3"]) == 100 * 7 / 30
    assert row["tr_percent"] == ""
    assert (row["num_pairs"], row["num_pairs_with_vanishing_translation"]) == ("30", "2")
    assert set(SPECS) <= set(row)


def test_flags_and_labels_with_commas_and_lines_stay_in_their_cells():
    flagged = clip("a,b", flags={"reversed": "x", "static_estimate": "y"})
    row = rows([run('my "run",\nsecond line', [flagged])])[0]
    assert (row["run"], row["clip"], row["flags"]) == (
        'my "run",\nsecond line',
        "a,b",
        "reversed;static_estimate",
    )
