"""The loop behind demo and benchmarks: what sees the command and what must not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from merope.cli import street
from merope.errors import TrajectoryError
from merope.worlds.drives import drive
from tests.support.standin import standin_weights
from tests.support.tiny_run import tiny_spec

SPEC = tiny_spec()


@pytest.fixture(scope="module")
def clips():
    command = drive("curve", seed=5, num_frames=13, fps=10.0)
    return street.render_commands("c", street.with_variants(command, SPEC), SPEC, seed=5, samples=1)


@pytest.fixture(scope="module")
def models():
    return street.load_models(folder=standin_weights())


@pytest.fixture(scope="module")
def estimator():
    return street.load_estimator(standin_weights())


def swapped(clips):
    """The same frames, each clip with the command of another."""
    return [replace(clip, poses=clips[index - 1].poses) for index, clip in enumerate(clips)]


def test_swapped_commands_change_no_estimate_of_the_same_frames(clips, models, estimator):
    videos = street.generate_clips(models["merope"], clips, steps=1, progress=False)
    for frames in (videos, [clip.truth for clip in clips]):
        before = street.recover(estimator, frames, SPEC)
        scored = street.score(clips, before, SPEC, label="own")
        after = street.recover(estimator, frames, SPEC)
        other = street.score(swapped(clips), after, SPEC, label="other")
        for one, two in zip(before, after, strict=True):
            assert torch.equal(one.T_world_cam, two.T_world_cam)
        # It is the score that knows the command.
        assert scored.summary()["cammc"].metric.value != other.summary()["cammc"].metric.value


def test_true_poses_score_perfectly_and_those_of_another_command_do_not(clips):
    own = street.score(clips, [clip.poses for clip in clips], SPEC, label="own").summary()
    assert own["cammc"].metric.value == pytest.approx(0, abs=1e-9)
    other = street.score(swapped(clips), [clip.poses for clip in clips], SPEC, label="other").summary()
    assert other["cammc"].metric.value > 0.05


def test_generation_sees_the_command(clips, models):
    own = street.generate_clips(models["merope"], clips, steps=1, progress=False)
    other = street.generate_clips(models["merope"], swapped(clips), steps=1, progress=False)
    assert any((one != two).any() for one, two in zip(own, other, strict=True))


def test_model_without_camera_encoding_does_not_see_the_command(clips, models):
    own = street.generate_clips(models["native"], clips, steps=1, progress=False)
    other = street.generate_clips(models["native"], swapped(clips), steps=1, progress=False)
    assert all(np.array_equal(one, two) for one, two in zip(own, other, strict=True))


def test_variants_of_a_command_start_from_the_same_given_frames(clips):
    given = SPEC.prefix_frames
    assert [clip.clip_id for clip in clips] == ["c-original", "c-left", "c-right"]
    for clip in clips[1:]:
        assert torch.equal(clip.poses.T_world_cam[:given], clips[0].poses.T_world_cam[:given])
        assert np.array_equal(clip.truth[:given], clips[0].truth[:given])
        assert not np.array_equal(clip.truth[given:], clips[0].truth[given:])


def test_videos_do_not_depend_on_how_clips_are_batched(clips, models):
    together = street.generate_clips(models["merope"], clips, steps=1, progress=False)
    apart = street.generate_clips(models["merope"], clips, steps=1, batch=2, progress=False)
    assert len(apart) == 3
    # bfloat16 rounds differently in other batch sizes.
    for one, two in zip(together, apart, strict=True):
        assert np.abs(one.astype(int) - two).mean() < 2


def test_command_that_does_not_fit_is_refused_before_a_world_is_built():
    with pytest.raises(TrajectoryError, match="25 poses and the model makes 13"):
        street.render_commands("c", {"o": drive("curve", seed=5, num_frames=25, fps=10.0)}, SPEC, seed=5)


def test_table_has_a_row_per_result_and_a_dash_for_what_cannot_be_said(clips):
    perfect = street.score(clips, [clip.poses for clip in clips], SPEC, label="a")
    lines = street.table({"a": perfect, "a longer label": perfect}).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["rot", "(deg)", "tr", "(%)", "AUC@3", "AUC@10", "CamMC"]
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split()[0] == "a"
    assert lines[1].split()[-1] == "0.00"
