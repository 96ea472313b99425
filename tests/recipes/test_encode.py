"""From rendered clips to a cache, through a real (tiny) Wan pipeline: what generation would compute, stored."""

import copy
import shutil

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from merope.cameras import Pinhole
from merope.data.caches.cached_clip import CacheError, padded_text
from merope.data.caches.latent_cache import LatentCache
from merope.data.caches.latents import WanLatents, video_from_frames
from merope.data.clips.folder import clip_ids, read_clip, read_clips
from merope.data.clips.given_frames import fit_view
from merope.errors import CheckpointMismatch
from merope.recipes.encode import ClipEncoder, EncodeConfig, encode_clips, module_identity
from merope.recipes.rendered_clips import RenderedClipsConfig, render_clips
from merope.recipes.tiny_wan import make_tiny_wan

# Random autoencoders give latents of any deviation.
pytestmark = pytest.mark.filterwarnings("ignore::merope.data.caches.cached_clip.CacheWarning")

HEIGHT, WIDTH, FRAMES = 64, 96, 9
CONFIG = EncodeConfig(height=HEIGHT, width=WIDTH, num_frames=FRAMES, text_length=150, dtype="float32")


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Three clips of one world, 13 frames each."""
    root = tmp_path_factory.mktemp("clips")
    lens = Pinhole.from_fov(fov_x_deg=80.0, height=HEIGHT, width=WIDTH)
    config = RenderedClipsConfig(lens=lens.to_dict(), num_frames=13, fps=12.0, turn_start=4, samples=1)
    render_clips(root, config, count=1, progress=False)
    return root


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_wan(tmp_path_factory.mktemp("model") / "wan")


@pytest.fixture(scope="module")
def encoder(model):
    return ClipEncoder.from_pretrained(model, CONFIG, text_dtype=torch.float32)


def with_config(encoder, **changes):
    """The same weights for another configuration."""
    values = {name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__}
    return ClipEncoder(encoder._pipeline, EncodeConfig(**{**values, **changes}))


def all_of(root):
    return [root / clip_id for clip_id in clip_ids(root)]


def encode(root, encoder, folder, **options):
    found = read_clips(all_of(root), skip_broken=True)
    return encode_clips(found, encoder, folder, progress=False, **options)


@pytest.fixture(scope="module")
def cached(clips, encoder, tmp_path_factory):
    return encode(clips, encoder, tmp_path_factory.mktemp("cache")).cache


def test_latents_are_those_that_training_on_frames_would_have(cached, clips, model):
    vae = WanPipeline.from_pretrained(model, dtype=torch.float32).vae
    assert len(cached) == 3
    for entry, folder in zip(cached, all_of(clips), strict=True):
        clip = read_clip(folder)
        frames = torch.from_numpy(clip.frames(range(FRAMES)))[None]
        assert torch.equal(entry.mean, WanLatents(vae).encode(video_from_frames(frames))[0])
        with torch.no_grad():
            raw = vae.encode(video_from_frames(frames)).latent_dist
        std = torch.tensor(vae.config.latents_std).view(-1, 1, 1, 1)
        torch.testing.assert_close(entry.logvar, raw.logvar[0] - 2 * std.log())
        assert torch.equal(entry.T_world_cam, clip.poses.T_world_cam[:FRAMES])
        assert (entry.lens, entry.fps, entry.unit) == (clip.lens, 12.0, "m")
        assert (entry.source, entry.cluster, entry.caption) == (clip.source, clip.cluster, clip.caption)
        assert entry.clip_id == f"{clip.clip_id}@00000"


def test_text_is_that_of_generation_when_it_is_padded_again(cached, model):
    pipeline = WanPipeline.from_pretrained(model, dtype=torch.float32)
    entries = list(cached)
    for caption, text in [(entry.caption, entry.text) for entry in entries] + [("", cached.empty_text)]:
        with torch.no_grad():
            wanted, _ = pipeline.encode_prompt(
                caption, do_classifier_free_guidance=False, max_sequence_length=150
            )
        assert torch.equal(padded_text([text], 150), wanted)
        assert len(text) < 150
    assert len(cached.empty_text) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stored_dtypes_differ_by_their_rounding(cached, clips, encoder, tmp_path, dtype):
    small = encode(clips, with_config(encoder, dtype=dtype), tmp_path / "cache", workers=1).cache
    for one, exact in zip(small, cached, strict=True):
        assert torch.equal(one.mean, exact.mean.to(getattr(torch, dtype)).float())
        assert not torch.equal(one.mean, exact.mean)


def test_frames_are_resized_with_their_lens(clips, encoder, tmp_path):
    smaller = with_config(encoder, height=32, width=64, crop=True)
    cache = encode(clips, smaller, tmp_path / "cache").cache
    clip, entry = read_clip(all_of(clips)[0]), cache[0]
    # 64 x 96 holds 48 x 96 of the shape of 32 x 64, about the middle.
    assert entry.lens == clip.lens.crop(top=8, left=0, height=48, width=96).resize(height=32, width=64)
    assert entry.mean.shape[-2:] == (2, 4)
    video, _, _ = fit_view(clip.frames(range(FRAMES)), clip.lens, height=32, width=64, crop=True)
    wanted = encoder.latents.encode(video_from_frames(torch.from_numpy(video)[None]))[0]
    assert torch.equal(entry.mean, wanted)


def test_overlapping_windows_and_thinner_frames(clips, encoder, tmp_path):
    cache = encode(clips, with_config(encoder, window_stride=4), tmp_path / "overlap").cache
    assert [name.split("@")[1] for name in cache.clip_ids] == ["00000", "00004"] * 3
    thin = encode(clips, with_config(encoder, num_frames=5, fps=6.0, batch=2), tmp_path / "thin").cache
    clip = read_clip(all_of(clips)[0])
    assert thin[0].fps == 6.0
    assert torch.equal(thin[0].T_world_cam, clip.poses.T_world_cam[0:9:2])
    assert cache.up_worlds == [(0, 0, 1)] * 6
    assert thin[0].up_world == (0, 0, 1)


def test_windows_that_are_encoded_together_are_those_encoded_alone(cached, clips, encoder, tmp_path):
    together = encode(clips, with_config(encoder, batch=3), tmp_path / "cache").cache
    for one, alone in zip(together, cached, strict=True):
        torch.testing.assert_close(one.mean, alone.mean, rtol=1e-4, atol=1e-5)


def test_two_processes_share_the_clips_and_the_last_one_finishes(cached, clips, encoder, tmp_path):
    folder = tmp_path / "cache"
    every = all_of(clips)
    for rank in (1, 0):
        report = encode_clips(
            read_clips(every[rank::2]), encoder, folder, rank=rank, world_size=2, progress=False
        )
        assert (report.cache is None) == (rank == 1)
    assert report.cache.clip_ids == cached.clip_ids
    assert all(torch.equal(one.mean, other.mean) for one, other in zip(report.cache, cached, strict=True))
    # What an earlier run left says nothing of this one: whoever ends last writes the manifest again.
    assert len(list(folder.glob("done*"))) == 2


def test_an_interrupted_encoding_goes_on(clips, encoder, tmp_path):
    folder = tmp_path / "cache"

    def stopped():
        yield from read_clips(all_of(clips)[:2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_clips(stopped(), with_config(encoder), folder, workers=1, progress=False)
    with pytest.raises(FileNotFoundError):
        LatentCache(folder)
    report = encode(clips, encoder, folder)
    assert report.encoded + report.there == len(report.cache) == 3
    assert encode(clips, encoder, folder).there == 3


def test_a_broken_clip_costs_itself_alone_until_it_is_mended(clips, encoder, tmp_path):
    root, folder = tmp_path / "clips", tmp_path / "cache"
    shutil.copytree(clips, root)
    first, second, third = all_of(root)
    frame, poses = first / "frames" / "frame_00003.png", second / "poses.json"
    whole = {path: path.read_bytes() for path in (frame, poses)}
    frame.write_bytes(whole[frame][:100])
    poses.write_text("{")
    (third / "caption.txt").unlink()
    report = encode(root, encoder, folder)
    assert (report.encoded, report.without_caption) == (1, 1)
    assert report.cache[0].caption == ""
    assert torch.equal(report.cache[0].text, report.cache.empty_text)
    assert [error.clip_id for error in report.skipped] == [f"{first.name}@00000", second.name]
    reasons = {row["clip_id"]: row["reason"] for row in report.cache.skipped}
    assert "frame_00003" in reasons[f"{first.name}@00000"]
    assert "poses.json" in reasons[second.name]
    for path, content in whole.items():
        path.write_bytes(content)
    again = encode(root, encoder, folder)
    assert (again.encoded, again.there, again.skipped, again.cache.skipped) == (2, 1, [], [])


def test_latents_that_cannot_be_stored_cost_their_clip_alone(clips, encoder, tmp_path, monkeypatch):
    def posterior(video):
        mean, logvar = WanLatents.posterior(encoder.latents, video)
        broken.append(None)
        return (mean * float("nan"), logvar) if len(broken) == 2 else (mean, logvar)

    broken = []
    monkeypatch.setattr(encoder.latents, "posterior", posterior)
    report = encode(clips, encoder, tmp_path / "cache")
    assert (report.encoded, len(report.cache), len(report.skipped)) == (2, 2, 1)
    assert "is not finite in float32" in report.cache.skipped[0]["reason"]


def test_clips_that_are_too_short_or_of_another_shape_are_left_out_with_the_reason(clips, encoder, tmp_path):
    with pytest.raises(CacheError, match=r"3 were left out, the first for this: .* has 13 frames"):
        encode(clips, with_config(encoder, num_frames=17), tmp_path / "long")
    with pytest.raises(CacheError, match=r"3 were left out, the first for this: .*--crop"):
        encode(clips, with_config(encoder, height=32, width=32), tmp_path / "square")


def test_a_cache_takes_nothing_that_was_made_otherwise(clips, encoder, tmp_path):
    folder = tmp_path / "cache"
    encode(clips, encoder, folder)
    other = make_tiny_wan(tmp_path / "other", seed=1)
    with pytest.raises(CheckpointMismatch, match=r"differ in vae .* text_encoder"):
        encode(clips, ClipEncoder.from_pretrained(other, CONFIG), folder)
    with pytest.raises(CheckpointMismatch, match="differ in windows "):
        encode(clips, with_config(encoder, fps=6.0), folder)
    with pytest.raises(CheckpointMismatch, match="differ in dtype "):
        encode(clips, with_config(encoder, dtype="float16"), folder)


def test_sizes_are_refused_before_weights_load(model, monkeypatch):
    monkeypatch.setattr(WanPipeline, "from_pretrained", lambda *_, **__: pytest.fail("weights were loaded"))
    for change, message in (
        ({"height": 48}, "height must be a multiple of 32"),
        ({"num_frames": 10}, "num_frames must be 1"),
    ):
        config = EncodeConfig(**{"height": 64, "width": 96, "num_frames": 9, **change})
        with pytest.raises(ValueError, match=message):
            ClipEncoder.from_pretrained(model, config)


def test_identity_is_that_of_the_weights_not_of_their_precision(encoder):
    vae = encoder._pipeline.vae
    identity = module_identity(vae)
    half = copy.deepcopy(vae).bfloat16()
    assert module_identity(half)["weights_sha256"] == identity["weights_sha256"]
    name = next(iter(vae.state_dict()))
    with torch.no_grad():
        weight = vae.get_parameter(name)
        first = weight.flatten()[0].clone()
        weight.view(-1)[0] += 1
        changed = module_identity(vae)
        weight.view(-1)[0] = first
    assert changed["weights_sha256"] != identity["weights_sha256"]
    assert module_identity(vae) == identity


def test_an_old_model_of_eight_pixels_works_too(clips, tmp_path):
    config = EncodeConfig(height=32, width=48, num_frames=5, text_length=16)
    encoder = ClipEncoder.from_pretrained(make_tiny_wan(tmp_path / "wan", version="2.1"), config)
    cache = encode(clips, encoder, tmp_path / "cache").cache
    assert cache[0].mean.shape == (16, 2, 4, 6)
    assert cache[0].text.dtype == torch.float32
    assert np.isfinite(cache.channel_std).all()
