"""Attention with query cameras shared out among processes; raw keys and values are gathered.

Query cameras are independent of one another, so each process attends from its own and its output stays where
it is. What travels is what every process would otherwise hold: the keys and values as they are, once forward, and
their gradients once backward.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from merope.attention.dispatch import DEFAULT_MEMORY_BUDGET, Backend, camera_attention, why_not
from merope.operators import CameraOperator

_Group = Any
"""A process group of torch.distributed; None is the default one."""


@dataclass(frozen=True, slots=True)
class CameraShards:
    """Which cameras each process has: contiguous runs, in the order of ranks.

    Raises:
        ValueError: if a process has no camera.
    """

    counts: tuple[int, ...]
    """Cameras of every process."""

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 1:
            raise ValueError(
                f"every process needs a camera; got {list(self.counts)} for {len(self.counts)} processes. "
                "Use fewer processes."
            )

    @property
    def num_cameras(self) -> int:
        """Cameras of the whole clip."""
        return sum(self.counts)

    @property
    def world_size(self) -> int:
        """Processes that share them."""
        return len(self.counts)

    def run(self, rank: int) -> tuple[int, int]:
        """First camera of a process, and the first one after its last."""
        first = sum(self.counts[:rank])
        return first, first + self.counts[rank]


def shard_cameras(num_cameras: int, world_size: int) -> CameraShards:
    """Runs whose lengths differ by one at most, longer ones first: 13 over 3 is 5 + 4 + 4.

    Raises:
        ValueError: if there are more processes than cameras.
    """
    if not 1 <= world_size <= num_cameras:
        raise ValueError(
            f"world_size must lie in 1 ... {num_cameras}, a camera at least for every process; got {world_size}."
        )
    each, over = divmod(num_cameras, world_size)
    return CameraShards(tuple(each + (rank < over) for rank in range(world_size)))


def sharded_camera_attention(
    query: Float[Tensor, "batch head query_token chan"],
    key: Float[Tensor, "batch head key_token chan"],
    value: Float[Tensor, "batch head key_token chan"],
    operator: CameraOperator,
    plan: CameraShards,
    *,
    group: _Group = None,
    key_mask: Bool[Tensor, "batch key_token"] | None = None,
    frame_causal: bool = False,
    backend: Backend = "auto",
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
    verify: bool = True,
) -> Float[Tensor, "batch head query_token chan"]:
    """`camera_attention` over a clip whose cameras are shared out; each process calls it with its own part.

    ``query``, ``key``, ``value`` and ``key_mask`` hold the tokens of this process's cameras, and so does the
    output. ``operator`` is of the whole clip, or of this process's query cameras against all keys, which costs a
    process no more geometry than it uses. Outputs are those of one process that has everything. Gradients of keys and
    values are summed over the processes, so they are those of the sum of all processes' losses; the operator's factors
    get what this process's queries contribute. Every process has to run the backward pass.

    Tokens without a camera belong to no process; there is no ``extra_tokens`` here.

    With ``verify`` the processes first compare a checksum of the call (two integers each), and a call that is
    wrong on one of them is an error on all. Without it nothing is exchanged before the keys, and processes that
    disagree wait for one another until the group's timeout. It has to be the same on all.

    Raises:
        ValueError: if torch.distributed is not initialised, or, on every process, if the plan is for another number of
            processes or cameras, tokens do not fit it, or the processes call with different plans, sizes or options.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "torch.distributed is not initialised, so there are no processes to share cameras. Call "
            "init_process_group first, or camera_attention for one process."
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not in the group; only its members may call.")
    gradients = torch.is_grad_enabled() and (key.requires_grad or value.requires_grad)
    problem = _problem(
        query, key, value, operator, plan, rank, dist.get_world_size(group), key_mask, frame_causal
    )
    own = None
    if problem is None:
        own = _own_part(operator, plan, rank, frame_causal)
        reason = None if backend == "auto" else why_not(backend, query, own)
        problem = None if reason is None else f"backend {backend!r} cannot serve this call: {reason}."
    if verify:
        call = (
            f"plan {list(plan.counts)}, operator of {operator.num_keys} keys, {_sizes(query, plan, rank)}, "
            f"{str(key.dtype).removeprefix('torch.')}, key_mask {'given' if key_mask is not None else 'none'}, "
            f"frame_causal {frame_causal}, gradients of keys {gradients}"
        )
        require_agreement(call, problem, group=group, device=query.device)
    elif problem is not None:
        raise ValueError(problem)
    assert own is not None
    per_camera = operator.num_keys // plan.num_cameras
    both = gather_tokens(torch.stack([key, value]), plan, per_camera=per_camera, axis=3, group=group)
    all_keys, all_values = both[:, :, :, : own.num_keys].unbind(0)
    if key_mask is not None:
        # Not every backend of torch.distributed carries booleans.
        gathered = gather_tokens(key_mask.to(torch.uint8), plan, per_camera=per_camera, axis=1, group=group)
        key_mask = gathered[:, : own.num_keys].bool()
    return camera_attention(
        query,
        all_keys,
        all_values,
        own,
        backend=backend,
        key_mask=key_mask,
        frame_causal=frame_causal,
        memory_budget=memory_budget,
    )


def gather_tokens(
    tokens: Tensor, plan: CameraShards, *, per_camera: int, axis: int, group: _Group = None
) -> Tensor:
    """Every process's tokens along ``axis``, in the order of cameras; the gradient is summed and comes back in parts.

    All processes call it together, with tensors that agree in every other axis. It is what `sharded_camera_attention`
    does with keys and values; predicted depths, from which every process makes its operator, go the same way. Sums of
    gradients in 16 bits are taken in float32.
    """
    counts = tuple(count * per_camera for count in plan.counts)
    front = tokens.movedim(axis, 0)
    return cast(Tensor, _Gather.apply(front, counts, group)).movedim(0, axis)


def gather_runs(
    own: Tensor, counts: Sequence[int], *, group: _Group = None, ready: Callable[[], None] | None = None
) -> Tensor:
    """[own tokens, ...] to [all tokens, ...], without a gradient; ``counts`` are the tokens of every process.

    Uneven parts are padded to the longest: every backend has the even collective. ``ready`` is called when all memory
    for the exchange is there and nothing was sent yet.
    """
    largest, rest = max(counts), own.shape[1:]
    sent = own.contiguous()
    if own.shape[0] < largest:
        sent = own.new_zeros(largest, *rest)
        sent[: own.shape[0]] = own
    gathered = own.new_empty(len(counts) * largest, *rest)
    if ready is not None:
        ready()
    dist.all_gather_single(gathered, sent, group=group)
    if min(counts) == largest:
        return gathered
    parts = gathered.split(largest)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _Gather(torch.autograd.Function):
    """`gather_runs` with its gradient, summed in float32 at least."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: tuple[int, ...], group: _Group) -> Tensor:
        ctx.counts, ctx.group = counts, group
        return gather_runs(own, counts, group=group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        counts, rank = ctx.counts, dist.get_rank(ctx.group)
        largest, rest = max(counts), grad.shape[1:]
        summed = torch.promote_types(grad.dtype, torch.float32)
        padded = grad.new_zeros(len(counts) * largest, *rest, dtype=summed)
        for part, given in zip(padded.split(largest), grad.split(counts), strict=True):
            part[: given.shape[0]] = given
        own = padded.new_empty(largest, *rest)
        dist.reduce_scatter_single(own, padded, group=ctx.group)
        return own[: counts[rank]].to(grad.dtype), None, None


def _own_part(operator: CameraOperator, plan: CameraShards, rank: int, frame_causal: bool) -> CameraOperator:
    """This process's rows; under ``frame_causal`` without the keys of later processes."""
    first, last = plan.run(rank)
    num_keys = last * (operator.num_keys // plan.num_cameras) if frame_causal else None
    if operator.num_query_cameras != plan.num_cameras:
        first, last = 0, operator.num_query_cameras
    return operator.for_query_cameras(first, last, num_keys=num_keys)


def _sizes(query: Tensor, plan: CameraShards, rank: int) -> str:
    """What of the query's shape is the same on all processes."""
    per_camera = query.shape[2] / plan.counts[rank] if query.ndim == 4 and rank < plan.world_size else None
    return f"query {[*query.shape[:2]]} x {per_camera} tokens per camera x {query.shape[-1]}"


def _problem(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    operator: CameraOperator,
    plan: CameraShards,
    rank: int,
    world_size: int,
    key_mask: Tensor | None,
    frame_causal: bool,
) -> str | None:
    """What is wrong with this process's call, or None; found without a word to the others."""
    if plan.world_size != world_size:
        return (
            f"plan is for {plan.world_size} processes; the group has {world_size}. Make it with "
            "shard_cameras(num_cameras, world_size) of this run."
        )
    cameras, total = plan.counts[rank], plan.num_cameras
    if operator.num_query_cameras not in (total, cameras):
        return (
            f"operator has {operator.num_query_cameras} query cameras; the plan has {total} in all and {cameras} on "
            f"process {rank}. Make the operator of the whole clip, or of this process's cameras against all keys."
        )
    if operator.num_keys % total:
        return (
            f"operator has {operator.num_keys} keys, which are not of the plan's {total} cameras in equal shares; its keys "
            "are those of all processes."
        )
    per_query = operator.num_queries // operator.num_query_cameras
    per_key = operator.num_keys // total
    if frame_causal and per_query != per_key:
        return f"frame_causal needs as many key as query tokens per camera; got {per_key} and {per_query}."
    for name, tensor, per_camera in (
        ("query", query, per_query),
        ("key", key, per_key),
        ("value", value, per_key),
    ):
        heads = query.shape[1] if query.ndim == 4 else "..."
        wanted = [operator.batch, heads, cameras * per_camera, operator.head_dim]
        if list(tensor.shape) != wanted:
            return (
                f"{name} must hold this process's {cameras} cameras of {per_camera} tokens, shape {wanted}; got "
                f"{list(tensor.shape)}. Tokens without a camera cannot be shared out."
            )
        if tensor.device != query.device:
            return f"{name} must be on the query's device {query.device}; got {tensor.device}."
    if key.dtype != value.dtype:
        return f"key and value must have one dtype; got {key.dtype} and {value.dtype}."
    device = next((tensor.device for tensor in operator.tensors()), query.device)
    if device != query.device:
        return f"operator is on {device}, query on {query.device}. Move it with operator.to(query.device)."
    if operator.num_heads not in (1, query.shape[1]):
        return f"operator tells {operator.num_heads} heads apart; query has {query.shape[1]}."
    if key_mask is not None:
        wanted = [operator.batch, cameras * per_key]
        if key_mask.dtype != torch.bool or list(key_mask.shape) != wanted:
            return (
                f"key_mask must be boolean with shape {wanted}, this process's keys; got {key_mask.dtype} "
                f"{list(key_mask.shape)}."
            )
    return None


def require_agreement(
    call: str,
    problem: str | None = None,
    *,
    group: _Group = None,
    device: torch.device | str = "cpu",
    error: type[Exception] = ValueError,
) -> None:
    """Raise on every process of the group if one of them has a ``problem``, or calls with another text.

    All processes come here together, as in `compare_calls`.
    """
    told = compare_calls(call, problem, group=group, device=device)
    if problem is not None:
        raise error(problem)
    if told is None:
        return
    for other, (_, theirs) in enumerate(told):
        if theirs is not None:
            raise error(
                f"process {other} cannot take part in this call of process {dist.get_rank(group)}: {theirs}"
            )
    listed = "; ".join(f"process {other}: {theirs}" for other, (theirs, _) in enumerate(told))
    raise error(f"all processes must make the same call; got {listed}.")


def compare_calls(
    call: str, problem: str | None = None, *, group: _Group = None, device: torch.device | str = "cpu"
) -> list[tuple[str, str | None]] | None:
    """None where all processes come with the same text and without a problem; else what each of them came with.

    Where all is well two integers travel, on ``device``, which is one that the group's backend can read.
    """
    own = torch.tensor([problem is not None, zlib.crc32(call.encode())], dtype=torch.int64, device=device)
    everyone = own.new_empty(2 * dist.get_world_size(group))
    dist.all_gather_single(everyone, own, group=group)
    flags, sums = everyone.view(-1, 2).T.tolist()
    if not any(flags) and len(set(sums)) == 1:
        return None
    told: list[Any] = [None] * len(flags)
    dist.all_gather_object(told, (call, problem), group=group)
    return told
