"""Batches depend on the step alone; every clip once per epoch; probe clips stay out of training."""

from dataclasses import replace

import pytest
import torch

from merope.cameras import Pinhole
from merope.data.caches.latents import LinearCodec
from merope.errors import CheckpointMismatch
from merope.training.batches import BatchSource
from tests.support.tiny_run import tiny_clips, tiny_codec, tiny_config, tiny_spec


def recorded_source(monkeypatch, **changes):
    """A source, and the windows that it asks for."""
    clips, asked = tiny_clips(), []
    source = BatchSource(clips, tiny_codec(), tiny_config(**changes))
    window = clips.window

    def recording(clip, *, start, num_frames, mirror=False):
        asked.append((clip, start, mirror))
        return window(clip, start=start, num_frames=num_frames, mirror=mirror)

    monkeypatch.setattr(clips, "window", recording)
    return source, asked


def same(one, other):
    return all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in ("latents", "T_world_cam", "noise", "sigma")
    )


def test_a_batch_depends_on_its_step_and_the_seed_alone():
    source = BatchSource(tiny_clips(), tiny_codec(), tiny_config())
    first = [source.training(step) for step in (0, 5, 9)]
    torch.manual_seed(99)
    again = BatchSource(tiny_clips(), tiny_codec(), tiny_config(steps=500))
    for step, batch in zip((9, 5, 0), reversed(first), strict=True):
        assert same(again.training(step), batch)
    other = BatchSource(tiny_clips(), tiny_codec(), tiny_config(seed=1)).training(5)
    assert not torch.equal(other.noise, first[1].noise)
    # Also within an epoch every step has noise and levels of its own.
    for name in ("noise", "sigma"):
        assert len({float(getattr(again.training(step), name).sum()) for step in range(12)}) == 12


def test_batch_holds_latents_poses_noise_and_levels_of_its_clips():
    batch = BatchSource(tiny_clips(), tiny_codec(), tiny_config(batch_size=3)).training(2)
    assert batch.latents.shape == batch.noise.shape == (3, *tiny_spec().latent_shape)
    assert batch.T_world_cam.shape == (3, 4, 4, 4)
    assert batch.T_world_cam.dtype == torch.float64
    assert batch.sigma.shape == (3,)
    assert ((batch.sigma > 0) & (batch.sigma <= 1)).all()


def test_every_clip_comes_once_per_epoch_with_another_window_and_probe_clips_never(monkeypatch):
    source, asked = recorded_source(monkeypatch, batch_size=3)
    per_epoch = source.num_training // 3
    epochs = []
    for epoch in range(6):
        for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            source.training(step)
        epochs.append(list(asked))
        asked.clear()
    for windows in epochs:
        assert sorted(clip for clip, _, _ in windows) == list(range(9))
    assert len({tuple(clip for clip, _, _ in windows) for windows in epochs}) == 6
    starts = {start for windows in epochs for _, start, _ in windows}
    assert starts == {0, 1, 2, 3}
    assert {mirror for windows in epochs for _, _, mirror in windows} == {True, False}


def test_mirror_can_be_switched_off(monkeypatch):
    source, asked = recorded_source(monkeypatch, mirror=False)
    for step in range(8):
        source.training(step)
    assert not any(mirror for _, _, mirror in asked)


def test_probes_are_fixed_clips_that_are_never_trained_on(monkeypatch):
    source, asked = recorded_source(monkeypatch, num_probe_clips=6, batch_size=2)
    assert source.num_probes == 3
    batches = [source.probe(index) for index in range(3)]
    assert [clip for clip, _, _ in asked] == [6, 7, 8, 9, 10, 11]
    assert {(start, mirror) for _, start, mirror in asked} == {(2, False)}
    assert same(source.probe(1), batches[1])
    for batch in batches:
        assert (batch.sigma.diff() > 0).all()


def test_probe_batches_of_small_runs_hold_two_clips_and_fit_their_clips(monkeypatch):
    source, asked = recorded_source(monkeypatch, batch_size=1)
    assert source.num_probes == 1
    assert len(source.probe(0).sigma) == 2
    long = tiny_spec(num_frames=13)
    config = tiny_config(spec=long)
    monkeypatch.setattr(source.clips, "config", replace(tiny_clips().config, num_frames=13))
    asked.clear()
    BatchSource(source.clips, tiny_codec(), replace(config, clip_frames=13)).probe(0)
    assert {start for _, start, _ in asked} == {0}


def test_swapped_cameras_of_a_probe_really_differ():
    batch = BatchSource(tiny_clips(), tiny_codec(), tiny_config(num_probe_clips=6, batch_size=3)).probe(1)
    other = batch.T_world_cam.roll(1, 0)
    assert ((batch.T_world_cam - other).abs().amax((1, 2, 3)) > 1e-3).all()


def test_levels_follow_the_shift():
    source = BatchSource(tiny_clips(), tiny_codec(), tiny_config(batch_size=9))
    sigma = torch.cat([source.training(step).sigma for step in range(60)])
    # Uniform levels under a shift of 2 have the mean 2 - 2 ln 2 = 0.614, with a deviation of 0.28 / sqrt(540).
    assert float(sigma.mean()) == pytest.approx(0.614, abs=0.05)


def test_too_few_clips_say_how_many_are_needed():
    with pytest.raises(
        ValueError, match="12 clips leave 9 for training after 3 probe clips; a batch needs 10"
    ):
        BatchSource(tiny_clips(), tiny_codec(), tiny_config(batch_size=10))


def test_clips_of_another_lens_rate_or_length_are_refused():
    narrow = Pinhole.from_fov(fov_x_deg=60.0, height=24, width=32).to_dict()
    for config, name in (
        (tiny_config(spec=tiny_spec(camera=narrow)), "camera"),
        (tiny_config(spec=tiny_spec(fps=5.0)), "fps"),
        (tiny_config(clip_frames=20), "num_frames"),
    ):
        with pytest.raises(CheckpointMismatch, match=f"clips with {name}"):
            BatchSource(tiny_clips(), tiny_codec(), config)


def test_codec_of_another_width_is_refused():
    narrow = LinearCodec.fit(tiny_clips().sample_frames(3, 13), channels=8)
    with pytest.raises(CheckpointMismatch, match="codec has 8 channels, the model takes 24"):
        BatchSource(tiny_clips(), narrow, tiny_config())


def test_lens_off_its_middle_cannot_be_mirrored(monkeypatch):
    lens = Pinhole.from_fov(fov_x_deg=90.0, height=24, width=32)
    shifted = replace(lens, cx=lens.cx + 0.5).to_dict()
    monkeypatch.setattr(tiny_clips(), "config", replace(tiny_clips().config, camera=shifted))
    config = tiny_config(spec=tiny_spec(camera=shifted))
    with pytest.raises(ValueError, match=r"symmetric about its middle column.*mirror=False"):
        BatchSource(tiny_clips(), tiny_codec(), config)
    BatchSource(tiny_clips(), tiny_codec(), replace(config, mirror=False))
