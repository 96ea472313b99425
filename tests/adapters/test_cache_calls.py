"""What a cache refuses, and how it says it; geometry that is made once for all layers."""

from dataclasses import replace

import pytest
import torch

from merope.adapters.cache import KeyValueCache
from merope.cameras.scenes import random_drive
from merope.encodings.measures import without_warnings
from merope.encodings.merope import MeRoPE
from merope.encodings.raynova import RayNova
from merope.encodings.rayrope import RayRoPE
from merope.encodings.registry import default_encoding
from tests.support.fresh_python import run_python
from tests.support.streams import (
    DIM,
    GRID,
    HEADS,
    PER_CAMERA,
    PER_CLIP,
    append,
    depths,
    features,
    filled,
    tokens,
)

# Geometry made once


@pytest.mark.parametrize("name", ["merope", "raynova", "crepe"])
def test_one_geometry_serves_the_caches_of_all_layers(name):
    encoding = without_warnings(default_encoding(name, head_dim=DIM, num_heads=HEADS))
    layers = [filled(encoding) for _ in range(2)]
    geometry = layers[0][0].geometry(4, dtype=torch.float64)
    for cache, _, given in layers:
        query = tokens(given[0], 3, 7)
        assert torch.equal(cache.attend(query, geometry=geometry), cache.attend(query))


@pytest.mark.parametrize("encoding", [MeRoPE(head_dim=DIM), RayNova(head_dim=DIM)], ids=["merope", "raynova"])
def test_a_geometry_of_other_cameras_is_refused_even_where_sizes_agree(encoding):
    cache, clip, given = filled(encoding, chunks=[(0, 2), (2, 4)], max_cameras=3)
    geometry = cache.geometry(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="geometry is of 2 newest cameras; query has 1"):
        cache.attend(tokens(given[0], 3, 4), geometry=geometry)
    append(cache, clip, given, 4, 6)
    with pytest.raises(
        ValueError, match=r"geometry is of other cameras.*with geometry\(\) after every append"
    ):
        cache.attend(tokens(given[0], 4, 6), geometry=geometry)


def test_a_geometry_from_another_first_view_is_refused_where_that_view_matters():
    encoding = RayNova(head_dim=DIM)
    cache, _, given = filled(encoding, max_cameras=4)
    other, clip, _ = filled(encoding, chunks=[])
    append(other, clip, given, 3, 7)
    with pytest.raises(ValueError, match="geometry is of other cameras"):
        cache.attend(tokens(given[0], 3, 7), geometry=other.geometry(4, dtype=torch.float64))


# What is refused


def test_an_empty_cache_has_nothing_to_attend_to():
    cache = KeyValueCache(MeRoPE(head_dim=DIM))
    for call in (
        lambda: cache.attend(torch.zeros(1, 1, 6, DIM)),
        lambda: cache.views,
        lambda: cache.geometry(1),
    ):
        with pytest.raises(ValueError, match=r"the cache is empty; append\(key, value, views\) comes before"):
            call()
    filled_one, _, given = filled()
    filled_one.rewind(7)
    with pytest.raises(ValueError, match="the cache is empty"):
        filled_one.attend(tokens(given[0], 6, 7))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda k, v, c: (k[:, :, 1:], v[:, :, 1:], c),
            r"key must have shape.*\[2, 2, 6, 64\].*got \[2, 2, 5, 64\]",
        ),
        (lambda k, v, c: (k[..., 1:], v[..., 1:], c), r"key must have shape.*got \[2, 2, 6, 63\]"),
        (lambda k, v, c: (k[:1], v[:1], c), r"key must have shape.*\[2, 2, 6, 64\].*got \[1, 2, 6, 64\]"),
        (lambda k, v, c: (k[:, :1], v[:, :1], c), "key has 1 heads; the cache holds 2"),
        (
            lambda k, v, c: (k.float(), v.float(), c),
            "key is torch.float32; the cache holds torch.float64.*dtype=",
        ),
        (lambda k, v, c: (k, v.to("meta"), c), "value is on meta, key on cpu"),
        (lambda k, v, c: (k.to("meta"), v.to("meta"), c), r"key is on meta, the cache on cpu; move.*to\(\)"),
        (
            lambda k, v, c: (k, v, replace(c, time=c.time - 1)),
            r"begins at \[6.0, 6.0\], the cache ends at \[6.0, 6.0\]",
        ),
        (
            lambda k, v, c: (k, v, random_drive(views=1, grid=(3, 2))),
            r"on a grid of \(2, 3\), run 1 has 6 on \(3, 2\)",
        ),
        (lambda k, v, c: (k, v, replace(c, lens=None)), "runs must have one kind of lens"),
        (
            lambda k, v, c: (k[:1], v[:1], replace(c, lens=None, **{n: getattr(c, n)[:1] for n in PER_CLIP})),
            "views are 1 clips; the cache holds 2",
        ),
    ],
)
def test_a_chunk_that_does_not_follow_is_refused_and_changes_nothing(change, message):
    cache, _, given = filled(max_cameras=7)
    before = cache.attend(given[0])
    chunk = random_drive(4, views=1, grid=GRID)
    chunk = replace(chunk, time=chunk.time + 7)
    _, key, value = features(chunk)
    with pytest.raises(ValueError, match=message):
        cache.append(*change(key, value, chunk))
    assert torch.equal(cache.attend(given[0]), before)
    cache.append(key, value, chunk)
    assert not torch.equal(cache.attend(given[0]), before)


def test_depths_come_with_encodings_that_predict_them_and_with_no_other():
    clip = random_drive(1, views=2, grid=GRID)
    _, key, value = features(clip)
    plain, predicted = KeyValueCache(MeRoPE(head_dim=DIM)), KeyValueCache(RayRoPE(head_dim=DIM))
    with pytest.raises(ValueError, match="MeRoPE has no use for depth="):
        plain.append(key, value, clip, depth=depths(clip))
    with pytest.raises(ValueError, match="RayRoPE needs the depth of every key token: pass depth="):
        predicted.append(key, value, clip)


def test_calls_that_the_test_run_s_type_checks_would_stop_are_answered_too():
    ran = run_python(
        """
from merope.adapters.cache import KeyValueCache
from merope.encodings import RayRoPE
import torch
from tests.support.streams import *
clip = random_drive(views=2, grid=GRID)
query, key, value = features(clip)
depth = depths(clip)
cache = KeyValueCache(RayRoPE(head_dim=DIM))
for given in ((key, value[..., 1:], depth), (key, value, depth[:, 1:]), (key, value.float(), depth)):
    try:
        cache.append(*given[:2], clip, depth=given[2])
    except ValueError as error:
        print(error)
cache.append(key, value, clip, depth=depth)
try:
    cache.attend(query[0])
except ValueError as error:
    print(error)
"""
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith(
        "value must have shape [batch, head, token, channel] = [2, 2, 12, 64], tokens of 2"
    )
    assert lines[0].endswith("got [2, 2, 12, 63].")
    assert lines[1] == "depth must have shape [batch, token, 2] = [2, 12, 2]; got [2, 11, 2]."
    assert lines[2] == "key and value must have one precision; got torch.float64 and torch.float32."
    assert lines[3].startswith(
        "query must have shape [batch, head, token, channel] = [2, 2, '...', 64]; got [2, 12,"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q: q[:1], r"query must have shape.*got \[1, 2, 42, 64\]"),
        (lambda q: q[:, :1], r"query must have shape.*got \[2, 1, 42, 64\]"),
        (lambda q: q[..., 1:], r"query must have shape.*got \[2, 2, 42, 63\]"),
        (lambda q: q[:, :, 1:], "query has 41 tokens; expected 6 for each of the newest cameras.*holds 7"),
        (lambda q: q[:, :, :0], "query has 0 tokens"),
        (lambda q: torch.cat([q, q], 2), "query has 84 tokens; expected 6.*holds 7. Append their keys first"),
        (lambda q: q.to("meta"), "query is on meta, the cache on cpu"),
    ],
)
def test_queries_that_are_not_the_newest_cameras_are_refused(change, message):
    cache, _, given = filled()
    with pytest.raises(ValueError, match=message):
        cache.attend(change(given[0]))


def test_counts_out_of_range_are_refused():
    with pytest.raises(ValueError, match="max_cameras must be >= 1, or None for all; got 0"):
        KeyValueCache(MeRoPE(head_dim=DIM), max_cameras=0)
    cache, clip, given = filled(chunks=[(0, 2)], max_cameras=2)
    for count in (0, 3):
        with pytest.raises(ValueError, match=rf"num_cameras must lie in 1 ... 2, those held; got {count}"):
            cache.rewind(count)
        with pytest.raises(ValueError, match=rf"num_cameras must lie in 1 ... 2, those held; got {count}"):
            cache.geometry(count)
    with pytest.raises(ValueError, match=r"views are 3 cameras; the window holds 2 \(max_cameras\)"):
        append(cache, clip, given, 2, 5)
    assert cache.num_tokens == 2 * PER_CAMERA
