"""Cameras recovered once: reused bit for bit, redone when frames or estimator change, the same for any number of workers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from merope.data.clips.folder import write_clip as write_true_clip
from merope.errors import MeropeError
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.runs.pose_files import pose_files_in
from merope.evaluation.runs.recovery import NOISE_FLOOR_FOLDER, Share, label_folder, recover_clips
from merope.evaluation.runs.scored import score_run
from merope.evaluation.runs.sources import generated_sources, true_sources
from tests.evaluation.runs.clips import LENS, ODD, Knowing, write_clip
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
    assert done.words.startswith("3 clips: 1 recovered now (other frames than before in 1), 2 reused")


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


@pytest.fixture(scope="module")
def by_workers(tmp_path_factory):
    """Ten clips recovered by 1, 2 and 5 processes: one is not recovered, one has lost a frame, one meets an error."""
    root = tmp_path_factory.mktemp("pool")
    for index in range(10):
        write_clip(root / "clips", f"c{index % 3}/t{index}", fill=None if index else 0)
    write_clip(root / "clips", "d/odd", fill=ODD)
    write_clip(root / "clips", "d/short")
    (root / "clips" / "d" / "short" / "frames" / "frame_00008.png").unlink()
    errors = {}
    for workers in (1, 2, 5):
        with pytest.raises(MeropeError) as caught:
            recover(root / "clips", root / str(workers) / "run", workers=workers)
        errors[workers] = str(caught.value)
    return root, errors


def test_any_number_of_processes_gives_the_same_numbers_and_every_clip_once(by_workers):
    # EV-18: samplers that pad with repeats or drop the tail make metrics depend on the number of processes.
    root, _ = by_workers
    sources = [source for source in generated_sources(root / "clips") if source.clip_id[0] == "c"]
    texts = []
    for workers in (1, 2, 5):
        done = recover_clips(sources, Knowing, root / str(workers) / "run", progress=False)
        assert (done.num_recovered, done.num_reused) == (0, 10)
        texts.append(score_run(done.clips, label="run", seed=3).result.to_json())
    assert texts[1:] == texts[:1] * 2


def test_an_error_in_one_clip_names_it_and_loses_no_other(by_workers):
    _, errors = by_workers
    for workers, words in errors.items():
        assert words.startswith("2 of 12 clips stopped with an error")
        assert "d/odd: ZeroDivisionError: an odd clip (" in words
        assert "d/short: " in words and "holds 8 frames of 20 x 32; poses and lens are for 9" in words
        assert f"{workers}/run, and the same call goes on from there" in words


class Deadly(Knowing):
    """Takes its process along."""

    def estimate(self, frames, camera, *, fps):
        os._exit(9)


def test_a_worker_that_is_killed_is_said_to_be(three, tmp_path):
    with pytest.raises(MeropeError, match="was killed, most often for want of memory"):
        recover_clips(generated_sources(three), Deadly, tmp_path / "run", workers=2, progress=False)
    assert recover(three, tmp_path / "run", workers=2).num_recovered == 3


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
    scored, plain = (score_run(run.clips, label="run").result for run in (doubted, done))
    assert "rotations differ by" in scored.clip("a/numbered").flags["unreliable"]
    assert scored.flag_counts["unreliable"] == 1
    assert plain.flag_counts["unreliable"] == 0
    assert sorted(asked.read_text().split()) == ["0", "10", "2"]
    assert same(doubted, recover(root, tmp_path / "plain"))
    again = recover_with(Knowing, tmp_path / "knowing")
    assert again.reliability == doubted.reliability
    assert len(asked.read_text().split()) == 3


def test_labels_become_names_of_folders_that_no_other_label_has():
    assert label_folder("ours-2") == "ours-2"
    labels = ["ours-2", "ours 2", "ours/2", "...", "", "é", "模型", "视频", "noise-floor", "noise floor"]
    names = [label_folder(label) for label in labels]
    assert len({*names, NOISE_FLOOR_FOLDER}) == len(labels) + 1
    assert all(re.fullmatch(r"[A-Za-z0-9-]+", name) for name in names)


def test_names_of_clips_may_hold_anything_that_a_file_system_takes(tmp_path):
    names = ["a b/x.y", "Straße/模型", "[ab]*/x?", "a.txt/x.."]
    for name in names:
        write_clip(tmp_path / "clips", name, fill=9)
    first = recover(tmp_path / "clips", tmp_path / "out" / "one")
    assert sorted(clip.clip_id for clip in first.clips) == sorted(names)
    other = recover(tmp_path / "clips", tmp_path / "out" / "two")
    assert (other.num_recovered, other.num_reused) == (0, 4)
    assert same(first, other)
    assert set(pose_files_in(tmp_path / "out" / "two")) == set(names)


def test_a_damaged_file_stops_its_own_run_and_no_other(three, tmp_path):
    recover(three, tmp_path / "out" / "one")
    (tmp_path / "out" / "one" / "a" / "whole.txt").write_text('# {"format": "merope-recovered-1"}\n')
    assert recover(three, tmp_path / "out" / "two").num_reused == 2
    with pytest.raises(MeropeError, match=r"whole.txt is damaged: .* Delete it"):
        recover(three, tmp_path / "out" / "one")


def test_a_file_of_another_version_is_recovered_anew(three, tmp_path):
    recover(three, tmp_path / "out" / "one")
    path = tmp_path / "out" / "one" / "a" / "whole.txt"
    path.write_text(path.read_text().replace("merope-recovered-1", "merope-recovered-0"))
    (path.parents[1] / "manifest.json").write_text("damaged")
    done = recover(three, tmp_path / "out" / "one")
    assert (done.num_recovered, done.num_reused) == (1, 2)
    assert "merope-recovered-1" in path.read_text()
    assert json.loads((path.parents[1] / "manifest.json").read_text())["clips"].keys() == {
        "a/part",
        "a/whole",
        "b/none",
    }


def alive(session):
    """Processes of a session that run, those that ended and were not waited for left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(own) == session and state not in "ZX":
            found.append(path.parent.name)
    return found


@pytest.mark.parametrize("all_of_them", [True, False])
def test_a_run_that_is_killed_leaves_no_process_and_goes_on_to_the_same_bytes(all_of_them, tmp_path):
    for index in range(8):
        write_clip(tmp_path / "clips", f"a/t{index}")
    whole = tmp_path / "whole" / "run"
    recover(tmp_path / "clips", whole)
    folder = tmp_path / "out" / "run"
    script = (
        "from functools import partial\n"
        "from tests.evaluation.runs.clips import Slow\n"
        "from merope.evaluation.runs.recovery import recover_clips\n"
        "from merope.evaluation.runs.sources import generated_sources\n"
        "if __name__ == '__main__':\n"
        f"    sources = generated_sources({str(tmp_path / 'clips')!r})\n"
        f"    recover_clips(sources, Slow, {str(folder)!r}, workers=2, progress=False)\n"
    )
    (tmp_path / "main.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    process = subprocess.Popen(
        [sys.executable, tmp_path / "main.py"], start_new_session=True, env=environment
    )
    while process.poll() is None and len(list(folder.glob("a/*.txt"))) < 3:
        time.sleep(0.01)
    assert process.poll() is None
    (os.killpg if all_of_them else os.kill)(process.pid, signal.SIGKILL)
    process.wait()
    given_up = time.monotonic() + 60
    while alive(process.pid) and time.monotonic() < given_up:
        time.sleep(0.05)
    assert not alive(process.pid)
    done = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.glob("a/*.txt")}
    assert 3 <= len(done) < 8
    second = recover(tmp_path / "clips", folder)
    assert (second.num_recovered, second.num_reused) == (8 - len(done), len(done))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in done} == done
    files = {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*") if path.name[0] != "."
    }
    assert files == {path.relative_to(whole): path.read_bytes() for path in whole.rglob("*.*")}
