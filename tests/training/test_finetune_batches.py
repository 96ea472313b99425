"""Batches of cached clips: pure functions of seed, step and place, however they are cut."""

from dataclasses import replace

import pytest
import torch

from merope.adapters.flow import shifted
from merope.data.caches.latent_cache import LatentCache, LatentCaches
from merope.errors import CheckpointMismatch
from merope.training.clip_batches import ClipBatches
from tests.support.finetune_run import CLIPS, finetune_config, finetune_spec, write_cache


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return LatentCache(write_cache(tmp_path_factory.mktemp("batches") / "cache"))


def batches(cache, **changes):
    return ClipBatches(cache, finetune_config(**changes))


def step_of(made, step, *, size):
    """A global batch as ``size`` processes make it, put together again."""
    parts = [
        made.load(step, chosen)
        for rank in range(size)
        for chosen in made.micro_batches(step, rank=rank, size=size)
    ]
    return [
        torch.cat([getattr(part, name) for part in parts]) for name in ("latents", "noise", "sigma", "text")
    ]


@pytest.mark.parametrize(("size", "micro"), [(1, 4), (2, 1), (2, 2), (4, 1)])
def test_no_number_of_processes_and_no_cut_changes_a_step(cache, size, micro):
    expected = step_of(batches(cache), 3, size=1)
    found = step_of(batches(cache, micro_batch=micro), 3, size=size)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_every_step_and_place_has_noise_of_its_own(cache):
    made = batches(cache)
    noise = torch.cat([step_of(made, step, size=1)[1] for step in range(3)])
    assert len(torch.unique(noise[:, 0, 0, 0, 0])) == len(noise) == 12
    assert abs(float(noise.mean())) < 0.02 and abs(float(noise.std()) - 1) < 0.02
    assert not torch.equal(step_of(batches(cache, seed=1), 0, size=1)[1], noise[:4])


def test_an_option_that_is_off_leaves_the_other_draws_alone(cache):
    usual = batches(cache).load(0, [(0, 2), (1, 5)])
    other = batches(cache, text_dropout=0.0, sample_posterior=False).load(0, [(0, 2), (1, 5)])
    assert torch.equal(usual.noise, other.noise)
    assert torch.equal(usual.sigma, other.sigma)
    means = torch.stack([cache[2].mean, cache[5].mean])
    assert torch.equal(other.latents, means)
    # Log variance -2 is a deviation of 0.37.
    assert abs(float((usual.latents - means).std()) - 0.3679) < 0.01


def test_noise_levels_follow_the_distribution_and_wan_s_shift(cache):
    places = [(place, 0) for place in range(400)]
    for levels, expected in (("uniform", 0.5), ("logit-normal", 0.5)):
        made = batches(cache, noise_levels=levels)
        draws = torch.tensor([made._draw(1, 7, place).sigma for place, _ in places])
        assert abs(float(draws.mean()) - expected) < 0.05
        assert abs(float(draws.std()) - {"uniform": 0.289, "logit-normal": 0.208}[levels]) < 0.03
    made = batches(cache)
    few = places[:5]
    drawn = torch.tensor([made._draw(1, 7, place).sigma for place, _ in few])
    torch.testing.assert_close(made.load(7, few).sigma, shifted(drawn, 5.0))


def test_dropped_prompts_are_the_empty_one_and_others_their_own(cache):
    made = batches(cache, text_dropout=0.5)
    batch = made.load(0, [(place, 4) for place in range(40)])
    own = cache[4].text
    empty = [bool((text == 0).all()) for text in batch.text]
    assert 10 < sum(empty) < 30
    kept = batch.text[empty.index(False)]
    assert torch.equal(kept[: len(own)], own) and not kept[len(own) :].any()
    assert not batches(cache, text_dropout=0.0).load(0, [(0, 4)]).text.eq(0).all()


def test_cameras_are_the_clips_own(cache):
    batch = batches(cache).load(0, [(0, 3), (1, 6)])
    for row, number in enumerate((3, 6)):
        poses = cache[number].poses.rebase_to_first()
        torch.testing.assert_close(batch.rays.center_world[row], poses.center_world[[0, 4, 8]])
        assert torch.equal(cache.poses(number).T_world_cam, cache[number].poses.T_world_cam)


def test_a_probe_is_always_the_same_and_gives_each_clip_the_next_one_s_cameras(cache):
    made = batches(cache)
    (whole,) = batches(cache, micro_batch=4).probe_batches(rank=0, size=1)
    probe = batches(cache, micro_batch=4).load_probe(whole)
    assert probe.other_rays is not None
    assert torch.equal(probe.other_rays.center_world, probe.rays.center_world.roll(-1, 0))
    assert len({clip for _, clip in whole}) == 4
    parts = [chosen for rank in range(2) for chosen in made.probe_batches(rank=rank, size=2)]
    again = torch.cat([made.load_probe(chosen).latents for chosen in parts])
    assert torch.equal(again, probe.latents)
    assert torch.equal(probe.sigma, shifted(torch.tensor([0.125, 0.375, 0.625, 0.875]), 5.0))


def test_several_caches_are_one(cache, tmp_path):
    other = write_cache(tmp_path / "other", seed=9, source="rendered")
    both = LatentCaches([cache.folder, other])
    made = batches(both)
    seen = {
        clip for step in range(6) for chosen in made.micro_batches(step, rank=0, size=1) for _, clip in chosen
    }
    assert any(clip < CLIPS for clip in seen) and any(clip >= CLIPS for clip in seen)
    assert torch.equal(both.poses(CLIPS + 1).T_world_cam, both[CLIPS + 1].T_world_cam)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"height": 96}, r"height is 64 in the cache, 96 in the run; latent_shape is \(48, 3, 4, 6\)"),
        ({"num_frames": 13}, r"num_frames is 9 in the cache, 13 in the run"),
    ],
)
def test_latents_of_another_size_are_refused(cache, changes, message):
    with pytest.raises(CheckpointMismatch, match=message):
        batches(cache, spec=finetune_spec(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec": replace(finetune_spec(), fps=12.0)}, "clip clips/clip-2 has fps 10.0; the run takes 12.0"),
        ({"pose_unit": "normalized"}, "clip clips/clip-2 has unit m; the run takes normalized"),
    ],
)
def test_clips_of_another_rate_or_unit_are_refused(cache, changes, message):
    with pytest.raises(CheckpointMismatch, match=message):
        batches(cache, **changes).load(0, [(0, 2)])
