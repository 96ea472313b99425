"""Caches of latents without a model: random numbers in the shape of encoded clips."""

from pathlib import Path
from typing import Any

import torch

from merope.cameras import Pinhole
from merope.data.caches.cached_clip import CachedClip, CacheDescription
from merope.data.caches.latent_cache import LatentCache, LatentCacheWriter, finish_cache

CHANNELS, FRAMES, HEIGHT, WIDTH = 4, 9, 32, 48


def description(**changes: Any) -> CacheDescription:
    """Three latent frames of 4 x 6 cells."""
    values: dict[str, Any] = {
        "vae": {"class": "AutoencoderKLWan", "config_sha256": "c0", "weights_sha256": "w0"},
        "latents_mean": (0.0,) * CHANNELS,
        "latents_std": (1.0,) * CHANNELS,
        "text_encoder": {"class": "UMT5EncoderModel", "config_sha256": "c1", "weights_sha256": "w1"},
        "text_length": 12,
        "height": HEIGHT,
        "width": WIDTH,
        "num_frames": FRAMES,
        "temporal_stride": 4,
        "spatial_stride": 8,
    }
    return CacheDescription(**{**values, **changes})


def random_clip(number: int, **changes: Any) -> CachedClip:
    """A clip whose numbers are drawn from its own number; it drives ahead, far from the world's origin."""
    draw = torch.Generator().manual_seed(number)
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(FRAMES, 1, 1)
    T_world_cam[:, 2, 3] = 4.65e6 + 0.1 * (1 + number % 7) * torch.arange(FRAMES, dtype=torch.float64)
    values: dict[str, Any] = {
        "clip_id": f"clip-{number:03d}",
        "mean": torch.randn(CHANNELS, 3, 4, 6, generator=draw),
        "logvar": torch.randn(CHANNELS, 3, 4, 6, generator=draw) - 4,
        "text": torch.randn(3 + number % 4, 8, generator=draw),
        "T_world_cam": T_world_cam,
        "lens": Pinhole.from_fov(fov_x_deg=60.0 + number, height=HEIGHT, width=WIDTH),
        "fps": 12.0,
        "caption": f"caption {number}",
        "cluster": ("straight", "turn")[number % 2],
    }
    return CachedClip(**{**values, **changes})


def write_cache(
    folder: Path, numbers: range, *, shard_bytes: int = 2**20, changes: Any = None, **description_changes: Any
) -> LatentCache:
    """A finished cache of random clips; ``changes`` go to each clip."""
    described = description(**description_changes)
    with LatentCacheWriter(folder, described, empty_text=torch.ones(1, 8), shard_bytes=shard_bytes) as writer:
        for number in numbers:
            clip = random_clip(number, **(changes or {}))
            if not writer.contains(clip.source, clip.clip_id):
                writer.add(clip)
    return finish_cache(folder)
