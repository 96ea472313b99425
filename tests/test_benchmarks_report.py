"""The bars and the report of ``benchmarks/attention.py``, on results whose numbers are known."""

import json
from dataclasses import replace

import pytest
from benchmarks.attention_cost import report, session, shapes, verdicts
from benchmarks.attention_cost.columns import Column
from benchmarks.measuring import guards, timing


def made_point(
    direction="forward", scope="core", purpose="main", *, ucpe=1.1, merope=1.2, frames=13, others=0.0
):
    """A point in which plain attention takes a second, UCPE and MeRoPE what they are given."""
    shape = replace(shapes.SHAPES["paper"], frames=frames)
    wall = {"sdpa": [1.0] * 3, "ucpe op": [2.0] * 3, "ucpe plain compiled": [ucpe] * 3}
    wall["merope chunked"] = [ucpe * merope] * 3
    taken = timing.Rounds(wall, dict(wall), [list(wall)] * 3)
    return {
        **session._key(shape, scope, direction, purpose),
        "threads": 2,
        "others_cores": others,
        **session.summary(taken, {name: Column.from_name(name) for name in wall}),
        "rounds": {"wall": wall},
    }


def made_memory(point, column, peak, geometry):
    keys = {key: point[key] for key in ("purpose", "shape", "scope", "direction")}
    return {**keys, "column": column, "peak": peak, "allocated": peak, "geometry": geometry, "how": "VmHWM"}


def made_results(points, memory=(), **other):
    results = {
        "shape": {"name": "paper", "text": "1872 tokens", "batch": 1},
        "quick": False,
        "directions": ("forward",),
        "machine": {"device": "cpu", "dtype": "float32", "threads": 2, "uncommitted": False},
        "tests": "9 passed",
        "idle": {"before": {"busy": False, "cores": 0.0, "text": "others use 0.00 cores"}},
        "points": points,
        "memory": list(memory),
        "absent": {},
        "incomplete": [],
        "void": [],
        "busy": [],
    }
    return {**results, **other}


def test_a_slow_ucpe_voids_the_comparison():
    assert verdicts.void_reasons(made_results([made_point(ucpe=1.149)])) == []
    (reason,) = verdicts.void_reasons(made_results([made_point(ucpe=1.16)]))
    assert "'ucpe plain compiled', costs 1.160 x plain attention" in reason


def test_a_core_that_was_not_measured_or_a_missing_form_of_ucpe_voids_the_comparison():
    (reason,) = verdicts.void_reasons(made_results([made_point(scope="full")]))
    assert "the core was not measured (forward)" in reason
    absent = {"ucpe plain compiled": "no compiler", "merope chunked compiled": "no compiler"}
    (reason,) = verdicts.void_reasons(made_results([made_point()], absent=absent))
    assert reason == "'ucpe plain compiled' is missing: no compiler"


def test_targets_pass_and_miss_at_the_paper_s_shape():
    points = [
        made_point(merope=1.29),
        made_point("forward+backward", merope=1.46),
        made_point(scope="full", merope=1.11),
        made_point("forward+backward", "full", merope=1.19),
        made_point(scope="block", merope=9.0),
    ]
    memory = [
        made_memory(points[0], "merope chunked", 100, 20),
        made_memory(points[0], "ucpe plain compiled", 100, 5),
    ]
    found = verdicts.targets(made_results(points, memory))
    assert [(round(verdict.value, 2), verdict.met) for verdict in found] == [
        (1.29, True),
        (1.46, False),
        (1.11, False),
        (1.19, True),
        (1.14, True),
    ]
    assert str(found[1]) == (
        "MISS latency, core, forward+backward: merope chunked / ucpe plain compiled: 1.460 (at most 1.45)"
    )
    # Without its stored anchors it would be 0.95.
    assert str(found[4]).startswith(
        "PASS peak memory, core, forward: merope chunked / ucpe plain compiled: 1.143"
    )


def test_targets_on_a_gpu_compare_the_fused_kernel():
    point = made_point(scope="full")
    wall = {"sdpa": [1.0] * 3, "ucpe op compiled": [1.0] * 3, "identity fused": [1.1] * 3}
    wall |= {"merope fused": [1.15] * 3, "merope chunked": [2.0] * 3}
    taken = timing.Rounds(wall, dict(wall), [list(wall)] * 3)
    point |= session.summary(taken, {name: Column.from_name(name) for name in wall}) | {
        "rounds": {"wall": wall}
    }
    machine = {"device": "cuda", "dtype": "bfloat16", "threads": 2, "uncommitted": False}
    found = verdicts.targets(made_results([point], machine=machine))
    assert [(round(verdict.value, 2), verdict.met) for verdict in found] == [
        (1.15, True),
        (1.05, True),
        (1.74, False),
    ]


@pytest.mark.parametrize(
    "change", [{"shape": {"name": "panshot"}}, {"machine": {"device": "cpu", "dtype": "float16"}}]
)
def test_no_targets_are_set_elsewhere(change):
    results = made_results([made_point()], **change)
    assert verdicts.targets(results) == []
    assert report.target_lines(results)[0].startswith("No targets are set")


def test_others_at_work_during_a_point_mark_the_report():
    results = made_results([made_point(others=0.05), made_point(others=0.4), made_point(others=None)])
    measured, unknown = guards.busy_reasons(results["idle"], verdicts.busy_stretches(results))
    assert measured.startswith("others used 0.40 cores during main, paper, core, forward")
    assert unknown.startswith("nobody can say")


# --- files


def test_the_report_is_written_with_its_warnings_on_top(tmp_path):
    points = [made_point(), made_point(purpose="one thread")]
    points += [made_point(purpose="frames", frames=count, merope=1 + count / 100) for count in (5, 21)]
    memory = [
        made_memory(point, column, peak, 2**20)
        for point in (points[0], *points[2:])
        for column, peak in (("merope chunked", 11 * 2**20), ("ucpe plain compiled", 9 * 2**20))
    ]
    results = made_results(
        points,
        memory,
        void=["UCPE was slow"],
        busy=["others used 0.40 cores"],
        tests=None,
        absent={"merope fused": "no GPU"},
    )
    written = report.write_report(tmp_path, results)
    assert sorted(path.name for path in written) == [
        "growth-frames.png",
        "growth-frames.svg",
        "results.json",
        "results.md",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    read = json.loads((tmp_path / "results.json").read_text())
    assert read["points"][0]["rounds"]["wall"]["sdpa"] == [1.0, 1.0, 1.0]
    text = (tmp_path / "results.md").read_text()
    head = text.split("## Targets")[0]
    for word in ("VOID: UCPE was slow", "BUSY: others used", "TESTS NOT RUN"):
        assert f"**{word}" in head
    row = next(line for line in text.splitlines() if line.startswith("| `merope chunked`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2] == "1.200 (1.200 - 1.200)"
    assert cells[4:] == ["12.0", "1.0", "12.0", "1.200"]
    assert "- `merope fused`: no GPU" in text
    assert "| 21 | forward | `merope chunked` |" in text
    assert "CPU time / UCPE" in text


def test_growth_is_read_along_the_sweep():
    points = [
        made_point(purpose="frames", frames=count, merope=merope) for count, merope in ((5, 1.1), (21, 1.3))
    ]
    memory = [
        made_memory(points[1], "merope chunked", 30, 0),
        made_memory(points[1], "ucpe plain compiled", 20, 0),
    ]
    series = report.growth(made_results(points, memory), "frames")
    assert series[("forward", "merope chunked")] == [
        (5, pytest.approx(1.1), None),
        (21, pytest.approx(1.3), 1.5),
    ]
    assert ("forward", "ucpe plain compiled") not in series
