"""A run's row: every clip counts, failures by name, and what the estimator says stands in the settings."""

import pytest
import torch

from merope.evaluation import evaluate_clip
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.runs.recovery import recover_clips
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.scored import not_whole, score_run
from merope.evaluation.runs.sources import generated_sources
from tests.evaluation.runs.clips import Knowing, write_clip
from tests.evaluation.trajectories import turning


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """One clip that is recovered, one in part, and one not at all."""
    root = tmp_path_factory.mktemp("scored")
    write_clip(root / "clips", "a/whole", fill=7)
    write_clip(root / "clips", "a/part", fill=1)
    write_clip(root / "clips", "b/none", fill=0)
    sources = generated_sources(root / "clips")
    return recover_clips(sources, Knowing, root / "recovered", progress=False).clips


def test_every_clip_counts_and_those_that_failed_are_named(three):
    run = score_run(three, label="ours")
    assert [clip.clip_id for clip in run.result.clips] == ["a/part", "a/whole", "b/none"]
    assert run.result.success_rate == pytest.approx(2 / 3)
    # As wrong as can be, and in the mean.
    assert run.result.summary()["rot_deg"].metric.value > 45
    assert run.result.settings["recovery_failed"] == {"b/none": "nothing to see"}
    failed, partial = not_whole(run)
    assert failed == "not recovered: b/none: nothing to see"
    assert partial.startswith("recovered in part: a/part: 5 of 9 frames registered; the others: made up")


def test_failed_clips_may_be_left_out_and_are_counted(three):
    run = score_run(three, label="ours", on_failure="skip", num_expected=5)
    assert [clip.clip_id for clip in run.result.clips] == ["a/part", "a/whole"]
    assert (run.result.num_skipped, run.result.num_expected, run.result.num_missing) == (1, 5, 2)
    assert run.result.summary()["rot_deg"].metric.value < 2
    # A report still shows the clip.
    assert len(run.clips) == 3
    with pytest.raises(ValueError, match="b/none"):
        score_run(three, label="ours", on_failure="error")


def test_given_frames_are_left_out_of_the_generated_figures(three):
    result = score_run(three, label="ours").result
    assert {clip.first_generated for clip in result.clips} == {5}
    assert result.summary("generated")["rot_deg"].metric.value is not None


def test_a_row_has_the_numbers_of_its_clips(three):
    run = score_run(three, label="ours")
    whole = next(clip for clip in three if clip.clip_id == "a/whole")
    alone = evaluate_clip(
        whole.commanded, whole.recovered, clip_id="a/whole", first_generated=5, same_world=False
    )
    assert run.result.clip("a/whole").all.values == alone.all.values


def test_the_same_clips_in_any_order_score_the_same(three):
    one, other = (score_run(order, label="ours").result.to_json() for order in (three, three[::-1]))
    assert one == other


def test_notes_on_all_clips_and_on_single_ones_stand_apart(three):
    settings = score_run(three[1:2], label="ours", settings={"estimator": "knowing"}).result.settings
    assert settings["estimator_notes"] == ["knows", "saw 7"]
    assert settings["estimator"] == "knowing"
    settings = score_run(three, label="ours").result.settings
    assert settings["estimator_notes"] == []
    assert settings["estimator_notes_by_clip"] == {"a/whole": ["knows", "saw 7"]}


def test_a_reference_says_so_and_keeps_its_label(three):
    run = score_run(three, label="floor", reference=True)
    assert run.reference
    assert run.label == run.result.label == "floor"


def test_rows_of_nan_are_flagged_and_named():
    poses = turning(9)
    clip = RunClip(
        clip_id="a",
        commanded=poses,
        recovered=Recovered(poses=poses, registered=torch.arange(9) != 4, scale="metric", fill="held"),
        nan_rows=(4,),
    )
    run = score_run([clip], label="x")
    assert "nan_rows" in run.result.clips[0].flags
    (line,) = not_whole(run)
    assert line.startswith("recovered in part: a: 1 of 9 rows of the estimate are not finite (frame 4)")
