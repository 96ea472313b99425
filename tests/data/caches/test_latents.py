"""Latents: Wan's autoencoder with its normalisation, and the linear codec of the small preset."""

import functools

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLWan
from safetensors.torch import save_file

from merope.data.caches.latents import LinearCodec, WanLatents, frames_from_video, video_from_frames
from merope.errors import CheckpointMismatch
from tests.support.tiny_run import tiny_clips

SMALL = {
    "base_dim": 3,
    "dim_mult": [1] * 4,
    "num_res_blocks": 1,
    "temperal_downsample": [False, True, True],
}
STYLES = {
    "wan2.1": ({"z_dim": 16}, 8, (24, 40)),
    "wan2.2": (
        {
            "z_dim": 48,
            "decoder_base_dim": 3,
            "is_residual": True,
            "in_channels": 12,
            "out_channels": 12,
            "patch_size": 2,
            "scale_factor_spatial": 16,
        },
        16,
        (32, 48),
    ),
}


@functools.cache
def wan(style):
    """A tiny random autoencoder of the real class, with a mean and deviation that differ by channel."""
    options, _, _ = STYLES[style]
    torch.manual_seed(7)
    channels = options["z_dim"]
    vae = AutoencoderKLWan(
        **SMALL,
        **options,
        latents_mean=[0.3 * (-1) ** c + 0.01 * c for c in range(channels)],
        latents_std=[0.5 + 0.07 * c for c in range(channels)],
    )
    return WanLatents(vae.eval())


def wan_video(style, frames=9):
    height, width = STYLES[style][2]
    generator = torch.Generator().manual_seed(3)
    return torch.rand(2, 3, frames, height, width, generator=generator) * 2 - 1


@functools.cache
def street_frames():
    return tiny_clips().sample_frames(12, 13)


@functools.cache
def codec(channels=24):
    return LinearCodec.fit(street_frames(), channels=channels)


def psnr(one, other):
    return float(10 * torch.log10(4 / (one - other).square().mean()))


@pytest.mark.parametrize("style", STYLES)
def test_wan_latents_are_normalised_once_and_undone_once(style):
    latents, video = wan(style), wan_video(style)
    height, width = STYLES[style][2]
    encoded = latents.encode(video)
    cell = latents.spatial_stride
    assert cell == STYLES[style][1]
    assert encoded.shape == (2, latents.channels, 3, height // cell, width // cell)
    with torch.no_grad():
        raw = latents.vae.encode(video).latent_dist.mode()
        straight = latents.vae.decode(raw).sample
    mean = torch.tensor(latents.vae.config.latents_mean)[:, None, None, None]
    std = torch.tensor(latents.vae.config.latents_std)[:, None, None, None]
    torch.testing.assert_close(encoded * std + mean, raw, rtol=0, atol=1e-5)
    assert (encoded - raw).abs().max() > 0.1
    torch.testing.assert_close(latents.decode(encoded), straight, rtol=0, atol=1e-4)


@pytest.mark.parametrize("style", STYLES)
def test_nine_frames_alone_encode_to_the_first_three_latents(style):
    latents, video = wan(style), wan_video(style, frames=13)
    whole = latents.encode(video)
    assert whole.shape[2] == 4
    torch.testing.assert_close(latents.encode(video[:, :, :9]), whole[:, :, :3], rtol=0, atol=1e-5)


@pytest.mark.parametrize("style", STYLES)
def test_wan_frames_and_sizes_that_the_autoencoder_would_round_are_refused(style):
    latents, video = wan(style), wan_video(style)
    with pytest.raises(ValueError, match=r"1 \+ 4k frames; got 8. Use 5 or 9"):
        latents.encode(video[:, :, :8])
    with pytest.raises(ValueError, match=f"multiples of {latents.spatial_stride} pixels"):
        latents.encode(video[..., :-4])


def test_bytes_survive_the_way_to_video_and_back():
    frames = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16, 1).expand(-1, -1, -1, -1, 3)
    video = video_from_frames(frames)
    assert video.shape == (1, 3, 1, 16, 16)
    assert float(video.min()) == -1
    assert float(video.max()) == 1
    assert torch.equal(frames_from_video(video), frames)
    assert torch.equal(frames_from_video(video * 1.5)[0, 0, 0, 0], torch.zeros(3, dtype=torch.uint8))


def test_linear_prefix_is_causal_to_the_last_bit():
    video = video_from_frames(torch.from_numpy(street_frames()[:3]))
    whole = codec().encode(video)
    assert whole.shape == (3, 24, 4, 3, 4)
    for frames, latents in ((1, 1), (5, 2), (9, 3)):
        assert torch.equal(codec().encode(video[:, :, :frames]), whole[:, :, :latents])
    assert torch.equal(codec().decode(whole)[:, :, :9], codec().decode(whole[:, :, :3]))


def test_change_in_a_later_frame_changes_its_own_latent_alone():
    video = video_from_frames(torch.from_numpy(street_frames()[:2]))
    other = video.clone()
    other[:, :, 6] = 0
    differs = (codec().encode(video) != codec().encode(other)).flatten(3).any(3).any(1)
    assert differs.tolist() == [[False, False, True, False]] * 2


def test_change_in_one_patch_changes_its_own_token_alone():
    video = video_from_frames(torch.from_numpy(street_frames()[:2]))
    other = video.clone()
    # Row 2 and column 1 of the 3 x 4 patches.
    other[:, :, :, 16:24, 8:16] *= 0.5
    differs = (codec().encode(video) != codec().encode(other)).any(1).any(1)
    wanted = torch.zeros(2, 3, 4, dtype=torch.bool)
    wanted[:, 2, 1] = True
    assert torch.equal(differs, wanted)


def test_equal_clips_give_an_equal_codec():
    again = LinearCodec.fit(street_frames().copy(), channels=24)
    for part in ("first", "later"):
        for name, value in getattr(codec(), part).items():
            assert torch.equal(value, getattr(again, part)[name]), (part, name)


def test_basis_is_orthonormal_and_scores_have_unit_mean_variance():
    for part, size in ((codec().first, 192), (codec().later, 768)):
        assert part["basis"].shape == (size, 24)
        torch.testing.assert_close(part["basis"].T @ part["basis"], torch.eye(24), rtol=0, atol=1e-5)
        assert (part["scale"].diff() <= 0).all()
    scores = codec().encode(video_from_frames(torch.from_numpy(street_frames())))
    variance = scores[:, :, 1:].transpose(0, 1).flatten(1).var(1)
    assert float(variance.mean()) == pytest.approx(1.0, abs=1e-2)
    assert abs(float(scores[:, :, 1:].mean())) < 1e-4


def test_more_channels_reconstruct_better_and_all_of_them_exactly():
    video = video_from_frames(torch.from_numpy(street_frames()))
    quality = []
    for channels in (4, 24, 96):
        fitted = codec(channels)
        quality.append(psnr(fitted.decode(fitted.encode(video)), video))
    assert quality[0] < quality[1] < quality[2]
    assert quality[2] > 25
    full = codec(192)
    # A first patch holds 3 x 8 x 8 numbers: all of its components leave rounding alone.
    torch.testing.assert_close(full.decode(full.encode(video[:, :, :1])), video[:, :, :1], rtol=0, atol=1e-4)


def test_encoding_what_was_decoded_changes_nothing():
    scores = 0.2 * torch.randn(2, 24, 3, 3, 5)
    again = codec().encode(codec().decode(scores))
    torch.testing.assert_close(again, scores, rtol=0, atol=1e-4)


def test_saved_codec_is_the_same_to_half_precision(tmp_path):
    codec().save(tmp_path / "codec.safetensors")
    loaded = LinearCodec.load(tmp_path / "codec.safetensors")
    video = video_from_frames(torch.from_numpy(street_frames()))
    assert loaded.channels == 24
    torch.testing.assert_close(loaded.encode(video), codec().encode(video), rtol=0, atol=2e-2)
    before, after = (psnr(c.decode(c.encode(video)), video) for c in (codec(), loaded))
    assert after > before - 0.01
    # Half precision is lossless the second time: a copy of a copy is the copy.
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "codec.safetensors").read_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["again.safetensors", "codec.safetensors"]


def test_files_that_are_no_codec_are_refused_by_name(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(2)}, str(path), metadata={"format": "pt"})
    with pytest.raises(
        CheckpointMismatch, match=r"other.safetensors is not a linear codec: its format is 'pt'"
    ):
        LinearCodec.load(path)
    save_file({"x": torch.zeros(2)}, str(path), metadata={"format": "merope-linear-codec-1"})
    with pytest.raises(CheckpointMismatch, match=r"first.basis"):
        LinearCodec.load(path)
    path.write_bytes(b"no safetensors here")
    with pytest.raises(CheckpointMismatch, match="damaged"):
        LinearCodec.load(path)
    with pytest.raises(FileNotFoundError):
        LinearCodec.load(tmp_path / "missing.safetensors")


@pytest.mark.parametrize(("frames", "way_out"), [(2, "Use 1 or 5"), (8, "Use 5 or 9"), (0, "Use 1 or 5")])
def test_linear_frame_counts_are_refused_with_a_way_out(frames, way_out):
    with pytest.raises(ValueError, match=rf"got {frames}\. {way_out}"):
        codec().encode(torch.zeros(2, 3, frames, 16, 24))


def test_odd_sizes_are_refused():
    with pytest.raises(ValueError, match=r"multiples of 8 pixels; got 20 x 24"):
        codec().encode(torch.zeros(2, 3, 5, 20, 24))
    with pytest.raises(ValueError, match=r"got 16 x 25"):
        LinearCodec.fit(np.zeros((2, 5, 16, 25, 3), dtype=np.uint8), channels=4)


def test_fit_needs_later_frames_and_a_possible_number_of_channels():
    with pytest.raises(ValueError, match="k >= 1"):
        LinearCodec.fit(street_frames()[:, :1], channels=4)
    for channels in (0, 193):
        with pytest.raises(ValueError, match=f"between 1 and 192; got {channels}"):
            LinearCodec.fit(street_frames()[:2], channels=channels)


def test_flat_clips_fit_without_dividing_by_zero():
    flat = LinearCodec.fit(np.full((3, 5, 8, 16, 3), 90, dtype=np.uint8), channels=4)
    video = torch.full((2, 3, 5, 8, 16), 90 / 127.5 - 1)
    latents = flat.encode(video)
    assert torch.isfinite(latents).all()
    torch.testing.assert_close(flat.decode(latents), video, rtol=0, atol=1e-4)


@pytest.mark.parametrize("style", STYLES)
def test_posterior_is_that_of_the_normalised_latents(style):
    codec, video = wan(style), wan_video(style)
    mean, logvar = codec.posterior(video)
    assert torch.equal(mean, codec.encode(video))
    with torch.no_grad():
        raw = codec.vae.encode(video).latent_dist
    std = torch.tensor(codec.vae.config.latents_std).view(1, -1, 1, 1, 1)
    noise = torch.randn(mean.shape)
    sample = raw.mean + raw.std * noise
    own = mean + torch.exp(0.5 * logvar) * noise
    torch.testing.assert_close(own * std + codec.mean, sample, rtol=1e-5, atol=1e-5)
