"""Build a model from a config, and write it as a folder that generation loads."""

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

from merope.adapters import attach, save_adapter
from merope.adapters.checkpoint import write_safetensors
from merope.adapters.wan import CameraAdapter
from merope.data.latents import LinearCodec
from merope.encodings.registry import encoding_from_config, input_map_from_config
from merope.files import write_text_atomically
from merope.training.config import OptimizerConfig, TrainConfig


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
    if config.trains == "branch":
        if not any(True for _ in adapter.parameters()):
            raise ValueError(
                f"trains='branch' leaves nothing to train: encoding {config.encoding['name']!r} has no parameters of its "
                "own. Use trains='all'."
            )
        transformer.requires_grad_(False)
        for parameter in adapter.parameters():
            parameter.requires_grad_(True)
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
        for name, value in transformer.state_dict().items()
        if ".camera_branch." not in name
    }
    write_safetensors(folder / "transformer.safetensors", base, {"format": "pt"})
    save_adapter(folder / "adapter.safetensors", adapter, dtype=dtype, summary=summary)
    codec.save(folder / "codec.safetensors")
    described = {
        "spec": config.spec.to_dict(),
        "transformer": config.transformer,
        "training": config.to_dict(),
        "summary": summary,
    }
    write_text_atomically(folder / "config.json", json.dumps(described, indent=1))


def make_optimizers(
    parameters: dict[str, nn.Parameter], options: OptimizerConfig
) -> list[torch.optim.Optimizer]:
    """One AdamW, or Muon for the blocks' weight matrices and AdamW for everything else."""
    matrices = [
        parameter
        for name, parameter in parameters.items()
        if options.kind == "muon" and parameter.ndim == 2 and name.startswith("blocks.")
    ]
    chosen = {id(parameter) for parameter in matrices}
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [parameter for parameter in parameters.values() if id(parameter) not in chosen],
            lr=options.learning_rate,
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            weight_decay=options.weight_decay,
            foreach=True,
        )
    ]
    if matrices:
        optimizers.append(
            torch.optim.Muon(
                matrices,
                lr=options.learning_rate,
                weight_decay=options.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    return optimizers


class AveragedWeights:
    """Exponential moving average of the trainable parameters, float32."""

    def __init__(self, parameters: dict[str, nn.Parameter], decay: float) -> None:
        self.decay = decay
        self.values: dict[str, Tensor] = {name: p.detach().clone().float() for name, p in parameters.items()}

    @torch.no_grad()
    def update(self, parameters: dict[str, nn.Parameter], step: int) -> None:
        """Move towards the current weights; young averages move faster."""
        decay = min(self.decay, (1 + step) / (10 + step))
        names = list(self.values)
        torch._foreach_lerp_(
            [self.values[n] for n in names], [parameters[n].detach().float() for n in names], 1 - decay
        )

    @torch.no_grad()
    def swap(self, parameters: dict[str, nn.Parameter]) -> None:
        """Exchange the averages with the current weights."""
        for name, parameter in parameters.items():
            current = parameter.detach().clone()
            parameter.copy_(self.values[name])
            self.values[name].copy_(current)
