"""A small Wan pipeline in diffusers' layout: real classes, offline, what the published checkpoints are but for widths."""

import json
import sys

import pytest
import torch
from diffusers import AutoencoderKLWan, DiffusionPipeline, WanPipeline, WanTransformer3DModel
from transformers import T5Tokenizer, UMT5EncoderModel

from merope.errors import MissingDependency
from merope.recipes.tiny_wan import make_tiny_wan


@pytest.mark.parametrize(("version", "stride", "channels"), [("2.1", 8, 16), ("2.2", 16, 48)])
def test_it_is_a_pipeline_like_the_published_ones(tmp_path, version, stride, channels):
    folder = make_tiny_wan(tmp_path / "wan", version=version)
    assert json.loads((folder / "model_index.json").read_text())["_class_name"] == "WanPipeline"
    pipeline = DiffusionPipeline.from_pretrained(folder)
    assert type(pipeline) is WanPipeline
    assert type(pipeline.transformer) is WanTransformer3DModel
    assert type(pipeline.vae) is AutoencoderKLWan
    assert type(pipeline.text_encoder) is UMT5EncoderModel
    assert isinstance(pipeline.tokenizer, T5Tokenizer)
    assert pipeline.config.expand_timesteps == (version == "2.2")
    assert pipeline.vae_scale_factor_spatial == stride
    assert pipeline.transformer.config.in_channels == channels
    pipeline.set_progress_bar_config(disable=True)
    size = 4 * stride
    frames = pipeline(
        "a car drives along the street",
        height=size,
        width=size,
        num_frames=5,
        num_inference_steps=1,
        output_type="np",
    ).frames
    assert frames.shape == (1, 5, size, size, 3)


def test_words_are_told_apart(tmp_path):
    pipeline = WanPipeline.from_pretrained(make_tiny_wan(tmp_path / "wan"))
    left, right = pipeline.encode_prompt(["turns left", "turns right"], do_classifier_free_guidance=False)[0]
    assert (left - right).abs().max() > 1e-3
    ids = pipeline.tokenizer("a car").input_ids
    assert 2 not in ids, "an unknown word"


def test_equal_seeds_give_equal_weights(tmp_path):
    one, other, third = (
        WanTransformer3DModel.from_pretrained(make_tiny_wan(tmp_path / str(index), seed=seed) / "transformer")
        for index, seed in enumerate((3, 3, 4))
    )
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), third.parameters(), strict=True))


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(FileExistsError, match="choose another folder"):
        make_tiny_wan(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_the_random_state_of_the_caller_is_left_alone(tmp_path):
    state = torch.random.get_rng_state()
    make_tiny_wan(tmp_path / "wan")
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_normalised_latents_are_near_unit_deviation_and_their_posterior_is_narrow(tmp_path, version):
    vae = AutoencoderKLWan.from_pretrained(make_tiny_wan(tmp_path / "wan", version=version) / "vae")
    video = 2 * torch.rand(1, 3, 9, 64, 64) - 1
    posterior = vae.encode(video).latent_dist
    scale = torch.tensor(vae.config.latents_std).view(1, -1, 1, 1, 1)
    assert 0.3 < float((posterior.mean.detach() / scale).std()) < 3
    assert float((posterior.std.detach() / scale).max()) < 0.2


def test_without_transformers_the_extra_that_brings_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependency, match=r"needs the package 'transformers'.*merope\[text\]"):
        make_tiny_wan(tmp_path / "wan")
    assert not (tmp_path / "wan").exists()
