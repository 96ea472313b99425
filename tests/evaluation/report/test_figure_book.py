"""The folder of figures: names, the list with captions, and what is left of an earlier report."""

import json

import pytest

from merope.evaluation.plots.canvas import new_figure
from merope.evaluation.report.figure_book import LIST, FigureBook

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def files(folder):
    return {entry.name for entry in folder.iterdir()}


def written(folder, *names):
    """A book that has drawn these figures and was closed."""
    book = FigureBook(folder)
    for name in names:
        book.add(name, new_figure(1, 1), f"Caption of {name}.")
    book.close()
    return book


def both(name):
    return {f"{name}.png", f"{name}.pdf"}


def test_file_names_say_what_they_are_and_never_meet(tmp_path):
    written(tmp_path, "worst-a/b", "worst-a b", "Worst A.B", "../..", "-", "x" * 200)
    names = ["worst-a-b", "worst-a-b-2", "worst-a-b-3", "figure", "figure-2", "x" * 80]
    assert list(json.loads((tmp_path / LIST).read_text())) == names
    assert files(tmp_path) == {LIST}.union(*map(both, names))


def test_figures_of_an_earlier_report_go_and_files_of_others_stay(tmp_path):
    written(tmp_path, "birds-eye", "worst-old")
    (tmp_path / "mine.png").write_bytes(b"drawn by hand")
    written(tmp_path, "birds-eye", "worst-new")
    assert files(tmp_path) == {LIST, "mine.png"} | both("birds-eye") | both("worst-new")
    assert list(json.loads((tmp_path / LIST).read_text())) == ["birds-eye", "worst-new"]
    written(tmp_path)
    assert files(tmp_path) == {LIST, "mine.png"}


def test_what_an_interrupted_report_wrote_goes_with_the_next(tmp_path):
    written(tmp_path, "old")
    # Never closed: the page that was there shows its own figures until another takes its place.
    FigureBook(tmp_path).add("half", new_figure(1, 1), "Never on a page.")
    assert files(tmp_path) == {LIST} | both("old") | both("half")
    written(tmp_path, "new")
    assert files(tmp_path) == {LIST} | both("new")


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": 1}', '{"a": {"files": ["../../precious.png", "/precious.png"]}}', "\udcff"]
)
def test_a_list_of_something_else_removes_nothing(tmp_path, content):
    folder = tmp_path / "report" / "figures"
    folder.mkdir(parents=True)
    (tmp_path / "precious.png").write_bytes(b"not ours")
    (folder / LIST).write_text(content, errors="surrogateescape")
    written(folder, "new")
    assert (tmp_path / "precious.png").exists()
    assert files(folder) == {LIST} | both("new")
