"""`MemoryPlan`: what a training process holds, item by item, from configurations alone and before anything is loaded.

Weights, gradients and optimizer state are counted on the meta device. What a step adds is read off a run of a few blocks on
shapes (`merope.training.shape_run`) and multiplied out: every further block keeps what the second of its kind kept.

On a GPU less is needed in two places. RMSNorm there is one kernel, where the CPU's, which runs here, keeps a float32 copy
of queries and keys. And camera attention's fused kernel never writes the keys that it turns; planned is the path without it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from merope.adapters.schedules import scheduled_blocks
from merope.adapters.signals import tensors_in
from merope.adapters.wan import CameraAdapter, attach
from merope.encodings.registry import encoding_from_config, input_map_from_config
from merope.training.finetune_config import FinetuneConfig
from merope.training.pretrained import stays_exact
from merope.training.shape_run import BlockKind, ShapeRun, StepBytes, standing_cameras
from merope.training.trainable import choose_trainable

GIB = 2**30
SLACK = 0.08
"""Share of tensors that the allocator takes on top: rounding and gaps between blocks. An assumption, not derived."""
CONTEXT_BYTES = int(1.5 * GIB)
"""CUDA's context, kernels, and workspaces of cuBLAS, cuDNN and NCCL on one GPU. An assumption, not derived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """One thing that takes memory, when, and how its size was found."""

    name: str
    bytes: int
    phases: tuple[str, ...]
    """When it is there, of its plan's phases."""
    derived: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What one process needs: its items, and the phase in which most of them are there at once."""

    title: str
    phases: tuple[str, ...]
    items: tuple[MemoryItem, ...]

    def bytes_in(self, phase: str) -> int:
        """Tensors alive at the fullest moment of a phase."""
        return sum(item.bytes for item in self.items if phase in item.phases)

    @property
    def fullest(self) -> str:
        """The phase that needs most."""
        return max(self.phases, key=self.bytes_in)

    @property
    def tensors(self) -> int:
        """Bytes of tensors alive at once, what ``torch.cuda.max_memory_allocated`` reports."""
        return self.bytes_in(self.fullest)

    @property
    def device(self) -> int:
        """Bytes that the device should have: tensors, the allocator's slack and the driver's own."""
        return int(self.tensors * (1 + SLACK)) + CONTEXT_BYTES

    def table(self) -> str:
        """The items as text, a column per phase, in GiB."""
        width = max(len(item.name) for item in self.items) + 2
        rule = "  ".join(f"{phase:>10}" for phase in self.phases)
        lines = [self.title, f"{'GiB':<{width}}{rule}  how"]
        for item in self.items:
            cells = "  ".join(
                f"{item.bytes / GIB:>10.3f}" if phase in item.phases else " " * 10 for phase in self.phases
            )
            lines.append(f"{item.name:<{width}}{cells}  {item.derived}")
        sums = "  ".join(f"{self.bytes_in(phase) / GIB:>10.3f}" for phase in self.phases)
        lines.append(f"{'tensors':<{width}}{sums}  most of them in phase {self.fullest!r}")
        lines.append(
            f"{'device':<{width}}{self.device / GIB:>10.3f}  tensors + {SLACK:.0%} for the allocator + "
            f"{CONTEXT_BYTES / GIB:.1f} for the driver and libraries (both assumed)"
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "title": self.title,
            "items": [
                {"name": i.name, "bytes": i.bytes, "phases": list(i.phases), "derived": i.derived}
                for i in self.items
            ],
            "phases": {phase: self.bytes_in(phase) for phase in self.phases},
            "fullest": self.fullest,
            "tensor_bytes": self.tensors,
            "device_bytes": self.device,
            "slack": SLACK,
            "context_bytes": CONTEXT_BYTES,
        }


TRAINING_PHASES = ("forward", "backward", "end", "update")
"""The forward pass, the backward pass at its start and at its end, and the optimizer's update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCounts:
    """Parameters of a transformer with its camera modules, counted on the meta device."""

    trained: int
    frozen: int
    """Frozen ones in the compute precision."""
    frozen_exact: int
    """Frozen ones that Wan keeps in float32: time embedder, norms, modulation tables."""
    block_products: tuple[int, int]
    """Weights of the base's linear layers of a block, and how many of them train; of the block that has most."""
    block_rest: tuple[int, int]
    """The same of all else in a block: norms, tables, the camera's modules."""
    ends: int
    """Outside of the blocks."""


def count_weights(transformer: Mapping[str, Any], config: FinetuneConfig) -> WeightCounts:
    """Parameters by what happens to them; nothing is allocated."""
    from diffusers import WanTransformer3DModel

    with torch.device("meta"):
        model: Any = WanTransformer3DModel(**transformer)
        adapter = attach(
            model,
            encoding=encoding_from_config(config.encoding),
            compression=config.compression,
            schedule=config.schedule,
            input_map=None if config.input_map is None else input_map_from_config(config.input_map),
        )
    choose_trainable(model, adapter, config.trains)

    def count(parameters: Iterable[nn.Parameter]) -> tuple[int, int]:
        every = list(parameters)
        return sum(p.numel() for p in every), sum(p.numel() for p in every if p.requires_grad)

    products, rest = [], []
    for block in model.blocks:
        named = dict(block.named_parameters())
        products.append(count(p for name, p in named.items() if _is_product(f"blocks.0.{name}")))
        rest.append(count(p for name, p in named.items() if not _is_product(f"blocks.0.{name}")))
    everything, trained = count(model.parameters())
    exact = sum(
        p.numel() for n, p in model.named_parameters() if not p.requires_grad and stays_exact(model, n)
    )
    return WeightCounts(
        trained=trained,
        frozen=everything - trained - exact,
        frozen_exact=exact,
        block_products=max(products),
        block_rest=max(rest),
        ends=everything - sum(p[0] for p in products) - sum(r[0] for r in rest),
    )


def _is_product(name: str) -> bool:
    """Whether a weight is of a linear layer of the base's blocks, which sharding moves in the compute precision."""
    parts = name.split(".")
    return parts[0] == "blocks" and parts[2] in ("attn1", "attn2", "ffn") and not parts[-2].startswith("norm")


def plan_memory(
    transformer: Mapping[str, Any],
    config: FinetuneConfig,
    *,
    num_processes: int = 1,
    text_tokens: int = 512,
) -> MemoryPlan:
    """What each of ``num_processes`` needs to train ``config`` on a Wan of this configuration.

    ``transformer`` holds keyword arguments of ``WanTransformer3DModel``, as its ``config.json`` has them. Latents and text
    are read from a cache: neither autoencoder nor text encoder is loaded. Every item says how it was derived.

    Raises:
        ValueError: if the processes do not fit the batch or the sharding groups, or nothing would train.
    """
    accumulation = config.accumulation(num_processes)
    shards, sharded = config.parallel.shards(num_processes), config.parallel.mode != "replicate"
    counts = count_weights(transformer, config)
    compute = getattr(torch, config.compute_dtype)
    run = shape_run(transformer, config, sharded=sharded, text_tokens=text_tokens)
    step = whole_step(run, config, transformer["num_layers"])
    passes = ("forward", "backward", "end")
    over = f" / {shards} processes" if shards > 1 else ""
    cameras = sum(tensor.nbytes for tensor in tensors_in(run.cameras))

    def share(number: int, size: int) -> int:
        return -(-number * size // shards)

    items = [
        MemoryItem(
            name="frozen weights",
            bytes=share(counts.frozen, compute.itemsize) + share(counts.frozen_exact, 4),
            phases=TRAINING_PHASES,
            derived=f"{counts.frozen / 1e6:,.1f} M x {compute.itemsize} B ({config.compute_dtype}), "
            f"{counts.frozen_exact / 1e6:,.1f} M x 4 B (time embedder, norms, tables){over}",
        ),
        MemoryItem(
            name="trained weights",
            bytes=share(counts.trained, 4),
            phases=TRAINING_PHASES,
            derived=f"{counts.trained / 1e6:,.1f} M x 4 B (float32){over}",
        ),
        MemoryItem(
            name="Adam's two moments",
            bytes=share(counts.trained, 8),
            phases=TRAINING_PHASES,
            derived=f"{counts.trained / 1e6:,.1f} M x 8 B (float32){over}",
        ),
        MemoryItem(
            name="gradients",
            bytes=share(counts.trained, 4),
            phases=TRAINING_PHASES if accumulation > 1 else ("end", "update"),
            derived=f"{counts.trained / 1e6:,.1f} M x 4 B (float32){over}"
            + (f", kept over {accumulation} micro batches" if accumulation > 1 else ""),
        ),
        MemoryItem(
            name="AdamW's intermediate",
            bytes=share(counts.trained, 4),
            phases=("update",),
            derived="root of the second moment, all parameters at once: as large as the gradients",
        ),
        MemoryItem(
            name="cameras",
            bytes=cameras,
            phases=passes,
            derived=f"tensors of {config.micro_batch} clip(s) as made by {config.encoding['name']}, float32",
        ),
        *step,
    ]
    if config.ema_decay is not None:
        items.append(
            MemoryItem(
                name="averaged weights",
                bytes=share(counts.trained, 4),
                phases=TRAINING_PHASES,
                derived=f"{counts.trained / 1e6:,.1f} M x 4 B (float32){over}",
            )
        )
    if sharded:
        items += _gathered(counts, compute)
    return MemoryPlan(
        title=f"{config.name}: each of {num_processes} process(es), {config.parallel.mode}, weights cut {shards}-fold, "
        f"{config.micro_batch} clip(s) at a time, {accumulation} time(s) per step, trains {config.trains}, "
        f"{'with' if config.gradient_checkpointing else 'without'} checkpointing",
        phases=TRAINING_PHASES,
        items=tuple(items),
    )


def _gathered(counts: WeightCounts, compute: torch.dtype) -> list[MemoryItem]:
    """What FSDP2 holds whole for a while. Linear layers travel in the compute precision, all else as it is kept."""
    size = compute.itemsize
    (products, products_trained), (rest, rest_trained) = counts.block_products, counts.block_rest
    passes = ("forward", "backward", "end")
    return [
        MemoryItem(
            name="gathered blocks",
            bytes=2 * (products * size + rest * 4),
            phases=passes,
            derived=f"one in use and one fetched ahead: 2 x (linear layers {products / 1e6:,.1f} M x {size} B, "
            f"the rest {rest / 1e6:,.1f} M x 4 B)",
        ),
        MemoryItem(
            name="gathered ends",
            bytes=counts.ends * 4,
            phases=passes,
            derived=f"embeddings and head, whole throughout: {counts.ends / 1e6:,.1f} M x 4 B",
        ),
        MemoryItem(
            name="a block's whole gradients",
            bytes=products_trained * (size + 4) + rest_trained * 8,
            phases=("backward", "end"),
            derived=f"linear layers {products_trained / 1e6:,.1f} M x {size} B, the rest {rest_trained / 1e6:,.1f} M x 4 B; "
            "and again x 4 B as they are summed",
        ),
    ]


def shape_run(
    transformer: Mapping[str, Any], config: FinetuneConfig, *, sharded: bool, text_tokens: int
) -> ShapeRun:
    """A run on shapes of what ``config`` trains; where weights are ``sharded``, linear layers arrive in the compute
    precision."""
    compute = getattr(torch, config.compute_dtype)
    encoding = encoding_from_config(config.encoding)
    input_map = None if config.input_map is None else input_map_from_config(config.input_map)

    def choose(model: nn.Module, adapter: CameraAdapter | None) -> None:
        if adapter is not None:
            choose_trainable(model, adapter, config.trains)
        else:
            model.requires_grad_(config.trains == "all")

    def dtype_of(model: nn.Module, name: str, parameter: nn.Parameter) -> torch.dtype:
        if sharded and _is_product(name):
            return compute
        return torch.float32 if parameter.requires_grad or stays_exact(model, name) else compute

    return ShapeRun(
        transformer=transformer,
        spec=config.spec,
        encoding=encoding,
        cameras=standing_cameras(config.spec, encoding, input_map, config.micro_batch),
        input_map=input_map,
        compression=config.compression,
        clips=config.micro_batch,
        text_tokens=text_tokens,
        compute=compute,
        choose=choose,
        dtype_of=dtype_of,
    )


def whole_step(run: ShapeRun, config: FinetuneConfig, num_layers: int) -> list[MemoryItem]:
    """What all blocks keep, and what the fullest of them needs while it runs, from runs of one and two blocks.

    With a(b) the bytes that wait for the backward pass after the forward pass of blocks b, all blocks keep
    a(first) + sum over the others of what a second block of its kind added. Blocks before the first one that
    trains keep nothing: no gradient reaches them. At its start the backward pass needs beside that the most that
    any of the runs took over a(b); at its end what a run of one block took; the forward pass likewise.
    """
    cameras = () if run.encoding.facts.placement == "none" else scheduled_blocks(config.schedule, num_layers)
    first: BlockKind = "camera" if cameras else "plain"
    skipped = cameras[0] if cameras and config.trains != "all" else 0
    others: dict[BlockKind, int] = {"camera": len(cameras), "plain": num_layers - skipped - len(cameras)}
    others[first] -= 1
    checkpointing = config.gradient_checkpointing
    one = run.step([first], checkpointing=checkpointing)
    runs: dict[BlockKind, StepBytes] = {
        kind: run.step([first, kind], checkpointing=checkpointing)
        for kind, number in others.items()
        if number
    }

    def added(kind: BlockKind, what: str) -> int:
        return others[kind] * (getattr(runs[kind], what) - getattr(one, what))

    kept = one.after_forward + sum(added(kind, "after_forward") for kind in runs)
    every = [one, *runs.values()]
    forward = max(
        kept + max(r.forward_peak - r.after_forward for r in every),
        one.forward_peak + sum(added(kind, "forward_peak") for kind in runs),
    )
    start = max(r.backward_peak - r.after_forward for r in every)
    end = max(r.backward_peak - (r.after_forward - one.after_forward) for r in every)
    what = "inputs of blocks and ends" if checkpointing else "what autograd keeps of all blocks and the ends"
    return [
        MemoryItem(
            name="kept for the backward pass",
            bytes=kept,
            phases=("backward",),
            derived=f"{what}; {'; '.join(_each(runs, one))}",
        ),
        MemoryItem(
            name="forward pass",
            bytes=forward,
            phases=("forward",),
            derived="what is kept, and the fullest block's own",
        ),
        MemoryItem(
            name="fullest block, backward",
            bytes=start,
            phases=("backward",),
            derived=("computed again, " if checkpointing else "") + "its gradients and intermediates",
        ),
        MemoryItem(
            name="first block, backward",
            bytes=end,
            phases=("end",),
            derived="the last that the backward pass reaches, with the ends",
        ),
    ]


def _each(runs: Mapping[BlockKind, StepBytes], one: StepBytes) -> list[str]:
    return [
        f"a {kind} block keeps {(r.after_forward - one.after_forward) / 2**20:,.1f} MiB"
        for kind, r in runs.items()
    ]
