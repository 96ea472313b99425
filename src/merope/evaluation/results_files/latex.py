"""results.tex: tables to paste into a paper; they need the package booktabs."""

import re
from collections.abc import Sequence

from merope.evaluation.comparison import PairedComparison
from merope.evaluation.results_files.differences import PAIRED_HEADER, paired_caption, paired_rows
from merope.evaluation.results_files.layout import Cell, ResultsTable, Row

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': "''",
    "`": r"\textasciigrave{}",
    # After the end of a row these three would be read as its options.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # Beyond ASCII, what labels and captions have. Other letters go through as UTF-8: pdfTeX knows accented Latin ones.
    "°": r"$^{\circ}$",
    "†": r"$^{\dagger}$",
    "→": r"$\rightarrow$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "×": r"$\times$",
    "±": r"$\pm$",
}
# Up to Latin Extended-B; what stands beyond, pdfTeX stops at, dashes and quotation marks apart.
_LAST_LATIN = 0x24F
_GREEK = "Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Φ Phi Ψ Psi Ω Omega α alpha β beta γ gamma δ delta ε epsilon"
_GREEK += (
    " ζ zeta η eta θ theta κ kappa λ lambda μ mu ν nu ξ xi π pi ρ rho σ sigma τ tau φ phi χ chi ψ psi ω omega"
)
_SPECIAL |= {letter: rf"$\{name}$" for letter, name in zip(*[iter(_GREEK.split())] * 2, strict=True)}


def latex_text(tables: Sequence[ResultsTable], comparisons: Sequence[PairedComparison] = ()) -> str:
    """The tables one after another, each a float of its own."""
    parts = [r"% Needs \usepackage{booktabs}."]
    parts += [_table(table) for table in tables]
    parts += [_paired(comparison, number) for number, comparison in enumerate(comparisons, start=1)]
    text = "\n\n".join(parts) + "\n"
    if any(ord(character) > _LAST_LATIN and character not in "–—‘’“”…" for character in text):
        text = (
            "% Has letters beyond Latin and Greek: compile with LuaLaTeX or XeLaTeX and a font that has them.\n"
            + text
        )
    return text


def _table(table: ResultsTable) -> str:
    heads = [r"Method", *(_escaped_head(column.heading, column.arrow) for column in table.columns)]
    over, rules, start = [""], [], 2
    for group, width in table.groups:
        over.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    body = [_line(over), " ".join(rules), _line(heads), r"\midrule", *(_row(row) for row in table.rows)]
    if table.references:
        body += [*([r"\midrule"] if table.rows else []), *(_row(row) for row in table.references)]
    notes = [escape_latex(note) for note in table.notes]
    return _float(table.name, escape_latex(table.caption), "l" + "c" * len(table.columns), body, notes)


def _paired(comparison: PairedComparison, number: int) -> str:
    body = [_line([escape_latex(cell) for cell in PAIRED_HEADER]), r"\midrule"]
    body += [_line([_signed(escape_latex(cell)) for cell in row]) for row in paired_rows(comparison)]
    columns = "ll" + "r" * (len(PAIRED_HEADER) - 2)
    return _float(f"paired-{number}", escape_latex(paired_caption(comparison)), columns, body, [])


def _float(name: str, caption: str, columns: str, body: Sequence[str], notes: Sequence[str]) -> str:
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{caption}}}", rf"\label{{tab:merope-{name}}}"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"]
    if notes:
        lines += ["", r"\smallskip", rf"{{\footnotesize {'; '.join(notes)}.\par}}"]
    return "\n".join([*lines, r"\end{table}"])


def _escaped_head(heading: str, arrow: str) -> str:
    return f"{escape_latex(heading)} {escape_latex(arrow)}".rstrip()


def _row(row: Row) -> str:
    label = escape_latex(row.label) + (r"$^{\dagger}$" if row.problem else "")
    return _line([label, *(_cell(cell) for cell in row.cells)])


def _cell(cell: Cell) -> str:
    text = _signed(cell.text) if cell.text else "--"
    bold = rf"$\mathbf{{{cell.text}}}$" if text.startswith("$") else rf"\textbf{{{text}}}"
    return {"best": bold, "second": rf"\underline{{{text}}}", "none": text}[cell.mark]


def _signed(text: str) -> str:
    """Signs of numbers as minus and plus, not as hyphens."""
    return re.sub(r"(?<![\w$])([+-]\d[\d.]*)", r"$\1$", text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    plain = "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))
    # Two hyphens side by side would be a dash.
    return re.sub("-(?=-)", "-{}", plain)
