"""Balanced sampling: uniform over clusters, each clip once per pass, the same stream however it is read."""

from collections import Counter

import pytest

from merope.data.selection.sampling import BalancedSampler

# Four clusters of very different sizes, as motion kinds are.
CLUSTERS = ["straight"] * 500 + ["turn"] * 40 + ["stop"] * 7 + ["u-turn"]
SOURCES = ["nuscenes"] * 450 + ["rendered"] * (len(CLUSTERS) - 450)
APART = [f"{source}/{cluster}" for source, cluster in zip(SOURCES, CLUSTERS, strict=True)]


def draws(sampler, count, size=50):
    return [index for step in range(count // size) for index in sampler.batch(step, size)]


def test_clusters_are_drawn_equally_often():
    counts = Counter(CLUSTERS[index] for index in draws(BalancedSampler(CLUSTERS, 3), 10_000))
    assert all(abs(count - 2500) <= 0.02 * 2500 for count in counts.values())


def test_within_a_cluster_clips_are_drawn_equally_often():
    counts = Counter(draws(BalancedSampler(CLUSTERS, 3), 10_000))
    for cluster in set(CLUSTERS):
        own = [counts[index] for index, name in enumerate(CLUSTERS) if name == cluster]
        assert max(own) - min(own) <= 1


def test_one_cluster_is_plain_shuffling():
    sampler = BalancedSampler(["all"] * 60, 0)
    passes = [
        [index for step in range(6) for index in sampler.batch(first + step, 10)] for first in (0, 6, 12)
    ]
    assert all(sorted(one) == list(range(60)) for one in passes)
    assert passes[0] != passes[1] != passes[2]
    assert passes[0] != sorted(passes[0])


@pytest.mark.parametrize("size", [1, 2, 3, 10, 31])
def test_a_batch_repeats_no_clip_while_half_the_cluster_is_left(size):
    # Passes end in the middle of batches of every one of these sizes.
    sampler = BalancedSampler(["all"] * 60, 5)
    for step in range(400):
        batch = sampler.batch(step, size)
        assert len(set(batch)) == size


def test_the_stream_is_a_function_of_seed_and_step():
    sampler, fresh = BalancedSampler(APART, 7), BalancedSampler(APART, 7)
    stream = [sampler.batch(step, 16) for step in range(200)]
    # Backwards, and from the middle: nothing is remembered.
    assert [fresh.batch(step, 16) for step in reversed(range(200))] == stream[::-1]
    assert BalancedSampler(APART, 7).batch(137, 16) == stream[137]
    assert BalancedSampler(APART, 8).batch(137, 16) != stream[137]


def test_ranks_get_disjoint_slices_of_one_batch():
    sampler = BalancedSampler(["a"] * 64 + ["b"] * 64, 1)
    for step in range(50):
        batch = sampler.batch(step, 32)
        slices = [batch[rank::8] for rank in range(8)]
        assert sorted(index for part in slices for index in part) == sorted(batch)
        assert len(set(batch)) == 32


def test_batch_sizes_do_not_change_what_is_drawn():
    sampler = BalancedSampler(APART, 2)
    assert sorted(draws(sampler, 960, size=32)) == sorted(draws(sampler, 960, size=8))


def test_sources_are_clusters_of_their_own():
    sampler = BalancedSampler(APART, 0)
    assert sampler.num_clusters == 5
    counts = Counter(APART[index] for index in draws(sampler, 5000))
    assert set(counts.values()) == {1000}


@pytest.mark.parametrize("shares", [{"nuscenes": 1, "rendered": 1}, {"nuscenes": 0.3, "rendered": 0.7}])
def test_weights_share_draws_out_over_sources(shares):
    sampler = BalancedSampler(APART, 0, sources=SOURCES, weights=shares)
    total = sum(shares.values())
    seen: Counter[str] = Counter()
    for step in range(100):
        seen.update(SOURCES[index] for index in sampler.batch(step, 16))
        for source, share in shares.items():
            assert abs(seen[source] - 16 * (step + 1) * share / total) <= 1
    rendered = Counter(APART[i] for i in draws(sampler, 4000) if SOURCES[i] == "rendered")
    assert max(rendered.values()) - min(rendered.values()) <= 1


def test_the_order_in_which_weights_are_named_changes_nothing():
    weights = {"nuscenes": 0.3, "rendered": 0.7}
    one, other = (
        BalancedSampler(APART, 0, sources=SOURCES, weights=dict(named))
        for named in (weights.items(), reversed(weights.items()))
    )
    assert [one.batch(step, 16) for step in range(20)] == [other.batch(step, 16) for step in range(20)]


def test_three_weights_hold_too():
    names = ["a"] * 5 + ["b"] * 50 + ["c"] * 20
    sampler = BalancedSampler(["one"] * 75, 0, sources=names, weights={"a": 1, "b": 2, "c": 5})
    counts = Counter(names[index] for index in draws(sampler, 8000))
    assert all(abs(counts[name] - wanted) <= 2 for name, wanted in (("a", 1000), ("b", 2000), ("c", 5000)))


def test_a_slice_of_a_weighted_batch_is_no_single_source():
    # With weights 1 : 1 sources alternate; every second index must not be one source all along.
    sampler = BalancedSampler(APART, 0, sources=SOURCES, weights={"nuscenes": 1, "rendered": 1})
    first = [index for step in range(50) for index in sampler.batch(step, 8)[::2]]
    share = sum(SOURCES[index] == "nuscenes" for index in first) / len(first)
    assert 0.35 < share < 0.65


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="at least one clip"):
        BalancedSampler([], 0)
    with pytest.raises(ValueError, match="sources must name"):
        BalancedSampler(APART, 0, weights={"nuscenes": 1})
    with pytest.raises(ValueError, match="exactly the sources"):
        BalancedSampler(APART, 0, sources=SOURCES, weights={"nuscenes": 1})
    with pytest.raises(ValueError, match="positive"):
        BalancedSampler(APART, 0, sources=SOURCES, weights={"nuscenes": 1, "rendered": 0})
    with pytest.raises(ValueError, match="step must be"):
        BalancedSampler(APART, 0).batch(-1, 4)
