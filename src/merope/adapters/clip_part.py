"""`ClipPart`: the part of a clip that one of several processes has, as the blocks of a transformer see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from merope.attention.sharding import CameraShards, gather_runs, require_agreement
from merope.errors import SharedClipError

# A custom op takes numbers and text. A process group is found again by the name that torch gave it.
_GROUPS: WeakValueDictionary[str, Any] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class ClipPart:
    """A run of latent frames with all their tokens; the group's other processes have the other frames."""

    plan: CameraShards
    """Latent frames of every process."""
    rank: int
    """This process's place in the plan."""
    per_frame: int
    """Tokens of a latent frame."""
    group_name: str
    """The group, which `remember_group` was told of."""

    @property
    def frames(self) -> tuple[int, int]:
        """First latent frame, and the first one after the last."""
        return self.plan.run(self.rank)

    @property
    def token_counts(self) -> tuple[int, ...]:
        """Tokens of every process."""
        return tuple(count * self.per_frame for count in self.plan.counts)

    def own(self, tokens: Tensor, axis: int) -> Tensor:
        """This process's tokens of a tensor that has all of them along ``axis``; a view."""
        first, last = self.frames
        return tokens.narrow(axis, first * self.per_frame, (last - first) * self.per_frame)

    def gather(self, tokens: Tensor, axis: int) -> Tensor:
        """All processes' tokens along ``axis``, where this one has its own. All come here together.

        Raises:
            SharedClipError: on every other process, if one has failed since they last met or is somewhere else.
        """
        gathered = torch.ops.merope.gather_clip(
            tokens.movedim(axis, 0), list(self.token_counts), self.group_name
        )
        return gathered.movedim(0, axis)

    def gather_keys_and_values(
        self, key: Float[Tensor, "..."], value: Float[Tensor, "..."], axis: int
    ) -> tuple[Tensor, Tensor]:
        """All processes' keys and values, in one message."""
        both = torch.stack([key.movedim(axis, 0), value.movedim(axis, 0)], dim=1)
        keys, values = self.gather(both, axis=0).unbind(1)
        return keys.movedim(0, axis), values.movedim(0, axis)


def remember_group(group: Any) -> str:
    """The name by which blocks find a process group for as long as it exists."""
    _GROUPS[group.group_name] = group
    return group.group_name


def meeting_device(group: Any) -> torch.device:
    """Where the group exchanges a few numbers: the CPU if its backend can, so that no process waits for its GPU."""
    if "cpu:" in dist.get_backend_config(group):
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


# One operation rather than collectives that torch.compile would look into: blocks compile as a whole, and what is
# raised here comes out of them as it is.
@torch.library.custom_op("merope::gather_clip", mutates_args=())
def _gather_clip(own: Tensor, counts: Sequence[int], group_name: str) -> Tensor:
    group = _GROUPS[group_name]
    call = f"gather tokens {list(counts)} of {list(own.shape[1:])}, {own.dtype}"

    def meet() -> None:
        require_agreement(call, group=group, device=meeting_device(group), error=SharedClipError)

    return gather_runs(own, counts, group=group, ready=meet)


@_gather_clip.register_fake
def _(own: Tensor, counts: Sequence[int], group_name: str) -> Tensor:
    return own.new_empty(sum(counts), *own.shape[1:])
