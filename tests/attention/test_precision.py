"""Attention in low precision and under autocast: as good as plain torch there, and metric phases survive."""

import pytest
import torch

from merope.attention import camera_attention
from merope.cameras.scenes import pinhole_dirs, random_drive, rays, turned
from merope.encodings import MeRoPE
from tests.support.closeness import assert_as_accurate
from tests.support.operators import random_operator

HEADS = 3


def draw(operator, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(2, HEADS, tokens, operator.head_dim, generator=generator, dtype=torch.float64).to(dtype)
        for tokens in (operator.num_queries, operator.num_keys, operator.num_keys)
    ]


def with_gradients(function, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = function(*leaves)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [out.detach(), *torch.autograd.grad((out * weights.to(out.dtype)).sum(), leaves)]


def plain_pairwise(dense):
    """Eq. 1 by plain torch, with every operation in the dtype of its inputs."""

    def attend(q, k, v):
        maps = dense.to(q.dtype)
        keys = torch.einsum("bacde,bhce->bhacd", maps, k)
        values = torch.einsum("bacde,bhce->bhacd", maps, v)
        weights = (torch.einsum("bhad,bhacd->bhac", q, keys) / q.shape[-1] ** 0.5).softmax(-1)
        return torch.einsum("bhac,bhacd->bhad", weights, values)

    return attend


@pytest.mark.parametrize("budget", [1, 2**28])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("reach", [5.0, 1000.0])
def test_low_precision_is_as_accurate_as_plain_torch_there(dtype, reach, budget):
    view = random_drive(3, reach=reach)
    exact_operator = MeRoPE(head_dim=64).operator(view, dtype=torch.float64)
    operator = MeRoPE(head_dim=64).operator(view)
    ours, plain, exact = [], [], []
    # The largest error of one draw is luck; of four, less so.
    for seed in range(4):
        rounded = draw(operator, dtype, seed)
        exact.append(
            with_gradients(
                lambda q, k, v: camera_attention(q, k, v, exact_operator, backend="reference"),
                [x.double() for x in rounded],
            )
        )
        plain.append(with_gradients(plain_pairwise(exact_operator.dense()), rounded))
        ours.append(
            with_gradients(lambda q, k, v: camera_attention(q, k, v, operator, memory_budget=budget), rounded)
        )
    ours, plain, exact = (
        [torch.cat(parts) for parts in zip(*runs, strict=True)] for runs in (ours, plain, exact)
    )
    for got, naive, truth in zip(ours, plain, exact, strict=True):
        assert got.dtype == dtype
        # On average at most 1.9 times plain torch's error; the largest of thousands is up to 4.7 times it.
        assert_as_accurate(got, plain=naive, exact=truth, largest_factor=5.0)


@pytest.mark.parametrize("reach", [10.0, 1000.0])
def test_bfloat16_stays_within_two_hundredths_and_gradients_keep_their_direction(reach):
    view = random_drive(4, reach=reach)
    operator, exact_operator = (
        MeRoPE(head_dim=64).operator(view, dtype=dtype) for dtype in (torch.float32, torch.float64)
    )
    rounded = draw(operator, torch.bfloat16)
    exact = with_gradients(
        lambda q, k, v: camera_attention(q, k, v, exact_operator), [x.double() for x in rounded]
    )
    ours = with_gradients(lambda q, k, v: camera_attention(q, k, v, operator, memory_budget=1), rounded)
    assert (ours[0].double() - exact[0]).norm() / exact[0].norm() < 2e-2
    for got, truth in zip(ours[1:], exact[1:], strict=True):
        cosine = torch.nn.functional.cosine_similarity(got.double().flatten(), truth.flatten(), dim=0)
        assert cosine > 0.999


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float64])
def test_the_output_has_the_dtype_of_the_query_also_under_autocast(backend, given):
    operator = random_operator(dtype=torch.float32)
    q, k, v = draw(operator, given)
    outside = camera_attention(q, k, v, operator, backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = camera_attention(q, k, v, operator, backend=backend)
    assert outside.dtype == inside.dtype == given


def test_float64_and_the_reference_are_untouched_by_autocast():
    operator = random_operator()
    q, k, v = draw(operator)
    for backend in ("reference", "chunked"):
        outside = camera_attention(q, k, v, operator, backend=backend)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = camera_attention(q, k, v, operator, backend=backend)
        assert torch.equal(outside, inside)


def test_autocast_tells_100_metres_from_100_metres_and_20_centimetres():
    # A matmul of phases under autocast makes them one.
    outs = []
    for distance in (100.0, 100.2):
        centers = torch.zeros(2, 3, 3, dtype=torch.float64)
        centers[:, :, 2] = torch.arange(3) * distance
        with torch.autocast("cpu", dtype=torch.bfloat16):
            operator = MeRoPE(components=frozenset(("trans",))).operator(
                rays(turned(), centers, pinhole_dirs())
            )
            q, k, v = draw(operator, torch.float32)
            outs.append(camera_attention(q, k, v, operator))
    assert (outs[0] - outs[1]).abs().max() > 0.1


def test_autocast_is_within_bfloat16_of_float32():
    operator = MeRoPE(head_dim=64).operator(random_drive(5, reach=1000.0))
    q, k, v = draw(operator, torch.float32)
    outside = camera_attention(q, k, v, operator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = camera_attention(q, k, v, operator)
    assert 0 < (outside - inside).norm() / outside.norm() < 1e-2
