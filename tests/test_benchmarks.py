"""The logic of ``benchmarks/attention.py``: refusals, ratios, bars, files; nothing here depends on wall time."""

import json
import os
import sys
import time
from dataclasses import replace

import pytest
import torch
from benchmarks.attention_cost import columns, command, planar, scopes, session, shapes
from benchmarks.attention_cost.columns import Column
from benchmarks.attention_cost.command import main
from benchmarks.attention_cost.memory import weighed_apart
from benchmarks.attention_cost.options import Options
from benchmarks.measuring import guards, timing
from benchmarks.measuring.memory import MemoryFailed, peak_of

from merope.attention import camera_attention
from tests.support.fresh_python import run_python

TINY = shapes.SHAPES["tiny"]
QUIET = guards.Load(0.02, (0.1, 0.1, 0.1), ())
NOISY = guards.Load(1.2, (1.4, 1.0, 0.5), (("cc1plus (17)", 0.9), ("python (4)", 0.3)))


# --- guards


def test_an_idle_machine_is_let_through_and_a_busy_one_refused_by_name():
    guards.require_idle(QUIET, busy_ok=False)
    with pytest.raises(
        guards.Refused, match=r"not idle: others use 1\.20 cores .*cc1plus \(17\) 0\.90.*1\.40"
    ):
        guards.require_idle(NOISY, busy_ok=False)
    guards.require_idle(NOISY, busy_ok=True)


def test_what_others_did_leaves_out_what_we_and_our_children_did():
    before = guards.Sample(
        at=10.0, busy=100.0, own=40.0, processes={7: ("cc1plus", 1.0), os.getpid(): ("us", 5.0)}
    )
    after = guards.Sample(
        at=12.0, busy=103.0, own=42.0, processes={7: ("cc1plus", 1.9), os.getpid(): ("us", 7.0)}
    )
    load = guards.load_between(before, after)
    assert load.cores == pytest.approx(0.5)
    assert load.busiest == (("cc1plus (7)", pytest.approx(0.45)),)
    assert load.busy


def test_a_neighbour_at_work_is_seen():
    if not os.path.exists("/proc/stat"):
        pytest.skip("no /proc here")
    # Its own CPU time, read from the same place, is the yardstick: a busy machine may give it little.
    code = "import time\nwhile True: pass"
    import subprocess

    with subprocess.Popen([sys.executable, "-c", code]) as neighbour:
        try:
            before = guards.sample(processes=True)
            deadline = time.monotonic() + 60
            while True:
                after = guards.sample(processes=True)
                spent = after.processes[neighbour.pid][1] - before.processes.get(neighbour.pid, ("", 0.0))[1]
                if spent > 0.3 or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        finally:
            neighbour.kill()
    load = guards.load_between(before, after)
    assert spent > 0.3
    # Ticks of the clock are 10 ms.
    assert load.cores >= (spent - 0.1) / (after.at - before.at)
    assert str(neighbour.pid) in str(load)


def test_red_tests_are_refused_with_what_they_said():
    command = [sys.executable, "-c", "print('1 failed'); raise SystemExit(1)"]
    with pytest.raises(guards.Refused, match=r"not green \(exit status 1.*1 failed"):
        guards.require_green(command)
    assert guards.require_green([sys.executable, "-c", "print('12 passed')"]) == "12 passed"


def test_the_tests_that_are_run_are_those_of_the_operation():
    command_line = guards.test_command(*command.TESTS)
    assert command_line[1:] == ["-m", "pytest", "-q", "-n", "0", "tests/attention"]
    assert (guards.REPOSITORY / command_line[-1]).is_dir()


# --- refusals of the command


def refuse():
    raise guards.Refused("the operation's tests are not green")


@pytest.mark.parametrize(
    ("arguments", "look", "tests", "said"),
    [
        ([], lambda: NOISY, lambda: "", "the machine is not idle"),
        ([], lambda: QUIET, refuse, "not green"),
        (["--rounds", "0"], lambda: QUIET, lambda: "", "rounds must be >= 1; got 0"),
        (["--scopes", "core", "core"], lambda: QUIET, lambda: "", "names something twice"),
    ],
)
def test_a_refusal_exits_with_two_says_why_and_writes_nothing(tmp_path, capsys, arguments, look, tests, said):
    status = None
    try:
        status = main(["--out", str(tmp_path), *arguments], look=look, check_tests=tests)
    except SystemExit as stop:
        # tyro's own refusal of a command line.
        status = stop.code
    assert status == 2
    captured = capsys.readouterr()
    assert said in captured.err + captured.out
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["--device", "cuda", "--out", str(tmp_path)], look=lambda: QUIET, check_tests=lambda: "") == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_the_large_shape_is_forward_alone_without_sweeps_unless_asked():
    large = Options(shape="large")
    assert large.resolved_directions == ("forward",)
    assert not large.sweeps and not large.one_thread
    assert Options(shape="large", directions=scopes.DIRECTIONS).resolved_directions == scopes.DIRECTIONS
    assert Options().resolved_directions == scopes.DIRECTIONS and Options().sweeps


def test_shapes_are_those_of_the_paper():
    paper, large, panshot = (shapes.SHAPES[name] for name in ("paper", "large", "panshot"))
    assert (paper.tokens, paper.width, paper.backbone_width) == (1872, 768, 3072)
    assert (large.tokens, large.width) == (32760, 768)
    assert (panshot.heads, panshot.head_dim, panshot.backbone_width) == (1, 192, 1536)
    assert [shape.frames for shape in shapes.frame_sweep(paper)] == [5, 13, 21, 31, 61, 121]
    assert [shape.tokens_per_frame for shape in shapes.token_sweep(paper)] == [40, 144, 312, 576, 1560]


@pytest.mark.parametrize("family", ["ucpe", "gta", "merope"])
def test_every_head_size_has_an_operator_of_every_method(family):
    for head_dim in (64, 128, 192):
        shape = replace(TINY, head_dim=head_dim)
        operator = columns.operator_of(family, shape, device="cpu")
        assert operator.head_dim == head_dim
        assert operator.num_keys == shape.tokens


# --- timing


class Ticks:
    """A clock that moves by what the columns say that they take."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def run(self, seconds):
        def move():
            self.now += seconds

        return move


def test_rounds_are_interleaved_and_every_column_has_its_own_seconds():
    ticks = Ticks()
    runs = {"a": ticks.run(1.0), "b": ticks.run(2.0), "c": ticks.run(4.0)}
    taken = timing.interleaved(runs, rounds=7, seconds=1e9, clock=ticks, cpu_clock=ticks)
    assert taken.wall == {"a": [1.0] * 7, "b": [2.0] * 7, "c": [4.0] * 7}
    assert taken.cpu == taken.wall
    assert all(sorted(order) == ["a", "b", "c"] for order in taken.order)
    assert len({tuple(order) for order in taken.order}) > 2


def test_rounds_end_after_the_seconds_but_not_before_three():
    for seconds, expected in ((0.0, 3), (34.0, 5), (1e9, 9)):
        ticks = Ticks()
        taken = timing.interleaved(
            {"a": ticks.run(7.0)}, rounds=9, seconds=seconds, clock=ticks, cpu_clock=ticks
        )
        assert len(taken.order) == expected


def test_the_order_of_a_round_comes_from_the_seed_alone():
    names = list("abcdef")
    assert timing.round_order(names, 3, seed=1) == timing.round_order(names, 3, seed=1)
    assert timing.round_order(names, 3, seed=1) != timing.round_order(names, 3, seed=2)
    assert names == list("abcdef")


def test_medians_quartiles_and_paired_ratios():
    assert timing.spread([4.0, 1.0, 3.0, 2.0, 5.0]) == timing.Spread(3.0, 2.0, 4.0)
    assert timing.spread([1.0, 3.0]) == timing.Spread(2.0, 1.0, 3.0)
    # A round in which all is five times slower moves no ratio; the ratio of medians would be 2.2.
    ratio = timing.paired_ratio([2.0, 11.0, 2.2], [1.0, 5.0, 1.1])
    assert ratio.median == pytest.approx(2.0)


def test_ratios_are_to_the_fastest_ucpe_and_the_faster_plain_attention():
    taken = timing.Rounds(
        wall={
            "sdpa": [1.0] * 3,
            "sdpa compiled": [0.8] * 3,
            "ucpe op": [1.5] * 3,
            "ucpe plain compiled": [1.0] * 3,
        }
    )
    taken.wall |= {"merope chunked": [3.0] * 3}
    taken.cpu = taken.wall
    taken.order = [list(taken.wall)] * 3
    found = session.summary(taken, {name: Column.from_name(name) for name in taken.wall})
    assert (found["reference"], found["floor"]) == ("ucpe plain compiled", "sdpa compiled")
    assert found["columns"]["merope chunked"]["to_ucpe"]["median"] == 3.0
    assert found["columns"]["ucpe plain compiled"]["to_sdpa"]["median"] == 1.25
    assert found["columns"]["merope chunked"]["ms"]["median"] == 3000.0
    assert found["op_to_plain"] == {"ucpe": {"median": 1.5, "low": 1.5, "high": 1.5}}
    assert found["num_rounds"] == 3


def test_column_names_can_be_read_back():
    for column in (
        Column("sdpa", "sdpa"),
        Column("sdpa", "sdpa", True),
        Column("ucpe", "plain", True),
        Column("merope", "chunked"),
        Column("identity", "fused"),
    ):
        assert Column.from_name(column.name) == column
    assert Column("sdpa", "sdpa", True).name == "sdpa compiled"


# --- what is measured


@pytest.mark.parametrize("family", ["ucpe", "gta"])
@pytest.mark.parametrize("direction", scopes.DIRECTIONS)
@pytest.mark.parametrize("scope", scopes.SCOPES)
def test_the_plain_implementation_computes_what_the_op_computes(family, scope, direction):
    cases = [
        scopes.make_case(Column(family, route), TINY, scope, direction, dtype=torch.float64, device="cpu")
        for route in ("op", "plain")
    ]
    ours, plain = (case.compared(case.run()) for case in cases)
    assert len(ours) == (4 if (scope, direction) == ("core", "forward+backward") else 1)
    for x, y in zip(ours, plain, strict=True):
        # The factors are float32 in both.
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)


def test_the_plain_implementation_knows_ungrouped_tiles_alone():
    with pytest.raises(ValueError, match="one band of 4 x 4 blocks and one of rotary pairs"):
        planar.factors_of(columns.operator_of("merope", TINY, device="cpu"))


def test_identity_bands_leave_plain_attention():
    operator = columns.operator_of("identity", TINY, device="cpu")
    q, k, v = torch.randn(3, TINY.batch, TINY.heads, TINY.tokens, TINY.head_dim, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(camera_attention(q, k, v, operator, backend="reference"), expected)
    assert [band.width for band in operator.bands] == [18, 18, 12, 16]


def test_the_full_block_is_the_adapter_s_branch():
    from merope.adapters.branch import CameraBranch
    from merope.encodings import MeRoPE

    branch = CameraBranch(
        dim=TINY.backbone_width,
        num_heads=TINY.heads * TINY.compression,
        encoding=MeRoPE(head_dim=TINY.head_dim),
        compression=TINY.compression,
    )
    hidden, *weights = scopes.scope_inputs("full", TINY, order=None, seed=5)
    with torch.no_grad():
        for layer, weight, bias in zip(
            (branch.to_q, branch.to_k, branch.to_v, branch.to_out), weights[::2], weights[1::2], strict=True
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        expected = branch(hidden, columns.operator_of("merope", TINY, device="cpu"))
    case = scopes.make_case(
        Column("merope", "chunked"), TINY, "full", "forward", dtype=torch.float32, device="cpu", seed=5
    )
    torch.testing.assert_close(case.run()[0], expected)


def test_with_the_backward_pass_all_inputs_have_gradients():
    for scope, count in (("core", 3), ("block", 5), ("full", 9)):
        case = scopes.make_case(
            Column("merope", "chunked"), TINY, scope, "forward+backward", dtype=torch.float32, device="cpu"
        )
        result = case.run()
        assert len(result) == 1 + count
        assert all(bool(x.any()) for x in result[1:])


def test_forms_that_disagree_are_refused():
    x = torch.randn(4, 5)
    session.require_agreement("a", [x], "b", [x + 1e-6], tolerance=1e-4)
    for other in (x + 0.01, x * float("nan")):
        with pytest.raises(guards.Refused, match="'a' and 'b' should compute the same"):
            session.require_agreement("a", [x], "b", [other], tolerance=1e-4)


def test_what_cannot_be_served_or_compiled_is_named_and_not_measured():
    paper = shapes.SHAPES["paper"]
    found, absent = columns.columns_for(
        ["merope"], paper, device="cpu", dtype=torch.float32, compile_reason="no compiler"
    )
    names = [column.name for column in found]
    assert names[:3] == ["sdpa", "ucpe op", "merope chunked"]
    assert "would hold every U_ab" in absent["merope reference"]
    assert absent["ucpe plain compiled"] == absent["merope chunked compiled"] == "no compiler"
    assert not {*names} & {*absent}
    tiny, _ = columns.columns_for([], TINY, device="cpu", dtype=torch.float32, compile_reason=None)
    assert [column.name for column in tiny] == [
        "sdpa",
        "sdpa compiled",
        "ucpe op",
        "ucpe op compiled",
        "ucpe plain compiled",
    ]


# --- memory


def test_the_peak_is_the_highest_running_sum_in_the_order_of_time():
    assert peak_of([(3.0, -5), (1.0, 5), (2.0, 4), (4.0, 3)]) == 9
    assert peak_of([]) == 0


def test_memory_of_plain_attention_is_at_least_its_output():
    shape = replace(TINY, frames=8, rows=8, cols=16)
    found = weighed_apart("sdpa", shape, "core", "forward", dtype="float32", device="cpu", threads=1)
    output = 4 * shape.batch * shape.tokens * shape.width
    assert output <= found["allocated"] < 4 * output
    assert found["peak"] > output / 2
    assert found["geometry"] == 0


def test_memory_that_cannot_be_measured_says_why():
    with pytest.raises(MemoryFailed, match=r"memory of merope fused .*could not be measured: "):
        weighed_apart("merope fused", TINY, "core", "forward", dtype="float99", device="cpu", threads=1)


# --- whole runs


PROGRAM = """
import sys
from benchmarks.attention_cost.command import main
from benchmarks.measuring.guards import Load

sys.exit(main(sys.argv[1:], look=lambda: Load(0.0, (0.0, 0.0, 0.0), ()), check_tests=lambda: "all passed"))
"""


@pytest.mark.slow
def test_without_a_compiler_everything_else_is_measured_and_the_report_is_void(tmp_path):
    out = tmp_path / "out"
    ran = run_python(
        PROGRAM,
        arguments=[
            "--quick",
            "--no-memory",
            "--scopes",
            "core",
            "full",
            "--out",
            str(out),
            "--device",
            "cpu",
        ],
        environment={
            "CXX": str(tmp_path / "no-compiler"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        },
    )
    assert ran.returncode == 3, ran.stderr
    assert "VOID: 'ucpe plain compiled' is missing: torch.compile fails here" in ran.stdout
    results = json.loads((out / "results.json").read_text())
    assert {point["purpose"] for point in results["points"]} >= {"main", "frames", "tokens"}
    main_points = [point for point in results["points"] if point["purpose"] == "main"]
    assert [(p["scope"], p["direction"]) for p in main_points] == [
        (scope, direction) for scope in ("core", "full") for direction in scopes.DIRECTIONS
    ]
    for point in main_points:
        assert set(point["columns"]) >= {"sdpa", "ucpe op", "gta op", "merope chunked", "merope reference"}
        assert all(len(seconds) == 3 for seconds in point["rounds"]["wall"].values())
    for name in ("growth-frames.png", "growth-frames.svg", "growth-tokens.png", "growth-tokens.svg"):
        assert (out / name).stat().st_size > 0
    assert "TESTS NOT RUN" not in ran.stdout
    assert results["tests"] == "all passed"


@pytest.mark.slow
def test_a_quick_run_with_a_compiler_stands(tmp_path):
    arguments = [
        "--quick",
        "--no-sweep",
        "--no-memory",
        "--scopes",
        "core",
        "--directions",
        "forward",
        "--methods",
    ]
    ran = run_python(
        PROGRAM, arguments=[*arguments, "--device", "cpu", "--out", str(tmp_path / "out")], timeout=900
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (point,) = [point for point in results["points"] if point["purpose"] == "main"]
    assert set(point["columns"]) == {
        "sdpa",
        "sdpa compiled",
        "ucpe op",
        "ucpe op compiled",
        "ucpe plain compiled",
    }
    assert point["reference"].startswith("ucpe")
    assert set(point["op_to_plain"]) == {"ucpe"}
