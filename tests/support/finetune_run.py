"""A fine-tuning run small enough for tests: Wan2.2's classes at a few hundred kilobytes, clips of random latents."""

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import WanTransformer3DModel

from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.cameras.scenes import random_drive
from merope.data.caches.cached_clip import CachedClip, CacheDescription
from merope.data.caches.latent_cache import LatentCacheWriter, finish_cache
from merope.encodings import MeRoPE, encoding_to_config
from merope.training.config import OptimizerConfig
from merope.training.finetune import FinetuneTrainer
from merope.training.finetune_config import FinetuneConfig
from merope.training.parallel import Processes
from merope.training.pretrained import add_cameras, load_base

CLIPS, HEIGHT, WIDTH, FRAMES, TEXT = 7, 64, 96, 9, 32
SHAPE = (48, 3, HEIGHT // 16, WIDTH // 16)


def finetune_spec(**changes: Any) -> VideoSpec:
    """9 frames of 64 x 96 pixels, the first of them given: 3 latent frames of 2 x 3 tokens."""
    values = {
        "height": HEIGHT,
        "width": WIDTH,
        "num_frames": FRAMES,
        "prefix_frames": 1,
        "fps": 10.0,
        "spatial_stride": 16,
        "patch": 2,
        "latent_channels": 48,
        "shift": 5.0,
    }
    return VideoSpec(**{**values, **changes})


def finetune_config(**changes: Any) -> FinetuneConfig:
    """Four steps of four clips in float32, learning fast enough to see it."""
    values = {
        "name": "tiny",
        "spec": finetune_spec(),
        "encoding": encoding_to_config(MeRoPE(head_dim=64)),
        "compression": 4,
        "trains": "branch",
        "steps": 4,
        "global_batch": 4,
        "optimizer": OptimizerConfig(learning_rate=1e-3),
        "text_dropout": 0.4,
        "compute_dtype": "float32",
        "log_every": 1,
        "checkpoint_every": 2,
    }
    return FinetuneConfig(**{**values, **changes})


def write_base(folder: Path, **changes: Any) -> Path:
    """A pipeline's folder with the transformer alone, as training reads it."""
    torch.manual_seed(5)
    values = {
        "patch_size": (1, 2, 2),
        "num_attention_heads": 4,
        "attention_head_dim": 64,
        "in_channels": 48,
        "out_channels": 48,
        "text_dim": TEXT,
        "freq_dim": 32,
        "ffn_dim": 256,
        "num_layers": 2,
        "cross_attn_norm": True,
        "rope_max_seq_len": 64,
        **changes,
    }
    WanTransformer3DModel(**values).save_pretrained(folder / "transformer")
    return folder


def write_cache(
    folder: Path, *, model: Path | None = None, seed: int = 0, clips: int = CLIPS, **changes: Any
) -> Path:
    """Clips of random latents along random drives, in two clusters; as if ``model`` had encoded them."""
    vae = {} if model is None else json.loads((model / "vae" / "config.json").read_text())
    draw = torch.Generator().manual_seed(seed)
    description = CacheDescription(
        vae={"class": "AutoencoderKLWan"},
        latents_mean=tuple(vae.get("latents_mean", (0.0,) * 48)),
        latents_std=tuple(vae.get("latents_std", (1.0,) * 48)),
        text_encoder={"class": "UMT5EncoderModel"},
        text_length=6,
        height=HEIGHT,
        width=WIDTH,
        num_frames=FRAMES,
        temporal_stride=4,
        spatial_stride=16,
        dtype="float32",
    )
    lens = Pinhole.from_fov(fov_x_deg=80.0, height=HEIGHT, width=WIDTH)
    with LatentCacheWriter(folder, description, empty_text=torch.zeros(1, TEXT)) as writer:
        for number in range(clips):
            rays = random_drive(seed + number, views=FRAMES)
            T_world_cam = torch.eye(4, dtype=torch.float64).repeat(FRAMES, 1, 1)
            T_world_cam[:, :3, :3], T_world_cam[:, :3, 3] = rays.R_world_cam[0], rays.center_world[0]
            values: dict[str, Any] = {
                "clip_id": f"clip-{number}",
                "mean": torch.randn(SHAPE, generator=draw),
                "logvar": torch.full(SHAPE, -2.0),
                "text": torch.randn(2 + number % 3, TEXT, generator=draw),
                "caption": f"drive {number}",
                "T_world_cam": T_world_cam,
                "lens": lens,
                "fps": 10.0,
                "cluster": ("straight", "turn")[number % 3 == 0],
            }
            writer.add(CachedClip(**{**values, **changes}))
    finish_cache(folder)
    return folder


def finetune_trainer(
    folder: Path, base: Path, clips: Any, processes: Processes, *, start: Path | None = None, **changes: Any
) -> FinetuneTrainer:
    """A trainer of `finetune_config` with changes."""
    config = finetune_config(**changes)
    transformer = load_base(base, config)
    adapter = add_cameras(transformer, config, start=start)
    return FinetuneTrainer(
        folder, config, transformer=transformer, adapter=adapter, clips=clips, processes=processes
    )
