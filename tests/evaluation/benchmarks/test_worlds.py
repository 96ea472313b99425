"""worlds-N: its clips follow from its name, and are those that `merope benchmark held-out` renders."""

import hashlib
from dataclasses import replace

import pytest
import torch

from merope.cameras import Pinhole
from merope.cli import street
from merope.data.selection.splits import SplitError
from merope.evaluation.benchmarks.registry import find_benchmark
from merope.evaluation.benchmarks.worlds import held_out_commands, shipped_estimator_sha256, with_variants
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.estimators.motion_network.estimator import SHIPPED_WEIGHTS, NetworkEstimator
from merope.evaluation.estimators.motion_network.resampled import ResampledNetworkEstimator
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.scored import score_run
from merope.recipes.tiny_street import tiny_street_spec
from tests.support.shared import shared_file

SPEC = tiny_street_spec()


def worlds_run(expected, **settings):
    lens = street.spec_lens(SPEC)
    clips = [
        RunClip(
            clip_id=clip.clip_id,
            commanded=clip.commanded,
            recovered=Recovered.complete(clip.commanded),
            first_generated=9,
            fps=10.0,
            lens=lens,
        )
        for clip in expected
    ]
    return score_run(clips, label="mine", settings=settings)


def test_expected_clips_are_those_that_are_rendered():
    expected = find_benchmark("worlds-1").expected()
    name, seed, poses = held_out_commands(1, SPEC, kitti=None)[0]
    rendered = street.render_commands(name, with_variants(poses, SPEC), SPEC, seed=seed, samples=1)
    assert [clip.clip_id for clip in rendered] == [clip.clip_id for clip in expected]
    for clip, wanted in zip(rendered, expected, strict=True):
        assert torch.equal(clip.poses.T_world_cam, wanted.commanded.T_world_cam)
        assert clip.truth.shape == (wanted.num_frames, 40, 64, 3)


def test_the_commands_of_the_first_eight_worlds_do_not_move():
    digests = "".join(clip.digest for clip in find_benchmark("worlds-8").expected())
    assert hashlib.sha256(digests.encode()).hexdigest()[:16] == "ee2759af6d75a2de"


def test_more_worlds_begin_with_the_same_ones():
    few, many = (find_benchmark(f"worlds-{count}").expected() for count in (2, 5))
    assert [(clip.clip_id, clip.digest) for clip in few] == [(c.clip_id, c.digest) for c in many[:6]]
    assert len(many) == 15 == find_benchmark("worlds-5").num_clips


def test_a_split_that_would_be_ignored_is_refused(tmp_path):
    with pytest.raises(SplitError, match=r"worlds-2 takes no split.*worlds-2-kitti"):
        find_benchmark("worlds-2").expected(tmp_path)


def test_another_lens_is_another_benchmark():
    benchmark = find_benchmark("worlds-1")
    expected = benchmark.expected()
    assert expected[0].lens == street.spec_lens(SPEC)
    network = NetworkEstimator.load(SHIPPED_WEIGHTS)
    run = worlds_run(expected, estimator="network", estimator_identity=network.identity())
    wide = Pinhole.from_fov(fov_x_deg=90.5, height=SPEC.height, width=SPEC.width)
    changed = replace(run, clips=(replace(run.clips[0], lens=wide), *run.clips[1:]))
    (reason,) = benchmark.verdict(changed, expected).reasons
    name = run.clips[0].clip_id
    # At 45 degrees from the axis the ray moves by the change of half the field of view.
    wanted = (
        f"1 clip is of another lens than a pinhole of 90 degrees: {name} (rays up to 0.25 degrees apart)."
    )
    assert reason == wanted


def test_the_protocol_is_that_of_the_shipped_models():
    benchmark = find_benchmark("worlds-64")
    assert (benchmark.num_frames, benchmark.prefix_frames) == (SPEC.num_frames, SPEC.prefix_frames)
    assert (benchmark.height, benchmark.width, benchmark.fps) == (SPEC.height, SPEC.width, SPEC.fps)


def test_every_second_world_follows_kitti_where_its_poses_are_given():
    benchmark = find_benchmark("worlds-4-kitti")
    assert benchmark.needs_split and benchmark.expected(None) == ()
    names = [clip.clip_id for clip in benchmark.expected(shared_file("data/kitti_odom/poses"))]
    assert names[::3] == ["drive-00-original", "kitti-01-original", "drive-02-original", "kitti-03-original"]


def test_only_the_shipped_estimator_counts():
    benchmark = find_benchmark("worlds-1")
    expected = benchmark.expected()
    network = NetworkEstimator.load(SHIPPED_WEIGHTS)
    own = worlds_run(expected, estimator="network", estimator_identity=network.identity())
    assert benchmark.verdict(own, expected).comparable
    through_evaluate = {
        **own.result.settings,
        "estimator_identity": ResampledNetworkEstimator(network).identity(),
    }
    run = replace(own, result=replace(own.result, settings=through_evaluate))
    assert benchmark.verdict(run, expected).comparable
    retrained = worlds_run(expected, estimator="network", estimator_identity={"weights_sha256": "0" * 64})
    assert benchmark.verdict(retrained, expected).reasons == (
        "The estimator network has other weights than those that worlds-1 takes.",
    )
    assert not benchmark.verdict(worlds_run(expected, estimator="network"), expected).comparable
    assert len(shipped_estimator_sha256()) == 64
