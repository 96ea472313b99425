"""One recipe per row of the paper's tables: they build on the published models without memory, and train at a small size."""

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from diffusers import WanTransformer3DModel

from merope.adapters import attach
from merope.adapters.command import latent_rays
from merope.adapters.flow import add_noise, predict_velocity, velocity_loss
from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.encodings.registry import encoding_from_config, encoding_to_config, input_map_from_config
from merope.encodings.scale import TranslationScale
from merope.recipes.published import WAN21_T2V_1_3B, WAN22_TI2V_5B
from merope.recipes.wan import RECIPES, describe_recipes, find_recipe
from merope.training.trainable import choose_trainable

# The paper's tables, row by row.
ROWS = [
    *(
        f"Table 2: {row}"
        for row in ("No camera PE", "RayRoPE", "PRoPE", "RayNova", "CameraCtrl-style", "URoPE")
    ),
    *(f"Table 2: {row}" for row in ("GTA", "UCPE", "MeRoPE")),
    *(f"Table 3: {row}" for row in ("MeRoPE", "Rot. + trans.", "Disparity + trans.", "Disparity + rot.")),
    *(f"Table 3: {row}" for row in ("Disparity only", "Rotation only", "Translation only")),
    *(f"Table 4 ({panel}): {row}" for panel in "ab" for row in ("GTA", "PRoPE", "UCPE", "MeRoPE")),
    *(f"Table 5: {row}" for row in ("C=2", "C=4 (ours)", "C=8", "Single f", "Every block", "Peak 11, 13")),
    *(f"Table 5: {row}" for row in ("ReRoPE", "Default (ours)")),
]
# Name: blocks with cameras, heads and channels of a branch; None where there is none.
BRANCHES = {
    "nuscenes-merope": (15, 6, 128),
    "nuscenes-merope-c2": (15, 12, 128),
    "nuscenes-merope-c8": (15, 3, 128),
    "nuscenes-merope-every": (30, 6, 128),
    "nuscenes-merope-peak": (2, 6, 128),
    "nuscenes-none": (0, None, None),
    "nuscenes-cameractrl": (15, None, None),
    "nuscenes-rerope": (15, None, None),
    "panshot-merope": (30, 1, 192),
    "panshot-gta-metres": (30, 1, 192),
}
SMALL = {"num_layers": 2, "num_attention_heads": 8, "attention_head_dim": 64, "ffn_dim": 64, "text_dim": 8}


@cache
def on_meta(name):
    base = {model["name"]: model for model in (WAN22_TI2V_5B, WAN21_T2V_1_3B)}[name]
    with torch.device("meta"):
        return WanTransformer3DModel(**base["transformer"])


def with_cameras(transformer, config):
    return attach(
        transformer,
        encoding=encoding_from_config(config.encoding),
        compression=config.compression,
        schedule=config.schedule,
        pose_policy=config.spec.pose_policy,
        input_map=None if config.input_map is None else input_map_from_config(config.input_map),
    )


def test_every_row_of_the_tables_has_one_recipe():
    trained = [row for recipe in RECIPES.values() for row in recipe.rows]
    assert sorted(trained) == sorted(ROWS)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_on_its_model_and_goes_through_json(name):
    recipe = RECIPES[name]
    config = recipe()
    model = on_meta(recipe.base["name"])
    before = sum(parameter.numel() for parameter in model.parameters())
    adapter = with_cameras(model, config)
    try:
        if name in BRANCHES:
            blocks, heads, head_dim = BRANCHES[name]
            assert len(adapter.blocks) == blocks
            for branch in adapter.branches.values() if heads is not None else ():
                assert (branch.num_heads, branch.head_dim) == (heads, head_dim)
        assert choose_trainable(model, adapter, config.trains)
        if name == "nuscenes-merope":
            assert sum(parameter.numel() for parameter in model.parameters()) / 1e9 == pytest.approx(
                5.14, abs=0.005
            )
    finally:
        adapter.detach()
        model.requires_grad_(True)
    assert sum(parameter.numel() for parameter in model.parameters()) == before
    plain = json.loads(json.dumps(config.to_dict()))
    assert encoding_to_config(encoding_from_config(plain["encoding"])) == config.encoding
    assert VideoSpec.from_dict(plain["spec"]) == config.spec
    assert plain["name"] == name


def test_the_driving_recipes_are_the_papers_setting():
    config = RECIPES["nuscenes-merope"]()
    spec = config.spec
    assert (spec.height, spec.width, spec.num_frames, spec.prefix_frames) == (288, 512, 49, 9)
    assert (spec.latent_shape, spec.token_grid, spec.prefix_latents) == ((48, 13, 18, 32), (9, 16), 3)
    optimizer = config.optimizer
    assert (optimizer.kind, optimizer.learning_rate, optimizer.weight_decay) == ("adamw", 1e-5, 0.01)
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon) == (0.9, 0.999, 1e-8)
    assert (optimizer.warmup_steps, optimizer.decay) == (0, "constant")
    assert (config.steps, config.global_batch, config.trains) == (20_000, 64, "all")
    assert (config.parallel.mode, config.parallel.shard_size) == ("hsdp", 4)
    assert config.accumulation(64) == 1


def test_rows_differ_in_nothing_but_what_they_say():
    base = RECIPES["nuscenes-merope"]()
    for name, recipe in RECIPES.items():
        if name.startswith("nuscenes"):
            config = recipe()
            alike = replace(
                config,
                name=base.name,
                encoding=base.encoding,
                compression=base.compression,
                schedule=base.schedule,
            )
            assert alike == base, name


def test_components_are_switched_off_with_their_channels_kept():
    on = {name: set(RECIPES[name]().encoding["components"]) for name in RECIPES if "merope-" in name}
    assert on["nuscenes-merope-rot-trans"] == {"rot", "trans"}
    assert on["nuscenes-merope-disp-trans"] == {"disp", "trans"}
    assert on["nuscenes-merope-disp-rot"] == {"disp", "rot"}
    assert on["nuscenes-merope-disp"] == {"disp"}
    assert on["nuscenes-merope-rot"] == {"rot"}
    assert on["nuscenes-merope-trans"] == {"trans"}
    assert (
        len({json.dumps(RECIPES[name]().encoding["layout"]) for name in on if name.startswith("nuscenes")})
        == 1
    )


def test_panshot_keeps_the_map_where_the_paper_does_and_tells_its_panels_apart():
    for name, recipe in RECIPES.items():
        if name.startswith("panshot"):
            config = recipe()
            assert (config.input_map is not None) == ("gta" in name or "prope" in name)
            assert config.pose_unit == ("m" if name.endswith("-metres") else "normalized")
            assert (config.compression, config.trains, config.steps) == (8, "branch", 10_000)
            assert config.spec.prefix_frames == 0


def test_one_translation_scale_for_all_rows_that_need_one():
    scale = TranslationScale(per_metre=0.1, reach=80.0)
    for name in ("nuscenes-gta", "nuscenes-prope", "nuscenes-ucpe", "panshot-gta"):
        assert RECIPES[name](scale=scale).encoding["scale"] == {"per_metre": 0.1, "reach": 80.0}
    assert "scale" not in RECIPES["nuscenes-merope"](scale=scale).encoding


def test_an_unknown_name_is_told_what_there_is():
    with pytest.raises(
        ValueError,
        match=r"unknown recipe 'nuscenes-meropee'\. Did you mean 'nuscenes-merope'\? Known are .*panshot-ucpe",
    ):
        find_recipe("nuscenes-meropee")
    assert find_recipe("nuscenes-gta") is RECIPES["nuscenes-gta"]
    assert len(describe_recipes().splitlines()) == len(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")
def test_a_recipe_trains_a_small_model(name):
    recipe = RECIPES[name]
    small = {**recipe.base["transformer"], **SMALL}
    if name == "nuscenes-merope-peak":
        small["num_layers"] = 14
    base = {"transformer": small, "vae": recipe.base["vae"]}
    config = recipe(base)
    cell = config.spec.spatial_stride * config.spec.patch
    prefix = min(config.spec.prefix_frames, 1)
    spec = replace(config.spec, height=2 * cell, width=3 * cell, num_frames=9, prefix_frames=prefix)
    transformer = WanTransformer3DModel(**base["transformer"])
    adapter = with_cameras(transformer, config)
    parameters = choose_trainable(transformer, adapter, config.trains)
    poses = torch.eye(4, dtype=torch.float64).repeat(1, 3, 1, 1)
    poses[..., 2, 3] = 0.3 * torch.arange(3)
    lens = Pinhole.from_fov(fov_x_deg=90.0, height=spec.height, width=spec.width)
    clean, noise = torch.randn(2, 1, *spec.latent_shape)
    sigma = torch.tensor([0.7])
    velocity = predict_velocity(
        transformer,
        adapter,
        add_noise(clean, noise, sigma),
        clean,
        sigma,
        adapter.signals(latent_rays(poses, spec, [lens])),
        spec,
        text=torch.randn(1, 4, 8),
    )
    velocity_loss(velocity, clean, noise, sigma, spec).mean().backward()
    assert all(parameter.grad is not None for parameter in parameters.values())
    moved = [
        value for key, value in parameters.items() if key.endswith("to_out.weight") and "camera_branch" in key
    ]
    assert all(value.grad.abs().max() > 0 for value in moved)
    assert bool(moved) == (adapter.encoding.facts.placement == "branch")
