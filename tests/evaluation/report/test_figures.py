"""Which runs figures show, and in which colours."""

from merope.evaluation.plots.canvas import COLORS
from merope.evaluation.report.figures import MAX_RUNS, _shown, run_colors, runs_with_figures
from tests.evaluation.report.synthetic import run


def many(count):
    """Runs from the worst to the best, and a reference."""
    runs = [
        run(f"run {index}", num_clips=1, turn_deg=20.0 - index, with_frames=False) for index in range(count)
    ]
    return [*runs, run("floor", num_clips=1, turn_deg=0.1, reference=True, with_frames=False)]


def test_of_many_runs_the_best_are_shown_each_in_a_colour_of_its_own():
    runs = many(9)
    shown = _shown(runs)
    assert [one.label for one in shown] == [*(f"run {index}" for index in range(3, 9)), "floor"]
    colors = run_colors(runs)
    assert len({colors[one.label] for one in shown}) == MAX_RUNS + 1
    assert colors.keys() == {one.label for one in runs}
    assert [one.label for one in runs_with_figures(runs)] == ["run 8", "run 7", "run 6"]


def test_colours_of_few_runs_go_by_their_order_and_references_are_black():
    runs = many(3)
    assert run_colors(runs) == {
        "run 0": COLORS[0],
        "run 1": COLORS[1],
        "run 2": COLORS[2],
        "floor": "#000000",
    }
