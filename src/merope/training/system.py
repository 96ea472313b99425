"""Build a model from a config, and write it as a folder that generation loads."""

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import WanTransformer3DModel
from torch import nn

from merope.adapters import attach, save_adapter
from merope.adapters.base_identity import base_identity
from merope.adapters.checkpoint import base_tensors, write_safetensors
from merope.adapters.wan import CameraAdapter
from merope.data.caches.latents import LinearCodec
from merope.encodings.registry import encoding_from_config, input_map_from_config
from merope.files import write_text_atomically
from merope.training.config import TrainConfig
from merope.training.trainable import choose_trainable


def build_model(config: TrainConfig) -> tuple[nn.Module, CameraAdapter]:
    """A fresh transformer with camera branches; equal configs give equal weights."""
    torch.manual_seed(config.seed)
    # Any: diffusers' classes are untyped.
    transformer: Any = WanTransformer3DModel(**config.transformer)
    adapter = attach(
        transformer,
        encoding=encoding_from_config(config.encoding),
        compression=config.compression,
        schedule=config.schedule,
        pose_policy=config.spec.pose_policy,
        input_map=None if config.input_map is None else input_map_from_config(config.input_map),
    )
    choose_trainable(transformer, adapter, config.trains)
    return transformer, adapter


def save_model(
    folder: str | Path,
    transformer: nn.Module,
    adapter: CameraAdapter,
    codec: LinearCodec,
    config: TrainConfig,
    *,
    summary: dict[str, Any],
    dtype: torch.dtype = torch.float16,
) -> None:
    """Write base, adapter, codec and spec; base and adapter are separate files, as for a pretrained base."""
    folder = Path(folder)
    base = {
        name: value.detach().to("cpu", dtype).contiguous()
        for name, value in base_tensors(transformer).items()
    }
    write_safetensors(folder / "transformer.safetensors", base, {"format": "pt"})
    # The base as it will be read: float16 rounds otherwise than the bfloat16 of a fingerprint.
    identity = base_identity(transformer, {name: value.float() for name, value in base.items()})
    save_adapter(folder / "adapter.safetensors", adapter, dtype=dtype, summary=summary, base=identity)
    codec.save(folder / "codec.safetensors")
    described = {
        "spec": config.spec.to_dict(),
        "transformer": config.transformer,
        "training": config.to_dict(),
        "summary": summary,
    }
    write_text_atomically(folder / "config.json", json.dumps(described, indent=1))
