"""results.tex: every brace closes, every row has as many cells as its table has columns, and labels print as they are."""

import re

import pytest

from merope.evaluation.comparison import compare
from merope.evaluation.results_files.latex import escape_latex, latex_text
from merope.evaluation.results_files.layout import lay_out
from merope.evaluation.results_files.tables import tables_of
from tests.evaluation.results_files.test_layout import TABLE_2, TABLE_2_COLUMNS, columns, entries
from tests.evaluation.scored import clip, pairs, run, with_cammc


def require_well_formed(text):
    """What TeX would stumble over: braces, dollars, environments, and cells in a row. Returns the rows of all tables."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    plain = re.sub(r"\\[\\{}$&%#_]", lambda found: found.group() if found.group() == r"\\" else "", body)
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    assert not re.search(r"[%#~]", plain)
    outside = re.sub(r"\$[^$]*\$", "", plain)
    assert "^" not in outside
    assert "_" not in outside
    assert re.findall(r"\\begin\{(\w+)\}", plain) == ["table", "tabular"] * plain.count(r"\begin{table}")
    assert sorted(re.findall(r"\\begin\{(\w+)\}", plain)) == sorted(re.findall(r"\\end\{(\w+)\}", plain))
    found = []
    for spec, inside in re.findall(
        r"\\begin\{tabular\}\{([lcr]+)\}\n(.*?)\\end\{tabular\}", plain, re.DOTALL
    ):
        rows = [line for line in inside.splitlines() if line.endswith(r"\\")]
        for line in rows:
            cells = line.removesuffix(r"\\").split("&")
            spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", cell) for cell in cells]
            assert sum(int(span.group(1)) if span else 1 for span in spans) == len(spec), line
        others = [line for line in inside.splitlines() if not line.endswith(r"\\")]
        assert all(re.match(r"\\(toprule|midrule|bottomrule|cmidrule)", line) for line in others), others
        found += rows
    return found


def test_table_2_reads_as_the_paper_prints_it():
    text = latex_text([lay_out("driving", columns(TABLE_2_COLUMNS), entries(TABLE_2_COLUMNS, TABLE_2))])
    rows = require_well_formed(text)
    assert rows[-1] == (
        r"MeRoPE & \textbf{1.37} & \underline{2.84} & 42.11 & \underline{79.47} & \textbf{2.32} & \textbf{19.82} "
        r"& \textbf{134.15} \\"
    )
    assert rows[-4] == (
        r"URoPE & 1.66 & \textbf{2.67} & \textbf{44.41} & \textbf{79.92} & 2.53 & \underline{19.98} & \underline{135.63} \\"
    )


def test_labels_with_special_characters_keep_every_table_well_formed(results):
    comparison = compare(results[0], results[1])
    text = latex_text(tables_of(results, references=["floor"]), [comparison])
    rows = require_well_formed(text)
    assert len(rows) > 30
    starts = [row.lstrip() for row in rows]
    # Both would be read as options of the line break before them.
    assert not any(start.startswith(("[", "*")) for start in starts)
    assert any(start.startswith("{[}B{]}") for start in starts)
    assert r"\label{tab:merope-driving}" in text
    assert r"\label{tab:merope-driving-generated}" in text
    assert r"\label{tab:merope-paired-1}" in text


def test_a_run_that_is_not_comparable_carries_a_dagger_and_its_reason(results):
    text = latex_text(tables_of(results, references=["floor"]))
    rows = [row for row in require_well_formed(text) if row.startswith(r"{*}C$^{\dagger}$ ")]
    assert rows
    assert not any("textbf" in row or "underline" in row for row in rows)
    assert r"$^{\dagger}$ {*}C: 2 of 5 clips are scored" in text


def test_references_stand_below_a_line(results):
    text = latex_text(tables_of(results, references=["floor"])[:1])
    after = text.split(r"\midrule")
    assert len(after) == 3
    assert after[2].strip().startswith("floor &")
    assert "textbf" not in after[2]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a_b", r"a\_b"),
        ("50 %", r"50 \%"),
        ("R&D #1 $", r"R\&D \#1 \$"),
        ("\\{~^}", r"\textbackslash{}\{\textasciitilde{}\textasciicircum{}\}"),
        ("a\n b\tc", "a b c"),
        ("tr% ↓", r"tr\% $\downarrow$"),
        ("VGGT-Ω, αλΛ, é", r"VGGT-$\Omega$, $\alpha$$\lambda$$\Lambda$, é"),
        ('[a] *b* "c"', "{[}a{]} {*}b{*} ''c''"),
        # Ligatures: two hyphens are a dash, and ?` is an inverted question mark.
        ("a--b---c ?`", r"a-{}-b-{}-{}-c ?\textasciigrave{}"),
    ],
)
def test_special_characters_are_escaped(text, escaped):
    assert escape_latex(text) == escaped


@pytest.mark.parametrize(
    ("label", "beyond"), [("VGGT-Ω é ž", False), ("“ours” – 2…", False), ("模型", True), ("a‐b", True)]
)
def test_letters_that_pdftex_stops_at_are_said_in_the_first_line(label, beyond):
    text = latex_text(tables_of([with_cammc(label, {"a": 1.0, "b": 2.0})]))
    assert text.startswith("% Has letters beyond Latin and Greek: compile with LuaLaTeX") == beyond


def test_negative_numbers_have_a_minus_and_undefined_ones_a_dash(results):
    text = latex_text(tables_of(results))
    beside = text.split(r"\label{tab:merope-beside}")[1].split(r"\end{table}")[0]
    assert "$-0.500$" in beside or r"$\mathbf{-0.500}$" in beside
    assert not re.search(r"& -\d", beside)
    lacking = [results[0], run("lacks", [clip(name, pairs((40,)), cammc=1.0) for name in "ab"])]
    assert any(row.count(" -- ") == 2 for row in require_well_formed(latex_text(tables_of(lacking)[:1])))
