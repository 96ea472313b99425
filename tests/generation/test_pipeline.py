"""`MeropePipeline`: diffusers' own video where cameras do nothing, given frames clean at every step, cameras that act."""

import numpy as np
import pytest
import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    FlowMatchLCMScheduler,
    WanPipeline,
)

from merope.adapters import attach
from merope.data.caches.latents import WanLatents, video_from_frames
from merope.encodings.registry import default_encoding
from merope.errors import MeropeError
from tests.support.tiny_pipeline import (
    FRAMES,
    PROMPT,
    VERSIONS,
    fresh_pipeline,
    given,
    lens_of,
    made,
    path,
    pipeline,
    size_of,
    trained_spec,
    wan_folder,
)

both = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def calls(monkeypatch):
    """What the shared pipelines' transformers are asked: latents, timesteps and the cameras that are in force."""
    asked = []

    def record(model, args, kwargs):
        adapter = next(pipe.adapter for pipe in map(pipeline, VERSIONS) if pipe.transformer is model)
        asked.append(
            {
                "latents": kwargs["hidden_states"].clone(),
                "timestep": kwargs["timestep"].clone(),
                "text": kwargs["encoder_hidden_states"].clone(),
                "cameras": adapter._signals,
            }
        )

    handles = [
        pipeline(version).transformer.register_forward_pre_hook(record, with_kwargs=True)
        for version in VERSIONS
    ]
    yield asked
    for handle in handles:
        handle.remove()


def schedulers(config):
    """One of each kind, with the pipeline's time shift."""
    return {
        "unipc": None,
        "euler": FlowMatchEulerDiscreteScheduler(shift=3.0),
        "heun": FlowMatchHeunDiscreteScheduler(shift=3.0),
        "dpm++": DPMSolverMultistepScheduler.from_config(config),
    }


# Without cameras that act it is diffusers' pipeline


@both
def test_zero_branches_give_diffusers_own_video_to_the_bit(version):
    plain = WanPipeline.from_pretrained(wan_folder(version))
    plain.set_progress_bar_config(disable=True)
    pipe = fresh_pipeline(version, trained=False)
    for name, scheduler in schedulers(plain.scheduler.config).items():
        if scheduler is not None:
            plain.scheduler = scheduler
            pipe.scheduler = type(scheduler).from_config(scheduler.config)
        options = {
            "prompt": PROMPT,
            "negative_prompt": "blurry",
            "num_inference_steps": 3,
            "num_frames": FRAMES,
            "guidance_scale": 4.0,
            **size_of(version),
        }
        options["output_type"] = "np" if scheduler is None else "latent"
        expected = plain(**options, generator=torch.Generator().manual_seed(5)).frames
        cameras = {"poses": path(), "lens": lens_of(version), "allow_untrained": True}
        frames = pipe(**options, **cameras, seeds=5).frames
        assert np.array_equal(frames, expected), name
    # The base model alone, which the cameras do not reach.
    adapter, pipe.adapter = pipe.adapter, None
    with adapter.taken_off():
        assert np.array_equal(pipe(**options, **cameras, seeds=5).frames, expected)


def test_latents_and_generators_are_diffusers_own():
    pipe = pipeline()
    noise = torch.randn(1, 48, 3, 4, 6, generator=torch.Generator().manual_seed(3))
    expected = made(pipe).frames
    assert torch.equal(made(pipe, seeds=None, latents=noise).frames, expected)
    assert torch.equal(made(pipe, seeds=None, generator=torch.Generator().manual_seed(3)).frames, expected)


# Given frames


@both
@pytest.mark.parametrize("num", [1, 5])
def test_given_frames_are_clean_at_every_step(version, num, calls):
    pipe, frames = pipeline(version), given(version, num)
    codec = WanLatents(pipe.vae)
    clean = codec.encode(video_from_frames(torch.from_numpy(frames[None])))
    seen = []

    def keep(pipe, index, timestep, tensors):
        seen.append(tensors["latents"].clone())
        return {}

    made_of = made(pipe, version, prefix=frames, callback_on_step_end=keep, guidance_scale=3.0)
    count = clean.shape[2]
    assert count == 1 + (num - 1) // 4
    assert len(seen) == 2 and len(calls) == 4
    for latents in (*seen, *(call["latents"] for call in calls), made_of.frames):
        assert torch.equal(latents[:, :, :count], clean)
    tokens = 6
    for call in calls:
        assert call["timestep"].shape == (1, 3 * tokens)
        assert (call["timestep"][:, : count * tokens] == 0).all()
        assert (call["timestep"][:, count * tokens :] > 0).all()
    assert not torch.equal(made(pipe, version).frames, made_of.frames)


@both
def test_the_video_begins_with_what_the_autoencoder_makes_of_the_given_frames(version):
    pipe, frames = pipeline(version), given(version, 5)
    codec = WanLatents(pipe.vae)
    expected = codec.decode(codec.encode(video_from_frames(torch.from_numpy(frames[None]))))
    out = made(pipe, version, prefix=frames, output_type="pt")
    torch.testing.assert_close(2 * out.frames[:, :5].transpose(1, 2) - 1, expected, rtol=0, atol=1e-5)
    assert len(out.prefix_color_jump) == 1 and out.prefix_color_jump[0] > 0
    assert made(pipe, version, output_type="pt").prefix_color_jump is None


def test_one_image_is_one_given_frame():
    from PIL import Image

    frames = given("2.2", 1)
    image = made(pipeline(), prefix=Image.fromarray(frames[0])).frames
    assert torch.equal(image, made(pipeline(), prefix=frames).frames)
    assert torch.equal(image, made(pipeline(), prefix=frames[0]).frames)


# Cameras


@both
def test_cameras_change_the_video_and_follow_their_clip(version):
    pipe = pipeline(version)
    turn, straight = path(), path("straight")
    one, other = made(pipe, version, poses=[turn, straight], seeds=3).frames
    assert (one - other).abs().max() > 1e-3
    swapped = made(pipe, version, poses=[straight, turn], seeds=3).frames
    torch.testing.assert_close(swapped, torch.stack([other, one]), rtol=0, atol=1e-5)


def test_the_lens_of_each_clip_counts():
    wide, narrow = made(pipeline(), lens=[lens_of("2.2"), lens_of("2.2", 40.0)]).frames
    assert (wide - narrow).abs().max() > 1e-3


def test_cameras_are_made_once_and_are_the_same_in_both_passes_of_guidance(calls):
    made(pipeline(), guidance_scale=4.0, negative_prompt="blurry")
    assert len(calls) == 4
    assert all(call["cameras"] is calls[0]["cameras"] for call in calls)
    assert not torch.equal(calls[0]["text"], calls[1]["text"])
    assert torch.equal(calls[0]["latents"], calls[1]["latents"])


def test_guidance_of_one_is_one_pass_and_more_moves_away_from_the_negative_prompt(calls):
    plain = made(pipeline()).frames
    assert len(calls) == 2
    # Away from the prompt itself is nowhere.
    assert torch.equal(made(pipeline(), guidance_scale=4.0, negative_prompt=PROMPT).frames, plain)
    assert not torch.equal(made(pipeline(), guidance_scale=4.0).frames, plain)


# Noise and batches


@both
def test_noise_does_not_depend_on_the_clips_beside_it(version, calls):
    pipe = pipeline(version)
    seeds, poses = [4, 5, 6, 7], [path(seed=seed) for seed in range(4)]
    together = made(pipe, version, seeds=seeds, poses=poses).frames
    noise = calls[0]["latents"]
    for index in (0, 3):
        calls.clear()
        alone = made(pipe, version, seeds=seeds[index], poses=poses[index]).frames
        assert torch.equal(calls[0]["latents"][0], noise[index])
        torch.testing.assert_close(together[index : index + 1], alone, rtol=0, atol=1e-4)


def test_a_seed_may_be_numpy_s():
    assert torch.equal(made(pipeline(), seeds=np.int64(3)).frames, made(pipeline(), seeds=3).frames)


def test_noise_that_a_scheduler_draws_in_its_steps_is_each_clip_s_own():
    pipe = fresh_pipeline()
    pipe.scheduler = FlowMatchLCMScheduler(shift=3.0)
    together = made(pipe, seeds=[4, 5]).frames
    alone = made(pipe, seeds=5).frames
    torch.testing.assert_close(together[1:], alone, rtol=0, atol=1e-4)


def test_one_prompt_serves_all_clips():
    pipe = pipeline()
    prompts = ["turns left", "turns right"]
    apart = made(pipe, prompt=prompts, guidance_scale=3.0).frames
    embeds, negative = pipe.encode_prompt(prompts, max_sequence_length=512)
    given_embeds = {"prompt": None, "prompt_embeds": embeds, "negative_prompt_embeds": negative[:1]}
    torch.testing.assert_close(
        made(pipe, guidance_scale=3.0, **given_embeds).frames, apart, rtol=0, atol=1e-4
    )
    one_negative = made(pipe, prompt=prompts, negative_prompt=[""], guidance_scale=3.0).frames
    torch.testing.assert_close(one_negative, apart, rtol=0, atol=1e-4)
    two_negatives = made(pipe, prompt="turns left", negative_prompt=["", "rain"], guidance_scale=3.0).frames
    torch.testing.assert_close(two_negatives[0], apart[0], rtol=0, atol=1e-4)
    assert not torch.allclose(two_negatives[1], apart[0], atol=1e-4)
    one = made(pipe, prompt="turns left", seeds=[3, 3]).frames
    torch.testing.assert_close(one[0], one[1], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=r"prompt must be one for all clips or one per clip, 3 here; got 2"):
        made(pipe, prompt=prompts, seeds=[1, 2, 3])


def test_numbers_that_overflow_make_no_black_video():
    noise = torch.full((1, *trained_spec().latent_shape), torch.nan)
    with pytest.raises(MeropeError, match=r"not finite after 2 steps in torch\.float32.*use bfloat16"):
        made(pipeline(), seeds=None, latents=noise, output_type="uint8")


# Diffusers' manners


def test_a_callback_sees_and_changes_tensors_and_can_stop(calls):
    pipe, told = pipeline(), []

    def silence(pipe, index, timestep, tensors):
        told.append((index, sorted(tensors), pipe.num_timesteps))
        if index == 1:
            pipe._interrupt = True
        return {
            "latents": torch.zeros_like(tensors["latents"]),
            "prompt_embeds": tensors["prompt_embeds"] * 0,
        }

    wanted = ["latents", "prompt_embeds"]
    prefix = given("2.2", 1)
    out = made(
        pipe,
        prefix=prefix,
        num_inference_steps=4,
        callback_on_step_end=silence,
        callback_on_step_end_tensor_inputs=wanted,
    )
    assert told == [(0, wanted, 4), (1, wanted, 4)]
    assert len(calls) == 2
    assert calls[0]["text"].any() and not calls[1]["text"].any()
    # All but what is given.
    assert not calls[1]["latents"][:, :, 1:].any() and calls[1]["latents"][:, :, :1].any()
    assert not out.frames[:, :, 1:].any() and out.frames[:, :, :1].any()


@both
def test_output_types_are_views_of_one_video(version):
    pipe, size = pipeline(version), size_of(version)
    outputs = {kind: made(pipe, version, output_type=kind).frames for kind in ("np", "pt", "pil", "uint8")}
    shape = (1, FRAMES, size["height"], size["width"], 3)
    assert outputs["np"].shape == outputs["uint8"].shape == shape
    assert np.array_equal(outputs["pt"].permute(0, 1, 3, 4, 2).numpy(), outputs["np"])
    assert outputs["uint8"].dtype == np.uint8
    assert np.abs(outputs["uint8"] / 255.0 - outputs["np"]).max() <= 0.51 / 255
    assert [len(clip) for clip in outputs["pil"]] == [FRAMES]
    (frames,) = made(pipe, version, output_type="np", return_dict=False)
    assert np.array_equal(frames, outputs["np"])
    # The shape checks of the test run refuse it first.
    with pytest.raises((ValueError, TypeError), match="output_type"):
        made(pipe, output_type="mp4")


def test_progress_is_shown_as_the_pipeline_is_told(capfd):
    pipe = fresh_pipeline()
    capfd.readouterr()
    made(pipe)
    assert not capfd.readouterr().err
    pipe.set_progress_bar_config(disable=False)
    made(pipe)
    assert "2/2" in capfd.readouterr().err


def test_the_time_shift_of_a_call_acts_and_leaves_the_scheduler_alone():
    pipe = pipeline()
    scheduler, shift = pipe.scheduler, pipe.scheduler.config.flow_shift
    own, moved = made(pipe), made(pipe, flow_shift=11.0)
    assert made(pipe, flow_shift=shift).sigmas == own.sigmas
    assert torch.equal(made(pipe, flow_shift=shift).frames, own.frames)
    assert moved.sigmas[1] > own.sigmas[1] and moved.sigmas[-1] == 0
    assert not torch.equal(moved.frames, own.frames)
    assert pipe.scheduler is scheduler and scheduler.config.flow_shift == shift


# Cameras that would be ignored


def test_branches_without_training_are_refused():
    pipe = fresh_pipeline(trained=False)
    with pytest.raises(MeropeError, match=r"branches are all zero.*allow_untrained=True"):
        made(pipe)
    made(pipe, allow_untrained=True)
    with pytest.raises(MeropeError, match=r"same bits: cameras are ignored"):
        pipe.self_check()


def test_a_pipeline_without_an_adapter_is_refused():
    pipe = fresh_pipeline()
    pipe.adapter.detach()
    pipe.adapter = None
    with pytest.raises(MeropeError, match=r"no camera adapter.*from_pretrained\(\.\.\., adapter=FILE\)"):
        made(pipe)
    with pytest.raises(MeropeError, match="no camera adapter"):
        pipe.self_check()


def test_an_adapter_on_another_transformer_is_refused():
    pipe = fresh_pipeline()
    pipe.transformer = fresh_pipeline().transformer
    with pytest.raises(ValueError, match=r"on another transformer than the pipeline's"):
        made(pipe)


@both
def test_self_check_sees_cameras_that_act(version):
    assert pipeline(version).self_check() > 1e-4


def test_self_check_finds_an_encoding_without_cameras():
    pipe = fresh_pipeline()
    pipe.adapter.detach()
    blind = default_encoding("native", head_dim=64, num_heads=2)
    pipe.adapter = attach(pipe.transformer, encoding=blind, compression=2)
    for branch in pipe.adapter.branches.values():
        torch.nn.init.normal_(branch.to_out.weight)
    made(pipe)
    with pytest.raises(MeropeError, match="one that sees no cameras"):
        pipe.self_check()
