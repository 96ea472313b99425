"""What each process of the sharding tests does; imported anew by every one of them."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from merope.attention.sharding import (
    CameraShards,
    gather_tokens,
    shard_cameras,
    sharded_camera_attention,
)
from merope.cameras.scenes import random_drive
from merope.encodings.measures import without_warnings
from merope.encodings.registry import default_encoding
from tests.support.processes import run_together

FRAMES, HEADS, DIM, PER_CAMERA = 13, 2, 64, 2
CLIP = random_drive(4, views=FRAMES, grid=(1, PER_CAMERA))
KEYS_OF_ANOTHER_GRID = random_drive(5, views=FRAMES, grid=(1, 3))

# Name of a case: encoding, options of the call, the keys' rays, whether the operator is of the own cameras alone.
CASES: dict[str, tuple[str, dict[str, Any], Any, bool]] = {
    "plain": ("merope", {}, CLIP, False),
    "own operator": ("merope", {}, CLIP, True),
    "frame-causal": ("merope", {"frame_causal": True}, CLIP, False),
    "frame-causal, own operator": ("merope", {"frame_causal": True}, CLIP, True),
    "masked": ("merope", {"mask": True}, CLIP, False),
    "masked and frame-causal": ("merope", {"mask": True, "frame_causal": True}, CLIP, True),
    "small budget": ("merope", {"memory_budget": 1}, CLIP, False),
    "reference": ("merope", {"backend": "reference", "frame_causal": True}, CLIP, False),
    "keys of another grid": ("merope", {}, KEYS_OF_ANOTHER_GRID, False),
    "per token": ("ucpe", {}, CLIP, False),
    "heads apart": ("urope", {"frame_causal": True}, CLIP, False),
    "first view": ("raynova", {"frame_causal": True}, CLIP, False),
    "unverified": ("merope", {"verify": False}, CLIP, False),
}


def operator_of(name: str, keys: Any, views: Any = CLIP) -> Any:
    """The operator of some query views against all keys."""
    encoding = without_warnings(default_encoding(name, head_dim=DIM, num_heads=HEADS))
    return encoding.operator(views, keys, dtype=torch.float64)


def features(keys: Any, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Queries, keys, values of the whole clip, and weights of a loss."""
    draw = torch.Generator().manual_seed(3)
    counts = (CLIP.num_tokens, keys.num_tokens, keys.num_tokens, CLIP.num_tokens)
    return tuple(
        torch.randn(CLIP.batch, HEADS, count, DIM, generator=draw, dtype=torch.float64).to(dtype)
        for count in counts
    )


def mask_of(keys: Any) -> Tensor:
    """Some keys, and in one clip all keys of the first four cameras."""
    mask = torch.rand(keys.batch, keys.num_tokens, generator=torch.Generator().manual_seed(6)) < 0.6
    mask[1, : 4 * keys.tokens_per_view] = False
    return mask


def part(x: Tensor, plan: CameraShards, rank: int, axis: int = 2) -> Tensor:
    """The tokens of one process's cameras."""
    per_camera = x.shape[axis] // plan.num_cameras
    first, last = plan.run(rank)
    return x.narrow(axis, first * per_camera, (last - first) * per_camera)


def depths() -> Tensor:
    """Predicted depths of every token."""
    draw = torch.Generator().manual_seed(8)
    return torch.rand(CLIP.batch, CLIP.num_tokens, 2, generator=draw, dtype=torch.float64) - 0.3


def run_case(name: str, plan: CameraShards, rank: int, group: Any = None) -> list[Tensor]:
    """This process's output and gradients of q, k and v."""
    encoding, options, keys, own = CASES[name]
    options = dict(options)
    views = CLIP.for_views(*plan.run(rank)) if own else CLIP
    operator = operator_of(encoding, keys, views)
    if options.pop("mask", False):
        options["key_mask"] = part(mask_of(keys), plan, rank, axis=1)
    *inputs, weights = (part(x, plan, rank) for x in features(keys))
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = sharded_camera_attention(*leaves, operator, plan, group=group, **options)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


def run_in_a_group(world_size: int, rank: int) -> list[Tensor] | str:
    """A case by all processes but the first, whose ranks among themselves are not their own; what the first is told."""
    plan = shard_cameras(FRAMES, world_size - 1)
    group = dist.new_group(list(range(1, world_size)))
    if rank:
        return run_case("masked and frame-causal", plan, rank - 1, group)
    try:
        run_case("masked and frame-causal", plan, 0, group)
    except ValueError as error:
        return str(error)
    return "no error"


def run_predicted_depth(plan: CameraShards, rank: int) -> list[Tensor]:
    """Output and gradient of this process's depths, which make every process's operator."""
    encoding = without_warnings(default_encoding("rayrope", head_dim=DIM, num_heads=HEADS))
    depth = part(depths(), plan, rank, axis=1).clone().requires_grad_()
    everywhere = gather_tokens(depth, plan, per_camera=PER_CAMERA, axis=1)
    relations = encoding.relations(CLIP.for_views(*plan.run(rank)), CLIP, dtype=torch.float64)
    operator = encoding.operator_at(relations, depth, everywhere)
    *inputs, weights = (part(x, plan, rank) for x in features(CLIP))
    out = sharded_camera_attention(*inputs, operator, plan)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), depth)]


def run_half_precision(plan: CameraShards, rank: int) -> list[Tensor]:
    """bfloat16 keys gathered, and the gradient where the first process's own is 256 everywhere, and the others' 3/4."""
    own = part(features(CLIP, torch.bfloat16)[1], plan, rank).clone().requires_grad_()
    everywhere = gather_tokens(own, plan, per_camera=PER_CAMERA, axis=2)
    grad = torch.autograd.grad(everywhere, own, torch.full_like(everywhere, 0.75 if rank else 256))[0]
    return [everywhere.detach(), grad]


def wrong_calls(plan: CameraShards, rank: int) -> dict[str, str]:
    """What this process is told in calls that cannot be."""
    operator = operator_of("merope", CLIP)
    query, key, value = (part(x, plan, rank) for x in features(CLIP)[:3])
    first = rank == 0
    other = CameraShards((*plan.counts[1:], plan.counts[0]))
    swapped = plan if first else other
    longer = shard_cameras(FRAMES, plan.world_size + 1)
    twelve = shard_cameras(12, plan.world_size)
    short = key[:, :, 1:] if first else key
    calls: dict[str, tuple[Any, ...]] = {
        "world size": (query, key, value, operator, longer),
        "world size on one": (query, key, value, operator, longer if first else plan),
        "cameras": (query, key, value, operator, twelve),
        "tokens on one": (query, short, short, operator, plan),
        "uneven keys": (query, key, value, operator_of("merope", CLIP.for_views(0, 12)), plan),
        # Every process has what its own plan says.
        "plans differ": (*(part(x, swapped, rank) for x in features(CLIP)[:3]), operator, swapped),
        "heads differ": (
            *(x[:, :1] if first else x for x in (query, key, value)),
            operator,
            plan,
        ),
        "channels on one": (query[..., 1:] if first else query, key, value, operator, plan),
        "precision on one": (query, key, value.float() if first else value, operator, plan),
        "device on one": (query, key, value, operator.to("meta") if first else operator, plan),
        "heads of the operator": (query, key, value, _with_heads(operator, 3), plan),
        "gradients differ": (query, key.requires_grad_(first), value, operator, plan),
    }
    options: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "options differ": ({"frame_causal": True}, {}),
        "masks differ": ({"key_mask": torch.ones(2, key.shape[2], dtype=torch.bool)}, {}),
        "mask on one": (
            {"key_mask": torch.ones(2, FRAMES * PER_CAMERA, dtype=torch.bool)},
            {"key_mask": torch.ones(2, key.shape[2], dtype=torch.bool)},
        ),
        "backend": ({"backend": "magic"}, {"backend": "magic"}),
        "frame-causal grids": ({"frame_causal": True}, {"frame_causal": True}),
    }
    told = {}
    for name in (*calls, *options):
        arguments = calls.get(name, (query, key.detach(), value, operator, plan))
        if name == "frame-causal grids":
            longer_keys = part(features(KEYS_OF_ANOTHER_GRID)[1], plan, rank)
            arguments = (query, longer_keys, longer_keys, operator_of("merope", KEYS_OF_ANOTHER_GRID), plan)
        try:
            sharded_camera_attention(*arguments, **options.get(name, ({}, {}))[0 if first else 1])
            told[name] = "no error"
        except ValueError as error:
            told[name] = str(error)
    key.requires_grad_(False)
    # The group still works.
    sharded_camera_attention(query, key, value, operator, plan)
    try:
        sharded_camera_attention(query, key, value, operator, longer, verify=False)
    except ValueError as error:
        told["unverified"] = str(error)
    return told


def _with_heads(operator: Any, heads: int) -> Any:
    return operator.map_tensors(lambda tensor: tensor.expand(-1, heads, *tensor.shape[2:]))


def work(rank: int, world_size: int) -> dict[str, Any]:
    """Everything one process has to say."""
    plan = shard_cameras(FRAMES, world_size)
    results: dict[str, Any] = {name: run_case(name, plan, rank) for name in CASES}
    results["group"] = run_in_a_group(world_size, rank)
    results["predicted depth"] = run_predicted_depth(plan, rank)
    results["half precision"] = run_half_precision(plan, rank)
    results["wrong calls"] = wrong_calls(plan, rank)
    return results


def run_processes(world_size: int) -> list[dict[str, Any]]:
    """What every process found, by rank."""
    return run_together(work, world_size)
