"""``benchmarks/model.py``: it measures what trains and samples, its sums are right, its report says what they are."""

import pytest
import torch
from benchmarks.measuring import guards, timing
from benchmarks.model_cost import projection, report, session
from benchmarks.model_cost.command import main
from benchmarks.model_cost.sizes import SIZES, ModelSize
from benchmarks.model_cost.steps import Run, make_runs

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
    return make_runs(SIZES["tiny"], dict.fromkeys(methods), mode, **{**options, **changes})


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
