"""A pretrained Wan transformer with the cameras of a run on it, ready to be cut over processes."""

from pathlib import Path
from typing import Any

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

from merope.adapters import attach, load_adapter, read_adapter_config
from merope.adapters.calls import replace_call
from merope.adapters.schedules import scheduled_blocks
from merope.adapters.wan import CameraAdapter
from merope.encodings.registry import encoding_from_config, input_map_from_config
from merope.errors import CheckpointMismatch, MeropeError
from merope.training.config import differences
from merope.training.finetune_config import FinetuneConfig


def load_base(model: str | Path, config: FinetuneConfig, *, trained: str | Path | None = None) -> Any:
    """The transformer of a pipeline in diffusers' layout, from a folder or by its hub name, on the CPU.

    ``trained`` is the folder of a transformer that takes the pipeline's place, as a run that trains the base leaves it.

    Memory: what trains whole is read in float32, and a file in float32 is then only mapped, so that all processes of a
    machine share one copy of it. A frozen base is read in the precision that it computes in: 2 bytes per parameter and
    process for bfloat16, given back block by block as the parts move to their devices (`distribute`).

    Raises:
        MeropeError: if there is no such model, or it is not to be had offline.
    """
    exact = config.trains == "all" or config.compute_dtype == "float32"
    dtype = torch.float32 if exact else torch.bfloat16
    if trained is not None:
        return WanTransformer3DModel.from_pretrained(str(trained), torch_dtype=dtype)
    if Path(model).is_dir() and not (Path(model) / "transformer" / "config.json").is_file():
        raise MeropeError(f"{model} is no pipeline in diffusers' layout: it has no transformer/config.json.")
    try:
        return WanTransformer3DModel.from_pretrained(str(model), subfolder="transformer", torch_dtype=dtype)
    except OSError as error:
        reason = str(error).strip().splitlines()[0]
        raise MeropeError(
            f"no transformer could be loaded from {model}: {reason} Give a folder, or a hub name that is in the cache or "
            "within reach of the network."
        ) from error


def add_cameras(
    transformer: nn.Module, config: FinetuneConfig, *, start: str | Path | None = None
) -> CameraAdapter:
    """Attach the run's encoding: with new modules, which change nothing at first, or those of the file ``start``.

    Raises:
        CheckpointMismatch: if the file's adapter is not the one that the run trains.
        ValueError: if the encoding does not fit the transformer.
    """
    if start is not None:
        _require_same_adapter(start, transformer, config)
        return load_adapter(start, transformer)
    torch.manual_seed(config.seed)
    return attach(
        transformer,
        encoding=encoding_from_config(config.encoding),
        compression=config.compression,
        schedule=config.schedule,
        pose_policy=config.spec.pose_policy,
        input_map=None if config.input_map is None else input_map_from_config(config.input_map),
    )


def stays_exact(transformer: Any, name: str) -> bool:
    """Whether a weight is one of the few that Wan keeps in float32 everywhere: time embedder, norms, modulation tables."""
    kept = getattr(transformer, "_keep_in_fp32_modules", None) or ()
    return not set(kept).isdisjoint(name.split("."))


def keep_times_exact(transformer: Any) -> None:
    """Let the time embedder run in its own precision under autocast, as it does where the model is used."""
    replace_call(transformer.condition_embedder.time_embedder, "ExactTimeEmbedder", _exactly, None)


def _exactly(_: None, call: Any, sample: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    with torch.autocast(sample.device.type, enabled=False):
        return call(sample, *args, **kwargs)


def _require_same_adapter(start: str | Path, transformer: Any, config: FinetuneConfig) -> None:
    have = read_adapter_config(start)
    wanted = {
        "encoding": config.encoding,
        "compression": config.compression,
        "blocks": list(scheduled_blocks(config.schedule, len(transformer.blocks))),
        "pose_policy": config.spec.pose_policy,
        "input_map": config.input_map,
    }
    found = differences({name: have.get(name) for name in wanted}, wanted)
    if found:
        raise CheckpointMismatch(f"{start} is not the adapter that this run trains: {found}.")
