"""The fused kernel without a GPU: compiled for cards that are not here, launched by a driver that runs nothing."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from merope.attention import fused, fused_kernels
from merope.attention.fused_rows import plan_layout
from merope.operators import CameraOperator

KERNELS = {
    "forward": fused_kernels.forward,
    "query": fused_kernels.backward_query,
    "key": fused_kernels.backward_key,
}


@dataclass(frozen=True)
class _Utilities:
    shared_limit: int

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": self.shared_limit, "multiprocessor_count": 1}

    def load_binary(self, *args: Any) -> tuple[int, int, int, int, int]:
        return 0, 0, 0, 0, 1024


class AbsentGPU:
    """A Triton driver for one card: what is launched is compiled for it, and not run."""

    def __init__(self, arch: int) -> None:
        self.arch = arch
        self.utils = _Utilities(2**30)
        self.launches = 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return self.arch

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(*args: Any) -> None:
            self.launches += 1

        return launch


def use_absent_gpu(arch: int) -> AbsentGPU:
    """Every launch from now on is a compilation for that card; each card's kernels are counted apart."""
    gpu = AbsentGPU(arch)
    driver.set_active(gpu)
    return gpu


def compiled(kernel: str, arch: int) -> list[Any]:
    """What was compiled of one kernel for one card."""
    kernels, *_ = KERNELS[kernel].device_caches[arch]
    return list(kernels.values())


def call_kernels(
    operator: CameraOperator,
    dtype: torch.dtype,
    *,
    heads: int = 2,
    extra: int = 0,
    masked: bool = False,
    causal: bool = False,
) -> None:
    """One forward and backward pass of `fused_attention` on the active driver; results are whatever memory held."""
    shapes = (operator.num_queries, operator.num_keys, operator.num_keys)
    query, key, value = (
        torch.randn(operator.batch, heads, tokens + extra, operator.head_dim, dtype=dtype, requires_grad=True)
        for tokens in shapes
    )
    mask = torch.ones(operator.batch, operator.num_keys + extra, dtype=torch.bool) if masked else None
    out = fused.fused_attention(
        query, key, value, operator, extra_tokens=extra, key_mask=mask, frame_causal=causal
    )
    out.sum().backward()


@dataclass(frozen=True)
class Resources:
    """What one kernel takes on a card."""

    registers: int
    """Per thread, of 255."""
    spilled: int
    """Bytes per thread that did not fit into registers."""
    shared: int
    """Bytes of shared memory per program."""


def cubin_of(kernel: Any) -> Path:
    """The file with a compiled kernel's binary."""
    return next(Path(path) for name, path in kernel.metadata_group.items() if name.endswith(".cubin"))


def resources(kernel: Any) -> Resources:
    """Of a compiled kernel, read off its binary by the assembler's own tool."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    cubin = next(Path(path) for name, path in kernel.metadata_group.items() if name.endswith(".cubin"))
    listed = subprocess.run(
        [tool, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True
    )
    found = re.search(r"REG:(\d+) STACK:(\d+)", listed.stdout)
    assert found is not None, listed.stdout
    return Resources(int(found[1]), int(found[2]), kernel.metadata.shared)


def tile_text(kernel: str, operator: CameraOperator, dtype: torch.dtype, arch: int) -> str:
    """Queries x keys, warps and stages of a kernel's tile."""
    tile = fused.tile_of(kernel, plan_layout(operator).row, dtype, arch)
    return f"{tile.queries} x {tile.keys}, {tile.warps} warps, {tile.stages}"
