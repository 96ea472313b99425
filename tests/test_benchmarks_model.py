"""``benchmarks/model.py``: it measures what trains and samples, its sums are right, its report says what they are."""

import json
from dataclasses import asdict

import pytest
import torch
from benchmarks.attention_cost.columns import Column
from benchmarks.measuring import guards, timing
from benchmarks.model_cost import projection, report, session
from benchmarks.model_cost.command import main
from benchmarks.model_cost.memory import weighed_apart
from benchmarks.model_cost.methods import prepare
from benchmarks.model_cost.options import Options
from benchmarks.model_cost.sizes import SIZES, ModelSize
from benchmarks.model_cost.steps import MODES, Clip, Run, make_runs
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from merope.adapters.flow import predict_velocity

METHODS = ("base", "gta", "ucpe", "merope")


def runs(mode, methods=METHODS, **changes):
    options = {
        "trains": "all",
        "checkpointing": False,
        "compiled": False,
        "steps": 2,
        "dtype": torch.float32,
        "device": "cpu",
        "seed": 0,
    }
    chosen = methods if isinstance(methods, dict) else dict.fromkeys(methods)
    return make_runs(SIZES["tiny"], chosen, mode, **{**options, **changes})


def test_a_denoising_loop_sees_the_cameras_and_keeps_the_prefix():
    made = runs("denoising")
    latents = {name: run() for name, run in made.items()}
    shapes = {tuple(value.shape) for value in latents.values()}
    assert shapes == {(1, *SIZES["tiny"].spec().latent_shape)}
    first = latents["base"]
    for name in ("gta", "ucpe", "merope"):
        assert not torch.equal(latents[name], first), name
        # The given latent frame is the same clean one for all.
        assert torch.equal(latents[name][:, :, :1], first[:, :, :1])
        assert len(made[name].operator_seconds) == 1
    assert not torch.equal(latents["ucpe"], latents["merope"])
    assert torch.equal(made["base"](), first)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_training_step_moves_what_trains(checkpointing):
    made = runs("training", ("ucpe", "merope"), checkpointing=checkpointing)
    losses = [[float(made[name]()) for name in ("ucpe", "merope")] for _ in range(4)]
    assert all(torch.isfinite(torch.tensor(pair)).all() for pair in losses)
    # Adam on one clip: the backbone that both share gets better at it.
    assert losses[-1][0] < losses[0][0] and losses[-1][1] < losses[0][1]
    assert made["merope"].held() > 0


def test_sizes_are_the_published_ones():
    assert (SIZES["5b"].width, SIZES["5b"].tokens, SIZES["5b"].num_branches) == (3072, 1872, 15)
    assert SIZES["5b"].branch.width == 768
    assert SIZES["1.3b"].width == 1536
    small, large = SIZES["small"], SIZES["5b"]
    assert small.ffn / small.width == pytest.approx(large.ffn / large.width, rel=1e-3)


def test_a_branch_has_whole_heads_and_a_schedule_two_layers():
    with pytest.raises(ValueError, match="multiple of 4"):
        ModelSize(name="odd", heads=6, layers=4, ffn=8)
    with pytest.raises(ValueError, match="layers must be >= 2"):
        ModelSize(name="flat", heads=4, layers=1, ffn=8)


def test_parts_are_scaled_by_their_operations():
    small, large = SIZES["small"], SIZES["5b"]
    parts = projection.Parts(
        backbone=10.0,
        core={"ucpe": 1.0, "merope": 1.5},
        projections={"ucpe": 0.5, "merope": 0.5},
        operator={"ucpe": 0.0, "merope": 0.2},
        passes=1,
    )
    # At the measured size the sum is that of the parts: two branches of four layers.
    assert parts.seconds("ucpe", small, small) == pytest.approx(10 + 2 * 1.5)
    assert parts.seconds("merope", small, small) == pytest.approx(10 + 2 * 2.0 + 0.2)
    assert parts.throughput_ratio(small, small) == pytest.approx(13 / 14.2)
    # Attention grows with width, projections with its square, both times the number of branches; the operator not at all.
    width = large.width / small.width
    wanted = 10 * large.backbone_flops / small.backbone_flops + 15 * (1.5 * width + 0.5 * width**2) + 0.2
    assert parts.seconds("merope", small, large) == pytest.approx(wanted)
    assert parts.throughput_ratio(small, large) > parts.throughput_ratio(small, small)


def made_point(mode, merope, *, steps=None):
    """Three rounds in which UCPE takes a second and MeRoPE what it is given."""
    wall = {"base": [0.9] * 3, "ucpe": [1.0] * 3, "merope": [merope] * 3}
    taken = timing.Rounds(wall, dict(wall), [list(wall)] * 3)
    made = {name: Run(torch.empty, [0.0 if name == "base" else 0.01] * 3) for name in wall}
    return {
        "mode": mode,
        "steps": steps,
        "num_rounds": 3,
        "others_cores": 0.0,
        "forms": dict.fromkeys(wall),
        "methods": session.summary(taken, made, steps=steps),
    }


def test_throughput_is_held_against_the_targets():
    results = {
        "quick": False,
        "points": [made_point("training", 1.005), made_point("denoising", 1.03, steps=8)],
        "projection": {},
    }
    training, denoising = report.target_lines(results)
    assert training.startswith("PASS throughput, training: MeRoPE / UCPE: 0.995 (at least 0.99)")
    assert "the paper's is 0.967" in training
    assert denoising.startswith("MISS throughput, denoising: MeRoPE / UCPE: 0.971 (at least 0.98)")
    assert "the paper's is 0.941" in denoising


def test_what_is_computed_is_not_said_to_be_measured():
    results = {
        "quick": False,
        "points": [],
        "projection": {"training": {"to_ucpe": 0.991, "to_ucpe_measured_size": 0.96}, "denoising": None},
    }
    computed, absent = report.target_lines(results)
    assert computed.startswith("COMPUTED, NOT MEASURED") and "0.991" in computed
    assert absent.startswith("Not computed for the 5B model, denoising")


def test_the_operator_counts_once_for_the_steps_of_a_clip_in_use():
    point = made_point("denoising", 1.03, steps=8)
    wanted = (0.01 + 50 / 8 * 0.99) / (0.01 + 50 / 8 * 1.02)
    assert point["methods"]["merope"]["to_ucpe_in_use"]["median"] == pytest.approx(wanted)


def test_a_busy_machine_is_refused_before_anything_is_made(tmp_path, capsys):
    def busy():
        return guards.Load(cores=1.2, load_average=(2.0, 2.0, 2.0), busiest=(("other", 1.2),))

    status = main(["--quick", "--trust-tests", "--out", str(tmp_path / "out")], look=busy)
    assert status == 2
    assert "refused" in capsys.readouterr().err
    assert not any((tmp_path / "out").iterdir())


# --- the forms of UCPE, and what is computed


def test_a_form_computes_what_the_branch_does():
    plain = {"gta": Column("gta", "plain"), "ucpe": Column("ucpe", "plain")}
    for mode in MODES:
        expected = {name: run() for name, run in runs(mode, ("gta", "ucpe")).items()}
        for name, run in runs(mode, plain).items():
            torch.testing.assert_close(run(), expected[name], rtol=1e-5, atol=1e-5)


def test_methods_share_one_backbone_and_no_branch():
    made = prepare(SIZES["tiny"], dict.fromkeys(METHODS), purpose="training")
    base = dict(made["base"].transformer.named_parameters())
    for name in ("gta", "ucpe", "merope"):
        own = dict(made[name].transformer.named_parameters())
        assert all(own[key] is value for key, value in base.items())
        more = own.keys() - base.keys()
        assert more and all(key.startswith("blocks.1.camera_branch.") for key in more)
    assert made["ucpe"].branch_parameters()[0] is not made["merope"].branch_parameters()[0]


def test_half_precision_leaves_what_diffusers_keeps_and_the_branches_in_float32():
    (made,) = prepare(
        SIZES["tiny"], {"merope": None}, purpose="training", trains="branch", dtype=torch.bfloat16
    ).values()
    parameters = dict(made.transformer.named_parameters())
    assert parameters["blocks.0.ffn.net.2.weight"].dtype == torch.bfloat16
    assert parameters["blocks.0.scale_shift_table"].dtype == torch.float32
    assert parameters["blocks.1.camera_branch.to_q.weight"].dtype == torch.float32
    for name, parameter in parameters.items():
        assert parameter.requires_grad == (".camera_branch." in name)


def test_where_the_branch_trains_the_base_has_no_training_step():
    options = Options(trains="branch")
    assert options.resolved_methods("training") == ("gta", "ucpe", "merope")
    assert options.resolved_methods("denoising") == METHODS


def test_operations_are_those_that_torch_counts():
    size = SIZES["tiny"]
    clip = Clip.random(size, device="cpu", dtype=torch.float32)
    counted = {}
    for name, made in prepare(size, {"base": None, "ucpe": None}, purpose="denoising").items():
        cameras, given = made.cameras(), clip.clean[:, :, : made.spec.prefix_latents]
        # The fused product of a CPU is not counted; its plain twin is.
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            predict_velocity(
                made.transformer,
                made.adapter,
                clip.noise,
                given,
                clip.sigma,
                cameras,
                made.spec,
                text=clip.prompt,
            )
        counted[name] = counter.get_total_flops()
    assert counted["base"] == size.backbone_flops
    assert counted["ucpe"] - counted["base"] == size.projection_flops + size.attention_flops


def test_wishes_about_the_size_change_the_preset():
    size = Options(width="small", heads=12, layers=6, tokens=(5, 4, 8)).size("cpu")
    assert (size.width, size.layers, size.tokens) == (1536, 6, 160)
    assert size.ffn / size.width == pytest.approx(14 / 3, rel=1e-3)
    assert size.name == "small, changed"
    assert Options().size("cpu") == SIZES["small"]
    assert Options().size("cuda") == SIZES["5b"]
    with pytest.raises(ValueError, match="quick has a size of its own"):
        Options(quick=True, heads=4)


def made_results(*, core, full, checkpointing):
    """A branch that takes these milliseconds forward under UCPE and MeRoPE, and twice that with the backward pass."""
    points = [
        {
            "scope": scope,
            "direction": direction,
            "reference": "ucpe plain compiled",
            "columns": {
                name: {"ms": {"median": factor * value}}
                for name, value in zip(("ucpe plain compiled", "merope chunked"), values, strict=True)
            },
        }
        for scope, values in (("core", core), ("full", full))
        for direction, factor in (("forward", 1), ("forward+backward", 2))
    ]
    return {
        "size": {"values": asdict(SIZES["small"])},
        "checkpointing": checkpointing,
        "branch": {"points": points},
    }


def test_parts_are_read_off_what_was_measured():
    results = made_results(core=(10, 14), full=(16, 21), checkpointing=True)
    training = projection.parts_of(results, made_point("training", 1.03), SIZES["small"])
    # A recomputed block runs forward once more.
    assert training.core == pytest.approx({"ucpe": 0.030, "merope": 0.042})
    assert training.projections == pytest.approx({"ucpe": 0.018, "merope": 0.021})
    assert (training.backbone, training.passes) == (pytest.approx(0.9), 1)
    denoising = projection.parts_of(results, made_point("denoising", 1.03, steps=8), SIZES["small"])
    assert denoising.core == pytest.approx({"ucpe": 0.010, "merope": 0.014})
    assert denoising.backbone == pytest.approx(0.9 / 16)


def test_without_a_base_the_backbone_is_what_is_left_of_ucpe():
    point = made_point("training", 1.03)
    del point["methods"]["base"]
    results = made_results(core=(10, 14), full=(16, 21), checkpointing=False)
    parts = projection.parts_of(results, point, SIZES["small"])
    assert parts.backbone == pytest.approx(1.0 - 0.01 - 2 * 0.032)


def test_a_core_slower_than_its_branch_leaves_the_branch_as_measured():
    results = made_results(core=(10, 30), full=(16, 21), checkpointing=False)
    parts = projection.parts_of(results, made_point("training", 1.03), SIZES["small"])
    assert parts.core["merope"] + parts.projections["merope"] == pytest.approx(0.042)


def test_a_branch_that_was_not_measured_gives_no_projection():
    results = made_results(core=(10, 14), full=(16, 21), checkpointing=False)
    results["branch"]["points"] = results["branch"]["points"][:2]
    assert projection.projected(results, made_point("training", 1.03), SIZES["5b"]) is None


# --- whole runs


def test_held_memory_is_weights_and_moments():
    settings = {
        "trains": "branch",
        "checkpointing": False,
        "compiled": False,
        "steps": 1,
        "dtype": "float32",
        "device": "cpu",
        "seed": 0,
    }
    found = weighed_apart("ucpe", None, SIZES["tiny"], "training", **settings)
    (made,) = prepare(SIZES["tiny"], {"ucpe": None}, purpose="training", trains="branch").values()
    weights = sum(value.nbytes for value in made.transformer.parameters())
    gradients = sum(value.nbytes for value in made.branch_parameters())
    # Two moments, and a count of steps for every tensor.
    assert found["held"] == weights + 2 * gradients + 4 * len(made.branch_parameters())
    assert found["allocated"] >= gradients


def test_without_a_compiler_everything_else_is_measured_and_the_report_is_void(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(session, "why_no_compiler", lambda: "no compiler")
    out = tmp_path / "out"
    arguments = ["--quick", "--no-memory", "--trust-tests", "--device", "cpu", "--threads", "1"]
    quiet = guards.Load(cores=0.0, load_average=(0.0, 0.0, 0.0), busiest=())
    assert main([*arguments, "--out", str(out)], look=lambda: quiet) == 3
    printed = capsys.readouterr().out
    assert "VOID: 'ucpe plain compiled' is missing: no compiler" in printed
    assert "COMPUTED" not in printed
    results = json.loads((out / "results.json").read_text())
    assert [point["mode"] for point in results["points"]] == ["training", "denoising"]
    for point in results["points"]:
        assert list(point["methods"]) == list(METHODS)
        for rounds in (point["rounds"]["wall"], point["operator_seconds"]):
            assert all(len(seconds) == 3 for seconds in rounds.values())
        assert point["methods"]["ucpe"]["to_ucpe"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    text = (out / "results.md").read_text()
    for part in ("**VOID", "**TESTS NOT RUN", "## Training step", "## Denoising loop", "## The branch alone"):
        assert part in text
