"""results.json: what is written comes back equal, and what is not of its kind is refused in words."""

import json

import numpy as np
import pytest

from merope.errors import MeropeError
from merope.evaluation import ClipPair, evaluate_clips
from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.comparison import compare
from merope.evaluation.protocol import SPECS, Metric
from merope.evaluation.results_files import load_results, read_results, write_results
from merope.evaluation.results_files.json_file import json_text
from tests.evaluation.scored import clip, run, with_cammc
from tests.evaluation.trajectories import from_numpy, perturbed, turning


@pytest.fixture(scope="module")
def evaluated():
    """Every kind of clip: scored, without a chord, without a camera; with flags, given frames and a verdict."""
    parked = from_numpy(np.tile(np.eye(3), (8, 1, 1)), np.zeros((8, 3)))
    clips = [
        ClipPair(
            clip_id=f"s{n}/left", commanded=turning(8), estimated=perturbed(turning(8), n), first_generated=3
        )
        for n in range(3)
    ]
    clips += [
        ClipPair(clip_id="parked", commanded=parked, estimated=parked),
        ClipPair(clip_id="lost", commanded=turning(8), estimated=None, first_generated=3),
    ]
    result = evaluate_clips(
        clips,
        label='ours "é" <b> & 50 %',
        on_failure="worst",
        seed=3,
        num_resamples=50,
        settings={"estimator": {"name": "colmap", "options": {"size": 512}}, "rate": 12.0, "none": None},
    )
    verdict = Verdict(benchmark="worlds-5", num_expected=5, num_used=4, reasons=("one was lost.",))
    return run(
        result.label,
        result.clips,
        on_failure="worst",
        seed=3,
        num_resamples=50,
        settings=result.settings,
        num_expected=7,
        verdict=verdict,
    )


def test_what_was_written_comes_back_equal(evaluated, tmp_path):
    other = with_cammc("other", {"a": 0.1 + 0.2, "b": 1e-300}, num_skipped=2)
    write_results(tmp_path, [evaluated, other])
    assert read_results(tmp_path) == (evaluated, other)
    assert read_results(tmp_path / "results.json") == (evaluated, other)
    back = read_results(tmp_path)[0]
    assert back.table() == evaluated.table()
    assert back.to_json() == evaluated.to_json()


def test_one_result_as_json_comes_back_too(evaluated, tmp_path):
    evaluated.write_json(tmp_path / "one.json")
    assert read_results(tmp_path / "one.json") == (evaluated,)


def test_references_are_told_from_the_others(evaluated, tmp_path):
    floor = with_cammc("floor", {"a": 1.0})
    write_results(tmp_path, [floor, evaluated], references=["floor"])
    found = load_results(tmp_path)
    assert found.references == ("floor",)
    assert [result.label for result in found.results] == ["floor", evaluated.label]


def test_comparisons_and_fidelity_stand_in_the_file(evaluated):
    comparison = compare(evaluated, evaluated)
    fidelity = {"x": {"fid": Metric(value=None, unit="1", protocol="p", reason="too few")}}
    content = json.loads(json_text([evaluated], comparisons=[comparison], fidelity=fidelity))
    assert content["comparisons"] == [json.loads(json.dumps(comparison.to_dict(with_clips=False)))]
    # They stand with the runs already; for every pair of eight runs they would outweigh everything else.
    assert all("clips" not in metric for metric in content["comparisons"][0]["metrics"].values())
    assert content["fidelity"]["x"]["fid"] == {
        "value": None,
        "unit": "1",
        "protocol": "p",
        "reason": "too few",
    }


def test_every_metric_has_its_unit_and_protocol_in_the_file(evaluated):
    content = json.loads(json_text([evaluated]))
    assert content["format"] == "merope-evaluation-1"
    for metrics in (content["results"][0]["metrics"], content["results"][0]["metrics_generated_frames"]):
        assert set(metrics) == set(SPECS)
        assert all(metric["unit"] and metric["protocol"] for metric in metrics.values())


def changed(evaluated, tmp_path, change):
    content = json.loads(json_text([evaluated]))
    change(content)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def first_clip(content):
    return content["results"][0]["clips"][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda c: c.update(format="merope-evaluation-2"),
            "is merope-evaluation-2, and this version .* reads merope-evaluation-1",
        ),
        (lambda c: c.pop("format"), "is not a file of evaluation results"),
        (lambda c: c["results"][0].pop("settings"), "'settings' is missing"),
        (lambda c: first_clip(c).pop("flags"), "'flags' is missing"),
        (lambda c: first_clip(c).update(clip_id="s1/left"), "came more than once, such as 's1/left'"),
        (
            lambda c: first_clip(c)["all_frames"]["values"].update(cammc="low"),
            "cammc must be a number or null, got 'low'",
        ),
        (
            lambda c: first_clip(c)["all_frames"]["values"].update(cammc=float("nan")),
            r"clips\[0\]\.all_frames\.values\.cammc is not",
        ),
        (lambda c: first_clip(c).update(all_frames=None), "not all of it can be read"),
        (lambda c: c["results"].append(c["results"][0]), "two runs of one label"),
        (lambda c: c.update(results=3), "results must be a list, got '3'"),
        (lambda c: c.update(results={}), "results must be a list"),
        (
            lambda c: first_clip(c)["all_frames"].update(pairs_below_deg=[10**9] * 10),
            "pairs_below_deg must grow from 0 or more to num_pairs at most",
        ),
        (lambda c: c["results"][0].update(num_expected=0), r"came\. Write it again"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_words(evaluated, tmp_path, change, words):
    with pytest.raises(MeropeError, match=words) as refused:
        read_results(changed(evaluated, tmp_path, change))
    assert str(tmp_path) in str(refused.value)


def fields(content):
    """Every object of the file that reading needs, by name."""
    result, clip_result = content["results"][0], first_clip(content)
    scores = clip_result["all_frames"]
    return {
        "verdict": result["verdict"],
        "protocol": {key: result["protocol"][key] for key in ("on_failure", "seed", "num_resamples")},
        "clip": clip_result,
        "scores": scores,
        "result": {
            key: result[key]
            for key in ("label", "protocol", "settings", "num_skipped", "num_expected", "verdict", "clips")
        },
    }


@pytest.mark.parametrize("place", ["verdict", "protocol", "clip", "scores", "result"])
def test_every_field_is_missed_by_name_and_none_may_be_of_another_kind(evaluated, tmp_path, place):
    whole = json.loads(json_text([evaluated]))
    path = tmp_path / "results.json"
    for key in fields(whole)[place]:
        if key == "comparable":
            # It follows from the reasons.
            continue
        for wrong in (None, {"a": []}):
            content = json.loads(json.dumps(whole))
            holder = {"result": content["results"][0], "protocol": content["results"][0]["protocol"]}
            holder = holder.get(place) or fields(content)[place]
            if wrong is None:
                del holder[key]
            else:
                holder[key] = wrong
            path.write_text(json.dumps(content), encoding="utf-8")
            if key == "settings" and wrong is not None:
                assert read_results(path)[0].settings == wrong
                continue
            with pytest.raises(
                MeropeError, match=f"'{key}' is missing" if wrong is None else "not all of it can be read"
            ):
                read_results(path)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "3", '"merope-evaluation-1"', "\x00"])
def test_what_is_no_results_file_is_refused(tmp_path, text):
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(MeropeError, match=r"results\.json is not"):
        read_results(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "results.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(MeropeError, match=r"results\.json is not"):
        read_results(tmp_path)


def test_a_byte_order_mark_in_front_is_no_fault(evaluated, tmp_path):
    (tmp_path / "results.json").write_text(json_text([evaluated]), encoding="utf-8-sig")
    assert read_results(tmp_path) == (evaluated,)


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.json"):
        read_results(tmp_path)


def test_nan_is_refused_before_anything_is_written(tmp_path):
    bad = run("bad", [clip("a", cammc=float("nan"))])
    with pytest.raises(ValueError, match="must hold finite numbers"):
        write_results(tmp_path / "out", [bad])
    assert not (tmp_path / "out").exists()
