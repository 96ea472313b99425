"""Settings that differ between two runs: every one, nested ones by their names, and none that agrees."""

import pytest

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.settings_differences import ABSENT, settings_that_differ
from tests.evaluation.scored import clip, run

SETTINGS = {
    "estimator": {"name": "vggt-omega", "weights_sha256": "ab12", "options": {"size": 512}},
    "versions": {"torch": "2.13", "numpy": "2.4"},
    "frames": [0, 16, 32],
    "estimator_notes_by_clip": {"a": ["few matches"]},
}


def test_runs_that_agree_differ_in_nothing():
    one, other = (run(label, [clip("a")], settings=SETTINGS) for label in ("one", "other"))
    assert settings_that_differ(one, other) == {}


def test_a_nested_setting_is_named_with_both_values():
    changed = SETTINGS | {
        "estimator": {"name": "vggt-omega", "weights_sha256": "cd34", "options": {"size": 518}}
    }
    found = settings_that_differ(
        run("one", [clip("a")], settings=SETTINGS), run("other", [clip("a")], settings=changed)
    )
    assert found == {
        "estimator.weights_sha256": ("ab12", "cd34"),
        "estimator.options.size": (512, 518),
    }


def test_a_setting_of_one_run_alone_is_absent_in_the_other():
    one = run("one", [clip("a")], settings={"window": None})
    other = run("other", [clip("a")], settings={"dtype": "float32"})
    assert settings_that_differ(one, other) == {"window": (None, ABSENT), "dtype": (ABSENT, "float32")}


def test_what_json_cannot_tell_apart_is_the_same_and_true_is_not_one():
    one = run("one", [clip("a")], settings={"ids": (0, 1), "flag": True})
    other = run("other", [clip("a")], settings={"ids": [0, 1], "flag": 1})
    assert settings_that_differ(one, other) == {"flag": (True, 1)}


def test_what_is_said_clip_by_clip_is_one_setting():
    clips = [clip("a"), clip("b")]
    one = run("one", clips, settings={"failed": {"a": "no matches", "b": "no matches"}})
    other = run("other", clips, settings={"failed": {"b": "too dark"}})
    assert settings_that_differ(one, other) == {
        "failed": ({"a": "no matches", "b": "no matches"}, {"b": "too dark"})
    }


@pytest.mark.parametrize(
    ("name", "clips", "kwargs", "values"),
    [
        ("on_failure", [clip("a")], {"on_failure": "worst"}, ("error", "worst")),
        ("seed", [clip("a")], {"seed": 4}, (0, 4)),
        ("num_resamples", [clip("a")], {"num_resamples": 10}, (1000, 10)),
        ("num_expected", [clip("a")], {"num_expected": 5}, (None, 5)),
        ("num_skipped", [clip("a")], {"num_skipped": 2}, (0, 2)),
        ("num_clips", [clip("a"), clip("b")], {}, (1, 2)),
        ("angle_method", [clip("a", angle_method="acos")], {}, ("atan2", "acos")),
        ("commanded_unit", [clip("a", unit="normalized")], {}, ("m", "normalized")),
        ("num_frames", [clip("a", frames=81)], {}, (49, 81)),
        ("first_generated", [clip("a", given=9)], {}, (None, 9)),
    ],
)
def test_what_stands_outside_the_settings_is_compared_too(name, clips, kwargs, values):
    assert settings_that_differ(run("one", [clip("a")]), run("other", clips, **kwargs)) == {name: values}


def test_clips_of_several_lengths_are_listed():
    one, other = run("one", [clip("a")]), run("other", [clip("a"), clip("b", frames=81)])
    assert settings_that_differ(one, other)["num_frames"] == (49, [49, 81])


def test_a_benchmark_and_its_objections_are_compared():
    verdict = Verdict(benchmark="panshot-272", num_expected=272, num_used=1, reasons=("271 are missing.",))
    found = settings_that_differ(run("one", [clip("a")]), run("other", [clip("a")], verdict=verdict))
    assert found == {"benchmark": (None, "panshot-272"), "not_comparable": ([], ["271 are missing."])}


def test_how_exact_rotations_of_a_file_were_is_no_setting():
    one, other = (
        run(label, [clip("a")], settings={"projection_error": {"estimated": error}, "window": window})
        for label, error, window in (("one", 8.17e-07, 49), ("other", 1.7e-15, 81))
    )
    assert settings_that_differ(one, other) == {"window": (49, 81)}
