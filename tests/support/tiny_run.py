"""A run of the whole system small enough for tests: the real classes, streets of 24 x 32 pixels, two blocks."""

import functools
import tempfile
from pathlib import Path
from typing import Any

from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.data.caches.latents import LinearCodec
from merope.encodings import MeRoPE, encoding_to_config
from merope.training.config import OptimizerConfig, TrainConfig
from merope.training.loop import Trainer
from merope.training.street_clips import StreetClips, StreetClipsConfig, render_street_clips

CHANNELS = 24


def tiny_spec(**changes: Any) -> VideoSpec:
    """13 frames of 24 x 32 pixels, 5 of them given: 4 latent frames of 3 x 4 tokens, 2 of them given."""
    values = {
        "height": 24,
        "width": 32,
        "num_frames": 13,
        "prefix_frames": 5,
        "fps": 10.0,
        "camera": Pinhole.from_fov(fov_x_deg=90.0, height=24, width=32).to_dict(),
        "latent_channels": CHANNELS,
        "shift": 2.0,
    }
    return VideoSpec(**{**values, **changes})


def tiny_transformer(**changes: Any) -> dict[str, Any]:
    """Keyword arguments of a Wan transformer of two blocks with two heads of 64."""
    values = {
        "patch_size": [1, 1, 1],
        "num_attention_heads": 2,
        "attention_head_dim": 64,
        "in_channels": CHANNELS,
        "out_channels": CHANNELS,
        "text_dim": 8,
        "freq_dim": 32,
        "ffn_dim": 128,
        "num_layers": 2,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "rope_max_seq_len": 16,
    }
    return {**values, **changes}


def tiny_config(**changes: Any) -> TrainConfig:
    """Eight steps of two clips; 9 clips to train on and 3 to probe with."""
    values = {
        "name": "tiny",
        "spec": tiny_spec(),
        "transformer": tiny_transformer(),
        "encoding": encoding_to_config(MeRoPE(head_dim=64)),
        "compression": 2,
        "schedule": "every",
        "trains": "all",
        "steps": 8,
        "batch_size": 2,
        "optimizer": OptimizerConfig(learning_rate=2e-3, warmup_steps=2, decay="cosine"),
        "num_worlds": 4,
        "num_probe_clips": 3,
        "turn_start": 6,
        "clip_frames": 16,
        "autocast": False,
        "ema_decay": 0.9,
        "log_every": 2,
        "probe_every": 4,
        "checkpoint_every": 4,
    }
    return TrainConfig(**{**values, **changes})


def tiny_clips_config(**changes: Any) -> StreetClipsConfig:
    """The clips of `tiny_config`, with one ray per pixel."""
    config = tiny_config()
    values = {
        "num_worlds": config.num_worlds,
        "first_seed": 3,
        "num_frames": config.clip_frames,
        "turn_start": config.turn_start,
        "fps": config.spec.fps,
        "camera": config.spec.camera,
        "samples": 1,
    }
    return StreetClipsConfig(**{**values, **changes})


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="merope-tests-")


@functools.cache
def tiny_clips() -> StreetClips:
    """Rendered once per test process."""
    return render_street_clips(Path(_folder().name) / "clips", tiny_clips_config(), progress=False)


@functools.cache
def tiny_codec() -> LinearCodec:
    """Fitted to the rendered clips, as written to and read from a file."""
    path = Path(_folder().name) / "codec.safetensors"
    LinearCodec.fit(tiny_clips().sample_frames(12, 13), channels=CHANNELS).save(path)
    return LinearCodec.load(path)


def tiny_trainer(folder: Path, **changes: Any) -> Trainer:
    """A trainer of `tiny_config` with changes."""
    return Trainer(folder, tiny_config(**changes), clips=tiny_clips(), codec=tiny_codec())


@functools.cache
def trained_model_folder() -> Path:
    """A model folder as training writes it, after eight steps."""
    run = Path(_folder().name) / "run"
    tiny_trainer(run).run(progress=False)
    return run / "model"
