"""The answers at the top of the page: true for runs of estimators, for pose files, with and without a floor."""

import re
from dataclasses import replace
from html import unescape

import pytest

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.comparison import compare
from merope.evaluation.protocol import FLAGS
from merope.evaluation.report.in_short import short_section
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.scored import score_run
from tests.evaluation.report.synthetic import run


def answers(runs, comparisons=()):
    """Each question's words."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", short_section(runs, comparisons), re.S)
    return {name: " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split()) for name, text in found}


@pytest.fixture(scope="module")
def good():
    return run("good", turn_deg=0.5, shift=0.05, with_frames=False)


@pytest.fixture(scope="module")
def poor():
    return run("poor <1>", turn_deg=6.0, shift=0.5, with_frames=False)


@pytest.fixture(scope="module")
def floor():
    return run("noise floor", turn_deg=0.1, shift=0.01, reference=True, with_frames=False)


def cammc(one):
    return one.result.summary()["cammc"]


def from_files(label, scale="metric", **options):
    """The same clips as poses from files: no estimator, no frames."""
    one = run(label, with_frames=False, scale=scale, **options)
    clips = [replace(clip, first_generated=None) for clip in one.clips]
    return score_run(clips, label=label)


def test_what_was_measured_and_with_what_are_said_of_generated_clips(good, poor):
    said = answers([poor, good])
    assert said["What was measured"] == (
        "How closely cameras follow the command, in 6 clips of 17 frames, of which the first 5 were given. "
        "Runs: poor <1>, good."
    )
    assert said["With what"] == "Cameras recovered from the frames by network."


def test_pose_files_are_not_said_to_be_recovered():
    said = answers([from_files("orb")])
    assert said["What was measured"] == (
        "How closely poses agree with those of the command, in 6 clips of 17 frames. Run: orb."
    )
    assert said["With what"] == "Poses came from files; no estimator ran here."
    assert said["Noise floor"].startswith("Not measured: how much whatever made these poses")


def test_the_best_run_comes_first_with_its_interval(good, poor):
    text = answers([poor, good])["What came out"]
    summary = cammc(good)
    wanted = (
        f"good : CamMC {summary.metric.value:.2f} ({summary.interval.low:.2f} to {summary.interval.high:.2f})"
    )
    assert wanted in text
    ratio = good.result.summary()["metres_ratio"].metric.value
    assert f"{ratio:.2f} m moved for each metre commanded" in text
    assert text.index("good :") < text.index("poor <1> :")


def test_metres_are_told_of_metres_alone(good):
    odd = [replace(clip, unit="unknown") for clip in good.result.clips]
    unknown = replace(good, result=replace(good.result, clips=tuple(odd)))
    for one in (unknown, from_files("slam", scale="up_to_scale")):
        assert "metre" not in answers([one])["What came out"]


def test_the_distance_from_the_floor_is_a_ratio_of_means(good, floor):
    text = answers([good, floor])["Noise floor"]
    assert f"good is at {cammc(good).metric.value / cammc(floor).metric.value:.1f} times that." in text
    same = run("same", turn_deg=0.1, shift=0.01, with_frames=False)
    assert "same is at that level" in answers([same, floor])["Noise floor"]


def test_a_floor_on_clips_of_other_lengths_gives_no_ratio(good, floor):
    shorter = [
        replace(clip, commanded=clip.commanded[:9], recovered=None, failure="no") for clip in floor.clips
    ]
    other = score_run(shorter, label="noise floor", reference=True)
    text = answers([good, other])["Noise floor"]
    assert "of other lengths" in text
    assert "times that" not in text


def test_without_a_floor_that_is_said(good):
    assert answers([good])["Noise floor"].startswith(
        "Not measured: how much of these errors is the estimator's"
    )


def test_a_clear_difference_is_one_whose_interval_leaves_zero_out(good, poor):
    for pair in (compare(good.result, poor.result), compare(poor.result, good.result)):
        text = answers([good, poor], [pair])["How sure"]
        assert "good has the lower CamMC than poor <1> in 6 of 6 clips; the difference is clear" in text
    twin = run("twin", turn_deg=0.5, shift=0.05, factor=1.001, with_frames=False)
    text = answers([good, twin], [compare(good.result, twin.result)])["How sure"]
    interval = compare(good.result, twin.result).metrics["cammc"].interval
    assert ("not clear" in text) == (interval.low <= 0 <= interval.high)
    assert "With 6 clips ranges are rough." in text


def test_one_clip_has_no_range():
    text = answers([run("one", num_clips=1, with_frames=False)])["How sure"]
    assert text.startswith("One clip alone")


def test_verdicts_and_missing_clips_decide_what_compares(good, poor):
    said = answers([good, poor])["Comparable"]
    assert "With each other: the same clips, the same commands" in said
    assert "no benchmark was named" in said
    verdict = Verdict(benchmark="worlds-6", num_expected=6, num_used=6, reasons=("one is off",))
    judged = replace(poor, result=replace(poor.result, verdict=verdict))
    said = answers([good, judged])
    assert "poor <1> is not comparable with other results on worlds-6" in said["Comparable"]
    assert "poor <1>" not in said["What came out"]
    half = run("half", num_clips=3, with_frames=False)
    assert "half is not comparable with the other runs" in answers([good, poor, half])["Comparable"]


def test_different_estimators_are_named_as_a_reason_to_doubt(good):
    other = run("other", with_frames=False, settings={"estimator": {"name": "colmap"}})
    said = answers([good, other])
    assert said["With what"] == "Cameras recovered from the frames by colmap, network."
    assert "different estimators: differences may be theirs" in said["Comparable"]


def test_an_estimate_without_metric_scale_says_what_it_cannot_tell():
    said = answers([from_files("slam", scale="up_to_scale")])["With what"]
    assert said.endswith("no metric scale: whether lengths in metres are right cannot be told from them.")
    assert (
        "Some estimates have no metric scale"
        in answers([from_files("slam", scale="up_to_scale"), from_files("gps")])["With what"]
    )


def test_when_every_clip_failed_no_number_is_praised():
    clips = [
        RunClip(clip_id=clip.clip_id, commanded=clip.commanded, recovered=None, failure="no matches")
        for clip in run("a", num_clips=2, with_frames=False).clips
    ]
    said = answers([score_run(clips, label="a")])
    assert said["What came out"].startswith("No camera was recovered in any clip")
    assert "2 of 2 clips of a" in said["To look at"]


def test_flags_are_counted_in_words():
    said = answers([run("a", reversed_clip=2, failed_clip=1, with_frames=False)])["To look at"]
    assert f"1 of 6 clips of a : {FLAGS['reversed']}" in said
    assert f"1 of 6 clips of a : {FLAGS['failed']}" in said
