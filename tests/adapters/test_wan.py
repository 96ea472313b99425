"""Branches on diffusers' real Wan transformer: nothing changes at first, everything is trained, all comes off."""

import copy

import pytest
import torch
from accelerate.utils import send_to_device
from torch import nn

from merope.adapters import attach, scheduled_blocks
from merope.cameras.scenes import SCENES, random_drive, scene
from merope.encodings import MeRoPE, Native
from tests.support.fresh_python import run_python
from tests.support.wan import awake, inputs, run, tiny_wan, with_branches

# The 1.3B model takes one time per clip, the 5B one per token.
TIMES = pytest.mark.parametrize("per_token", [True, False], ids=["per-token times", "one time per clip"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@TIMES
@DTYPES
@pytest.mark.parametrize("schedule", ["alternate", "every", [2]])
def test_a_new_adapter_changes_no_bit(dtype, per_token, schedule):
    model = tiny_wan().to(dtype)
    with torch.no_grad():
        before = model(**inputs(per_token=per_token, dtype=dtype))[0]
        adapter = with_branches(model, schedule=schedule)
        after = run(adapter, per_token=per_token, dtype=dtype)
    assert adapter.is_zero
    assert after.dtype == dtype
    assert torch.equal(after, before)


def test_a_new_adapter_changes_no_bit_under_autocast():
    model = tiny_wan()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = model(**inputs())[0]
        after = run(with_branches(model))
    assert torch.equal(after, before)


def test_one_head_of_192_stands_beside_three_of_64():
    model = tiny_wan(num_attention_heads=3)
    before = model(**inputs())[0]
    adapter = attach(model, encoding=MeRoPE(head_dim=192), compression=1)
    branch = adapter.branches[1]
    assert (branch.num_heads, branch.head_dim) == (1, 192)
    assert torch.equal(run(adapter), before)
    assert not torch.equal(run(awake(adapter)), before)


@DTYPES
def test_detaching_leaves_the_transformer_as_it_was(dtype):
    model = tiny_wan().to(dtype)
    untouched = copy.deepcopy(model)
    types = [type(module) for module in model.modules()]
    adapter = awake(with_branches(model, schedule="every"))
    assert not torch.equal(run(adapter, dtype=dtype), untouched(**inputs(dtype=dtype))[0])
    assert adapter.detach() is model
    assert [type(module) for module in model.modules()] == types
    assert list(model.state_dict()) == list(untouched.state_dict())
    assert not any("merope" in name for module in model.modules() for name in module.__dict__)
    assert torch.equal(model(**inputs(dtype=dtype))[0], untouched(**inputs(dtype=dtype))[0])
    adapter.detach()  # a second time is nothing
    with (
        pytest.raises(ValueError, match="this adapter was detached"),
        adapter.cameras(MeRoPE(head_dim=64).operator(random_drive())),
    ):
        pass
    again = with_branches(model)
    assert torch.equal(run(again, dtype=dtype), untouched(**inputs(dtype=dtype))[0])


def test_base_weights_keep_their_names_values_and_precision():
    model = tiny_wan().to(torch.bfloat16)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    adapter = with_branches(model)
    after = model.state_dict()
    for name, value in before.items():
        assert after[name].dtype == value.dtype
        assert torch.equal(after[name], value)
    new = set(after) - set(before)
    assert new == {
        f"blocks.{block}.camera_branch.to_{name}.{part}"
        for block in (1, 3)
        for name in ("q", "k", "v", "out")
        for part in ("weight", "bias")
    }
    # A learning rate of 1e-5 moves nothing in bfloat16.
    assert {parameter.dtype for parameter in adapter.parameters()} == {torch.float32}
    # diffusers keeps modules in float32 whose path has one of these parts.
    assert not any(part in name.split(".") for name in new for part in ("rope", "norm1", "norm2", "norm3"))


def test_new_parameters_are_float32_whatever_torch_s_default_is():
    model = tiny_wan()
    torch.set_default_dtype(torch.bfloat16)
    try:
        adapter = with_branches(model)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in adapter.parameters()} == {torch.float32}


def test_parameters_are_the_branches_alone():
    model = tiny_wan()
    base = {id(parameter) for parameter in model.parameters()}
    adapter = with_branches(model)
    ours = [id(parameter) for parameter in adapter.parameters()]
    assert len(ours) == 2 * 8
    assert not base & set(ours)
    assert {id(p) for b in adapter.branches.values() for p in b.parameters()} == set(ours)


@TIMES
@DTYPES
def test_queries_keys_and_values_get_gradients_from_the_second_step_on(dtype, per_token):
    model = tiny_wan().to(dtype).requires_grad_(False)
    adapter = with_branches(model)
    optimizer = torch.optim.SGD(adapter.parameters(), lr=1.0)
    sizes = []
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        run(adapter, per_token=per_token, dtype=dtype).float().square().mean().backward()
        assert all(torch.isfinite(parameter.grad).all() for parameter in adapter.parameters())
        sizes.append(
            {
                name: getattr(branch, name).weight.grad.abs().max().item()
                for branch in adapter.branches.values()
                for name in ("to_q", "to_k", "to_v", "to_out")
            }
        )
        optimizer.step()
    assert sizes[0]["to_out"] > 0
    assert sizes[0]["to_q"] == sizes[0]["to_k"] == sizes[0]["to_v"] == 0
    assert min(sizes[1].values()) > 0
    assert not adapter.is_zero


@pytest.mark.parametrize("autocast", [False, True])
def test_gradient_checkpointing_changes_no_gradient_though_cameras_are_gone_before_the_backward_pass(
    autocast,
):
    found = []
    for checkpointing in (False, True):
        model = tiny_wan().requires_grad_(False)
        adapter = awake(with_branches(model))
        if checkpointing:
            model.enable_gradient_checkpointing()
            model.train()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            out = run(adapter)
        # Here the adapter holds no cameras any more.
        assert adapter._signals is None
        out.float().square().mean().backward()
        found.append((out, [parameter.grad for parameter in adapter.parameters()]))
    (out, grads), (out_again, grads_again) = found
    assert torch.equal(out, out_again)
    for one, two in zip(grads, grads_again, strict=True):
        assert one is not None and two is not None
        torch.testing.assert_close(two, one, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_another_trajectory_gives_another_output(checkpointing):
    model = tiny_wan()
    adapter = awake(with_branches(model))
    if checkpointing:
        model.enable_gradient_checkpointing()
        model.train()
    one, two = run(adapter, random_drive(0)), run(adapter, random_drive(1))
    assert (one - two).abs().max() > 1e-3
    assert torch.equal(run(adapter, random_drive(0)), one)


def test_without_an_encoding_of_cameras_the_trajectory_does_not_matter():
    adapter = awake(with_branches(tiny_wan(), encoding=Native(head_dim=64)))
    assert torch.equal(run(adapter, random_drive(0)), run(adapter, random_drive(1)))


@pytest.mark.parametrize("name", SCENES)
def test_outputs_and_gradients_are_finite_on_the_standing_scenes(name):
    adapter = awake(with_branches(tiny_wan().to(torch.bfloat16), schedule="every"))
    out = run(adapter, scene(name), dtype=torch.bfloat16)
    out.float().sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in adapter.parameters())


def test_the_branch_is_added_to_the_self_attention_before_its_gate():
    model = tiny_wan()
    adapter = awake(with_branches(model, schedule=[1]))
    block, branch = model.blocks[1], adapter.branches[1]
    seen = {}
    block.attn1.to_q.register_forward_hook(lambda module, args, output: seen.update(hidden=args[0]))
    block.norm2.register_forward_hook(lambda module, args, output: seen.update(after=args[0]))
    block.register_forward_pre_hook(lambda module, args: seen.update(before=args[0], temb=args[2]))
    operator = adapter.encoding.operator(random_drive())
    with torch.no_grad():
        run(adapter)
        with_branch = seen["after"]
        extra = branch(seen["hidden"], operator)
        nn.init.zeros_(branch.to_out.weight)
        run(adapter)
    gate = (block.scale_shift_table.unsqueeze(0) + seen["temb"]).chunk(6, dim=2)[2].squeeze(2)
    torch.testing.assert_close(with_branch - seen["after"], extra * gate, rtol=1e-4, atol=1e-5)


def test_a_transformer_with_branches_does_not_run_without_cameras():
    model = tiny_wan()
    adapter = with_branches(model)
    with pytest.raises(ValueError, match=r"camera branches but no cameras.*adapter.cameras\(rays\)"):
        model(**inputs())
    operator = adapter.encoding.operator(random_drive())
    with pytest.raises(RuntimeError, match="inside"), adapter.cameras(operator):
        raise RuntimeError("inside")
    with pytest.raises(ValueError, match="no cameras"):
        model(**inputs())


def test_cameras_nest_and_the_outer_ones_come_back():
    adapter = awake(with_branches(tiny_wan()))
    outer, inner = (adapter.encoding.operator(random_drive(seed)) for seed in (0, 1))
    with adapter.cameras(outer):
        first = adapter.transformer(**inputs())[0]
        with adapter.cameras(inner):
            second = adapter.transformer(**inputs())[0]
        third = adapter.transformer(**inputs())[0]
    assert torch.equal(first, third)
    assert not torch.equal(first, second)


def test_cameras_of_another_head_size_or_number_of_tokens_are_refused():
    adapter = with_branches(tiny_wan())
    wide = MeRoPE().operator(random_drive())
    with (
        pytest.raises(ValueError, match="has 128 channels per head; the branches have 64"),
        adapter.cameras(wide),
    ):
        pass
    with pytest.raises(ValueError, match="query has 18 tokens; expected 24 of the operator's cameras"):
        run(adapter, random_drive(views=4))


def test_residual_norms_are_recorded_only_inside_their_block():
    adapter = awake(with_branches(tiny_wan()))
    with adapter.recording_residuals() as norms:
        run(adapter)
    assert sorted(norms) == [1, 3]
    assert all(branch > 0 and base > 0 for branch, base in norms.values())
    before = dict(norms)
    run(adapter, random_drive(5))
    assert norms == before


@pytest.mark.parametrize(
    ("schedule", "blocks"),
    [("alternate", (1, 3, 5)), ("every", (0, 1, 2, 3, 4, 5, 6)), ([4, 0], (0, 4)), ((6,), (6,))],
)
def test_schedules_name_blocks_counted_from_zero(schedule, blocks):
    assert scheduled_blocks(schedule, 7) == blocks


def test_the_paper_s_schedule_is_fifteen_of_thirty():
    assert scheduled_blocks("alternate", 30) == tuple(range(1, 30, 2))


@pytest.mark.parametrize("schedule", [[], [0, 0], [7], [-1], [2, 9]])
def test_lists_of_blocks_that_are_not_there_are_refused(schedule):
    with pytest.raises(ValueError, match=r"schedule must list different blocks between 0 and 6; got \["):
        scheduled_blocks(schedule, 7)


def test_a_schedule_that_names_no_block_is_refused():
    with pytest.raises(ValueError, match="'alternate' names no block of 1; use 'every'"):
        scheduled_blocks("alternate", 1)


def test_what_cannot_carry_branches_says_why():
    model = tiny_wan()
    with pytest.raises(TypeError, match=r"must be a Wan transformer .* got Linear"):
        with_branches(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"compression 3 must divide the backbone's 2 heads.*\[1, 2\]"):
        with_branches(model, compression=3)
    with pytest.raises(ValueError, match="compression must be at least 1; got 0"):
        with_branches(model, compression=0)
    with pytest.raises(ValueError, match=r"head_dim 192 does not divide the branch width 128 / 2 = 64"):
        with_branches(model, encoding=MeRoPE(head_dim=192))
    with pytest.raises(ValueError, match="schedule must list"):
        with_branches(model, schedule=[9])
    with pytest.raises(ValueError, match="pose_policy must be one of last, first, mean; got 'middle'"):
        with_branches(model, pose_policy="middle")
    # Nothing of the failed attempts is left.
    assert not any("camera" in name for name, _ in model.named_modules())
    adapter = with_branches(model)
    with pytest.raises(ValueError, match="carries a camera adapter already; detach it first"):
        with_branches(model)
    adapter.detach()
    with_branches(model)


def test_a_forward_put_on_the_attention_by_another_library_keeps_the_branch():
    # Offloading and layer-wise casting replace `forward` on the module itself, before or after we attach.
    for first in ("attach", "replace"):
        model = tiny_wan()
        adapter = awake(with_branches(model)) if first == "attach" else None
        attention = model.blocks[1].attn1
        plain, calls = attention.forward, []

        def counted(*args, plain=plain, calls=calls, **kwargs):
            calls.append(1)
            return plain(*args, **kwargs)

        attention.forward = counted
        adapter = adapter or awake(with_branches(model))
        expected = run(awake(with_branches(tiny_wan())))
        assert torch.equal(run(adapter), expected)
        assert calls == [1]


COMPILED = """
import sys
import torch
from tests.support.wan import attached, inputs, run, stirred, tiny_wan
from merope.cameras.scenes import random_drive

how, order, name = sys.argv[1:]


def compiled(model):
    if how == "blocks":
        model.compile_repeated_blocks(fullgraph=True, backend="aot_eager")
    else:
        model.compile(fullgraph=True, backend="aot_eager")


layers = 2 if how == "whole" else 4
expected = [
    run(stirred(attached(tiny_wan(num_layers=layers), name, schedule=[1])), random_drive(seed)) for seed in (0, 1)
]
base = tiny_wan(num_layers=layers)(**inputs())[0]
model = tiny_wan(num_layers=layers)
if order == "compile first":
    compiled(model)
    torch.testing.assert_close(model(**inputs())[0], base)
adapter = stirred(attached(model, name, schedule=[1]))
if order == "attach first":
    compiled(model)
for seed in (0, 1):
    out = run(adapter, random_drive(seed))
    torch.testing.assert_close(out, expected[seed], rtol=1e-5, atol=1e-5)
out.sum().backward()
assert all(parameter.grad is not None for parameter in adapter.parameters())
with adapter.taken_off():
    torch.testing.assert_close(model(**inputs())[0], base)
torch.testing.assert_close(run(adapter, random_drive(1)), expected[1], rtol=1e-5, atol=1e-5)
adapter.detach()
torch.testing.assert_close(model(**inputs())[0], base)
print("equal")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "order", "name"),
    [
        ("blocks", "compile first", "merope"),
        ("whole", "attach first", "merope"),
        ("blocks", "compile first", "scope"),
        ("blocks", "attach first", "rerope"),
    ],
)
def test_compiled_transformers_keep_their_cameras(how, order, name):
    ran = run_python(COMPILED, arguments=[how, order, name], timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "equal"


def test_cameras_move_with_the_arguments_of_an_offloaded_block_and_are_never_cast():
    adapter = with_branches(tiny_wan())
    operator = adapter.encoding.operator(random_drive())
    with adapter.cameras(operator):
        rotary = adapter.transformer.rope(inputs()["hidden_states"])
    moved = send_to_device({"args": [rotary]}, torch.device("meta"), non_blocking=True)["args"][0]
    assert [part.device.type for part in moved] == ["meta", "meta"]
    assert {(t.device.type, t.dtype) for t in moved.signals.operator.tensors()} == {("meta", torch.float32)}
    with pytest.raises(TypeError, match=r"bfloat16 cannot hold metric phases.*cast_forward_inputs=False"):
        type(rotary)(part.bfloat16() for part in rotary)


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from tests.support.wan import awake, inputs, random_drive, run, tiny_wan, with_branches

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
expected = run(awake(with_branches(tiny_wan())))
model = tiny_wan()
adapter = awake(with_branches(model))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False)
for block in model.blocks:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
seen = []
adapter.branches[1].register_forward_pre_hook(lambda module, args: seen.append(args[1]))
out = run(adapter, dtype=torch.bfloat16)
assert {tensor.dtype for tensor in seen[0].operator.tensors()} == {torch.float32}
assert out.dtype == torch.bfloat16
assert (out.float() - expected).norm() < 3e-2 * expected.norm()
out.float().sum().backward()
assert all(parameter.grad.dtype == torch.float32 for parameter in adapter.parameters())
dist.destroy_process_group()
print("sharded")
"""


def test_sharding_with_bfloat16_parameters_leaves_the_cameras_in_float32():
    ran = run_python(SHARDED)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "sharded"
