"""`chunked` against the oracle `reference`: values and gradients, whatever the operator and the call."""

from dataclasses import replace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from merope.attention import camera_attention
from merope.cameras.scenes import SCENES, random_drive, scene
from merope.encodings import MeRoPE, Native
from merope.operators import Band, CameraOperator
from tests.support.operators import BATCH, CAMERAS, KEYS, PER_CAMERA, random_operator

QUERIES = CAMERAS * PER_CAMERA
HEADS = 5
# Bytes for the keys and values of one query camera at a time, of two, and of all.
BUDGETS = (1, 2 * 2 * BATCH * HEADS * KEYS * 46 * 8 + 1, 2**28)


def inputs(operator, *, heads=HEADS, extra=0, seed=0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(operator.batch, heads, tokens + extra, operator.head_dim, generator=draw, dtype=dtype)
        for tokens in (operator.num_queries, operator.num_keys, operator.num_keys)
    )


def gradients(operator, tensors, **call):
    """Output and the gradients of q, k, v and of every operator tensor."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    factors = [tensor.clone().requires_grad_() for tensor in operator.tensors()]
    pending = iter(factors)
    out = camera_attention(*leaves, operator.map_tensors(lambda tensor: next(pending)), **call)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
    found = torch.autograd.grad((out * weights).sum(), leaves + factors, allow_unused=True)
    return out.detach(), [torch.zeros(()) if grad is None else grad for grad in found]


def assert_backends_agree(operator, *, budget, atol=1e-12, **call):
    tensors = inputs(operator, extra=call.get("extra_tokens", 0))
    expected, wanted = gradients(operator, tensors, backend="reference", **call)
    out, found = gradients(operator, tensors, backend="chunked", memory_budget=budget, **call)
    torch.testing.assert_close(out, expected, rtol=0, atol=atol)
    for ours, theirs in zip(found, wanted, strict=True):
        scale = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(ours / scale, theirs / scale, rtol=0, atol=atol)
    return expected, wanted


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("grouped", [True, False])
def test_chunked_equals_reference_for_every_kind_of_block(grouped, heads, budget):
    _, wanted = assert_backends_agree(random_operator(grouped=grouped, heads=heads), budget=budget)
    # Every factor of the operator takes part.
    assert all(grad.abs().max() > 0 for grad in wanted)


@pytest.mark.parametrize("budget", [1, 2**28])
@pytest.mark.parametrize("name", SCENES)
def test_chunked_equals_reference_on_the_standing_scenes(name, budget):
    encoding = MeRoPE(head_dim=64, anchor_frames="transported" if budget == 1 else "minrot")
    assert_backends_agree(encoding.operator(scene(name), dtype=torch.float64), budget=budget)


@pytest.mark.parametrize("budget", [1, 2**28])
def test_keys_of_other_cameras_and_grids_are_served(budget):
    queries, keys = random_drive(1, views=2, grid=(1, 3)), random_drive(2, views=4, grid=(2, 1))
    assert_backends_agree(MeRoPE(head_dim=64).operator(queries, keys, dtype=torch.float64), budget=budget)


@pytest.mark.parametrize("acts_on", ["qkvo", "qk", "vo", ""])
@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("budget", [1, 2**28])
def test_an_operator_acts_only_on_what_it_says(acts_on, extra, budget):
    assert_backends_agree(random_operator(heads=HEADS, acts_on=acts_on), budget=budget, extra_tokens=extra)


def test_what_acts_on_nothing_is_plain_attention():
    operator = random_operator(acts_on="")
    q, k, v = inputs(operator)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(camera_attention(q, k, v, operator), plain, rtol=0, atol=1e-14)


def test_the_reference_refuses_a_half_transformed_pair():
    operator = random_operator(acts_on="q")
    with pytest.raises(
        ValueError, match=r"the reference needs q with k and v with o in acts_on; got \['q'\]"
    ):
        camera_attention(*inputs(operator), operator, backend="reference")


@pytest.mark.parametrize("extra", [1, 3])
@pytest.mark.parametrize("budget", BUDGETS)
def test_extra_tokens_meet_every_key_untransformed(extra, budget):
    operator = random_operator(heads=HEADS)
    expected, _ = assert_backends_agree(operator, budget=budget, extra_tokens=extra)
    q, k, v = inputs(operator, extra=extra)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(expected[:, :, QUERIES:], plain[:, :, QUERIES:], rtol=0, atol=1e-13)


def test_no_extra_tokens_is_the_call_without_them_to_the_bit():
    operator = random_operator()
    q, k, v = inputs(operator)
    assert torch.equal(
        camera_attention(q, k, v, operator), camera_attention(q, k, v, operator, extra_tokens=0)
    )


def some_mask(extra=0):
    mask = torch.ones(BATCH, KEYS + extra, dtype=torch.bool)
    mask[0, 2:7] = False
    mask[1, 0] = False
    return mask


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("budget", BUDGETS)
def test_masked_keys_are_left_out(extra, budget):
    operator = random_operator(heads=HEADS)
    expected, _ = assert_backends_agree(
        operator, budget=budget, extra_tokens=extra, key_mask=some_mask(extra)
    )
    q, k, v = inputs(operator, extra=extra)
    unmasked = camera_attention(q, k, v, operator, extra_tokens=extra)
    assert (expected - unmasked).abs().max() > 0.1


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e300])
def test_what_stands_in_a_masked_key_has_no_influence(backend, poison):
    operator, mask = random_operator(heads=HEADS), some_mask(2)
    q, k, v = inputs(operator, extra=2)
    call = {"extra_tokens": 2, "key_mask": mask, "backend": backend, "memory_budget": 1}
    clean, clean_grads = gradients(operator, (q, k, v), **call)
    k, v = (x.masked_fill(~mask[:, None, :, None], poison) for x in (k, v))
    out, grads = gradients(operator, (q, k, v), **call)
    assert torch.equal(out, clean)
    for dirty, pure in zip(grads, clean_grads, strict=True):
        assert torch.equal(dirty, pure)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("budget", [1, 2**28])
def test_a_fully_masked_row_is_exactly_zero_with_zero_gradients(backend, budget):
    operator, mask = random_operator(heads=HEADS), some_mask(1)
    mask[1] = False
    tensors = inputs(operator, extra=1)
    out, grads = gradients(
        operator, tensors, backend=backend, memory_budget=budget, extra_tokens=1, key_mask=mask
    )
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert out[0].abs().max() > 0
    for grad in grads:
        assert torch.isfinite(grad).all()
        assert torch.equal(grad[1], torch.zeros_like(grad[1]))
    for grad in grads[:3]:
        assert grad[0].abs().max() > 0


@pytest.mark.parametrize("budget", [1, 2**28])
def test_transposed_views_give_what_contiguous_tensors_give(budget):
    operator = random_operator(heads=HEADS)
    tensors = inputs(operator)
    straight, wanted = gradients(operator, tensors, memory_budget=budget)
    # Heads split from channels, as a projection leaves them; and channels that are not the last axis in memory.
    for order in ((0, 2, 1, 3), (3, 0, 2, 1)):
        back = tuple(order.index(axis) for axis in range(4))
        views = [x.permute(order).contiguous().permute(back) for x in tensors]
        assert not views[0].is_contiguous()
        leaves = [view.requires_grad_() for view in views]
        out = camera_attention(*leaves, operator, memory_budget=budget)
        torch.testing.assert_close(out, straight, rtol=0, atol=1e-14)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
        found = torch.autograd.grad((out * weights).sum(), leaves)
        for ours, theirs in zip(found, wanted, strict=False):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("budget", BUDGETS)
def test_one_budget_gives_what_another_gives_in_float32(budget):
    operator = random_operator(heads=1, dtype=torch.float32)
    tensors = inputs(operator, dtype=torch.float32)
    once, wanted = gradients(operator, tensors)
    out, found = gradients(operator, tensors, memory_budget=budget)
    torch.testing.assert_close(out, once, rtol=0, atol=1e-5)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("budget", [1, 2**28])
def test_gradcheck_of_queries_keys_values_and_operator(budget):
    operator = random_operator(heads=1)
    # One clip, one head and few channels keep the numerical Jacobian small.
    factors = [tensor[:1].clone().requires_grad_() for tensor in operator.tensors()]
    q, k, v = (x[:1, :1].clone().requires_grad_() for x in inputs(operator))

    def attend(q, k, v, *given):
        pending = iter(given)
        mapped = CameraOperator(
            bands=operator.map_tensors(lambda tensor: next(pending)).bands,
            batch=1,
            num_query_cameras=CAMERAS,
            num_queries=QUERIES,
            num_keys=KEYS,
        )
        return camera_attention(q, k, v, mapped, memory_budget=budget)

    assert torch.autograd.gradcheck(attend, (q, k, v, *factors), fast_mode=True)


def test_an_operator_without_any_camera_is_served():
    operator = Native(head_dim=8, native_widths=(0, 0, 0)).operator(random_drive())
    assert operator.tensors() == []
    assert_backends_agree(operator, budget=1)
    ungrouped = CameraOperator(
        bands=(Band(name="keep", width=7),), batch=2, num_query_cameras=4, num_queries=12, num_keys=5
    )
    assert_backends_agree(ungrouped, budget=1)


def test_memory_that_nobody_wrote_does_not_show(poisoned_memory):
    operator = random_operator(heads=HEADS)
    assert_backends_agree(operator, budget=1, extra_tokens=2, key_mask=some_mask(2))


@pytest.mark.parametrize("autocast", [False, True])
def test_a_checkpoint_around_the_call_changes_no_gradient(autocast):
    operator = random_operator(dtype=torch.float32)
    tensors = inputs(operator, dtype=torch.float32)
    found = []
    for outer in (False, True):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]

        def attend(q, k, v):
            return camera_attention(q, k, v, operator, memory_budget=1)

        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            out = checkpoint(attend, *leaves, use_reentrant=False) if outer else attend(*leaves)
        # The backward pass runs outside autocast.
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for inner, both in zip(*found, strict=True):
        assert torch.equal(inner, both)


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("grouped", [True, False])
def test_frame_causal_backends_agree(grouped, budget, masked, extra):
    operator = MeRoPE(head_dim=64, components=frozenset(("disp", "rot", "trans") if grouped else ("rot",)))
    rays = random_drive(3, views=4, grid=(1, 3))
    operator = operator.operator(rays, dtype=torch.float64)
    mask = None
    if masked:
        mask = torch.ones(BATCH, 12 + extra, dtype=torch.bool)
        mask[0, :3] = False  # the first camera sees nothing of its own
        mask[1, 4:7] = False
    assert_backends_agree(operator, budget=budget, frame_causal=True, extra_tokens=extra, key_mask=mask)


def views_of(rays, first, last):
    cut = {
        name: getattr(rays, name)[:, first:last]
        for name in ("R_world_cam", "center_world", "dirs_cam", "valid", "time")
    }
    return replace(rays, **cut)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_frame_causal_is_the_attention_over_the_past_alone(backend):
    rays, encoding = random_drive(3, views=4, grid=(1, 3)), MeRoPE(head_dim=64)
    q, k, v = inputs(encoding.operator(rays, dtype=torch.float64))
    call = {"frame_causal": True, "backend": backend}
    whole = camera_attention(q, k, v, encoding.operator(rays, dtype=torch.float64), **call)
    for camera in range(4):
        now, past = views_of(rays, camera, camera + 1), views_of(rays, 0, camera + 1)
        rows, seen = slice(3 * camera, 3 * camera + 3), slice(0, 3 * camera + 3)
        operator = encoding.operator(now, past, dtype=torch.float64)
        one = camera_attention(q[:, :, rows], k[:, :, seen], v[:, :, seen], operator)
        torch.testing.assert_close(whole[:, :, rows], one, rtol=0, atol=1e-13)
        # History before the query cameras.
        one = camera_attention(q[:, :, rows], k[:, :, seen], v[:, :, seen], operator, **call)
        torch.testing.assert_close(whole[:, :, rows], one, rtol=0, atol=1e-13)


def test_frame_causal_wants_equal_cameras_and_says_so():
    queries, keys = random_drive(1, views=2, grid=(1, 3)), random_drive(2, views=4, grid=(2, 1))
    operator = MeRoPE(head_dim=64).operator(queries, keys, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"query cameras to be the last of .* 2 query cameras of 3"):
        camera_attention(*inputs(operator), operator, frame_causal=True)
