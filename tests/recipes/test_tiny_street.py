"""The tiny-street preset: the paper's heads, equal budgets, and data that the held-out worlds are not in."""

import json

import pytest
import torch
from diffusers import WanTransformer3DModel

from merope.adapters.branch import CameraBranch
from merope.cameras import CameraModel
from merope.encodings import MeRoPE, Native, encoding_from_config, encoding_to_config
from merope.encodings.registry import ENCODINGS
from merope.recipes.held_out import metres_commands
from merope.recipes.tiny_street import tiny_street, tiny_street_clips, tiny_street_spec
from merope.training.system import build_model
from merope.worlds.seeds import HELD_OUT_SEED


def test_spec_is_25_frames_of_which_9_are_given_and_no_token_is_wider_than_half_the_trunk():
    spec = tiny_street_spec()
    assert (spec.height, spec.width, spec.num_frames, spec.prefix_frames) == (40, 64, 25, 9)
    assert (spec.latent_frames, spec.prefix_latents, spec.token_grid) == (7, 3, (5, 8))
    # Wider targets than half the trunk cannot be learned.
    config = tiny_street()
    width = config.transformer["num_attention_heads"] * config.transformer["attention_head_dim"]
    assert spec.latent_channels <= width / 2
    assert spec.latent_channels == config.transformer["in_channels"] == config.transformer["out_channels"]


def test_lens_is_90_degrees_wide_and_symmetric():
    dirs, valid = CameraModel.from_dict(tiny_street_spec().camera).pixel_rays()
    assert valid.all()
    edge = dirs[20, 0]
    # The middle of the first pixel lies half a pixel inside the edge of the view.
    assert float(edge[0] / edge[2]) == pytest.approx(-31.5 / 32, abs=1e-6)
    torch.testing.assert_close(dirs.flip(1)[..., 0], -dirs[..., 0], rtol=0, atol=1e-7)


def test_both_encodings_have_equal_parameters_data_seed_and_steps():
    ours, native = tiny_street(encoding="merope").to_dict(), tiny_street(encoding="native").to_dict()
    different = {name for name in ours if ours[name] != native[name]}
    assert different == {"name", "encoding"}
    assert ours["encoding"] == encoding_to_config(MeRoPE(head_dim=128))
    assert encoding_from_config(native["encoding"]) == Native(head_dim=128)


def test_model_is_wan_with_a_branch_in_every_block_that_fits_the_size_budget():
    transformer, adapter = build_model(tiny_street())
    assert type(transformer) is WanTransformer3DModel
    assert adapter.blocks == tuple(range(len(transformer.blocks)))
    for branch in adapter.branches.values():
        assert type(branch) is CameraBranch
        assert (branch.num_heads, branch.head_dim) == (1, 128)
    count = sum(parameter.numel() for parameter in transformer.parameters())
    # Two models in half precision and the estimator ship in 25 MB.
    assert 3e6 < count < 5e6


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_fits_the_preset_by_its_name(name):
    config = tiny_street(encoding=name)
    with torch.device("meta"):
        _, adapter = build_model(config)
    heads = {branch.num_heads for branch in adapter.branches.values() if isinstance(branch, CameraBranch)}
    assert heads == ({1} if ENCODINGS[name].facts.placement == "branch" else set())


@pytest.mark.parametrize("steps", [1, 200, 4000, 100_000])
def test_number_of_worlds_follows_the_steps_within_bounds(steps):
    config = tiny_street(steps=steps)
    assert config.steps == steps
    assert 64 <= config.num_worlds <= 1000


@pytest.mark.parametrize("steps", [60, 200, 900])
def test_short_runs_are_checkpointed_on_the_way_at_log_entries(steps):
    config = tiny_street(steps=steps)
    assert config.checkpoint_every < steps / 2
    assert config.checkpoint_every % config.log_every == 0
    assert tiny_street(steps=100_000).checkpoint_every == 250


def test_training_worlds_are_far_from_held_out_ones():
    clips = tiny_street_clips(tiny_street(steps=100_000))
    assert clips.first_seed + clips.num_worlds < HELD_OUT_SEED
    assert all(seed >= HELD_OUT_SEED for _, seed, _ in metres_commands(2, tiny_street_spec()))


def test_clips_are_those_of_the_model():
    config = tiny_street()
    clips = tiny_street_clips(config)
    assert (clips.camera, clips.fps) == (config.spec.camera, config.spec.fps)
    assert clips.num_frames > config.spec.num_frames
    # A variant leaves its drive after the given frames of a window that starts at frame 2.
    assert clips.turn_start == config.spec.prefix_frames - 1 + 2


def test_config_survives_json_and_unknown_encoding_names_the_choices():
    assert json.loads(json.dumps(tiny_street().to_dict()))["name"] == "tiny-street-merope"
    with pytest.raises(ValueError, match=r"unknown encoding 'proper'; known are \[.*'merope', 'native'"):
        tiny_street(encoding="proper")
