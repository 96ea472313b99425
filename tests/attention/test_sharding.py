"""Two and three processes, each with its own cameras, against one that has everything."""

import pytest
import torch

from merope.attention import camera_attention
from merope.attention.sharding import CameraShards, shard_cameras, sharded_camera_attention
from merope.encodings.measures import without_warnings
from merope.encodings.registry import default_encoding
from tests.support import sharded
from tests.support.sharded import CASES, CLIP, DIM, FRAMES, HEADS, PER_CAMERA

WORLD_SIZES = (2, 3)


@pytest.fixture(scope="module", params=WORLD_SIZES, ids=lambda size: f"{size} processes")
def ran(request):
    """What every process found, by rank; one start of processes for all tests."""
    return sharded.run_processes(request.param)


def assert_parts_of(wholes, found, *, axes, atol=1e-12):
    """Each process's tensors are its cameras' part of the whole's."""
    plan = shard_cameras(FRAMES, len(found))
    for rank, results in enumerate(found):
        for ours, full, axis in zip(results, wholes, axes, strict=True):
            theirs = sharded.part(full, plan, rank, axis=axis)
            scale = max(1.0, full.abs().max().item())
            assert theirs.abs().max() > 0
            torch.testing.assert_close(ours / scale, theirs / scale, rtol=0, atol=atol)


def whole(name):
    """Output and gradients of a single process."""
    encoding, options, keys, _ = CASES[name]
    options = {key: value for key, value in options.items() if key not in ("mask", "verify")}
    if CASES[name][1].get("mask"):
        options["key_mask"] = sharded.mask_of(keys)
    *inputs, weights = sharded.features(keys)
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = camera_attention(*leaves, sharded.operator_of(encoding, keys), **options)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_those_of_a_single_process(ran, name):
    assert_parts_of(whole(name), [results[name] for results in ran], axes=(2,) * 4)


def test_some_of_the_processes_may_share_a_clip_among_themselves(ran):
    first, *members = (results["group"] for results in ran)
    assert first == "this process is not in the group; only its members may call."
    assert_parts_of(whole("masked and frame-causal"), members, axes=(2,) * 4)


def test_a_fully_masked_camera_is_zero_on_the_process_that_has_it(ran):
    out = ran[0]["masked and frame-causal"][0]
    first_four = 4 * PER_CAMERA
    assert torch.equal(out[1, :, :first_four], torch.zeros_like(out[1, :, :first_four]))
    assert out[0].abs().amax(-1).min() > 0


def test_predicted_depths_are_gathered_with_their_gradients(ran):
    encoding = without_warnings(default_encoding("rayrope", head_dim=DIM, num_heads=HEADS))
    depth = sharded.depths().requires_grad_()
    operator = encoding.operator_at(encoding.relations(CLIP, dtype=torch.float64), depth, depth)
    *inputs, weights = sharded.features(CLIP)
    out = camera_attention(*inputs, operator)
    wanted = [out.detach(), *torch.autograd.grad((out * weights).sum(), depth)]
    assert_parts_of(wanted, [results["predicted depth"] for results in ran], axes=(2, 1))


def test_sixteen_bit_gradients_are_summed_in_float32(ran):
    keys = sharded.features(CLIP, torch.bfloat16)[1]
    # 257.5 is 258 in bfloat16, where 256 + 3/4 is 256 again.
    wanted = torch.tensor(256 + 0.75 * (len(ran) - 1)).to(torch.bfloat16)
    for everywhere, grad in (results["half precision"] for results in ran):
        assert torch.equal(everywhere, keys)
        assert grad.dtype == torch.bfloat16
        assert (grad == wanted).all()


# What a call on any process cannot be, every process is told.

ON_ALL = {
    "world size": r"plan is for {more} processes; the group has {size}. Make it with shard_cameras",
    "cameras": "operator has 13 query cameras; the plan has 12 in all and",
    "uneven keys": "operator has 24 keys, which are not of the plan's 13 cameras in equal shares",
    "heads of the operator": "operator tells 3 heads apart; query has 2",
    "backend": "backend 'magic' cannot serve this call: there is no backend 'magic'",
    "frame-causal grids": "frame_causal needs as many key as query tokens per camera; got 3 and 2",
}
ON_THE_FIRST = {
    "world size on one": "plan is for {more} processes; the group has {size}",
    "tokens on one": (
        "key must hold this process's {cameras} cameras of 2 tokens, shape [2, 2, {tokens}, 64]; got [2, 2, {less}, 64]"
    ),
    "channels on one": "query must hold this process's",
    "precision on one": "key and value must have one dtype; got torch.float64 and torch.float32",
    "device on one": "operator is on meta, query on cpu. Move it with operator.to(query.device)",
    "mask on one": "key_mask must be boolean with shape [2, {tokens}], this process's keys; got torch.bool [2, 26]",
}
DIFFER = {
    "plans differ": "plan [",
    "heads differ": "query [2, 1] x",
    "gradients differ": "gradients of keys True",
    "options differ": "frame_causal True",
    "masks differ": "key_mask given",
}


def filled_in(message, size):
    cameras = shard_cameras(FRAMES, size).counts[0]
    tokens = cameras * PER_CAMERA
    values = {"more": size + 1, "size": size, "cameras": cameras, "tokens": tokens, "less": tokens - 1}
    for name, value in values.items():
        message = message.replace("{" + name + "}", str(value))
    return message


@pytest.mark.parametrize("name", ON_ALL)
def test_a_call_that_is_wrong_everywhere_is_an_error_on_every_process(ran, name):
    for results in ran:
        assert results["wrong calls"][name].startswith(filled_in(ON_ALL[name], len(ran)))


@pytest.mark.parametrize("name", ON_THE_FIRST)
def test_a_call_that_is_wrong_on_one_process_is_an_error_on_every_process(ran, name):
    message = filled_in(ON_THE_FIRST[name], len(ran))
    first, *others = (results["wrong calls"][name] for results in ran)
    assert first.startswith(message)
    for rank, told in enumerate(others, start=1):
        assert told == f"process 0 cannot take part in this call of process {rank}: {first}"


@pytest.mark.parametrize("name", DIFFER)
def test_processes_that_call_differently_are_told_how(ran, name):
    told = {results["wrong calls"][name] for results in ran}
    assert len(told) == 1
    (message,) = told
    assert message.startswith("all processes must make the same call; got process 0: plan [")
    assert DIFFER[name] in message
    assert f"process {len(ran) - 1}: " in message


def test_differing_plans_are_listed(ran):
    plan = shard_cameras(FRAMES, len(ran))
    message = ran[0]["wrong calls"]["plans differ"]
    for rank in range(len(ran)):
        counts = plan.counts if rank == 0 else (*plan.counts[1:], plan.counts[0])
        assert f"process {rank}: plan {list(counts)}" in message


def test_without_the_exchange_a_wrong_plan_is_still_an_error_where_it_is(ran):
    for results in ran:
        assert results["wrong calls"]["unverified"].startswith("plan is for")


# The plan


@pytest.mark.parametrize(
    ("num_cameras", "world_size", "counts"),
    [(13, 2, (7, 6)), (13, 3, (5, 4, 4)), (13, 1, (13,)), (3, 3, (1, 1, 1)), (12, 4, (3, 3, 3, 3))],
)
def test_cameras_are_shared_out_evenly_in_order(num_cameras, world_size, counts):
    plan = shard_cameras(num_cameras, world_size)
    assert plan.counts == counts
    assert (plan.num_cameras, plan.world_size) == (num_cameras, world_size)
    runs = [plan.run(rank) for rank in range(world_size)]
    assert [camera for first, last in runs for camera in range(first, last)] == list(range(num_cameras))


@pytest.mark.parametrize(("num_cameras", "world_size"), [(2, 3), (13, 0), (13, -1)])
def test_more_processes_than_cameras_and_none_are_refused(num_cameras, world_size):
    with pytest.raises(ValueError, match=rf"world_size must lie in 1 ... {num_cameras}, .*got {world_size}"):
        shard_cameras(num_cameras, world_size)


@pytest.mark.parametrize("counts", [(), (3, 0), (4, -1, 2)])
def test_a_plan_by_hand_leaves_no_process_without_a_camera(counts):
    with pytest.raises(ValueError, match=r"every process needs a camera; got .*Use fewer processes"):
        CameraShards(counts)


def test_without_processes_there_is_nothing_to_share():
    q, k, v, _ = sharded.features(CLIP)
    operator = sharded.operator_of("merope", CLIP)
    with pytest.raises(ValueError, match=r"torch.distributed is not initialised.*init_process_group first"):
        sharded_camera_attention(q, k, v, operator, shard_cameras(FRAMES, 1))
