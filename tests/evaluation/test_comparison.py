"""Paired comparison: numbers by hand, clips of one run alone named, and runs that differ in kind refused."""

import json
import random

import numpy as np
import pytest

from merope.errors import MeropeError
from merope.evaluation import ClipPair, evaluate_clips
from merope.evaluation.comparison import compare, settings_that_differ
from merope.evaluation.comparison_table import largest_text, p_text, settings_text
from merope.evaluation.protocol import SPECS
from tests.evaluation.scored import clip, pairs, run, with_cammc
from tests.evaluation.trajectories import perturbed, turning


def scored(label, turn_deg, seeds=range(12), **kwargs):
    clips = [
        ClipPair(
            clip_id=f"scene {seed}",
            commanded=turning(10),
            estimated=perturbed(turning(10), seed, turn_deg=turn_deg),
            first_generated=3,
        )
        for seed in seeds
    ]
    return evaluate_clips(clips, label=label, **kwargs)


@pytest.fixture(scope="module")
def runs():
    return scored("rough", 4.0), scored("fine", 1.0)


def test_differences_wins_and_p_follow_the_numbers():
    # B is lower, so better, in a, b and c, worse in d, equal in e: p = 2 (C(4, 0) + C(4, 1)) / 2^4.
    a = with_cammc("A", {"a": 4.0, "b": 3.0, "c": 5.0, "d": 1.0, "e": 2.0})
    b = with_cammc("B", {"a": 3.0, "b": 1.0, "c": 4.5, "d": 2.0, "e": 2.0})
    metric = compare(a, b).metrics["cammc"]
    assert metric.differences == {"a": -1.0, "b": -2.0, "c": -0.5, "d": 1.0, "e": 0.0}
    assert (metric.a, metric.b, metric.difference) == (3.0, 2.5, -0.5)
    assert (metric.wins, metric.losses, metric.ties) == (3, 1, 1)
    assert metric.p_value == (1 + 4) * 2 / 16
    assert metric.better == "b"
    assert metric.interval.low < -0.5 < metric.interval.high
    assert metric.largest(3) == ["b", "a", "d"]


def test_more_is_better_where_the_metric_says_so():
    a = run("A", [clip(name, pairs((10,))) for name in "ab"])
    b = run("B", [clip(name, pairs((30,))) for name in "ab"])
    metric = compare(a, b).metrics["auc_3"]
    assert (metric.a, metric.b, metric.difference) == (10.0, 30.0, 20.0)
    assert (metric.wins, metric.losses, metric.better) == (2, 0, "b")


def test_what_should_be_one_counts_by_its_distance_from_one():
    a = run("A", [clip("a", scale=0.5), clip("b", scale=-1.0), clip("c", scale=1.2)])
    b = run("B", [clip("a", scale=1.4), clip("b", scale=1.0), clip("c", scale=0.7)])
    metric = compare(a, b).metrics["scale"]
    assert metric.a == pytest.approx((0.5 + 2.0 + 0.2) / 3)
    assert metric.b == pytest.approx((0.4 + 0.0 + 0.3) / 3)
    assert (metric.wins, metric.losses, metric.ties) == (2, 1, 0)
    assert metric.better == "b"


def test_auc_is_pooled_over_the_pairs_of_the_shared_clips():
    a = run("A", [clip("long", pairs((90,), num=100)), clip("short", pairs((0,), num=10)), clip("a only")])
    b = run("B", [clip("long", pairs((80,), num=100)), clip("short", pairs((10,), num=10))])
    metric = compare(a, b).metrics["auc_10"]
    assert metric.a == pytest.approx(100 * 90 / 110)
    assert metric.b == pytest.approx(100 * 90 / 110)
    assert (metric.wins, metric.losses) == (1, 1)
    assert metric.better is None


def test_a_run_against_itself_differs_in_nothing(runs):
    comparison = compare(runs[0], runs[0])
    assert comparison.settings == {}
    for key, metric in comparison.metrics.items():
        assert metric.difference == 0.0, key
        assert (metric.interval.low, metric.interval.high) == (0.0, 0.0)
        assert (metric.wins, metric.losses, metric.ties, metric.p_value) == (0, 0, 12, 1.0)
        assert metric.better is None
    assert "none differs" in largest_text(comparison, "cammc", 5)


def test_the_finer_estimate_wins_in_every_clip(runs):
    metrics = compare(*runs).metrics
    assert (metrics["rot_deg"].better, metrics["rot_deg"].wins) == ("b", 12)
    assert metrics["rot_deg"].interval.excludes_zero
    assert metrics["rot_deg"].p_value == 2 / 2**12


def test_means_and_pooled_figures_are_those_of_the_runs_where_clips_are_the_same(runs):
    comparison = compare(*runs)
    for label, result in zip("ab", runs, strict=True):
        for key, summary in result.summary().items():
            if SPECS[key].better != "one":
                assert getattr(comparison.metrics[key], label) == pytest.approx(
                    summary.metric.value, rel=1e-12
                )


def test_exchanging_the_runs_turns_every_sign(runs):
    there, back = compare(*runs), compare(*reversed(runs))
    for key, metric in there.metrics.items():
        other = back.metrics[key]
        assert other.difference == pytest.approx(-metric.difference, abs=1e-12)
        assert (other.wins, other.losses, other.p_value) == (metric.losses, metric.wins, metric.p_value)
        assert other.interval.low == pytest.approx(-metric.interval.high, abs=1e-12)
        assert {"a": "b", "b": "a", None: None}[metric.better] == other.better


def test_the_order_of_clips_changes_no_digit(runs):
    clips = list(runs[1].clips)
    random.Random(1).shuffle(clips)
    shuffled = run("fine", clips, settings=runs[1].settings)
    assert compare(runs[0], shuffled).to_dict() == compare(*runs).to_dict()


def test_clips_of_one_run_alone_are_named_and_counted(runs):
    fine = scored("fine", 1.0, seeds=range(2, 14))
    comparison = compare(runs[0], fine)
    assert comparison.only_a == ("scene 0", "scene 1")
    assert comparison.only_b == ("scene 12", "scene 13")
    assert len(comparison.clip_ids) == len(comparison.metrics["cammc"].clips) == 10
    table = comparison.table()
    assert "over the 10 clip(s) that both have (10 of 12 of A, 10 of 12 of B)" in table
    assert "left out, only A has them: 2 clip(s): scene 0, scene 1" in table
    assert "left out, only B has them: 2 clip(s): scene 12, scene 13" in table
    alone = compare(scored("rough", 4.0, seeds=range(2, 12)), scored("fine", 1.0, seeds=range(2, 12)))
    assert alone.metrics == comparison.metrics


def test_clips_where_one_lacks_a_metric_are_counted_by_reason_and_side():
    why = {"tr_percent": "the command stands still (chord 0.001 m)"}
    a = run("A", [clip("a", tr_percent=1.0), clip("b", reasons=why), clip("c", reasons=why)])
    b = run("B", [clip("a", tr_percent=2.0), clip("b", reasons=why), clip("c", tr_percent=3.0)])
    metric = compare(a, b).metrics["tr_percent"]
    assert metric.excluded == {
        "the command stands still (in A and B)": 1,
        "the command stands still (in A)": 1,
    }
    assert list(metric.clips) == ["a"]
    assert (metric.interval, metric.p_value) == (None, 1.0)
    assert "tr: 1 clip(s) left out: the command stands still (in A)" in compare(a, b).table()


def test_a_metric_that_no_clip_has_is_empty_and_not_shown():
    comparison = compare(with_cammc("A", {"a": 1.0}), with_cammc("B", {"a": 2.0}))
    metric = comparison.metrics["rpe_trans"]
    assert (metric.a, metric.difference, metric.wins, metric.p_value, metric.better) == (None,) * 5
    assert SPECS["rpe_trans"].label not in comparison.table()
    assert SPECS["rpe_trans"].label in comparison.table(["rpe_trans"])


def test_lengths_are_in_the_unit_of_both_runs_commands():
    def unit(a, b, **accepted):
        runs = (run(name, [clip("x", ate_se3=1.0, unit=unit)]) for name, unit in (("a", a), ("b", b)))
        comparison = compare(*runs, **accepted)
        assert f"ATE SE(3)  {comparison.metrics['ate_se3'].unit}  " in comparison.table(["ate_se3"])
        return comparison.to_dict()["metrics"]["ate_se3"]["unit"]

    assert unit("m", "m") == "m"
    assert unit("m", "normalized", despite=["unit"]) == "commanded unit"


def test_rounding_is_a_tie():
    a, b = with_cammc("A", {"a": 0.1 + 0.2}), with_cammc("B", {"a": 0.3})
    metric = compare(a, b).metrics["cammc"]
    assert (metric.wins, metric.losses, metric.ties, metric.better) == (0, 0, 1, None)


@pytest.mark.parametrize(("gap", "tied"), [(0.00049, True), (0.00051, False)])
def test_what_the_printed_digits_cannot_show_is_a_tie(gap, tied):
    a, b = with_cammc("A", {"a": 1.0, "b": 2.0}), with_cammc("B", {"a": 1.0 + gap, "b": 2.0 + gap})
    comparison = compare(a, b)
    metric = comparison.metrics["cammc"]
    assert (metric.wins, metric.losses, metric.ties) == ((0, 0, 2) if tied else (0, 2, 0))
    assert metric.better == (None if tied else "a")
    assert metric.largest(5) == ([] if tied else ["a", "b"])
    assert "a tie: closer than half a step of the last printed digit" in " ".join(comparison.table().split())


def test_one_part_in_a_billion_is_a_tie_however_many_digits_are_printed():
    a, b = with_cammc("A", {"a": 1e9, "b": 1e9}), with_cammc("B", {"a": 1e9 + 0.9, "b": 1e9 + 1.1})
    metric = compare(a, b).metrics["cammc"]
    assert (metric.losses, metric.ties) == (1, 1)


def test_one_clip_is_said_to_give_no_interval():
    words = "one clip: no interval; --window cuts a long drive into clips"
    one = compare(with_cammc("A", {"a": 1.0}), with_cammc("B", {"a": 2.0}))
    assert one.metrics["cammc"].interval is None
    assert f"note: {words}" in one.table()
    assert words not in compare(*(with_cammc(x, {"a": 1.0, "b": 2.0}) for x in "AB")).notes


def test_runs_without_a_common_clip_are_refused_and_their_clips_named():
    with pytest.raises(
        MeropeError, match=r"share no clip: the first has 'a', 'b' and 1 more, the second 'x'"
    ):
        compare(with_cammc("A", dict.fromkeys("abc", 1.0)), with_cammc("B", {"x": 1.0}))


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        (
            "commanded",
            {"commanded_digest": "another"},
            "the same commanded trajectory, and 1 of 2 do not, such as b",
        ),
        ("angle_method", {"angle_method": "acos"}, "atan2 against acos"),
        ("unit", {"unit": "normalized"}, "m against normalized"),
        ("frames", {"frames": 81}, "49 frames, 0 given against 81 frames, 0 given"),
        ("frames", {"given": 9}, "49 frames, 0 given against 49 frames, 9 given"),
    ],
)
def test_clips_that_differ_in_kind_are_refused_unless_told(name, changed, words):
    a = run("A", [clip("a", cammc=1.0), clip("b", cammc=1.0)])
    b = run("B", [clip("a", cammc=2.0), clip("b", cammc=2.0, **changed)])
    with pytest.raises(MeropeError, match=words) as refused:
        compare(a, b)
    assert f"despite {name}" in str(refused.value)
    comparison = compare(a, b, despite=[name])
    assert comparison.despite == (name,)
    assert comparison.metrics["cammc"].difference == 1.0
    assert "warning: compared although not all clips" in comparison.table()


def test_real_commands_that_differ_are_refused(runs):
    turned = ClipPair(
        clip_id="scene 3", commanded=turning(10, turn_deg=20), estimated=turning(10), first_generated=3
    )
    with pytest.raises(MeropeError, match="same commanded trajectory, and 1 of 1 do not, such as scene 3"):
        compare(runs[0], evaluate_clips([turned], label="other"))


def test_commands_without_a_digest_are_said_to_be_untested():
    a, b = (run(label, [clip("a", cammc=1.0, commanded_digest=None)]) for label in "AB")
    assert "1 clip(s) have no digest of their command" in compare(a, b).table()


def test_a_wrong_word_in_despite_is_refused():
    a = with_cammc("A", {"a": 1.0})
    with pytest.raises(
        ValueError, match="despite must name some of commanded, angle_method, unit, frames, got frame"
    ):
        compare(a, a, despite=["frame"])


def test_generated_frames_are_compared_where_both_have_them(runs):
    everything, generated = compare(*runs), compare(*runs, frames="generated")
    mean = np.mean([clip.generated.values["rot_deg"] for clip in runs[0].clips])
    assert generated.metrics["rot_deg"].a == pytest.approx(mean, rel=1e-12)
    assert generated.metrics["rot_deg"].a != everything.metrics["rot_deg"].a
    assert "generated frames alone" in generated.table()
    with pytest.raises(MeropeError, match="no figures over generated frames"):
        compare(with_cammc("A", {"a": 1.0}), with_cammc("B", {"a": 1.0}), frames="generated")


def test_the_draws_are_named_and_another_seed_moves_intervals_alone(runs):
    one, other = compare(*runs), compare(*runs, seed=5, num_resamples=200)
    assert "200 resamples, seed 5" in other.table()
    assert one.metrics["cammc"].difference == other.metrics["cammc"].difference
    assert one.metrics["cammc"].interval != other.metrics["cammc"].interval


def test_settings_that_differ_are_part_of_a_comparison():
    a, b = (run(label, [clip("a")], settings={"estimator": label}) for label in ("colmap", "vggt"))
    comparison = compare(a, b)
    assert comparison.settings == settings_that_differ(a, b) == {"estimator": ("colmap", "vggt")}
    assert settings_text(comparison).splitlines()[-1].split() == ["estimator", "colmap", "vggt"]
    long = compare(a, run("B", [clip("a")], settings={"estimator": "x" * 300}))
    assert max(len(line) for line in settings_text(long).splitlines()) < 120


def test_a_comparison_is_json_with_every_clip(runs):
    content = json.loads(json.dumps(compare(*runs).to_dict(), allow_nan=False))
    cammc = content["metrics"]["cammc"]
    assert len(cammc["clips"]) == cammc["num_clips"] == 12
    assert cammc["clips"]["scene 3"] == [runs[0].clip("scene 3").cammc, runs[1].clip("scene 3").cammc]
    assert set(content["metrics"]) == set(SPECS)


def test_an_unclear_difference_is_called_so():
    a = with_cammc("A", {str(n): float(n) for n in range(9)})
    b = with_cammc("B", {str(n): n + (1.0 if n % 2 else -1.01) for n in range(9)})
    row = next(line for line in compare(a, b).table().splitlines() if line.startswith("CamMC"))
    assert "B, unclear" in row
    clear = compare(a, with_cammc("B", {str(n): n - 1.0 for n in range(9)})).table()
    assert "unclear" not in next(line for line in clear.splitlines() if line.startswith("CamMC"))


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (1e-5, "<0.0001"), (0.03125, "0.0312"), (1.0, "1.0000")]
)
def test_p_values_are_printed_to_four_decimals(value, text):
    assert p_text(value) == text
