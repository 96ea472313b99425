"""What a run leaves for use: ``adapter.safetensors``, and ``transformer/`` in diffusers' layout where the base trained."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from merope.adapters.checkpoint import adapter_tensors, base_tensors, save_adapter, write_safetensors
from merope.adapters.spec import VideoSpec
from merope.adapters.wan import BRANCH_NAME, CameraAdapter
from merope.files import write_text_atomically
from merope.training.parallel import Processes, whole
from merope.training.pretrained import stays_exact

FILE_BYTES = 5 * 10**9
"""A base is written in files of at most this size; the first process holds one of them at a time."""

_STEM = "diffusion_pytorch_model"


def export_adapter(
    path: Path,
    adapter: CameraAdapter,
    values: dict[str, Tensor],
    *,
    base: dict[str, Any],
    spec: VideoSpec,
    summary: dict[str, Any],
    processes: Processes,
) -> None:
    """Write an adapter's file from the parts that the processes hold.

    ``values`` are the weights to save by their names in the transformer (averages, say); what is not in it is taken as the
    transformer has it. ``base`` is the `base_identity` of the transformer. Every process must call this; the first writes.
    """
    tensors = {}
    for name, own in adapter_tensors(adapter).items():
        block, _, rest = name.partition(".")
        value = whole(values.get(f"blocks.{block}.{BRANCH_NAME}.{rest}", own).detach())
        if processes.is_first:
            tensors[name] = value.cpu()
    if processes.is_first:
        save_adapter(path, adapter, spec=spec, summary=summary, tensors=tensors, base=base)
    processes.wait()


def export_base(
    folder: Path,
    transformer: Any,
    values: dict[str, Tensor],
    *,
    config: dict[str, Any],
    dtype: torch.dtype,
    processes: Processes,
    file_bytes: int = FILE_BYTES,
) -> None:
    """Write the base in diffusers' layout, tensor by tensor from the parts that the processes hold.

    ``config`` is what ``config.json`` gets; weights are stored as ``dtype`` but for those that Wan keeps in float32. An
    older folder of this name is replaced when the new one is whole. Every process must call this; the first writes.
    """
    tensors = {name: values.get(name, value) for name, value in base_tensors(transformer).items()}
    dtypes = {name: torch.float32 if stays_exact(transformer, name) else dtype for name in tensors}
    files = list(_files({n: t.numel() * dtypes[n].itemsize for n, t in tensors.items()}, file_bytes))
    temporary = folder.with_name(f".{folder.name}.tmp")
    if processes.is_first:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write_text_atomically(temporary / "config.json", json.dumps(config, indent=2) + "\n")
    weight_map = {}
    for number, names in enumerate(files, start=1):
        part = f"-{number:05d}-of-{len(files):05d}" if len(files) > 1 else ""
        gathered = {}
        for name in names:
            value = whole(tensors[name].detach())
            weight_map[name] = f"{_STEM}{part}.safetensors"
            if processes.is_first:
                gathered[name] = value.to("cpu", dtypes[name]).contiguous()
        if processes.is_first:
            write_safetensors(temporary / f"{_STEM}{part}.safetensors", gathered, {"format": "pt"})
    if processes.is_first:
        if len(files) > 1:
            size = sum(t.numel() * dtypes[n].itemsize for n, t in tensors.items())
            index = {"metadata": {"total_size": size}, "weight_map": weight_map}
            write_text_atomically(
                temporary / f"{_STEM}.safetensors.index.json", json.dumps(index, indent=2) + "\n"
            )
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            os.replace(folder, old)
        os.replace(temporary, folder)
        shutil.rmtree(old, ignore_errors=True)
    processes.wait()


def small_weights(transformer: Any, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Whole vectors and tables of a base, as `export_base` writes them; a base is known by these.

    Every process must call this.
    """
    return {
        name: whole(values.get(name, value).detach())
        for name, value in base_tensors(transformer).items()
        if value.ndim == 1 or name.endswith("scale_shift_table")
    }


def _files(sizes: dict[str, int], limit: int) -> Iterator[list[str]]:
    """Names shared out in order over files of at most ``limit`` bytes; a tensor that is larger has one of its own."""
    held: list[str] = []
    total = 0
    for name, size in sizes.items():
        if held and total + size > limit:
            yield held
            held, total = [], 0
        held.append(name)
        total += size
    yield held
