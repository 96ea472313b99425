"""Reports of what is large, small, broken or gone."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from merope.errors import MissingDependency
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.report.page import write_report
from merope.evaluation.result import EvaluationResult
from merope.evaluation.runs.run import RunClip, ScoredRun
from merope.evaluation.runs.scored import score_run
from merope.evaluation.scoring import evaluate_clip
from tests.evaluation.report.synthetic import command, run, visible
from tests.evaluation.trajectories import perturbed

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def test_hundreds_of_clips_stay_a_page_that_opens(tmp_path, monkeypatch):
    # A tenth of the rows and of the clips, and figures for the page alone.
    monkeypatch.setattr("merope.evaluation.report.figure_book.pdf_bytes", lambda figure: b"")
    monkeypatch.setattr("merope.evaluation.report.clip_table.MAX_ROWS", 200)
    read = []

    def noise(index):
        def frames():
            read.append(index)
            # What compresses worst, larger than is shown.
            return np.random.default_rng(index).integers(0, 255, (4, 180, 400, 3), dtype=np.uint8)

        return frames

    commanded = command(0, 4)
    found = Recovered.complete(perturbed(commanded, 1))
    scored = evaluate_clip(commanded, found)
    names = [f"scene-{index // 3:03d}/{index % 3}" for index in range(90)]
    # One clip's scores under many names: scoring is not what is tested.
    results = tuple(replace(scored, clip_id=name) for name in names)
    runs = [
        ScoredRun(
            label=label,
            clips=tuple(
                RunClip(
                    clip_id=name,
                    commanded=commanded,
                    recovered=found,
                    frames=None if label == "c" else noise(index),
                )
                for index, name in enumerate(names)
            ),
            result=EvaluationResult(label=label, clips=results, num_resamples=50),
        )
        for label in ("a", "b", "c")
    ]
    path = write_report(tmp_path, runs)
    text = path.read_text()
    # Pictures take 5 MB, a third more as text; 2 000 rows take the rest of 8.
    rows = text[text.index('<section id="clips">') : text.index('<section id="metrics">')]
    assert len(text) - len(rows) + 10 * len(rows) < 8_000_000
    assert rows.count("<tr data-flagged") == 3 * (200 // 3)
    assert "72 more are in results.csv" in visible(path)
    # Of two runs two scenes of three clips, three worst and three best each, and two strips of both.
    assert len(read) <= 2 * (2 * 3 + 3 + 3) + 2 * 2


def test_a_report_is_written_where_frames_are_gone_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("merope.evaluation.report.figure_book.pdf_bytes", lambda figure: b"")

    def gone():
        raise FileNotFoundError("frames/000000.png is not there")

    one = run("a", num_clips=2)
    lost = replace(one, clips=(replace(one.clips[0], frames=gone), one.clips[1]))
    path = write_report(tmp_path, [lost])
    words = visible(path)
    assert "Pictures lack the frames of 1 clip, which could not be read when they were drawn" in words
    assert f"a, {lost.clips[0].clip_id}: FileNotFoundError: frames/000000.png is not there" in words
    assert (tmp_path / "results.json").exists()


def test_two_frames_are_enough_for_a_report(tmp_path):
    commanded = command(0, 2)
    clip = RunClip(
        clip_id="short", commanded=commanded, recovered=Recovered.complete(perturbed(commanded, 1))
    )
    text = visible(write_report(tmp_path, [score_run([clip], label="a")]))
    assert "in 1 clip of 2 frames" in text
    assert "errors-by-baseline" not in (tmp_path / "figures" / "figures.json").read_text()


def test_a_run_without_a_camera_is_a_report_too(tmp_path):
    clips = [
        RunClip(clip_id=f"c{index}", commanded=command(index), recovered=None, failure="no matches")
        for index in range(2)
    ]
    path = write_report(tmp_path, [score_run(clips, label="a")])
    assert "No camera was recovered in any clip" in visible(path)
    assert "c0: no matches" in visible(path)
    # Nothing was recovered that could be the best.
    assert not list((tmp_path / "figures").glob("best-*"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        write_report(tmp_path / "file" / "out", [run("a", num_clips=1, with_frames=False)])


def test_without_matplotlib_the_numbers_are_there_and_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"merope\[plot\]"):
        write_report(tmp_path, [run("a", num_clips=1, with_frames=False)])
    assert (tmp_path / "results.json").exists()
    assert not (tmp_path / "report.html").exists()
