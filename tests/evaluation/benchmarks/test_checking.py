"""A benchmark's verdict: a complete run is comparable, and whatever a run lacks or does otherwise is named."""

import random
from dataclasses import replace

import pytest
import torch
from scipy.spatial.transform import Rotation

from merope.cameras import Pinhole
from merope.evaluation.benchmarks.checking import difference
from merope.evaluation.benchmarks.registry import NUSCENES_384, PANSHOT_272, PANSHOT_272_METRES
from merope.evaluation.benchmarks.split_files import write_clip_list
from tests.evaluation.benchmarks.selections import (
    BENCHMARK,
    SMALL,
    moved,
    run_clip,
    scored,
    select,
    write_clips,
)
from tests.evaluation.trajectories import turning


@pytest.fixture(scope="module")
def selection(tmp_path_factory):
    root = tmp_path_factory.mktemp("selection")
    write_clips(root / "clips", 6)
    select(root / "clips", root / "evaluation")
    return root / "evaluation"


@pytest.fixture(scope="module")
def expected(selection):
    return BENCHMARK.expected(selection)


@pytest.fixture(scope="module")
def clips(expected):
    return [run_clip(clip.clip_id, clip.commanded) for clip in expected]


@pytest.fixture(scope="module")
def complete(clips):
    return scored(clips)


def with_clip(run, number, **changes):
    """The run with one clip changed, its scores left as they are: a verdict reads scores for names alone."""
    clips = list(run.clips)
    clips[number] = replace(clips[number], **changes)
    return replace(run, clips=tuple(clips))


def with_settings(run, **settings):
    return replace(run, result=replace(run.result, settings={**run.result.settings, **settings}))


def only_reason(run, expected, benchmark=BENCHMARK):
    verdict = benchmark.verdict(run, expected)
    assert not verdict.comparable
    assert len(verdict.reasons) == 1, verdict.reasons
    return verdict.reasons[0]


def test_a_complete_run_is_comparable_in_any_order_of_its_clips(clips, complete, expected):
    verdict = BENCHMARK.verdict(complete, expected)
    assert verdict.reasons == ()
    assert (verdict.num_expected, verdict.num_used) == (12, 12)
    shuffled = random.Random(3).sample(clips, len(clips))
    other = scored(shuffled)
    assert BENCHMARK.verdict(other, expected) == verdict
    assert BENCHMARK.verdict(other, tuple(reversed(expected))) == verdict


def test_a_run_in_another_world_frame_is_comparable(clips, expected):
    turn = torch.as_tensor(Rotation.from_rotvec([0.2, -0.4, 1.0]).as_matrix())
    shift = torch.tensor([400.0, -1200.0, 3.0])
    elsewhere = [replace(clip, commanded=clip.commanded.transformed(turn, shift)) for clip in clips]
    assert BENCHMARK.verdict(scored(elsewhere), expected).comparable


def test_pose_files_may_go_by_the_names_of_the_selection(clips, expected):
    renamed = [replace(clip, clip_id=wanted.also[0]) for clip, wanted in zip(clips, expected, strict=True)]
    assert renamed[0].clip_id.startswith("nuscenes/scene-") and "@" in renamed[0].clip_id
    assert BENCHMARK.verdict(scored(renamed), expected).comparable


def test_a_missing_clip_is_named_and_counted(clips, expected):
    run = scored(clips[1:])
    assert only_reason(run, expected) == f"1 of 12 clips are missing: {clips[0].clip_id}."
    assert BENCHMARK.verdict(run, expected).num_used == 11
    many = only_reason(scored(clips[:2]), expected)
    assert many.startswith("10 of 12 clips are missing: ") and many.endswith(" and 5 more.")


def test_a_clip_that_is_none_of_the_benchmark_is_named(clips, expected):
    run = scored([*clips, replace(clips[0], clip_id="mine/original")])
    assert only_reason(run, expected) == "mine/original is no clip of the split."
    assert BENCHMARK.verdict(run, expected).num_used == 12


def test_a_clip_that_is_there_under_two_names_is_a_duplicate(clips, expected):
    run = scored([*clips, replace(clips[4], clip_id=expected[4].also[0])])
    assert only_reason(run, expected) == f"{expected[4].clip_id} is there more than once."


def test_a_cut_frame_is_a_reason(clips, expected):
    short = run_clip(clips[2].clip_id, clips[2].commanded[:48])
    run = scored([*clips[:2], short, *clips[3:]])
    wanted = f"1 clip is of another number of frames than 49: {clips[2].clip_id} (48)."
    assert only_reason(run, expected) == wanted


def test_a_pose_moved_by_a_millimetre_is_another_command(complete, expected, selection, tmp_path):
    number = next(i for i, clip in enumerate(complete.clips) if clip.clip_id == expected[5].clip_id)
    run = with_clip(complete, number, commanded=moved(expected[5].commanded, 1e-3))
    reason = only_reason(run, expected)
    assert f"1 clip is driven along other commands than the split's: {expected[5].clip_id}" in reason
    assert "from frame 30 on, centres by up to 0.001 m" in reason
    # The digests of a list see it too.
    for name in ("clips.json", "clips.csv"):
        write_clip_list(tmp_path / name, BENCHMARK, expected)
        listed = BENCHMARK.expected(tmp_path / name)
        assert BENCHMARK.verdict(complete, listed).comparable
        assert f"{expected[5].clip_id} (another digest)" in only_reason(run, listed)
    # A tenth of the tolerance is nothing.
    assert BENCHMARK.verdict(
        with_clip(complete, number, commanded=moved(expected[5].commanded, 1e-7)), expected
    ).comparable


def test_another_estimator_is_a_reason(complete, expected):
    reason = only_reason(with_settings(complete, estimator="colmap"), expected)
    assert "recovered by colmap; nuscenes-384 takes vggt-omega" in reason
    assert "nothing says that vggt-omega" in only_reason(with_settings(complete, estimator="poses"), expected)
    assert "nothing says that vggt-omega" in only_reason(with_settings(complete, estimator=None), expected)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first_generated": 5}, "of another number of given frames than 9: {} (5)"),
        ({"first_generated": None}, "of another number of given frames than 9: {} (not said)"),
        ({"fps": 10.0}, "of another frame rate than 12 Hz: {} (10 Hz)"),
        ({"fps": None}, "of another frame rate than 12 Hz: {} (not known)"),
        ({"lens": Pinhole.from_fov(fov_x_deg=70.0, height=256, width=512)}, "288 x 512: {} (256 x 512)"),
        ({"lens": None}, "of another frame size than 288 x 512: {} (not known)"),
    ],
)
def test_a_clip_of_another_kind_is_a_reason(complete, expected, changes, words):
    run = with_clip(complete, 3, **changes)
    assert words.format(run.clips[3].clip_id) in only_reason(run, expected)


def test_a_lens_is_held_against_that_of_the_split(complete, expected):
    def with_lens(fov_x_deg):
        lens = Pinhole.from_fov(fov_x_deg=fov_x_deg, height=288, width=512)
        return tuple(replace(clip, lens=lens) for clip in expected)

    assert BENCHMARK.verdict(complete, with_lens(70.0)).comparable
    assert "12 clips are of another lens than the split's" in only_reason(complete, with_lens(70.1))
    # A clip's own lens may be for other frames; then its size alone is held against the benchmark's.
    other = tuple(replace(clip, lens=SMALL) for clip in expected)
    assert BENCHMARK.verdict(complete, other).comparable


def test_a_name_that_two_clips_share_is_none(clips, expected):
    shared = tuple(replace(clip, also=("a/left", clip.also[0])) for clip in expected)
    assert BENCHMARK.verdict(
        scored([replace(clips[0], clip_id=expected[0].also[0]), *clips[1:]]), shared
    ).comparable
    run = scored([replace(clips[0], clip_id="a/left"), *clips[1:]])
    reasons = BENCHMARK.verdict(run, shared).reasons
    assert reasons == (
        f"1 of 12 clips are missing: {clips[0].clip_id}.",
        "a/left is no clip of the split.",
    )
    # A clip's first name is its own, whatever another is called beside.
    first = replace(expected[1], also=(expected[0].clip_id,))
    assert BENCHMARK.verdict(scored(clips), (expected[0], first, *expected[2:])).comparable


def test_commands_in_another_unit_are_a_reason(complete, expected):
    clip = complete.clips[0]
    poses = clip.commanded
    unnamed = type(poses)(R_world_cam=poses.R_world_cam, center_world=poses.center_world, unit="unknown")
    reason = only_reason(with_clip(complete, 0, commanded=unnamed), expected)
    assert reason == f"1 clip is of another unit than m: {clip.clip_id} (unknown)."


def test_failures_that_are_left_out_are_a_reason_and_those_that_count_are_none(clips, expected):
    failed = replace(clips[0], recovered=None, failure="too few matches")
    assert BENCHMARK.verdict(scored([failed, *clips[1:]]), expected).comparable
    verdict = BENCHMARK.verdict(scored([failed, *clips[1:]], on_failure="skip"), expected)
    assert any("left out of the averages (1, on_failure = skip)" in reason for reason in verdict.reasons)
    assert any(f"missing: {failed.clip_id}" in reason for reason in verdict.reasons)
    assert verdict.num_used == 11


def test_without_a_split_nothing_is_comparable(complete):
    verdict = BENCHMARK.verdict(complete, BENCHMARK.expected(None))
    assert [reason.split(",")[0] for reason in verdict.reasons] == ["No split file was given"]
    assert verdict.num_used == 0 and verdict.num_expected == 12


def test_a_split_of_another_size_is_a_reason(complete, expected):
    reason = only_reason(complete, expected, NUSCENES_384)
    assert reason == "The split names 12 clips; nuscenes-384 has 384."


def test_a_split_that_says_nothing_of_commands_is_a_reason(complete, expected, tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(clip.clip_id for clip in expected) + "\n")
    reason = only_reason(complete, BENCHMARK.expected(tmp_path / "names.txt"))
    assert reason.startswith("The split has neither poses nor digests of 12 clips")


def test_panshot_takes_clips_without_given_frames_and_tells_its_two_settings_apart(tmp_path):
    names = ["a-0", "b-1"]
    (tmp_path / "test.txt").write_text("\n".join(names))
    poses = turning(81)
    lens = Pinhole.from_fov(fov_x_deg=90.0, height=480, width=832)
    given = {"first_generated": None, "fps": 16.0, "lens": lens}
    run = scored([run_clip(f"{name}/original", poses, **given) for name in names])
    on, off = (replace(each, num_clips=2) for each in (PANSHOT_272, PANSHOT_272_METRES))
    units = {each.name: each.verdict(run, each.expected(tmp_path / "test.txt")).reasons for each in (on, off)}
    assert any("of another unit than normalized" in reason for reason in units["panshot-272"])
    assert not any("unit" in reason for reason in units["panshot-272-metres"])
    assert not any("given frames" in reason for reasons in units.values() for reason in reasons)


def test_a_rotation_alone_is_a_difference():
    poses = turning(8)
    turn = torch.as_tensor(Rotation.from_rotvec([0, 1e-4, 0]).as_matrix())
    rotations = poses.R_world_cam.clone()
    rotations[5] = rotations[5] @ turn
    turned = type(poses)(R_world_cam=rotations, center_world=poses.center_world)
    assert difference(poses, poses) is None
    # The heading there is 5/7 of 46 degrees, and cos(32.86 deg) is 0.840.
    assert difference(turned, poses) == "from frame 5 on, centres by up to 0 m, rotation entries by 8.4e-05"
    with pytest.raises(ValueError, match="8 poses"):
        difference(poses[:7], poses)
