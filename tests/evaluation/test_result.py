"""Results over clips: every clip counts once, what is missing is counted, and no number is NaN."""

import math

import pytest

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.result import without_numbers
from tests.evaluation.scored import clip, pairs, run, with_cammc


def test_a_clip_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match=r"1 came more than once, such as 'a'.*changes every mean"):
        run("twice", [clip("a"), clip("b"), clip("a")])


def test_more_clips_than_expected_are_refused():
    with pytest.raises(ValueError, match="2 were expected and 3 came"):
        with_cammc("more", {"a": 1.0, "b": 2.0}, num_skipped=1, num_expected=2)


@pytest.mark.parametrize("wrong", [{"num_skipped": -1}, {"seed": -1}, {"num_resamples": 0}])
def test_negative_counts_and_seeds_are_refused(wrong):
    with pytest.raises(ValueError, match="0 or more and num_resamples 1 or more"):
        with_cammc("run", {"a": 1.0}, **wrong)


def test_a_run_without_clips_has_no_success_and_a_table():
    empty = run("empty", [])
    assert empty.success_rate == 0.0
    assert "0 of 0 expected clips" in empty.table()


def test_what_was_expected_and_did_not_come_is_counted():
    result = with_cammc("few", {"a": 1.0, "b": 2.0}, num_skipped=1, num_expected=10)
    assert (result.expected, result.num_missing) == (10, 7)
    assert with_cammc("all", {"a": 1.0}, num_skipped=1).expected == 2


def test_a_clip_is_found_by_its_id():
    result = with_cammc("run", {"a": 1.0, "b": 2.0})
    assert result.clip("b").cammc == 2.0
    with pytest.raises(KeyError, match="run has no clip 'c'"):
        result.clip("c")


def test_auc_is_pooled_over_pairs_and_its_median_over_clips():
    # 100 pairs all right, and two clips of 10 pairs none of which is.
    result = run(
        "auc", [clip("long", pairs((100,), num=100)), *(clip(name, pairs((0,), num=10)) for name in "ab")]
    )
    summary = result.summary()["auc_3"]
    assert summary.metric.value == pytest.approx(100 * 100 / 120)
    assert summary.median == 0.0


def test_exclusions_are_counted_by_reason_without_the_numbers_of_each_clip():
    reasons = [{"tr_percent": f"the command stands still (chord {chord} m)"} for chord in (0.001, 0.002)]
    clips = [clip(f"still {n}", reasons=why) for n, why in enumerate(reasons)]
    clips += [clip("moves", tr_percent=3.0), clip("lost", reasons={"tr_percent": "no camera"})]
    summary = run("run", clips).summary()["tr_percent"]
    assert summary.excluded == {"no camera": 1, "the command stands still": 2}
    assert (summary.num_clips, summary.num_excluded, summary.metric.value) == (1, 3, 3.0)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("stands still (chord 0.1 m, less than 1)", "stands still"),
        ("ends where it began (chord 0 (deg units), path 3 (deg units))", "ends where it began"),
        ("no camera", "no camera"),
        ("one (a) and two (b)", "one and two"),
    ],
)
def test_numbers_in_brackets_are_left_out_of_a_reason(reason, words):
    assert without_numbers(reason) == words


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_by_place(bad):
    result = run("run", [clip("a"), clip("b", rpe_trans=bad)])
    with pytest.raises(ValueError, match=r"finite numbers, and metrics\.rpe_trans\.value is not one"):
        result.to_json()


def test_a_verdict_and_the_clips_expected_stand_in_the_json_types():
    verdict = Verdict(benchmark="panshot-272", num_expected=272, num_used=1, reasons=("271 are missing.",))
    content = with_cammc("run", {"a": 1.0}, num_expected=272, verdict=verdict).to_dict()
    assert content["verdict"]["comparable"] is False
    assert content["num_expected"] == 272
    assert content["format"] == "merope-evaluation-1"


def test_the_mean_does_not_depend_on_the_order_of_clips():
    values = {str(n): (-1) ** n * 10.0 ** (n % 17) for n in range(40)}
    forth = with_cammc("run", values).summary()["cammc"]
    back = with_cammc("run", dict(reversed(values.items()))).summary()["cammc"]
    assert forth == back
