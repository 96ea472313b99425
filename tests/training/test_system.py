"""Model building and the folder that generation loads; averaged weights."""

import json

import pytest
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file
from torch import nn

from merope.adapters.branch import CameraBranch
from merope.encodings import LatitudeUpMap
from merope.encodings.registry import input_map_to_config
from merope.errors import CheckpointMismatch
from merope.generation import load_video_model
from merope.training.config import OptimizerConfig
from merope.training.optimizers import AveragedWeights, make_optimizers
from merope.training.system import build_model, save_model
from tests.support.tiny_run import tiny_codec, tiny_config


def saved(folder, **changes):
    """A freshly built model whose branches are not zero, saved."""
    config = tiny_config(**changes)
    transformer, adapter = build_model(config)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.normal_(std=0.02)
    save_model(folder, transformer, adapter, tiny_codec(), config, summary={"steps": 3})
    return transformer, adapter


def test_a_model_is_the_real_transformer_with_real_branches():
    transformer, adapter = build_model(tiny_config())
    assert type(transformer) is WanTransformer3DModel
    assert all(type(branch) is CameraBranch for branch in adapter.branches.values())
    assert adapter.blocks == (0, 1)
    assert adapter.is_zero
    assert {parameter.dtype for parameter in transformer.parameters()} == {torch.float32}


def test_a_branch_reads_the_map_that_the_config_names_also_after_saving(tmp_path):
    stored = input_map_to_config(LatitudeUpMap(released_rodrigues=True))
    _, adapter = saved(tmp_path, input_map=stored)
    for made in (adapter, load_video_model(tmp_path).adapter):
        assert made.input_map == LatitudeUpMap(released_rodrigues=True)
        assert all(branch.from_map.in_features == 3 for branch in made.branches.values())
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["training"]["input_map"] == stored


def test_equal_configs_give_equal_weights_and_the_seed_others():
    torch.manual_seed(5)
    one, _ = build_model(tiny_config())
    two, _ = build_model(tiny_config())
    three, _ = build_model(tiny_config(seed=1))
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name
    assert not torch.equal(one.patch_embedding.weight, three.patch_embedding.weight)


def test_branch_training_freezes_the_base_alone():
    transformer, adapter = build_model(tiny_config(trains="branch"))
    trainable = {name for name, p in transformer.named_parameters() if p.requires_grad}
    assert trainable
    assert all(".camera_branch." in name for name in trainable)
    assert len(trainable) == len(list(adapter.parameters()))


def test_saved_model_comes_back_to_half_precision(tmp_path):
    transformer, adapter = saved(tmp_path)
    model = load_video_model(tmp_path)
    assert type(model.transformer) is WanTransformer3DModel
    assert model.spec == tiny_config().spec
    assert not any(p.requires_grad for p in model.transformer.parameters())
    loaded = model.transformer.state_dict()
    for name, value in transformer.state_dict().items():
        assert torch.equal(loaded[name], value.half().float()), name
    assert model.adapter.encoding == adapter.encoding


def test_base_and_adapter_are_separate_files(tmp_path):
    saved(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "transformer.safetensors",
        "adapter.safetensors",
        "codec.safetensors",
        "config.json",
    }
    base = load_file(tmp_path / "transformer.safetensors")
    assert not any("camera_branch" in name for name in base)
    plain = WanTransformer3DModel(**tiny_config().transformer)
    plain.load_state_dict({name: value.float() for name, value in base.items()})
    described = json.loads((tmp_path / "config.json").read_text())
    assert described["summary"] == {"steps": 3}
    assert described["training"]["name"] == "tiny"


def test_folders_that_hold_no_whole_model_say_what_is_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model here"):
        load_video_model(tmp_path / "nowhere")
    folder = tmp_path / "model"
    saved(folder)
    config = folder / "config.json"
    text = config.read_text()
    config.write_text(text.replace('"steps": 3', '"steps": 7'))
    with pytest.raises(CheckpointMismatch, match="step 7 and the adapter of step 3"):
        load_video_model(folder)
    config.write_text("{}")
    with pytest.raises(CheckpointMismatch, match="does not describe a video model: 'spec'"):
        load_video_model(folder)
    config.write_text(text.replace('"latent_channels": 24', '"latent_channels": 12'))
    with pytest.raises(CheckpointMismatch, match="codec has 24 channels, the model takes 12"):
        load_video_model(folder)
    config.write_text(text)
    (folder / "transformer.safetensors").write_bytes(b"half written")
    with pytest.raises(CheckpointMismatch, match="damaged"):
        load_video_model(folder)
    (folder / "transformer.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        load_video_model(folder)


def test_transformer_of_another_shape_is_refused(tmp_path):
    saved(tmp_path / "one")
    wide = {**tiny_config().transformer, "ffn_dim": 192}
    saved(tmp_path / "two", transformer=wide)
    (tmp_path / "one" / "transformer.safetensors").write_bytes(
        (tmp_path / "two" / "transformer.safetensors").read_bytes()
    )
    with pytest.raises(CheckpointMismatch, match="another shape"):
        load_video_model(tmp_path / "one")


def test_muon_takes_the_weight_matrices_of_the_blocks_and_adamw_every_other_parameter():
    transformer, _ = build_model(tiny_config())
    parameters = dict(transformer.named_parameters())
    name_of = {id(parameter): name for name, parameter in parameters.items()}
    adamw, muon = make_optimizers(parameters, OptimizerConfig(kind="muon", weight_decay=0.02))
    assert isinstance(muon, torch.optim.Muon)
    shares = [
        {name_of[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]}
        for optimizer in (adamw, muon)
    ]
    assert shares[0] | shares[1] == set(parameters)
    assert not shares[0] & shares[1]
    assert all(name.startswith("blocks.") and parameters[name].ndim == 2 for name in shares[1])
    assert "blocks.1.camera_branch.to_out.weight" in shares[1]
    assert "patch_embedding.weight" in shares[0]
    assert {group["weight_decay"] for group in (*adamw.param_groups, *muon.param_groups)} == {0.02}
    (alone,) = make_optimizers(parameters, OptimizerConfig())
    assert isinstance(alone, torch.optim.AdamW)


def small_parameters():
    return {name: nn.Parameter(torch.randn(3, 5)) for name in ("a", "b")}


def test_swapping_averages_twice_restores_every_bit():
    parameters = small_parameters()
    average = AveragedWeights(parameters, 0.9)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(1e-3 * torch.randn(3, 5))
    before = {name: p.detach().clone() for name, p in parameters.items()}
    averaged = {name: value.clone() for name, value in average.values.items()}
    addresses = {name: p.data_ptr() for name, p in parameters.items()}
    average.swap(parameters)
    assert all(torch.equal(parameters[name], averaged[name]) for name in parameters)
    average.swap(parameters)
    assert all(torch.equal(parameters[name], before[name]) for name in parameters)
    assert all(torch.equal(average.values[name], averaged[name]) for name in parameters)
    # The optimizer holds the parameters by identity.
    assert {name: p.data_ptr() for name, p in parameters.items()} == addresses


def test_average_follows_its_recurrence():
    parameters = small_parameters()
    average = AveragedWeights(parameters, 0.5)
    wanted = {name: p.detach().double().clone() for name, p in parameters.items()}
    for step in range(12):
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.add_(torch.randn(3, 5))
        average.update(parameters, step)
        decay = min(0.5, (1 + step) / (10 + step))
        for name, value in wanted.items():
            wanted[name] = decay * value + (1 - decay) * parameters[name].detach().double()
    for name, value in wanted.items():
        torch.testing.assert_close(average.values[name].double(), value, rtol=1e-5, atol=1e-6)
