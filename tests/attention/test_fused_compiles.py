"""The fused kernels compiled for cards that are not here: they fit, and no clip compiles them anew."""

import json

import pytest
import torch

from merope.attention import camera_attention
from merope.attention.fused import fused_attention, why_not_fused
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from tests.support.closeness import assert_as_accurate
from tests.support.fresh_python import run_python

# The driver that runs nothing is for good, so each test has a process of its own.
COMPILE = """
import json
import sys
import torch
from merope.cameras.scenes import random_drive
from merope.encodings.registry import default_encoding
from tests.support.fused import KERNELS, call_kernels, compiled, resources, use_absent_gpu

found = []
for arch, name, head_dim, dtype in json.loads(sys.argv[1]):
    gpu = use_absent_gpu(arch)
    operator = default_encoding(name, head_dim=head_dim, num_heads=2).operator(random_drive(0))
    call_kernels(operator, getattr(torch, dtype))
    assert gpu.launches == 3
    for kernel in KERNELS:
        taken = resources(compiled(kernel, arch)[-1])
        found.append([arch, name, head_dim, dtype, kernel, taken.registers, taken.spilled, taken.shared])
print(json.dumps(found))
"""

SHARED_LIMIT = {80: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
"""Bytes that one program may have. An A100 has 163 KiB; its tiles serve sm_86 and sm_89 too, which have 99."""

# Each head size, dtype and card once or more; benchmarks/fused_registers.py compiles all of them.
CHOSEN = [
    (80, "merope", 128, "float16"),
    (90, "merope", 128, "bfloat16"),
    (100, "merope", 64, "bfloat16"),
    (80, "merope", 64, "float32"),
    (90, "merope", 192, "bfloat16"),
    # A row of 256.
    (80, "urope", 192, "bfloat16"),
]


@pytest.mark.slow
def test_every_kernel_compiles_and_fits():
    ran = run_python(COMPILE, arguments=[json.dumps(CHOSEN)], timeout=900)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert len(found) == 3 * len(CHOSEN)
    for arch, encoding, head_dim, dtype, kernel, registers, spilled, shared in found:
        name = f"{kernel} for sm_{arch}, {encoding}, {head_dim} channels, {dtype}"
        assert 0 < shared <= SHARED_LIMIT[arch], f"{name}: {shared} bytes of shared memory"
        # The accumulated gradients of keys leave registers between query cameras; a loop that spills takes thousands.
        assert registers > 32 and spilled < 1000, f"{name}: {registers} registers, {spilled} bytes spilled"


COUNT = """
import torch
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from tests.support.fused import KERNELS, call_kernels, compiled, use_absent_gpu


def counts():
    return [len(compiled(kernel, 80)) for kernel in KERNELS]


use_absent_gpu(80)
encoding = MeRoPE(head_dim=64)


def call(*rays, **options):
    call_kernels(encoding.operator(*rays), torch.float16, **options)


# One camera, one token per camera, multiples of 16, primes; history; one head, many, one of 16; other clips.
call(random_drive(0, views=1, grid=(1, 1)), heads=1)
assert counts() == [1, 1, 1], counts()
for seed, (views, grid) in enumerate([(2, (4, 4)), (16, (1, 1)), (3, (1, 7)), (1, (4, 8)), (5, (2, 3))]):
    call(random_drive(seed, views=views, grid=grid), heads=1 + seed % 3)
keys = random_drive(0, views=4, grid=(2, 8))
call(keys.for_views(1, 3), keys, heads=16)
call(keys, heads=2, extra=1)
call(keys, heads=2, extra=16)
assert counts() == [1, 1, 1], counts()

call(keys, masked=True)
call(random_drive(1, views=3, grid=(1, 5)), masked=True, extra=3)
assert counts() == [2, 2, 2], counts()
call(keys, causal=True)
call(keys.for_views(1, 4), keys, causal=True, extra=2)
assert counts() == [3, 3, 3], counts()
print("counted")
"""


@pytest.mark.slow
def test_one_compilation_serves_every_number_of_cameras_tokens_heads_and_clips():
    ran = run_python(COUNT, timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "counted"


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def attend(backend, tensors, operator):
    if backend == "fused":
        return fused_attention(*tensors, operator, extra_tokens=0, key_mask=None, frame_causal=False)
    return camera_attention(*tensors, operator, backend=backend)


@cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("head_dim", "heads", "reach"), [(128, 6, 20.0), (128, 6, 1000.0), (192, 1, 20.0), (64, 2, 20.0)]
)
def test_full_sizes_on_a_gpu_are_as_accurate_as_plain_torch(head_dim, heads, reach, dtype):
    drive = random_drive(0, views=13, grid=(9, 16), reach=reach)
    encoding = MeRoPE(head_dim=head_dim)
    exact_operator, operator = (
        encoding.operator(drive, dtype=precision, device="cuda")
        for precision in (torch.float64, torch.float32)
    )
    assert why_not_fused(torch.empty(1, device="cuda", dtype=dtype), operator) is None
    shape = (operator.batch, heads, operator.num_queries, head_dim)
    rounded = [torch.randn(shape, device="cuda").to(dtype) for _ in range(3)]
    weights = torch.randn(shape, device="cuda", dtype=torch.float64)
    found = {}
    for name, backend, given, precision in (
        ("ours", "fused", operator, dtype),
        ("plain", "chunked", operator, dtype),
        ("exact", "chunked", exact_operator, torch.float64),
    ):
        leaves = [tensor.to(precision).requires_grad_() for tensor in rounded]
        out = attend(backend, leaves, given)
        grads = torch.autograd.grad((out * weights.to(out.dtype)).sum(), leaves)
        found[name] = [out.detach(), *grads]
    for ours, plain, exact in zip(found["ours"], found["plain"], found["exact"], strict=True):
        assert_as_accurate(ours, plain=plain, exact=exact)
        assert torch.nn.functional.cosine_similarity(ours.double().flatten(), exact.flatten(), dim=0) > 0.999


@cuda
def test_more_than_two_to_the_31_numbers_are_addressed_on_a_gpu():
    free, _ = torch.cuda.mem_get_info()
    if free < 60 * 2**30:
        pytest.skip(f"needs 60 GiB of GPU memory; {free / 2**30:.0f} are free")
    drive = random_drive(0, views=2, grid=(16, 16))
    operator = MeRoPE(head_dim=64).operator(drive, device="cuda")
    heads = 2**31 // (operator.batch * operator.num_queries * 64) + 1
    q, k, v = (
        torch.randn(operator.batch, heads, operator.num_queries, 64, device="cuda", dtype=torch.float16)
        for _ in range(3)
    )
    assert q.numel() > 2**31
    with torch.no_grad():
        every = attend("fused", (q, k, v), operator)
        last = attend("fused", tuple(x[:, -1:].contiguous() for x in (q, k, v)), operator)
    assert torch.equal(every[:, -1:], last)
