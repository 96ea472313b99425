"""The printed table: groups under their headings, scale treatments by name, counts always, no NaN."""

import re

import pytest

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.protocol import FLAGS, SPECS
from merope.evaluation.result_table import GROUPS, metrics_of
from tests.evaluation.scored import clip, pairs, run


@pytest.fixture(scope="module")
def result():
    values = dict.fromkeys(SPECS, 1.25) | {"cammc": 2.5}
    for key in ("auc_3", "auc_10", "auc_3_oriented", "auc_10_oriented"):
        values.pop(key)
    clips = [clip(f"clip {n}", pairs((50,)), given=9, **values | {"rot_deg": float(n)}) for n in range(6)]
    still = values | {"tr_percent": None}
    clips.append(
        clip(
            "still",
            pairs((50,)),
            given=9,
            reasons={"tr_percent": "the command stands still (chord 0 m)"},
            flags={"static_commanded": "words"},
            **still,
        )
    )
    return run("ours", clips, num_skipped=1, num_expected=10)


def section(table, group):
    return table.split(f"\n{group}: ")[1].split("\n\n")[0]


def test_every_metric_stands_under_the_headings_of_its_groups(result):
    table = result.table()
    for group in GROUPS:
        lines = section(table, group).splitlines()
        assert len(lines) == 3 + sum(group in spec.groups for spec in SPECS.values())
        for line, key in zip(lines[3:], metrics_of(group), strict=True):
            assert re.match(rf"{re.escape(SPECS[key].label)}  +{re.escape(result.unit_of(key))}  ", line)
            assert f"  {SPECS[key].scale_rule}  " in line


def test_lengths_are_in_the_unit_that_all_commands_share():
    def ate(*units):
        clips = [clip(str(n), ate_se3=1.0, unit=unit) for n, unit in enumerate(units)]
        rows = section(run("run", clips).table(), "trajectory").splitlines()
        return next(re.split("  +", row)[1] for row in rows if row.startswith(SPECS["ate_se3"].label))

    assert ate("m", "m") == "m"
    assert ate("normalized") == "normalized"
    assert ate("m", "normalized") == "commanded unit"


def test_headings_come_in_the_papers_order_and_cammc_is_last():
    assert list(GROUPS) == ["driving", "panshot", "beside", "trajectory"]
    assert metrics_of("driving") == ["rot_deg", "tr_percent", "auc_3", "auc_10", "cammc"]
    assert metrics_of("panshot") == ["rot_err_rad", "trans_err", "cammc"]


def test_clips_used_stand_beside_clips_expected(result):
    table = result.table()
    rows = {line.split()[0]: line for line in section(table, "driving").splitlines()[3:]}
    assert rows["rot"].split()[-1] == "7/10"
    assert "7/10" in rows["CamMC"]
    assert "6/10" in rows["tr"]
    assert "7 of 10 expected clips are scored" in table
    assert "2 clips missing: these figures are not comparable with those of all 10" in table
    assert "1 skipped" in table


def test_exclusions_and_flags_are_counted_in_words(result):
    table = result.table()
    assert "tr: 1 excluded: the command stands still\n" in table
    assert f"static_commanded: 1 clip: {FLAGS['static_commanded']}" in table


def test_a_flag_shows_the_words_of_its_first_clip_in_lines_that_fit():
    words = "s* = 20.9: a metre of the estimate is 20.9 m of the command. " + "and so on " * 100
    clips = [clip("a"), clip("folder/b", flags={"scaled": words}), clip("c", flags={"scaled": "other words"})]
    table = run("ours", [*clips, clip("d", flags={"failed": FLAGS["failed"]})]).table()
    scaled, failed = table.split("\nscaled: 2 clips: ")[1].split("\nfailed: ")
    assert "\n  such as folder/b: s* = 20.9: a metre" in scaled
    assert "other words" not in scaled
    assert len(scaled) < 800
    assert scaled.endswith("...")
    assert failed == f"1 clip: {FLAGS['failed']}\n  such as d"
    assert max(map(len, table.splitlines())) <= 120


def test_the_median_is_said_to_be_over_clips_for_auc_too(result):
    words = " ".join(result.table().split())
    assert "AUC pooled over the pairs of all clips" in words
    assert "for AUC of the clips' own AUC" in words


def test_generated_frames_have_columns_of_their_own(result):
    table = result.table()
    assert "generated only: from frame 9 on" in table
    assert section(table, "driving").splitlines()[1].split("clips")[1].strip().startswith("generated only")
    alone = run("ours", [clip("a", rot_deg=1.0)])
    assert "generated only" not in alone.table()


def test_the_value_of_a_row_is_the_mean_and_the_median_that_of_clips(result):
    row = section(result.table(), "driving").splitlines()[3]
    values = sorted([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.25])
    assert f"{sum(values) / 7:.3f}" in row
    assert f"{values[3]:.3f}" in row


@pytest.mark.parametrize(
    ("reasons", "words"), [((), "comparable;"), (("2 are missing.",), "NOT COMPARABLE;")]
)
def test_a_verdict_is_printed_with_its_reasons(reasons, words):
    verdict = Verdict(benchmark="nuscenes-384", num_expected=384, num_used=1, reasons=reasons)
    table = run("ours", [clip("a")], verdict=verdict).table()
    assert f"nuscenes-384: {words} 1 of 384 clips" in table
    assert all(reason in table for reason in reasons)


def test_undefined_numbers_are_dashes():
    table = run("nothing", [clip("a", pairs(num=0))]).table()
    assert "nan" not in table.lower()
    assert "None" not in table
    assert section(table, "panshot").splitlines()[3].split()[-4:] == ["-", "-", "-", "0/1"]
