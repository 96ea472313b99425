"""Flow matching: Wan's levels, a prefix that is clean for training and sampling alike, two kinds of prediction."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from merope.adapters.flow import (
    add_noise,
    impose_prefix,
    predict_velocity,
    shifted,
    token_timesteps,
    velocity_loss,
)
from tests.support.oracles import Oracle, still_cameras, tiny_adapter
from tests.support.tiny_run import tiny_spec

BATCH = 3
SIGMA = torch.tensor([0.05, 0.5, 1.0])


@pytest.fixture(params=["velocity", "clean"])
def spec(request):
    return tiny_spec(prediction=request.param)


def latents(spec, seed):
    return torch.randn(BATCH, *spec.latent_shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shift", [1.0, 2.0, 3.0, 5.0])
def test_shifted_levels_are_those_of_the_diffusers_scheduler(shift):
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=shift)
    levels = torch.linspace(0.05, 1, 20)
    scheduler.set_timesteps(sigmas=levels.flip(0).tolist())
    assert torch.equal(scheduler.sigmas[-1], torch.tensor(0.0))
    torch.testing.assert_close(shifted(levels, shift).flip(0), scheduler.sigmas[:-1], rtol=1e-6, atol=0)
    # The scheduler's own training levels are ours too.
    untouched = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=shift)
    uniform = torch.from_numpy(np.linspace(1, 1000, 1000)[::-1].copy() / 1000).float()
    torch.testing.assert_close(shifted(uniform, shift), untouched.sigmas, rtol=1e-6, atol=1e-7)


def test_shift_keeps_the_ends_and_favours_noise():
    levels = torch.linspace(0, 1, 11)
    out = shifted(levels, 3.0)
    assert out[0] == 0
    assert out[-1] == 1
    assert (out[1:-1] > levels[1:-1]).all()
    assert torch.equal(shifted(levels, 1.0), levels)


def test_noise_levels_run_from_clean_to_noise(spec):
    clean, noise = latents(spec, 0), latents(spec, 1)
    assert torch.equal(add_noise(clean, noise, torch.zeros(BATCH)), clean)
    assert torch.equal(add_noise(clean, noise, torch.ones(BATCH)), noise)
    middle = add_noise(clean, noise, torch.full((BATCH,), 0.25))
    torch.testing.assert_close(middle, 0.75 * clean + 0.25 * noise)


def test_prefix_tokens_have_timestep_zero_and_the_others_their_clip_level(spec):
    steps = token_timesteps(SIGMA, spec)
    rows, cols = spec.token_grid
    given = spec.prefix_latents * rows * cols
    assert steps.shape == (BATCH, spec.latent_frames * rows * cols)
    assert (steps[:, :given] == 0).all()
    assert torch.equal(steps[:, given:], (SIGMA * 1000)[:, None].expand(-1, steps.shape[1] - given))


def test_network_sees_the_clean_prefix_bit_for_bit(spec):
    clean, noise = latents(spec, 0), latents(spec, 1)
    oracle, adapter = Oracle(clean, noise, spec), tiny_adapter()
    noisy = add_noise(clean, noise, SIGMA)
    predict_velocity(
        oracle, adapter, noisy, clean[:, :, :2], SIGMA, still_cameras(adapter, BATCH, spec), spec
    )
    seen, steps = oracle.asked[0]
    assert torch.equal(seen[:, :, :2], clean[:, :, :2])
    assert torch.equal(seen[:, :, 2:], noisy[:, :, 2:])
    assert torch.equal(steps, token_timesteps(SIGMA, spec))
    assert not torch.equal(noisy[:, :, :2], clean[:, :, :2])


def test_truth_predicts_the_true_velocity_and_has_no_loss(spec):
    clean, noise = latents(spec, 0), latents(spec, 1)
    oracle, adapter = Oracle(clean, noise, spec), tiny_adapter()
    velocity = predict_velocity(
        oracle,
        adapter,
        add_noise(clean, noise, SIGMA),
        clean,
        SIGMA,
        still_cameras(adapter, BATCH, spec),
        spec,
    )
    free = (slice(None), slice(None), slice(spec.prefix_latents, None))
    # float32 latents of size 1 over sigma 0.05
    torch.testing.assert_close(velocity[free], (noise - clean)[free], rtol=0, atol=2e-5)
    assert velocity_loss(velocity, clean, noise, SIGMA, spec).max() < 1e-9


def test_velocity_of_a_clean_prediction_stays_bounded_and_lossless_below_the_floor():
    spec = tiny_spec(prediction="clean")
    clean, noise = latents(spec, 0), latents(spec, 1)
    sigma = torch.tensor([0.0, 1e-3, 0.019])
    oracle, adapter = Oracle(clean, noise, spec), tiny_adapter()
    cameras = still_cameras(adapter, BATCH, spec)
    noisy = add_noise(clean, noise, sigma)
    velocity = predict_velocity(oracle, adapter, noisy, clean, sigma, cameras, spec)
    assert torch.isfinite(velocity).all()
    assert velocity_loss(velocity, clean, noise, sigma, spec).max() < 1e-9


def test_prefix_prediction_has_exactly_no_gradient(spec):
    clean, noise = latents(spec, 0), latents(spec, 1)
    velocity = latents(spec, 2).requires_grad_()
    velocity_loss(velocity, clean, noise, SIGMA, spec).mean().backward()
    assert torch.equal(velocity.grad[:, :, : spec.prefix_latents], torch.zeros_like(clean[:, :, :2]))
    assert (velocity.grad[:, :, spec.prefix_latents :] != 0).all()


def test_prefix_prediction_of_garbage_changes_no_loss(spec):
    clean, noise = latents(spec, 0), latents(spec, 1)
    velocity = latents(spec, 2)
    spoiled = velocity.clone()
    spoiled[:, :, : spec.prefix_latents] = float("nan")
    assert torch.equal(
        velocity_loss(velocity, clean, noise, SIGMA, spec), velocity_loss(spoiled, clean, noise, SIGMA, spec)
    )


def test_loss_of_a_clean_prediction_is_its_latent_error_with_bounded_weight():
    spec = tiny_spec(prediction="clean")
    clean, noise, answer = latents(spec, 0), latents(spec, 1), latents(spec, 2)
    sigma = torch.tensor([0.001, 0.2, 0.8])
    oracle, adapter = Oracle(answer, noise, spec), tiny_adapter()
    cameras = still_cameras(adapter, BATCH, spec)
    noisy = add_noise(clean, noise, sigma)
    velocity = predict_velocity(oracle, adapter, noisy, clean, sigma, cameras, spec)
    loss = velocity_loss(velocity, clean, noise, sigma, spec)
    error = (answer - clean)[:, :, spec.prefix_latents :].square().flatten(1).mean(1)
    torch.testing.assert_close(loss, error / sigma.clamp_min(0.4) ** 2, rtol=1e-4, atol=0)


def test_losses_of_both_predictions_agree_above_the_bounded_levels():
    clean, noise = latents(tiny_spec(), 0), latents(tiny_spec(), 1)
    velocity = latents(tiny_spec(), 2)
    sigma = torch.tensor([0.45, 0.7, 1.0])
    losses = [
        velocity_loss(velocity, clean, noise, sigma, tiny_spec(prediction=prediction))
        for prediction in ("velocity", "clean")
    ]
    torch.testing.assert_close(losses[0], losses[1])


def test_imposed_prefix_takes_the_given_frames_of_a_longer_clip(spec):
    noisy, clean = latents(spec, 0), latents(spec, 1)
    out = impose_prefix(noisy, clean, spec)
    assert torch.equal(out[:, :, :2], clean[:, :, :2])
    assert torch.equal(out[:, :, 2:], noisy[:, :, 2:])
    assert torch.equal(impose_prefix(noisy, clean[:, :, :2], spec), out)


def test_without_a_prefix_there_is_one_timestep_per_clip():
    spec = replace(tiny_spec(), prefix_frames=0)
    sigma = torch.tensor([0.25, 1.0])
    assert token_timesteps(sigma, spec).tolist() == [250.0, 1000.0]


def test_a_sampler_s_own_timestep_stands_in_for_the_noise_level(spec):
    told = torch.tensor([49.0, 499.0, 999.0])
    steps = token_timesteps(SIGMA, spec, timestep=told)
    assert torch.equal(steps[:, -1], told)
    assert (steps == 0).sum(1).tolist() == [spec.prefix_latents * 12] * BATCH


def test_one_timestep_per_token_where_nothing_is_given_if_asked():
    free = tiny_spec(prefix_frames=0)
    assert torch.equal(token_timesteps(SIGMA, free), 1000 * SIGMA)
    steps = token_timesteps(SIGMA, free, per_token=True)
    assert torch.equal(steps, (1000 * SIGMA)[:, None].expand(BATCH, free.latent_frames * 12))


def test_without_an_adapter_the_base_model_answers(spec):
    truth, noise = latents(spec, 0), latents(spec, 1)
    oracle = Oracle(truth, noise, spec)
    velocity = predict_velocity(
        oracle, None, noise, truth[:, :, : spec.prefix_latents], SIGMA, None, spec, dtype=torch.bfloat16
    )
    assert velocity.dtype == torch.float32
    assert oracle.asked[0][0].dtype == torch.bfloat16
