"""`write_results`: one call writes all four files, and says what it was given wrong."""

import pytest

from merope.evaluation.comparison import compare
from merope.evaluation.results_files import read_results, write_results
from tests.evaluation.scored import with_cammc


def test_all_four_files_are_written_and_named(tmp_path):
    a, b = with_cammc("A", {"a": 2.0, "b": 1.0}), with_cammc("B", {"a": 1.0, "b": 0.5})
    paths = write_results(tmp_path / "out", [a, b], comparisons=[compare(a, b)])
    assert [path.name for path in paths] == ["results.json", "results.csv", "results.md", "results.tex"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in paths)
    assert read_results(tmp_path / "out") == (a, b)
    assert "B (B) against A (A), clip by clip over the 2 clips of both" in paths[2].read_text(
        encoding="utf-8"
    )


def test_writing_again_adds_a_row_and_leaves_the_others_as_they_were(tmp_path):
    a, b = with_cammc("A", {"a": 2.0, "b": 1.0}), with_cammc("B", {"a": 1.0, "b": 0.5})
    write_results(tmp_path, [a])
    before = (tmp_path / "results.csv").read_text(encoding="utf-8")
    write_results(tmp_path, [*read_results(tmp_path), b])
    assert (tmp_path / "results.csv").read_text(encoding="utf-8").startswith(before)
    assert read_results(tmp_path) == (a, b)


def test_results_need_labels_of_their_own_and_references_must_be_among_them(tmp_path):
    a = with_cammc("A", {"a": 2.0})
    with pytest.raises(ValueError, match="each with its own label, got"):
        write_results(tmp_path, [a, a])
    with pytest.raises(ValueError, match="at least one result"):
        write_results(tmp_path, [])
    with pytest.raises(ValueError, match="references must be labels of results, got floor beside A"):
        write_results(tmp_path, [a], references=["floor"])
