"""A drive cut into chunks of cameras, with queries, keys and values: what a cache is given in turn."""

import torch

from merope.adapters.cache import KeyValueCache
from merope.cameras.scenes import random_drive
from merope.encodings.base import DepthEncoding
from merope.encodings.merope import MeRoPE

BATCH, HEADS, DIM, GRID, PER_CAMERA = 2, 2, 64, (2, 3), 6
CHUNKS = [(0, 1), (1, 3), (3, 7)]
"""Three uneven chunks of seven cameras, the first of a single one."""


def features(views, *, heads=HEADS, seed=0, dtype=torch.float64):
    """Queries, keys and values of these cameras."""
    draw = torch.Generator().manual_seed(seed)
    shape = (3, views.batch, heads, views.num_tokens, DIM)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype).unbind(0)


def depths(views, *, seed=5):
    """Predicted depths of 0.4 to 3 m with some width."""
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(views.batch, views.num_tokens, 2, generator=draw, dtype=torch.float64) - 0.3


def tokens(x, first, last, axis=2):
    return x.narrow(axis, first * PER_CAMERA, (last - first) * PER_CAMERA)


def whole_operator(encoding, clip, depth):
    if isinstance(encoding, DepthEncoding):
        return encoding.operator_at(encoding.relations(clip, dtype=torch.float64), depth, depth)
    return encoding.operator(clip, dtype=torch.float64)


def append(cache, clip, given, first, last):
    _, key, value = given
    depth = {}
    if isinstance(cache.encoding, DepthEncoding):
        depth["depth"] = tokens(depths(clip), first, last, axis=1)
    cache.append(tokens(key, first, last), tokens(value, first, last), clip.for_views(first, last), **depth)


def streamed(cache, clip, given, chunks, **call):
    outs = []
    for first, last in chunks:
        append(cache, clip, given, first, last)
        outs.append(cache.attend(tokens(given[0], first, last), **call))
    return torch.cat(outs, dim=2)


def filled(encoding=None, *, views=7, chunks=CHUNKS, seed=0, **options):
    """A cache of a random drive, the drive, and its features."""
    clip = random_drive(seed, views=views, grid=GRID)
    given = features(clip)
    cache = KeyValueCache(MeRoPE(head_dim=DIM) if encoding is None else encoding, **options)
    for first, last in chunks:
        append(cache, clip, given, first, last)
    return cache, clip, given


PER_CLIP = ("R_world_cam", "center_world", "dirs_cam", "valid", "time")
