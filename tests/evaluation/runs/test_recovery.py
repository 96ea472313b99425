"""Cameras recovered once: reused bit for bit, redone when frames or estimator change, the same for any number of workers."""

from functools import partial

import numpy as np
import pytest
import torch

from merope.data.clips.folder import write_clip as write_true_clip
from merope.errors import MeropeError
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.runs.recovery import Share, label_folder, recover_clips
from merope.evaluation.runs.scored import score_run
from merope.evaluation.runs.sources import generated_sources, true_sources
from tests.evaluation.runs.clips import LENS, Knowing, write_clip
from tests.evaluation.trajectories import turning


@pytest.fixture
def three(tmp_path):
    """One clip that is recovered, one in part, and one not at all."""
    root = tmp_path / "clips"
    write_clip(root, "a/whole", fill=7)
    write_clip(root, "a/part", fill=1)
    write_clip(root, "b/none", fill=0)
    return root


def recover(root, folder, *, asked=None, noise=0.05, **options):
    sources = generated_sources(root)
    return recover_clips(sources, partial(Knowing, asked, noise), folder, progress=False, **options)


def same(one, other):
    """Whether two recoveries agree in every bit."""
    return len(one.clips) == len(other.clips) and all(
        left.clip_id == right.clip_id
        and left.failure == right.failure
        and (left.recovered is None) == (right.recovered is None)
        and (
            left.recovered is None
            or (
                torch.equal(left.recovered.poses.T_world_cam, right.recovered.poses.T_world_cam)
                and torch.equal(left.recovered.registered, right.recovered.registered)
            )
        )
        for left, right in zip(one.clips, other.clips, strict=True)
    )


def test_a_second_call_asks_nothing_and_gives_the_same_bits(three, tmp_path):
    asked = tmp_path / "asked"
    first = recover(three, tmp_path / "out" / "run", asked=asked)
    again = recover(three, tmp_path / "out" / "run", asked=asked)
    assert (first.num_recovered, first.num_reused) == (3, 0)
    assert (again.num_recovered, again.num_reused) == (0, 3)
    assert len(asked.read_text().split()) == 3
    assert same(first, again)
    one, other = (score_run(done.clips, label="run").result.to_json() for done in (first, again))
    assert one == other
    assert again.words == "3 clips: 0 recovered now, 3 reused from an earlier run"


def test_a_failure_is_kept_and_can_be_tried_again(three, tmp_path):
    asked = tmp_path / "asked"
    first = recover(three, tmp_path / "run", asked=asked)
    failed = {clip.clip_id: clip.failure for clip in first.clips if clip.recovered is None}
    assert failed == {"b/none": "nothing to see"}
    recover(three, tmp_path / "run", asked=asked, again=True)
    assert sorted(asked.read_text().split()) == ["0", "0", "1", "1", "7", "7"]


def test_changed_frames_are_recovered_anew_and_others_are_not(three, tmp_path):
    recover(three, tmp_path / "run")
    write_clip(three, "a/part", fill=9)
    done = recover(three, tmp_path / "run")
    assert (done.num_recovered, done.num_reused) == (1, 2)
    assert "saw 9" in done.clips[0].recovered.notes


def test_another_estimator_uses_nothing_of_the_first(three, tmp_path):
    first = recover(three, tmp_path / "run")
    done = recover(three, tmp_path / "run", noise=0.3)
    assert done.num_reused == 0
    assert not same(first, done)


def test_another_command_asks_the_estimator_nothing(three, tmp_path):
    # The estimator never sees the command, so that what it found stays true.
    recover(three, tmp_path / "run")
    write_clip(three, "a/whole", fill=7, poses=turning(9, turn_deg=10.0))
    done = recover(three, tmp_path / "run")
    assert done.num_reused == 3
    assert done.clips[1].commanded.center_world[-1, 0] < turning(9).center_world[-1, 0]


def test_another_frame_rate_is_another_question(three, tmp_path):
    recover(three, tmp_path / "run")
    write_clip(three, "a/whole", fill=7, fps=12.0)
    assert recover(three, tmp_path / "run").num_recovered == 1


def test_the_same_frames_under_another_label_are_found(three, tmp_path):
    first = recover(three, tmp_path / "out" / "one")
    done = recover(three, tmp_path / "out" / "two")
    assert done.num_reused == 3
    assert same(first, done)
    assert (tmp_path / "out" / "two" / "manifest.json").exists()


def test_a_run_that_was_killed_goes_on_where_it_was(three, tmp_path):
    asked = tmp_path / "asked"
    whole = recover(three, tmp_path / "whole" / "run")
    build = partial(Dying, asked)
    with pytest.raises(KeyboardInterrupt):
        recover_clips(generated_sources(three), build, tmp_path / "out" / "run", progress=False)
    done = recover(three, tmp_path / "out" / "run", asked=asked)
    assert (done.num_recovered, done.num_reused) == (1, 2)
    assert same(whole, done)


class Dying(Knowing):
    """`Knowing` until it meets a clip without anything to see."""

    def estimate(self, frames, camera, *, fps):
        if not frames[0, 0, 0, 0]:
            raise KeyboardInterrupt
        return super().estimate(frames, camera, fps=fps)


def test_shares_cover_all_clips_once_and_are_reused_by_the_whole(three, tmp_path):
    whole = recover(three, tmp_path / "whole" / "run")
    parts = [recover(three, tmp_path / "out" / "run", share=Share(part, 2)) for part in (1, 2)]
    assert sorted(clip.clip_id for part in parts for clip in part.clips) == ["a/part", "a/whole", "b/none"]
    done = recover(three, tmp_path / "out" / "run")
    assert done.num_reused == 3
    assert same(whole, done)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="a share is K/N"):
        Share.parse(text)


def test_any_number_of_processes_gives_the_same_numbers_and_every_clip_once(tmp_path):
    # EV-18: samplers that pad with repeats or drop the tail make metrics depend on the number of processes.
    root = tmp_path / "clips"
    for index in range(10):
        write_clip(root, f"c{index % 3}/t{index}", fill=None if index else 0)
    texts = []
    for workers in (1, 2, 3, 5):
        done = recover(root, tmp_path / str(workers) / "run", workers=workers)
        assert len({clip.clip_id for clip in done.clips}) == len(done.clips) == done.num_recovered == 10
        texts.append(score_run(done.clips, label="run", seed=3).result.to_json())
    assert texts[1:] == texts[:1] * 3


def test_an_error_in_another_process_reaches_the_caller(three, tmp_path):
    (three / "a" / "whole" / "frames" / "frame_00008.png").unlink()
    for workers in (1, 2):
        with pytest.raises(MeropeError, match="holds 8 frames of 20 x 32; poses and lens are for 9"):
            recover(three, tmp_path / str(workers), workers=workers)


def test_no_workers_and_clips_of_one_name_are_refused(three, tmp_path):
    with pytest.raises(ValueError, match="workers must be 1 or more"):
        recover(three, tmp_path / "run", workers=0)
    sources = generated_sources(three)
    with pytest.raises(ValueError, match="came more than once"):
        recover_clips([*sources, sources[0]], Knowing, tmp_path / "run", progress=False)


def test_true_clips_are_recovered_like_generated_ones(tmp_path):
    frames = write_clip(tmp_path / "clips", "a/one")
    write_true_clip(tmp_path / "true", "one", frames, poses=turning(9), lens=LENS, fps=10.0, source="s")
    (source,) = true_sources(tmp_path / "true", first_generated=5)
    done = recover_clips([source], Knowing, tmp_path / "floor", progress=False)
    generated = recover(tmp_path / "clips", tmp_path / "run")
    assert torch.equal(
        done.clips[0].recovered.poses.T_world_cam, generated.clips[0].recovered.poses.T_world_cam
    )
    assert done.clips[0].first_generated == 5


class Counting(Knowing):
    """Reads the pose of every frame off its first pixel: turned round, frames give the same poses turned round."""

    def estimate(self, frames, camera, *, fps):
        super().estimate(frames, camera, fps=fps)
        return Recovered.complete(turning(20)[frames[:, 0, 0, 0].tolist()])


def test_a_second_look_marks_clips_and_changes_none(tmp_path):
    root, asked = tmp_path / "clips", tmp_path / "asked"
    numbered = np.broadcast_to(np.arange(2, 11, dtype=np.uint8)[:, None, None, None], (9, 20, 32, 3))
    write_clip(root, "a/numbered", fill=numbered)
    write_clip(root, "b/none", fill=0)
    sources = generated_sources(root)

    def recover_with(kind, folder):
        build = partial(kind, asked)
        return recover_clips(sources, build, folder / "run", reliability=folder / "check", progress=False)

    done = recover_with(Counting, tmp_path / "counting")
    assert done.reliability.keys() == {"a/numbered"}
    assert not done.reliability["a/numbered"]["unreliable"]
    assert done.reliability["a/numbered"]["num_compared"] == 9
    asked.unlink()
    # Answers by the first frame alone, and so the same way round when frames are turned round.
    doubted = recover_with(Knowing, tmp_path / "knowing")
    assert doubted.reliability["a/numbered"]["unreliable"]
    assert "rotations differ by" in doubted.reliability["a/numbered"]["reason"]
    assert sorted(asked.read_text().split()) == ["0", "10", "2"]
    assert same(doubted, recover(root, tmp_path / "plain"))
    again = recover_with(Knowing, tmp_path / "knowing")
    assert again.reliability == doubted.reliability
    assert len(asked.read_text().split()) == 3


def test_labels_become_names_of_folders():
    assert label_folder("videos/ours (2)") == "videos-ours-2"
    assert label_folder("...") == "run"
