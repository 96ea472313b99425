"""Figure 7's numbers: recorded pass by pass, averaged by noise level, drawn; and what has no residual says so."""

import json

import pytest
import torch

from merope.cameras.scenes import random_drive
from merope.cli.main import run as merope
from merope.errors import MeropeError
from merope.evaluation.residuals import (
    ResidualPass,
    plot_residuals,
    recording_passes,
    residual_amplitudes,
)
from tests.support.wan import attached, awake, inputs, run, tiny_wan, with_branches


def passes_of(*rows):
    return [ResidualPass(noise_level=level, relative=relative) for level, relative in rows]


def test_means_are_over_passes_of_a_level_and_then_over_levels():
    # Three passes at 0.9, one at 0.2: levels count alike, whatever number of passes they have.
    passes = passes_of(
        (0.9, {1: 1.0, 3: 0.0}), (0.9, {1: 2.0, 3: 0.0}), (0.2, {1: 0.5, 3: 4.0}), (0.9, {1: 3.0, 3: 3.0})
    )
    result = residual_amplitudes(passes, num_blocks=4)
    assert result.noise_levels == (0.9, 0.2)
    assert result.by_step == ((2.0, 1.0), (0.5, 4.0))
    assert result.relative == (1.25, 2.5)
    assert result.share == pytest.approx((1 / 3, 2 / 3))
    assert result.largest == (3, 1)
    assert result.largest_share == pytest.approx(1.0)
    assert result.num_passes == 4


def test_the_two_largest_of_many_blocks_are_named():
    relative = dict.fromkeys(range(1, 30, 2), 0.1) | {11: 1.0, 13: 0.8}
    result = residual_amplitudes(passes_of((0.5, relative)), num_blocks=30)
    assert result.largest == (11, 13)
    assert result.largest_share == pytest.approx(1.8 / (1.8 + 1.3))


def test_a_pass_is_the_ratio_of_norms_before_the_gate():
    adapter = awake(with_branches(tiny_wan()))
    met = {}

    def keep(block):
        def hook(module, args, kwargs, output):
            met[block] = float(output.detach().norm())

        return hook

    handles = [
        branch.register_forward_hook(keep(block), with_kwargs=True)
        for block, branch in adapter.branches.items()
    ]
    with recording_passes(adapter) as passes:
        run(adapter)
        run(adapter, per_token=False)
    for handle in handles:
        handle.remove()
    assert [each.noise_level for each in passes] == pytest.approx([0.7, 0.7])
    assert tuple(passes[0].relative) == adapter.blocks == (1, 3)
    with adapter.recording_residuals() as norms:
        run(adapter, per_token=False)
    for block, (extra, own) in norms.items():
        assert passes[1].relative[block] == pytest.approx(float(extra / own))
        assert float(extra) == pytest.approx(met[block], rel=1e-5)
    assert passes[0].relative != passes[1].relative
    # Recording is over: nothing is kept of later passes.
    run(adapter)
    assert len(passes) == 2


@pytest.mark.parametrize("name", ["none", "rerope", "cameractrl"])
def test_what_adds_nothing_beside_the_backbone_has_no_residual(name):
    adapter = attached(tiny_wan(num_layers=2), name)
    with pytest.raises(MeropeError, match="no residual to measure"), recording_passes(adapter):
        pass


def test_branches_that_learned_nothing_have_no_largest_block():
    adapter = with_branches(tiny_wan(num_layers=2))
    with recording_passes(adapter) as passes, adapter.cameras(random_drive()), torch.no_grad():
        adapter.transformer(**inputs())
    with pytest.raises(MeropeError, match="learned nothing yet"):
        residual_amplitudes(passes, num_blocks=2)


def test_passes_must_be_there_and_of_the_same_blocks():
    with pytest.raises(ValueError, match="at least one"):
        residual_amplitudes([], num_blocks=2)
    with pytest.raises(ValueError, match="same blocks"):
        residual_amplitudes(passes_of((0.5, {1: 1.0}), (0.5, {3: 1.0})), num_blocks=4)


def test_both_drawings_are_written(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    result = residual_amplitudes(passes_of((0.9, {1: 1.0, 3: 2.0}), (0.1, {1: 0.5, 3: 1.0})), num_blocks=4)
    written = plot_residuals(tmp_path, result, title="a model")
    assert sorted(path.name for path in written) == [
        "residuals-by-noise.png",
        "residuals-by-noise.svg",
        "residuals.png",
        "residuals.svg",
    ]
    assert all(path.stat().st_size > 5000 for path in written)


def test_the_shipped_model_is_measured_by_a_command(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    out = tmp_path / "out"
    assert merope(["diagnose", "residuals", "--clips", "1", "--steps", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "2 noise levels" in printed
    content = json.loads((out / "residuals.json").read_text())
    assert content["blocks"] == [0, 1, 2, 3]
    assert all(value > 0 for value in content["relative"])
    assert (out / "residuals.png").exists()


def test_options_of_a_pipeline_do_not_go_with_the_small_model(tmp_path, capsys):
    assert merope(["diagnose", "residuals", "--adapter", "x", "--out", str(tmp_path / "out")]) == 2
    assert "--adapter: for a Wan pipeline" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_pipeline_is_measured_by_its_folder_over_both_passes_of_guidance(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'merope[text]'")
    from diffusers import WanTransformer3DModel

    from merope.adapters import save_adapter
    from merope.recipes.tiny_wan import make_tiny_wan

    folder = make_tiny_wan(tmp_path / "wan")
    transformer = WanTransformer3DModel.from_pretrained(folder / "transformer")
    adapter = awake(with_branches(transformer, compression=4))
    save_adapter(tmp_path / "adapter.safetensors", adapter)
    out = tmp_path / "out"
    sizes = ["--height", "64", "--width", "96", "--num-frames", "9", "--prefix-frames", "5"]
    flags = [
        "--adapter",
        str(tmp_path / "adapter.safetensors"),
        "--clips",
        "1",
        "--steps",
        "2",
        "--device",
        "cpu",
    ]
    assert merope(["diagnose", "residuals", str(folder), *flags, *sizes, "--out", str(out)]) == 0
    capsys.readouterr()
    content = json.loads((out / "residuals.json").read_text())
    assert (content["num_blocks"], content["blocks"]) == (4, [1, 3])
    assert (len(content["noise_levels"]), content["num_passes"]) == (2, 4)
    assert all(value > 0 for row in content["by_step"] for value in row)
