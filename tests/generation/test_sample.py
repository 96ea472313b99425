"""Generation: the prefix stays clean, seeds decide alone, commands that do not fit say how to mend them."""

import functools

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchHeunDiscreteScheduler, UniPCMultistepScheduler

from merope.adapters.command import latent_rays
from merope.adapters.flow import add_noise, shifted
from merope.data.caches.latents import frames_from_video, video_from_frames
from merope.errors import MeropeError, TrajectoryError
from merope.generation import VideoModel, check_command, generate, load_video_model, sample_latents
from merope.geometry.poses import Poses
from merope.training.system import build_model
from merope.worlds.drives import drive
from tests.support.oracles import Oracle, still_cameras, tiny_adapter
from tests.support.tiny_run import (
    tiny_clips,
    tiny_codec,
    tiny_config,
    tiny_spec,
    tiny_trainer,
    trained_model_folder,
)

SEEDS = (5, 6, 7)


@functools.cache
def model():
    return load_video_model(trained_model_folder())


def commands():
    return [drive("curve", seed=seed, num_frames=13, fps=10.0) for seed in SEEDS]


def prefixes():
    return tiny_clips().sample_frames(3, 5)


def made(chosen=(0, 1, 2), **options):
    values = {"seeds": [SEEDS[i] for i in chosen], "steps": 3, "autocast": False, "progress": False}
    cameras = [commands()[i] for i in chosen]
    return generate(model(), prefixes()[list(chosen)], cameras, **{**values, **options})


def unipc(spec):
    """Wan's own sampler, as its pipelines set it."""
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction",
        use_flow_sigmas=True,
        flow_shift=spec.shift,
        num_train_timesteps=1000,
    )


def oracle_model(prediction):
    spec = tiny_spec(prediction=prediction)
    truth, noise = torch.randn(2, *spec.latent_shape), torch.randn(2, *spec.latent_shape)
    oracle = Oracle(truth, noise, spec)
    return VideoModel(transformer=oracle, adapter=tiny_adapter(), codec=tiny_codec(), spec=spec)


def sampled(chosen, **options):
    oracle = chosen.transformer
    cameras = still_cameras(chosen.adapter, 2, chosen.spec)
    given = oracle.truth[:, :, : chosen.spec.prefix_latents]
    return sample_latents(chosen, given, oracle.noise, cameras, autocast=False, progress=False, **options)


@pytest.mark.parametrize("prediction", ["velocity", "clean"])
@pytest.mark.parametrize("steps", [1, 2, 16])
def test_network_that_knows_the_truth_samples_it(prediction, steps):
    chosen = oracle_model(prediction)
    torch.testing.assert_close(sampled(chosen, steps=steps), chosen.transformer.truth, rtol=0, atol=1e-5)
    assert len(chosen.transformer.asked) == steps


# Not Heun for clean predictions: it visits level 0.004, below the floor of their velocity.
@pytest.mark.parametrize(
    ("prediction", "scheduler", "calls"),
    [("velocity", "unipc", 8), ("clean", "unipc", 8), ("velocity", "heun", 15)],
)
def test_other_flow_schedulers_sample_the_truth_too(prediction, scheduler, calls):
    chosen = oracle_model(prediction)
    other = unipc(chosen.spec) if scheduler == "unipc" else FlowMatchHeunDiscreteScheduler(shift=2.0)
    out = sampled(chosen, steps=8, scheduler=other)
    assert len(chosen.transformer.asked) == calls
    torch.testing.assert_close(out, chosen.transformer.truth, rtol=0, atol=1e-5)


def test_network_is_asked_at_evenly_spaced_shifted_levels():
    chosen = oracle_model("velocity")
    sampled(chosen, steps=4)
    levels = [float(steps[0, -1]) / 1000 for _, steps in chosen.transformer.asked]
    assert levels == pytest.approx(shifted(torch.tensor([1.0, 0.75, 0.5, 0.25]), 2.0).tolist())


@pytest.mark.parametrize("scheduler", [None, unipc])
def test_prefix_is_clean_at_every_step(scheduler):
    chosen = oracle_model("clean")
    oracle = chosen.transformer
    out = sampled(chosen, steps=5, scheduler=scheduler and scheduler(chosen.spec))
    for latents, steps in oracle.asked:
        assert torch.equal(latents[:, :, :2], oracle.truth[:, :, :2])
        assert (steps[:, : 2 * 12] == 0).all()
        assert (steps[:, 2 * 12 :] > 0).all()
    assert torch.equal(out[:, :, :2], oracle.truth[:, :, :2])


def test_training_and_sampling_feed_the_network_alike(tmp_path):
    """At a level both meet, the same clip reaches the transformer as the same tensors (TR-06)."""
    trainer = tiny_trainer(tmp_path)
    seen = []
    trainer.transformer.register_forward_pre_hook(lambda _, args, named: seen.append(named), with_kwargs=True)
    batch = trainer.source.probe(0)
    batch = type(batch)(
        latents=batch.latents,
        T_world_cam=batch.T_world_cam,
        noise=batch.noise,
        sigma=torch.ones_like(batch.sigma),
    )
    trainer.losses(batch)
    chosen = VideoModel(
        transformer=trainer.transformer, adapter=trainer.adapter, codec=tiny_codec(), spec=tiny_spec()
    )
    operator = trainer.adapter.encoding.operator(latent_rays(batch.T_world_cam, tiny_spec()))
    sample_latents(
        chosen, batch.latents[:, :, :2], batch.noise, operator, steps=2, autocast=False, progress=False
    )
    training, sampling = seen[0], seen[1]
    for name in ("hidden_states", "timestep", "encoder_hidden_states"):
        assert torch.equal(training[name], sampling[name]), name
    assert torch.equal(training["hidden_states"][:, :, :2], batch.latents[:, :, :2])
    assert torch.equal(
        training["hidden_states"][:, :, 2:], add_noise(batch.latents, batch.noise, batch.sigma)[:, :, 2:]
    )


def test_video_starts_with_the_prefix_as_the_codec_shows_it():
    video = made()
    assert video.shape == (3, 13, 24, 32, 3)
    assert video.dtype == np.uint8
    codec = tiny_codec()
    coded = codec.decode(codec.encode(video_from_frames(torch.from_numpy(prefixes()))))
    assert np.array_equal(video[:, :5], frames_from_video(coded).numpy())
    assert not np.array_equal(video[:, 5:10], video[:, :5])


def test_a_clip_does_not_depend_on_what_it_is_generated_beside():
    together, alone, turned = made(), made(chosen=(1,)), made(chosen=(2, 1))
    # Sums over other batch sizes round differently: a value of 255 may fall on the other side.
    assert np.abs(alone[0].astype(int) - together[1]).max() <= 1
    assert np.abs(turned.astype(int) - together[[2, 1]]).max() <= 1


def test_noise_is_the_same_bits_in_any_batch():
    seen = []
    hook = model().transformer.register_forward_pre_hook(
        lambda _, args, named: seen.append(named["hidden_states"]), with_kwargs=True
    )
    try:
        made(steps=1)
        made(chosen=(2,), steps=1)
    finally:
        hook.remove()
    assert torch.equal(seen[0][2:, :, 2:], seen[1][:, :, 2:])
    wanted = torch.randn(tiny_spec().latent_shape, generator=torch.Generator().manual_seed(SEEDS[2]))
    assert torch.equal(seen[1][0, :, 2:], wanted[:, 2:])


def test_seed_decides_alone():
    torch.manual_seed(1)
    first = made()
    torch.manual_seed(2)
    assert np.array_equal(made(), first)
    other = made(seeds=[8, 6, 7])
    assert not np.array_equal(other[0], first[0])
    assert np.array_equal(other[1:], first[1:])


def test_cameras_change_the_video_after_the_prefix():
    backwards = [
        Poses(R_world_cam=poses.R_world_cam.flip(0), center_world=poses.center_world.flip(0))
        for poses in commands()
    ]
    other = generate(model(), prefixes(), backwards, seeds=SEEDS, steps=3, autocast=False, progress=False)
    assert np.array_equal(other[:, :5], made()[:, :5])
    assert (other[:, 5:] != made()[:, 5:]).any()


def test_other_scheduler_makes_a_video():
    video = made(scheduler=unipc(tiny_spec()), steps=4)
    assert video.shape == (3, 13, 24, 32, 3)
    assert np.array_equal(video[:, :5], made()[:, :5])


def test_scheduler_that_is_no_flow_is_refused():
    for scheduler in (UniPCMultistepScheduler(), DDIMScheduler()):
        with pytest.raises(ValueError, match=f"{type(scheduler).__name__} is not, as it is set"):
            made(scheduler=scheduler)


def test_untrained_branches_are_refused_unless_allowed():
    transformer, adapter = build_model(tiny_config())
    fresh = VideoModel(transformer=transformer.eval(), adapter=adapter, codec=tiny_codec(), spec=tiny_spec())
    call = {"seeds": SEEDS, "steps": 1, "progress": False}
    with pytest.raises(MeropeError, match=r"cameras would be ignored.*allow_untrained=True"):
        generate(fresh, prefixes(), commands(), **call)
    video = generate(fresh, prefixes(), commands(), allow_untrained=True, **call)
    assert video.shape == (3, 13, 24, 32, 3)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (np.zeros((3, 4, 24, 32, 3), np.uint8), r"prefix must have shape \[3, 5, 24, 32, 3\].*got \[3, 4,"),
        (np.zeros((3, 5, 32, 24, 3), np.uint8), r"prefix must have shape"),
        (np.zeros((2, 5, 24, 32, 3), np.uint8), r"one clip per trajectory"),
    ],
)
def test_prefix_of_another_shape_is_refused(prefix, message):
    with pytest.raises(ValueError, match=message):
        generate(model(), prefix, commands(), seeds=SEEDS, progress=False)


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="seeds must hold one number per trajectory, 3; got 2"):
        made(seeds=[1, 2])
    with pytest.raises(ValueError, match="steps must be >= 1; got 0"):
        made(steps=0)
    with pytest.raises(ValueError, match="at least one trajectory"):
        generate(model(), prefixes()[:0], [], seeds=[], progress=False)


def test_prefix_that_holds_no_bytes_is_refused():
    # The shape checks of the test run refuse it first, as a TypeError.
    with pytest.raises((ValueError, TypeError), match=r"float32|prefix"):
        generate(model(), prefixes().astype(np.float32), commands(), seeds=SEEDS, progress=False)


def test_trajectory_of_another_length_names_both_counts_and_a_way_out():
    long = drive("curve", seed=1, num_frames=21, fps=10.0)
    with pytest.raises(TrajectoryError, match=r"21 poses and the model makes 13 frames.*resample\(13\)"):
        check_command(long, tiny_spec())
    with pytest.raises(TrajectoryError, match="9 poses and the model makes 13"):
        check_command(long[:9], tiny_spec())


@pytest.mark.parametrize("unit", ["normalized", "unknown"])
def test_trajectory_without_metres_is_refused(unit):
    poses = commands()[0]
    other = Poses(R_world_cam=poses.R_world_cam, center_world=poses.center_world, unit=unit)
    with pytest.raises(TrajectoryError, match=rf"unit is '{unit}' and the model takes metres.*Poses.scaled"):
        check_command(other, tiny_spec())


def test_jump_and_centimetres_are_refused_with_the_speed():
    poses = commands()[0]
    with pytest.raises(TrajectoryError, match=r"up to .* m apart, .* m/s.*centimetres.*--scale"):
        check_command(poses.scaled(100.0), tiny_spec())
    center = poses.center_world.clone()
    center[7:] += 50
    jump = Poses(R_world_cam=poses.R_world_cam, center_world=center)
    with pytest.raises(TrajectoryError, match="or does it jump"):
        generate(model(), prefixes(), [poses, jump, poses], seeds=SEEDS, progress=False)
    check_command(poses, tiny_spec())
