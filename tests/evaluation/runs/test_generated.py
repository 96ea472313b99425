"""Generated clips scored: from lossless frames, failures counted by name, estimates of other programs read back."""

import json

import numpy as np
import pytest
import torch

from merope.cameras import KannalaBrandt, Pinhole
from merope.cli.main import run
from merope.data import ReadOptions, write_poses
from merope.data.clips.generated import find_generated, not_generated, note_asked, write_generated
from merope.data.clips.video import write_video
from merope.errors import MeropeError
from merope.evaluation.estimators import ResampledNetworkEstimator
from merope.evaluation.estimators.base import Recovered, RecoveryFailed
from merope.evaluation.estimators.motion_network import MotionNetwork
from merope.evaluation.estimators.network import NetworkEstimator
from merope.evaluation.runs.generated import estimates_in, score_generated, write_recovered
from tests.evaluation.trajectories import perturbed, turning

LENS = Pinhole.from_fov(fov_x_deg=90, height=40, width=64)


def write_clip(root, clip_id, *, poses=None, lens=LENS, fps=10.0, fill=None, **settings):
    poses = turning(9) if poses is None else poses
    shape = (len(poses), lens.height, lens.width, 3)
    seed = sum(map(ord, clip_id))
    frames = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    if fill is not None:
        frames[:] = fill
    write_generated(
        root / clip_id,
        frames,
        commanded=poses,
        lens=lens,
        fps=fps,
        prefix_frames=5,
        result={"settings": settings},
    )
    return frames


class Knowing:
    """Answers by the first pixel: 0 fails, 1 knows half of the frames, anything else is a little off."""

    name = "knowing"

    def __init__(self):
        self.asked = []

    def estimate(self, frames, camera, *, fps):
        self.asked.append((frames, camera, fps))
        kind = int(frames[0, 0, 0, 0])
        if kind == 0:
            raise RecoveryFailed("nothing to see")
        poses = perturbed(turning(len(frames)), 3, turn_deg=0.5, shift=0.05)
        if kind == 1:
            registered = torch.arange(len(frames)) < len(frames) // 2
            return Recovered(poses=poses, registered=registered, scale="metric", fill="nearest held")
        return Recovered.complete(poses, notes=("knows", f"clip of {kind}"))


@pytest.fixture
def three(tmp_path):
    """One clip that is recovered, one in part, and one not at all."""
    write_clip(tmp_path, "a/whole", fill=7, model="m", steps=3)
    write_clip(tmp_path, "a/part", fill=1, model="m", steps=4)
    write_clip(tmp_path, "b/none", fill=0, model="m", steps=4)
    return tmp_path


def scored(root, estimator, **options):
    return score_generated(find_generated(root), estimator, progress=False, **options)


def test_every_clip_counts_and_those_that_failed_are_named(three):
    scores = scored(three, Knowing())
    assert scores.failed == {"b/none": "nothing to see"}
    assert scores.partial == {"a/part": "4 of 9 frames registered; the others: nearest held"}
    assert [clip.clip_id for clip in scores.result.clips] == ["a/part", "a/whole", "b/none"]
    assert scores.result.success_rate == pytest.approx(2 / 3)
    # As wrong as can be, and in the mean.
    assert scores.result.summary()["rot_deg"].metric.value > 45
    assert scores.result.settings["recovery_failed"] == scores.failed


def test_failed_clips_may_be_left_out_and_are_counted(three):
    result = scored(three, Knowing(), on_failure="skip").result
    assert [clip.clip_id for clip in result.clips] == ["a/part", "a/whole"]
    assert result.num_skipped == 1
    assert result.summary()["rot_deg"].metric.value < 2
    with pytest.raises(ValueError, match="b/none"):
        scored(three, Knowing(), on_failure="error")


def test_the_estimator_sees_lossless_frames_lens_and_rate(tmp_path):
    frames = write_clip(tmp_path, "a/one", fps=12.0)
    # What the mp4 shows plays no part.
    write_video(tmp_path / "a" / "one" / "video.mp4", np.zeros_like(frames), fps=12)
    estimator = Knowing()
    scored(tmp_path, estimator)
    ((seen, lens, fps),) = estimator.asked
    assert np.array_equal(seen, frames)
    assert lens == LENS
    assert fps == 12


def test_given_frames_are_left_out_of_the_generated_figures(three):
    result = scored(three, Knowing()).result
    assert {clip.first_generated for clip in result.clips} == {5}
    assert result.summary("generated")["rot_deg"].metric.value is not None


def test_settings_say_what_all_clips_were_made_with(three):
    settings = scored(three, Knowing()).result.settings
    assert settings["generated_with"]["model"] == "m"
    assert "steps" not in settings["generated_with"]
    assert settings["estimator"] == "knowing"
    assert settings["frames"] == "lossless PNG"


def test_the_same_clips_in_any_order_score_the_same(three):
    clips = find_generated(three)
    one, other = (score_generated(order, Knowing(), progress=False).result for order in (clips, clips[::-1]))
    assert one.summary() == other.summary()


def test_what_was_recovered_is_written_and_read_back_with_its_gaps(three, tmp_path):
    scores = scored(three, Knowing())
    write_recovered(tmp_path / "recovered", scores.recovered)
    assert not (tmp_path / "recovered" / "b").exists()
    options = ReadOptions(index_column=True)
    again = estimates_in(tmp_path / "recovered", format="kitti", options=options)
    clips = [clip for clip in find_generated(three) if clip.clip_id != "b/none"]
    result = score_generated(clips, again, progress=False)
    assert result.partial.keys() == {"a/part"}
    ours = {clip.clip_id: clip for clip in scores.result.clips}
    theirs = {clip.clip_id: clip for clip in result.result.clips}
    for name, value in ours["a/whole"].all.values.items():
        assert theirs["a/whole"].all.values[name] == pytest.approx(value, rel=1e-12), name


def test_estimates_of_another_program_need_one_file_for_each_clip(three, tmp_path):
    write_poses(tmp_path / "est" / "a" / "whole.json", turning(9), format="merope")
    estimator = estimates_in(tmp_path / "est", format="merope")
    part, whole, _ = find_generated(three)
    assert score_generated([whole], estimator, progress=False).result.clips[0].all.values["rot_deg"] < 1e-9
    with pytest.raises(MeropeError, match=r"clip a/part needs one file.*there is none"):
        score_generated([part], estimator, progress=False)
    write_poses(tmp_path / "est" / "a" / "whole.txt", turning(9), format="kitti")
    with pytest.raises(MeropeError, match=r"there are whole\.json, whole\.txt"):
        score_generated([whole], estimator, progress=False)


def network():
    torch.manual_seed(0)
    return NetworkEstimator(MotionNetwork(height=40, width=64), camera=LENS.to_dict(), fps=10.0, summary={})


def test_frames_of_the_networks_own_lens_reach_it_as_they_are():
    frames = np.random.default_rng(0).integers(0, 256, (4, 40, 64, 3), dtype=np.uint8)
    direct, through = (
        estimator.estimate(frames, LENS, fps=10.0)
        for estimator in (network(), ResampledNetworkEstimator(network()))
    )
    assert torch.equal(direct.poses.T_world_cam, through.poses.T_world_cam)
    assert through.notes == ()


def test_frames_of_another_lens_are_resampled_and_it_is_said():
    frames = np.random.default_rng(0).integers(0, 256, (3, 80, 128, 3), dtype=np.uint8)
    lens = LENS.resize(height=80, width=128)
    found = ResampledNetworkEstimator(network()).estimate(frames, lens, fps=12.0)
    small = frames.reshape(3, 40, 2, 64, 2, 3).astype(float).mean(axis=(2, 4)).round().astype(np.uint8)
    wanted = network().estimate(small, LENS, fps=10.0)
    torch.testing.assert_close(found.poses.T_world_cam, wanted.poses.T_world_cam, atol=1e-2, rtol=0)
    resampled, rate = found.notes
    assert resampled == "frames of 80 x 128 resampled into the network's own lens of 40 x 64"
    assert "trained at 10 frames a second and reads these at 12" in rate


def test_a_fisheye_covers_the_networks_lens_and_a_narrow_lens_does_not():
    estimator = ResampledNetworkEstimator(network())
    wide = KannalaBrandt.from_fov(fov_x_deg=190, height=60, width=90)
    assert "covered" not in estimator.estimate(np.zeros((2, 60, 90, 3), np.uint8), wide, fps=10.0).notes[0]
    square = Pinhole.from_fov(fov_x_deg=90, height=40, width=48)
    partly = estimator.estimate(
        np.zeros((2, 40, 48, 3), np.uint8), square.resize(height=40, width=48), fps=10.0
    )
    assert partly.notes == ("frames of 40 x 48 resampled into the network's own lens of 40 x 64",)
    narrow = Pinhole.from_fov(fov_x_deg=40, height=40, width=64)
    with pytest.raises(RecoveryFailed, match=r"show 1\d% of what the motion network's lens sees"):
        estimator.estimate(np.zeros((2, 40, 64, 3), np.uint8), narrow, fps=10.0)


def evaluate(root, *options):
    return run(["evaluate", "--generated", str(root), *map(str, options)])


def test_the_command_prints_a_table_and_writes_a_report(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    root = tmp_path / "clips"
    write_clip(root, "a/one")
    write_clip(root, "a/narrow", lens=Pinhole.from_fov(fov_x_deg=40, height=40, width=64))
    assert evaluate(root, "--out", tmp_path / "report") == 0
    output = capsys.readouterr()
    assert "clips, network: 2 clips of 9 frames; poses recovered for 50 %" in output.out
    assert "generated only" in output.out
    assert "not recovered: a/narrow: these frames show" in output.err
    names = {entry.name for entry in (tmp_path / "report").iterdir()}
    assert names == {"report.html", "bev.png", "metrics.json", "recovered"}
    assert (tmp_path / "report" / "recovered" / "a" / "one.txt").exists()
    content = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert "a/narrow" in content["results"][0]["settings"]["recovery_failed"]
    assert "not recovered: a/narrow" in (tmp_path / "report" / "report.html").read_text()


def test_the_command_reads_estimates_of_another_program(tmp_path, capsys):
    write_clip(tmp_path / "clips", "a/one")
    write_poses(tmp_path / "est" / "a" / "one.json", turning(9), format="merope")
    assert (
        evaluate(tmp_path / "clips", "--estimator", "poses", "--estimates", tmp_path / "est", "--json") == 0
    )
    content = json.loads(capsys.readouterr().out)
    assert content["metrics"]["rot_deg"]["value"] == pytest.approx(0, abs=1e-9)
    assert content["metrics"]["scale_error_percent"]["value"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--estimator", "poses"), "belong together"),
        (("--estimates", "est"), "belong together"),
        (("--commanded", "a.txt"), "--generated brings its own commands"),
    ],
)
def test_flags_that_contradict_each_other_are_a_usage_error(tmp_path, capsys, options, words):
    assert evaluate(tmp_path, *options) == 2
    assert words in capsys.readouterr().err


def test_nothing_to_evaluate_is_a_usage_error(capsys):
    assert run(["evaluate"]) == 2
    assert "--generated" in capsys.readouterr().err


def test_a_folder_without_clips_says_who_writes_them(tmp_path, capsys):
    assert evaluate(tmp_path) == 1
    assert "`merope generate --out` writes them" in capsys.readouterr().err


def test_a_clip_whose_frames_are_gone_is_named(tmp_path, capsys):
    write_clip(tmp_path, "a/one")
    (tmp_path / "a" / "one" / "frames" / "frame_00008.png").unlink()
    assert evaluate(tmp_path) == 1
    assert "holds 8 frames of 40 x 64; poses and lens are for 9" in capsys.readouterr().err


def test_clips_that_were_asked_for_and_never_made_are_named_and_not_passed_over(tmp_path, capsys):
    write_clip(tmp_path, "a/left")
    note_asked(tmp_path, ["a/left", "a/right"])
    note_asked(tmp_path, ["b/left"])
    assert not_generated(tmp_path) == ["a/right", "b/left"]
    assert run(["evaluate", "--generated", str(tmp_path)]) == 1
    assert "2 of 3 clips" in (err := capsys.readouterr().err) and "a/right, b/left" in err
    assert run(["evaluate", "--generated", str(tmp_path), "--on-failure", "skip"]) == 0
    assert "left out, since they were not generated: a/right, b/left" in capsys.readouterr().err


def test_a_list_of_clips_that_is_damaged_is_said_to_be(tmp_path):
    (tmp_path / "clips.json").write_text("{}")
    with pytest.raises(MeropeError, match="does not list clips"):
        not_generated(tmp_path)
