"""Clips of caches that a split names: its clusters, its choice, and shares of sources, without encoding again."""

import pytest
import torch

from merope.data.caches.cached_clip import CacheError
from merope.data.caches.latent_cache import LatentCaches
from merope.data.selection.split_caches import ClipsOfSplit
from merope.data.selection.splits import Split, SplitClip
from merope.training.clip_batches import sampler_of
from tests.support.cached import write_cache
from tests.support.finetune_run import finetune_config


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """Six real clips and four rendered ones, all of which were encoded with other clusters."""
    folder = tmp_path_factory.mktemp("caches")
    write_cache(folder / "real", range(6), changes={"source": "real"})
    write_cache(folder / "rendered", range(4), changes={"source": "rendered"})
    return LatentCaches([folder / "real", folder / "rendered"])


def split(*rows):
    return Split(
        "train", tuple(SplitClip(source, f"clip-{number:03d}", name) for source, number, name in rows)
    )


def test_a_split_chooses_clips_and_gives_them_its_clusters(caches):
    chosen = ClipsOfSplit(
        caches, split(("rendered", 3, "turn"), ("real", 4, "rare"), ("real", 1, "turn"), ("x", 1, "a"))
    )
    assert len(chosen) == 3
    assert chosen.sources == ["real", "real", "rendered"]
    assert chosen.clip_ids == ["clip-001", "clip-004", "clip-003"]
    assert chosen.clusters == ["real/turn", "real/rare", "rendered/turn"]
    for number, (source, name) in enumerate(zip(chosen.sources, chosen.clip_ids, strict=True)):
        assert (chosen[number].source, chosen[number].clip_id) == (source, name)
        assert torch.equal(chosen.poses(number).center_world, chosen[number].poses.center_world)
    assert len(chosen.up_worlds) == 3 and chosen.empty_text.shape == caches.empty_text.shape


def test_clusters_of_two_sources_count_apart(caches):
    chosen = ClipsOfSplit(caches, split(("real", 0, "turn"), ("real", 1, "turn"), ("rendered", 0, "turn")))
    drawn = sampler_of(chosen, finetune_config()).batch(0, 4)
    assert sorted(chosen.sources[number] for number in drawn) == ["real", "real", "rendered", "rendered"]


def test_shares_of_sources_hold_whatever_their_clusters(caches):
    every = ClipsOfSplit(
        caches,
        split(*(("real", n, f"kind-{n}") for n in range(6)), *(("rendered", n, "all") for n in range(4))),
    )
    weights = {"real": 0.25, "rendered": 0.75}
    sampler = sampler_of(every, finetune_config(source_weights=weights))
    drawn = [every.sources[number] for step in range(6) for number in sampler.batch(step, 4)]
    assert drawn.count("rendered") == 18 and drawn.count("real") == 6
    # Each kind of the six once, and the stream goes on at any step.
    assert sampler_of(every, finetune_config(source_weights=weights)).batch(5, 4) == sampler.batch(5, 4)
    with pytest.raises(ValueError, match=r"--source-weights.*real, rendered; got real"):
        sampler_of(every, finetune_config(source_weights={"real": 1.0}))


def test_a_split_of_other_clips_is_refused(caches):
    with pytest.raises(
        CacheError, match=r"none of the 10 clips .* its first is other/clip-000, theirs real/clip-000"
    ):
        ClipsOfSplit(caches, split(("other", 0, "turn")))
