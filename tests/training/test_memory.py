"""The memory plan against real tensors: weights, gradients, moments and cameras to the byte, a step's peak within 10 %."""

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from benchmarks import memory_plan
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from torch.utils.flop_counter import FlopCounterMode
from transformers import UMT5Config, UMT5EncoderModel

from merope.adapters import attach
from merope.adapters.command import latent_rays
from merope.adapters.flow import predict_velocity
from merope.adapters.signals import tensors_in
from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.encodings.registry import encoding_from_config
from merope.recipes.published import UMT5_XXL, WAN22_TI2V_5B
from merope.training import memory, sampling_memory
from merope.training.finetune_config import ParallelConfig
from merope.training.flops import forward_flops, training_flops
from merope.training.memory import CONTEXT_BYTES, SLACK, count_weights, plan_memory
from merope.training.optimizers import make_optimizers
from merope.training.parallel import Processes, distribute
from merope.training.sampling_memory import plan_sampling, text_parameters, vae_work
from merope.training.shape_run import FollowedBytes
from merope.training.trainable import choose_trainable

SIZE = {"layers": 4, "heads": 2, "head_dim": 64, "ffn": 256, "frames": 13, "height": 96, "width": 160}
CASE = {"encoding": "merope", "trains": "branch", "checkpointing": True, "clips": 1, "text": 24}
TINY_VAE = {
    "base_dim": 4,
    "z_dim": 16,
    "dim_mult": [1, 1, 1, 1],
    "num_res_blocks": 1,
    "temperal_downsample": [False, True, True],
}


def config_of(**changes):
    case = {**CASE, **{key: value for key, value in changes.items() if key in CASE}}
    more = {key: value for key, value in changes.items() if key not in CASE}
    return replace(memory_plan.config_of(SIZE, case), **more)


@cache
def planned(encoding, trains, checkpointing):
    """The plan of a case; three runs on shapes take seconds."""
    case = {**CASE, "encoding": encoding, "trains": trains, "checkpointing": checkpointing}
    return plan_memory(
        memory_plan.transformer_of(SIZE), memory_plan.config_of(SIZE, case), text_tokens=case["text"]
    )


@pytest.fixture
def without_steps(monkeypatch):
    """Plans of what is there before and after a step, which take no time."""
    monkeypatch.setattr(memory, "whole_step", lambda *given: [])


def item(plan, name):
    return next(item.bytes for item in plan.items if item.name == name)


def bytes_of(tensors):
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("trains", ["branch", "branch+attention", "all"])
def test_weights_gradients_and_moments_are_those_of_the_real_model(without_steps, trains):
    config = config_of(trains=trains)
    plan = plan_memory(memory_plan.transformer_of(SIZE), config, text_tokens=8)
    model = WanTransformer3DModel(**memory_plan.transformer_of(SIZE))
    adapter = attach(model, encoding=encoding_from_config(config.encoding), compression=2)
    parameters = choose_trainable(model, adapter, trains)
    alone = Processes(rank=0, size=1, device=torch.device("cpu"))
    distribute(model, config.parallel, alone, torch.bfloat16)
    assert item(plan, "trained weights") == bytes_of(parameters.values())
    assert item(plan, "frozen weights") == bytes_of(p for p in model.parameters() if not p.requires_grad)
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    (optimizer,) = make_optimizers(parameters, config.optimizer)
    optimizer.step()
    assert item(plan, "gradients") == bytes_of(p.grad for p in parameters.values())
    moments = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    assert item(plan, "Adam's two moments") == bytes_of(moments)


@pytest.mark.parametrize("encoding", ["merope", "ucpe", "rayrope", "cameractrl", "none"])
def test_cameras_are_those_of_real_clips(without_steps, encoding):
    case = {**CASE, "encoding": encoding, "trains": "all"}
    config = replace(memory_plan.config_of(SIZE, case), micro_batch=2, global_batch=2)
    plan = plan_memory(memory_plan.transformer_of(SIZE), config, text_tokens=8)
    model = WanTransformer3DModel(**memory_plan.transformer_of(SIZE))
    adapter = attach(model, encoding=encoding_from_config(config.encoding), compression=2)
    poses = torch.eye(4, dtype=torch.float64).repeat(2, 4, 1, 1)
    lens = Pinhole.from_fov(fov_x_deg=70.0, height=SIZE["height"], width=SIZE["width"])
    signals = adapter.signals(latent_rays(poses, config.spec, [lens] * 2))
    assert item(plan, "cameras") == bytes_of(tensors_in(signals))
    assert (item(plan, "cameras") > 0) == (encoding != "none")


@pytest.mark.parametrize(
    ("encoding", "trains", "checkpointing"),
    [
        ("ucpe", "branch", True),
        ("none", "all", False),
        pytest.param("merope", "branch", False, marks=pytest.mark.slow),
        pytest.param("ucpe", "branch+attention", True, marks=pytest.mark.slow),
    ],
)
def test_a_real_step_takes_what_was_planned(monkeypatch, encoding, trains, checkpointing):
    monkeypatch.setitem(memory_plan.SIZES, "tiny", SIZE)
    case = {**CASE, "encoding": encoding, "trains": trains, "checkpointing": checkpointing}
    measured = memory_plan.measure("tiny", case)["tensors"]
    assert planned(encoding, trains, checkpointing).tensors == pytest.approx(measured, rel=0.1)


def test_checkpointing_keeps_the_inputs_of_the_blocks_that_gradients_reach():
    kept = item(planned("ucpe", "branch", True), "kept for the backward pass")
    # Block 0 is before the first branch. Of blocks 1 to 3 their input remains, in bfloat16.
    inputs = 3 * 2 * 4 * 3 * 5 * 128
    # The modulation of all tokens, one for all blocks, and what the loss needs.
    assert inputs < kept < inputs + 4 * 7 * 4 * 3 * 5 * 128 + 8 * 4 * 48 * 4 * 6 * 10


def test_sharding_divides_weights_and_adds_whole_blocks(without_steps):
    transformer = memory_plan.transformer_of(SIZE)
    config = config_of(trains="all", global_batch=8)
    plain = plan_memory(transformer, config, num_processes=4, text_tokens=8)
    cut = plan_memory(
        transformer,
        replace(config, parallel=ParallelConfig(mode="hsdp", shard_size=2)),
        num_processes=4,
        text_tokens=8,
    )
    for name in ("trained weights", "Adam's two moments", "gradients"):
        assert item(cut, name) == pytest.approx(item(plain, name) / 2, abs=4)
    counts = count_weights(transformer, config)
    (products, _), (rest, _) = counts.block_products, counts.block_rest
    dim, ffn = 128, SIZE["ffn"]
    assert products == 8 * (dim * dim + dim) + 2 * dim * ffn + dim + ffn
    assert item(cut, "gathered blocks") == 2 * (2 * products + 4 * rest)
    assert "gathered blocks" not in {i.name for i in plain.items}
    assert "gradients" in {i.name for i in cut.items if "forward" in i.phases}
    with pytest.raises(ValueError, match="shard_size must divide 3"):
        plan_memory(
            transformer,
            replace(config, global_batch=9, parallel=ParallelConfig(mode="hsdp", shard_size=2)),
            num_processes=3,
        )


def test_a_plan_reads_as_a_table_and_as_json():
    plan = planned("ucpe", "branch", True)
    values = json.loads(json.dumps(plan.to_dict()))
    assert values["tensor_bytes"] == max(values["phases"].values()) == values["phases"][values["fullest"]]
    for phase, total in values["phases"].items():
        assert total == sum(i["bytes"] for i in values["items"] if phase in i["phases"])
    assert values["device_bytes"] == int(plan.tensors * (1 + SLACK)) + CONTEXT_BYTES
    table = plan.table().splitlines()
    assert len(table) == 2 + len(plan.items) + 2
    assert all(i.derived and i.derived in line for i, line in zip(plan.items, table[2:], strict=False))


def test_flops_are_those_that_torch_counts():
    config = config_of()
    transformer = memory_plan.transformer_of(SIZE)
    model = WanTransformer3DModel(**transformer).requires_grad_(False)
    adapter = attach(
        model,
        encoding=encoding_from_config(memory_plan.config_of(SIZE, {**CASE, "encoding": "ucpe"}).encoding),
        compression=2,
    )
    poses = torch.eye(4, dtype=torch.float64).repeat(1, 4, 1, 1)
    lens = Pinhole.from_fov(fov_x_deg=70.0, height=SIZE["height"], width=SIZE["width"])
    clean = torch.randn(1, *config.spec.latent_shape)
    signals = adapter.signals(latent_rays(poses, config.spec, [lens]))
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        predict_velocity(
            model,
            adapter,
            clean,
            clean,
            torch.tensor([0.5]),
            signals,
            config.spec,
            text=torch.randn(1, 8, 256),
        )
    ours = forward_flops(
        transformer,
        config.spec,
        encoding=adapter.encoding,
        compression=2,
        num_branches=2,
        text_tokens=8,
    )
    assert ours == counter.get_total_flops()


def test_training_takes_a_forward_pass_as_often_as_it_should():
    transformer = memory_plan.transformer_of(SIZE)
    config = config_of(trains="all")
    once = training_flops(transformer, replace(config, gradient_checkpointing=False), text_tokens=8)
    assert training_flops(transformer, config, text_tokens=8) * 3 == once * 4
    branch = training_flops(transformer, replace(config, trains="branch"), text_tokens=8)
    attention = training_flops(transformer, replace(config, trains="branch+attention"), text_tokens=8)
    assert once / 3 * 2 < branch < attention < once / 3 * 4


def test_the_text_encoder_is_counted_as_it_is():
    with torch.device("meta"):
        model = UMT5EncoderModel(UMT5Config(**UMT5_XXL))
    assert text_parameters(UMT5_XXL) == sum(parameter.numel() for parameter in model.parameters())


def test_decoding_takes_what_was_planned():
    spec = VideoSpec(
        height=64, width=96, num_frames=21, prefix_frames=9, fps=10.0, patch=2, latent_channels=16
    )
    vae = AutoencoderKLWan(**TINY_VAE).requires_grad_(False)
    with torch.no_grad():
        with FollowedBytes() as decoded:
            vae.decode(torch.randn(1, *spec.latent_shape))
        with FollowedBytes() as encoded:
            vae.encode(torch.randn(1, 3, 9, 64, 96))
    assert vae_work(TINY_VAE, spec, "decode", dtype=torch.float32) == pytest.approx(decoded.peak, rel=0.1)
    assert vae_work(TINY_VAE, spec, "encode", dtype=torch.float32) == pytest.approx(encoded.peak, rel=0.15)


def test_offloading_takes_less_each_time(monkeypatch):
    monkeypatch.setattr(sampling_memory, "vae_work", lambda *given, **options: 1)
    model = {
        "transformer": memory_plan.transformer_of(SIZE),
        "vae": {**TINY_VAE, "z_dim": 48},
        "text_encoder": {**UMT5_XXL, "d_model": 64, "num_layers": 3, "vocab_size": 512, "d_ff": 128},
        "text_tokens": 8,
    }
    config = config_of()
    plans = {
        mode: plan_sampling(model, config, offload=mode) for mode in ("none", "model", "group", "sequential")
    }
    tensors = [plans[mode].bytes_in("denoising") for mode in ("none", "model", "group", "sequential")]
    assert tensors == sorted(tensors, reverse=True)
    assert len(set(tensors)) == 4
    embedded = plan_sampling(model, config, text_encoder=False)
    assert embedded.tensors < plans["none"].tensors
    assert embedded.bytes_in("prompt") == embedded.bytes_in("denoising") - item(
        embedded, "transformer's work"
    )
    # The shape checks of the tests, or the function's own.
    with pytest.raises((ValueError, TypeError, AssertionError), match="disk"):
        plan_sampling(model, config, offload="disk")


@pytest.mark.slow
def test_the_papers_memory_on_four_gpus():
    """Table 6: 35.80, 36.58 and 37.57 GiB, without checkpointing and with one clip per GPU."""
    from merope.recipes.wan import RECIPES

    for encoding, measured in (("none", 35.80), ("ucpe", 36.58), ("merope", 37.57)):
        config = replace(RECIPES[f"nuscenes-{encoding}"](), global_batch=4, gradient_checkpointing=False)
        plan = plan_memory(WAN22_TI2V_5B["transformer"], config, num_processes=4)
        assert plan.tensors / 2**30 == pytest.approx(measured, rel=0.02)
