"""Real estimators on real drives: figures that agree with what is known about these files from elsewhere."""

import pytest

from merope.data import load_pose_file, read_poses
from merope.evaluation import ClipPair, evaluate_clip, evaluate_clips
from merope.evaluation.matching import match_poses
from tests.evaluation.metrics.test_paper import textbook
from tests.support.shared import shared_file

# Scale of the estimate against the truth after a Sim(3) alignment of all centres, as evo 1.38 finds it.
EVO_SCALE = {
    ("00", "00_ORB.txt.gz"): 1.0047,
    ("00", "00_SPTAM.txt.gz"): 1.00453,
    ("09", "09_example_0.txt"): 20.98506,
    ("09", "09_example_1.txt"): 1.00805,
}


def matched(sequence, estimate):
    truth = load_pose_file(shared_file(f"data/kitti_odom/poses/{sequence}.txt"), format="kitti")
    recovered = load_pose_file(shared_file(f"data/kitti_odom/estimates/{estimate}"), format="kitti")
    return match_poses(
        truth.poses, recovered.poses, commanded_ids=truth.frame_ids, estimated_ids=recovered.frame_ids
    )


def clips_of(pair, length):
    return [
        ClipPair(
            clip_id=str(start),
            commanded=pair.commanded[start : start + length],
            estimated=pair.estimated[start : start + length],
        )
        for start in range(0, len(pair.commanded) - length + 1, length)
    ]


@pytest.mark.parametrize(("sequence", "estimate"), EVO_SCALE)
def test_scale_agrees_with_evo_to_the_few_percent_that_the_gauge_leaves(sequence, estimate):
    # evo aligns all centres, s* only the first frame, so they differ where the estimate drifts.
    pair = matched(sequence, estimate)
    whole = evaluate_clip(pair.commanded, pair.estimated)
    windows = evaluate_clips(clips_of(pair, 49))
    expected = EVO_SCALE[sequence, estimate]
    assert whole.scale == pytest.approx(expected, rel=0.02)
    assert windows.summary()["scale"].median == pytest.approx(expected, rel=0.02)
    assert not whole.flags
    assert windows.summary()["rot_deg"].metric.value < (1.5 if "SPTAM" in estimate else 0.5)
    assert windows.summary()["tr_percent"].metric.value < 2
    assert windows.summary()["auc_10"].metric.value > 90
    assert sum(windows.flag_counts.values()) == windows.flag_counts["static_commanded"]


def test_an_unscaled_estimate_with_missing_rows_is_matched_by_its_frame_numbers():
    pair = matched("09", "09_example_0.txt")
    assert (len(pair.commanded), pair.num_commanded) == (1589, 1591)
    assert "the 2 without an estimate are left out" in pair.rule


@pytest.mark.parametrize(("sequence", "estimate"), EVO_SCALE)
def test_real_clips_equal_a_second_derivation(sequence, estimate):
    for clip in clips_of(matched(sequence, estimate), 49)[:30:10]:
        result, expected = (
            evaluate_clip(clip.commanded, clip.estimated),
            textbook(clip.commanded, clip.estimated),
        )
        for key in ("rot_deg", "tr_percent", "scale", "cammc", "rot_err_rad", "trans_err"):
            assert result.all[key].value == pytest.approx(expected[key], rel=1e-7, abs=1e-6), key
        for threshold in (3, 10):
            share = sum((expected["joint"] < k).mean() for k in range(1, threshold + 1)) / threshold
            # A pair within acos's 1e-6 deg of a threshold may fall either way.
            assert result.all[f"auc_{threshold}"].value == pytest.approx(100 * share, abs=0.1)


def test_whole_drive_counts_all_its_pairs():
    pair = matched("00", "00_ORB.txt.gz")
    result = evaluate_clip(pair.commanded, pair.estimated)
    assert result.all.pairs.num_pairs == 4541 * 4540 // 2


def test_a_trajectory_against_itself_is_perfect():
    poses = read_poses(shared_file("data/kitti_odom/poses/06.txt"), format="kitti")[:200]
    result = evaluate_clip(poses, poses)
    assert result.rot_deg < 1e-7
    assert result.auc_3 == 100.0
