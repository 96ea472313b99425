"""Caches of latents: what comes back, what is refused, and that nothing is lost or written twice."""

import json
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from merope.data.caches.cached_clip import CacheDescription, CacheError, CacheWarning, padded_text
from merope.data.caches.latent_cache import LatentCache, LatentCaches, LatentCacheWriter, finish_cache
from merope.errors import CheckpointMismatch
from tests.support.cached import description, random_clip, write_cache

CLIP_BYTES = 2 * 4 * 3 * 4 * 6 * 2


def shards(folder):
    return sorted(path.name for path in folder.glob("shard-*"))


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("float16", 2**-11), ("bfloat16", 2**-8)])
def test_a_clip_comes_back_as_it_was_to_the_stored_dtype(tmp_path, dtype, error):
    cache = write_cache(tmp_path / "cache", range(5), dtype=dtype)
    assert len(cache) == 5
    for number in range(5):
        wanted, got = random_clip(number), cache[number]
        for part in ("mean", "logvar"):
            value = getattr(got, part)
            assert value.dtype == torch.float32
            torch.testing.assert_close(value, getattr(wanted, part), rtol=error, atol=error * 1e-3)
        assert torch.equal(got.text, wanted.text)
        assert torch.equal(got.T_world_cam, wanted.T_world_cam)
        assert got.T_world_cam.dtype == torch.float64
        for name in ("clip_id", "lens", "fps", "unit", "caption", "source", "cluster"):
            assert getattr(got, name) == getattr(wanted, name)
    assert cache.clip_ids == [f"clip-{number:03d}" for number in range(5)]
    assert cache.clusters == [f"clips/{('straight', 'turn')[number % 2]}" for number in range(5)]
    assert torch.equal(cache.empty_text, torch.ones(1, 8))


def test_poses_keep_millimetres_far_from_the_origin(tmp_path):
    poses = write_cache(tmp_path / "cache", range(1))[0].poses
    assert abs(poses.path_length - 0.8) < 1e-7
    assert poses.unit == "m"


def test_a_sample_has_the_posteriors_mean_and_deviation():
    clip = random_clip(0)
    draws = torch.stack([clip.sample(torch.randn(clip.mean.shape)) for _ in range(4000)])
    assert (draws.mean(0) - clip.mean).abs().max() < 6 * (0.5 * clip.logvar).exp().max() / 4000**0.5
    assert ((draws.std(0).log() - 0.5 * clip.logvar).abs() < 0.06).all()


def test_text_is_padded_with_zeros():
    texts = [torch.ones(2, 8), torch.ones(5, 8)]
    padded = padded_text(texts, 6)
    assert padded.shape == (2, 6, 8)
    assert padded.sum((1, 2)).tolist() == [16, 40]
    assert padded[0, 2:].count_nonzero() == 0
    with pytest.raises(ValueError, match="length must be at least"):
        padded_text(texts, 4)


def test_shards_are_bounded_and_captions_shared_within_one(tmp_path):
    # Poses are 1152 bytes and text at most 192.
    write_cache(tmp_path / "cache", range(8), shard_bytes=3 * (CLIP_BYTES + 1152 + 192))
    assert len(shards(tmp_path / "cache")) == 3
    same = {"caption": "one for all", "text": torch.zeros(12, 8)}
    sizes = [
        sum(path.stat().st_size for path in (tmp_path / name).glob("shard-*/latents.safetensors"))
        for name, changes in (("own", {"text": same["text"]}), ("same", same))
        if write_cache(tmp_path / name, range(8), changes=changes)
    ]
    assert sizes[0] - sizes[1] > 6 * 12 * 8 * 4


def test_several_writers_make_the_cache_that_one_makes(tmp_path):
    alone = write_cache(tmp_path / "one", range(7))
    writers = [
        LatentCacheWriter(tmp_path / "three", description(), empty_text=torch.ones(1, 8)) for _ in range(3)
    ]
    for number in range(7):
        writers[number % 3].add(random_clip(number))
    for writer in writers:
        writer.flush()
    together = finish_cache(tmp_path / "three")
    assert together.clip_ids == alone.clip_ids
    assert together.clusters == alone.clusters
    assert together.channel_std == alone.channel_std
    for number in range(7):
        assert torch.equal(together[number].mean, alone[number].mean)


def test_an_interrupted_cache_goes_on_and_is_not_readable_before(tmp_path):
    folder = tmp_path / "cache"

    def interrupted():
        with LatentCacheWriter(folder, description(), empty_text=torch.ones(1, 8)) as writer:
            for number in range(3):
                writer.add(random_clip(number))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(FileNotFoundError, match="goes on with one"):
        LatentCache(folder)
    first = shards(folder)
    # The three that were whole are not written again.
    assert write_cache(folder, range(5)).clip_ids == [f"clip-{number:03d}" for number in range(5)]
    assert set(first) < set(shards(folder))
    assert len(shards(folder)) == 2


def test_a_shard_that_was_being_written_leaves_nothing(tmp_path, monkeypatch):
    writer = LatentCacheWriter(tmp_path / "cache", description(), empty_text=torch.ones(1, 8))
    writer.add(random_clip(0))
    monkeypatch.setattr("merope.data.caches.latent_cache._sha256", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        writer.flush()
    assert list((tmp_path / "cache").glob("*shard*")) == []


def test_two_processes_of_one_rank_are_found_out(tmp_path):
    for numbers in ((0, 1), (1, 2)):
        writer = LatentCacheWriter(tmp_path / "cache", description(), empty_text=torch.ones(1, 8))
        writer._written.clear()
        for number in numbers:
            writer.add(random_clip(number))
        writer.flush()
    with pytest.raises(CacheError, match="clips/clip-001 twice"):
        finish_cache(tmp_path / "cache")


def test_the_manifest_lists_what_could_not_be_encoded(tmp_path):
    folder = tmp_path / "cache"
    rows = [
        {"source": "clips", "clip_id": name, "reason": "the video is broken"} for name in ("late", "early")
    ]
    write_cache(folder, range(2))
    assert finish_cache(folder, skipped=rows).skipped == rows[::-1]
    assert finish_cache(folder).skipped == []


def test_a_missing_or_shortened_shard_is_named_on_opening(tmp_path):
    folder = tmp_path / "cache"
    write_cache(folder, range(4), shard_bytes=1)
    lost = shards(folder)[2]
    path = folder / lost / "latents.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(CacheError, match=f"{lost}.*has .* bytes"):
        LatentCache(folder)
    path.unlink()
    with pytest.raises(CacheError, match=f"{lost}.*is missing"):
        LatentCache(folder)


def test_a_flipped_bit_is_found_by_verify(tmp_path):
    folder = tmp_path / "cache"
    cache = write_cache(folder, range(4), shard_bytes=1)
    cache.verify()
    path = folder / shards(folder)[1] / "latents.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CacheError, match=f"damaged: {path.parent.name}"):
        LatentCache(folder).verify()


@pytest.mark.parametrize("listing", ["[]", "null", "{}", '{"clips": [1]}', '{"clips": [{"clip_id": "a"}]}'])
def test_a_damaged_listing_is_named(tmp_path, listing):
    folder = tmp_path / "cache"
    write_cache(folder, range(3), shard_bytes=1)
    damaged = shards(folder)[1]
    (folder / damaged / "clips.json").write_text(listing)
    with pytest.raises(CacheError, match=f"{damaged}.*is damaged"):
        finish_cache(folder)
    with pytest.raises(CacheError, match=f"{damaged}.*is damaged"):
        LatentCacheWriter(folder, description(), empty_text=torch.ones(1, 8))


@pytest.mark.parametrize("content", ["[]", "null", "x", "{}"])
def test_a_damaged_description_is_named(tmp_path, content):
    write_cache(tmp_path, range(1))
    (tmp_path / "encoding.json").write_text(content)
    with pytest.raises(CacheError, match=r"encoding\.json describes no cache"):
        LatentCacheWriter(tmp_path, description(), empty_text=torch.ones(1, 8))


def edited_manifest(folder, change):
    content = json.loads((folder / "manifest.json").read_text())
    change(content["shards"][0])
    (folder / "manifest.json").write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["../outside", "shard-0123456789abcdef/../../outside", ""])
def test_a_manifest_leads_nowhere_else(tmp_path, name):
    folder = tmp_path / "cache"
    write_cache(folder, range(2), shard_bytes=1)
    (folder / shards(folder)[0]).rename(tmp_path / "outside")
    edited_manifest(folder, lambda shard: shard.update(folder=name))
    with pytest.raises(CacheError, match="is no shard of this folder"):
        LatentCache(folder)


def test_a_shard_holds_what_the_manifest_lists(tmp_path):
    write_cache(tmp_path, range(3))
    edited_manifest(tmp_path, lambda shard: shard["clips"].reverse())
    with pytest.raises(CacheError, match="not those that the manifest lists"):
        LatentCache(tmp_path)[0]


def test_opening_reads_no_shard(tmp_path):
    folder = tmp_path / "cache"
    write_cache(folder, range(3))
    path = folder / shards(folder)[0] / "latents.safetensors"
    path.write_bytes(b"\0" * path.stat().st_size)
    cache = LatentCache(folder)
    assert len(cache) == 3
    with pytest.raises(CacheError, match="cannot be read"):
        cache[0]


def test_a_cache_travels_to_workers_without_its_open_files(tmp_path):
    cache = write_cache(tmp_path / "cache", range(3))
    cache[1]
    copy = pickle.loads(pickle.dumps(cache))
    assert torch.equal(copy[1].mean, cache[1].mean)


@pytest.mark.parametrize(
    "changes",
    [
        {"vae": {"class": "AutoencoderKLWan", "config_sha256": "c0", "weights_sha256": "another"}},
        {"text_encoder": {"class": "T5EncoderModel", "config_sha256": "c1", "weights_sha256": "w1"}},
        {"latents_std": (0.5,) * 4},
        {"text_length": 512},
        {"height": 64},
        {"num_frames": 13},
    ],
)
def test_caches_that_were_made_differently_do_not_mix(tmp_path, changes):
    folder = tmp_path / "one"
    write_cache(folder, range(2))
    (name,) = changes
    other = description(**changes)
    with pytest.raises(CheckpointMismatch, match=f"differ in {name} "):
        LatentCacheWriter(folder, other, empty_text=torch.ones(1, 8))
    write_cache(tmp_path / "two", range(2, 4))
    manifest = tmp_path / "two" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["encoding"] = other.to_dict()
    manifest.write_text(json.dumps(content))
    with pytest.raises(CheckpointMismatch, match=f"differ in {name} "):
        LatentCaches([folder, tmp_path / "two"])


def test_a_union_keeps_sources_apart(tmp_path):
    write_cache(tmp_path / "real", range(3), changes={"source": "nuscenes"})
    write_cache(tmp_path / "made", range(4), changes={"source": "rendered"}, dtype="bfloat16")
    both = LatentCaches([tmp_path / "real", tmp_path / "made"])
    assert len(both) == 7
    assert both.sources == ["nuscenes"] * 3 + ["rendered"] * 4
    assert set(both.clusters) == {"nuscenes/straight", "nuscenes/turn", "rendered/straight", "rendered/turn"}
    for index in range(7):
        assert (both[index].source, both[index].clip_id) == (both.sources[index], both.clip_ids[index])
    assert both[-1].clip_id == "clip-003"
    with pytest.raises(IndexError):
        both[7]
    with pytest.raises(CacheError, match="in two of these caches"):
        LatentCaches([tmp_path / "real", tmp_path / "real"])


@pytest.mark.parametrize("factor", [0.1, 20.0])
def test_latents_that_are_not_normalised_warn(tmp_path, factor):
    clip = random_clip(0)
    with pytest.warns(CacheWarning, match="deviation of .* in channel 0"):
        write_cache(tmp_path / "odd", range(2), changes={"mean": clip.mean * factor})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = write_cache(tmp_path / "usual", range(2))
    means = torch.stack([cache[0].mean, cache[1].mean])
    assert cache.channel_std == pytest.approx(means.std((0, 2, 3, 4), correction=0).tolist(), abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict.fromkeys(("mean", "logvar"), torch.zeros(4, 3, 4, 5)),
            "mean of clip clips/clip-000 must have shape",
        ),
        ({"logvar": torch.full((4, 3, 4, 6), float("nan"))}, "logvar of clip clips/clip-000 is not finite"),
        ({"mean": torch.full((4, 3, 4, 6), 1e6)}, "not finite in float16"),
        ({"T_world_cam": torch.eye(4, dtype=torch.float64).repeat(3, 1, 1)}, "each of 9 frames"),
        ({"lens": random_clip(0).lens.resize(height=64, width=96)}, "is for 64 x 96 pixels"),
    ],
)
def test_clips_that_do_not_fit_are_refused(tmp_path, changes, message):
    writer = LatentCacheWriter(tmp_path / "cache", description(), empty_text=torch.ones(1, 8))
    with pytest.raises(ValueError, match=message):
        writer.add(random_clip(0, **changes))


def test_the_manifest_says_what_made_the_cache(tmp_path):
    write_cache(tmp_path / "cache", range(2))
    manifest = json.loads((tmp_path / "cache" / "manifest.json").read_text())
    assert manifest["encoding"]["normalised"] is True
    assert CacheDescription.from_dict(manifest["encoding"]) == description()
    assert manifest["count"] == 2
    assert len(manifest["shards"][0]["sha256"]) == 64
    manifest["encoding"]["normalised"] = False
    (tmp_path / "cache" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CacheError, match="not normalised"):
        LatentCache(tmp_path / "cache")


def test_threads_may_read_one_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("merope.data.caches.latent_cache._OPEN_SHARDS", 2)
    cache = write_cache(tmp_path / "cache", range(6), shard_bytes=1)
    wanted = [random_clip(number).T_world_cam for number in range(6)]
    with ThreadPoolExecutor(4) as pool:
        for index, clip in enumerate(pool.map(lambda index: cache[index % 6], range(200))):
            assert torch.equal(clip.T_world_cam, wanted[index % 6])
