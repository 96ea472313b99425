"""The processes of one run, as `torchrun` starts them: who is first, and a word between them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self, TypeVar

import torch.distributed

from merope.errors import MeropeError

_Made = TypeVar("_Made")


class StoppedElsewhere(MeropeError):
    """Another process of the run stopped, and has said why."""


@dataclass(frozen=True, slots=True)
class Processes:
    """This process's place in a run. A run that nobody shared out is of one process."""

    rank: int = 0
    """This process, from 0."""
    world: int = 1
    """How many there are."""
    local_rank: int = 0
    """This process among those of its machine: the number of its GPU."""

    @classmethod
    def from_environment(cls, *, backend: str = "gloo") -> Self:
        """Read what torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK) and join the others; `leave` at the end.

        They meet over gloo, on the CPU, for only words are exchanged; ``backend`` is for processes that exchange tensors
        too, "cpu:gloo,cuda:nccl" on GPUs.

        Raises:
            MeropeError: if the variables contradict each other, or say where to meet in part only.
        """
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return cls()
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        rank = int(os.environ.get("RANK", "0"))
        if missing or not 0 <= rank < world:
            raise MeropeError(
                f"WORLD_SIZE is {world}"
                + (f" and {', '.join(missing)} not set" if missing else f" and RANK {rank}")
                + ". Start the processes with: torchrun --nproc_per_node N -m merope generate ..."
            )
        # Whoever has fewer or shorter clips waits for the others, and that may take days.
        local_rank = int(os.environ.get("LOCAL_RANK", str(rank)))
        if "nccl" in backend:
            torch.cuda.set_device(local_rank)
        torch.distributed.init_process_group(backend, rank=rank, world_size=world, timeout=timedelta(days=30))
        return cls(rank=rank, world=world, local_rank=local_rank)

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    def from_first(self, make: Callable[[], _Made]) -> _Made:
        """What ``make`` returns in the first process, in every process; it has to go through pickle.

        Raises:
            StoppedElsewhere: in the others, if it failed in the first, which raises its own error.
        """
        if self.world == 1:
            return make()
        box: list[Any] = [None, None]
        try:
            if self.is_first:
                box = [True, make()]
        except BaseException:
            torch.distributed.broadcast_object_list([False, None], src=0)
            raise
        torch.distributed.broadcast_object_list(box, src=0)
        if not box[0]:
            raise StoppedElsewhere("the first process stopped; its own message says why.")
        return box[1]

    def gathered(self, value: _Made) -> list[_Made]:
        """The values of all processes, in their order, in the first; an empty list in the others."""
        if self.world == 1:
            return [value]
        values: list[Any] | None = [None] * self.world if self.is_first else None
        torch.distributed.gather_object(value, values, dst=0)
        return values or []

    def leave(self) -> None:
        """Part from the others."""
        if self.world > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
