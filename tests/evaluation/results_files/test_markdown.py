"""results.md: as many cells in every line as in the head, marks as in the paper, and labels that render as they are."""

import re

from merope.evaluation.comparison import compare
from merope.evaluation.results_files.layout import lay_out
from merope.evaluation.results_files.markdown import escape_markdown, markdown_text
from merope.evaluation.results_files.tables import tables_of
from tests.evaluation.results_files.test_layout import TABLE_2, TABLE_2_COLUMNS, columns, entries
from tests.evaluation.scored import NASTY, with_cammc


def cells(line):
    """Cells of a table line; an escaped bar is none."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def require_rectangular(text):
    """Every table's lines have as many cells as its head; returns how many tables there are."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    for block in blocks:
        lines = block.splitlines()
        assert re.fullmatch(r"\|---(\|---:)+\|", lines[1])
        assert {len(cells(line)) for line in lines} == {len(cells(lines[0]))}
    return len(blocks)


def test_table_2_reads_as_the_paper_prints_it():
    text = markdown_text([lay_out("driving", columns(TABLE_2_COLUMNS), entries(TABLE_2_COLUMNS, TABLE_2))])
    assert require_rectangular(text) == 1
    assert text.splitlines()[-1] == (
        "| MeRoPE | **1.37** | <u>2.84</u> | 42.11 | <u>79.47</u> | **2.32** | **19.82** | **134.15** |"
    )


def test_labels_with_special_characters_keep_every_table_rectangular(results):
    tables = tables_of(results, references=["floor"])
    text = markdown_text(tables, [compare(results[0], results[1])])
    assert require_rectangular(text) == len(tables) + 1
    assert "| *floor* |" in text
    assert r"| \*C † |" in text
    assert r"- † \*C: 2 of 5 clips are scored" in text


def test_scale_treatments_stand_in_the_head(results):
    head = next(
        line for line in markdown_text(tables_of(results)).splitlines() if line.startswith("| Method")
    )
    assert "tr% ↓<br>least squares (Eq. 37)" in head
    assert "CamMC ↓<br>max norm (Eq. 38)" in head


def test_special_characters_are_escaped():
    assert escape_markdown("a|b_c*<x>\n&`[") == r"a\|b\_c\*&lt;x&gt; &amp;\`\["
    assert "|" not in re.sub(r"\\\|", "", escape_markdown(NASTY))


def test_a_label_begins_neither_a_heading_nor_a_list():
    runs = [with_cammc(label, {"a": 1.0, "b": 2.0}) for label in ("ours", "# 1", "- 2", "3. 4")]
    text = markdown_text(tables_of(runs), [compare(runs[0], other) for other in runs[1:]])
    assert text.count("Paired: ") == 3
    assert not re.search(r"^\s*(#|[-+] (?!†)|\d+\. )", text, re.MULTILINE)
