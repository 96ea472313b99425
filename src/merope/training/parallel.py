"""One training step over many processes: how they meet, how weights are cut over them, how gradients become one.

Every process is a data-parallel one. Weights are cut by FSDP2 parameter by parameter, so that frozen and trained
ones, float32 and bfloat16, may stand side by side in a block. Precision does not depend on any of this
(`set_precision`): what trains is kept in float32, matrix products run under autocast, and sharding casts what the
products of a block would cast anyway, and the gains between them.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from merope.training.finetune_config import ParallelConfig
from merope.training.pretrained import stays_exact

# Above the time that the first process takes to write a base of 5 B parameters to a slow disk.
_PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """This process among those of a run."""

    rank: int
    size: int
    device: torch.device
    """Where this process computes."""

    @property
    def is_first(self) -> bool:
        """Whether this one writes files and talks."""
        return self.rank == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether it is up on any process; the same answer on all."""
        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in raised)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the processes, on the CPU."""
        total = values.detach().to("cpu", torch.float64, copy=True)
        dist.all_reduce(total)
        return total / self.size

    def gather(self, value: Any) -> list[Any]:
        """What every process says, by rank, on all of them."""
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def wait(self) -> None:
        """Until all are here."""
        dist.barrier()


@contextmanager
def joined_processes(device: str = "cpu") -> Iterator[Processes]:
    """Within the block this process is one of a run's: of those that ``torchrun`` started, or the only one.

    ``device`` "cuda" is the GPU of this process's rank on its machine. A process group that exists is used and left alone.
    """
    local = int(os.environ.get("LOCAL_RANK", 0))
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", local)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    ours = not dist.is_initialized()
    if ours:
        backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            dist.init_process_group(backend, timeout=_PATIENCE)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=_PATIENCE)
    try:
        yield Processes(rank=dist.get_rank(), size=dist.get_world_size(), device=place)
        if ours:
            # A process that leaves before the others have their last message takes them down.
            dist.barrier()
    finally:
        if ours:
            dist.destroy_process_group()


def set_precision(transformer: nn.Module, module: nn.Module, compute: torch.dtype) -> None:
    """Give the weights of ``module`` the precision that they are kept in, one after the other.

    What trains is float32: a learning rate of 1e-5 moves nothing in bfloat16. What is frozen is ``compute``, but for the
    few modules that Wan keeps in float32 everywhere (time embedder, norms, modulation tables).
    """
    names = {id(value): name for name, value in transformer.named_parameters()}
    for value in module.parameters():
        exact = value.requires_grad or stays_exact(transformer, names[id(value)])
        value.data = value.data.to(torch.float32 if exact else compute)


def distribute(
    transformer: nn.Module, parallel: ParallelConfig, processes: Processes, compute: torch.dtype
) -> None:
    """Give every process its part of the weights, on its device and in their precision, block after block.

    Beside the parts a process holds one whole block at a time. The weights of a block's attentions and feed-forward
    travel in ``compute``, in which they are used; norms, modulation tables and the camera's modules travel as they are
    kept. Sharded modules are of other classes: whoever needs the base's own class name asks before.

    Raises:
        ValueError: if the processes are no whole number of sharding groups.
    """
    shards = parallel.shards(processes.size)
    blocks: Any = transformer.blocks
    if parallel.mode == "replicate":
        for block in blocks:
            set_precision(transformer, block, compute)
            block.to(processes.device)
        set_precision(transformer, transformer, compute)
        transformer.to(processes.device)
        return
    mesh = _mesh(parallel, processes, shards)
    # The cameras ride in a block's arguments and must never be cast.
    rounded = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)
    exact = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in blocks:
        set_precision(transformer, block, compute)
        fully_shard(_products(block), mesh=mesh, mp_policy=rounded)
        fully_shard(block, mesh=mesh, mp_policy=exact)
    set_precision(transformer, transformer, compute)
    fully_shard(transformer, mesh=mesh, mp_policy=exact)


def _mesh(parallel: ParallelConfig, processes: Processes, shards: int) -> DeviceMesh:
    kind = processes.device.type
    if parallel.mode == "hsdp":
        return init_device_mesh(
            kind, (processes.size // shards, shards), mesh_dim_names=("replicate", "shard")
        )
    return init_device_mesh(kind, (shards,), mesh_dim_names=("shard",))


def _products(block: Any) -> list[nn.Module]:
    """The modules of a block's attentions and feed-forward that have weights of their own."""
    parts = (block.attn1, block.attn2, block.ffn)
    return [
        module
        for part in parts
        for module in part.modules()
        if any(True for _ in module.parameters(recurse=False))
    ]


def expect_backward(transformer: nn.Module, *, last: bool) -> None:
    """Say before a forward pass whether it is the ``last`` of its step.

    Sharding groups reduce gradients after every backward pass, which keeps whole ones of no more than a block; groups that
    hold the same (HSDP) exchange theirs after the last.
    """
    if isinstance(transformer, FSDPModule):
        transformer.set_requires_all_reduce(last)
        transformer.set_is_last_backward(last)


def average_gradients(
    transformer: nn.Module, parameters: Iterable[nn.Parameter], processes: Processes
) -> None:
    """Make gradients the mean over all processes where weights are replicated; sharded ones are that already."""
    if isinstance(transformer, FSDPModule) or processes.size == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for work in [dist.all_reduce(gradient, async_op=True) for gradient in gradients]:
        if work is not None:
            work.wait()
    for gradient in gradients:
        gradient.div_(processes.size)


def whole(tensor: Tensor) -> Tensor:
    """A tensor put together from its parts; every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
