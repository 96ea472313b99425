"""Registers, spills and shared memory of the fused kernels, compiled for cards that need not be here.

``python -m benchmarks.fused_registers [identity] [arch ...]`` from the top of the checkout; 80, 90 and 100 unless told. A
Markdown table. "spilled" is the stack of a thread in bytes: registers that did not fit. "loop" is the instructions of the
innermost loop, one tile of keys (of queries in "key"), and, after a plus, how many of them load from the stack. With
"identity" the maps of the query camera are left out, as in an attention that turns nothing.
"""

import re
import subprocess
import sys
from pathlib import Path

import torch
import triton

from merope.attention import fused
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from tests.support.fused import (
    KERNELS,
    call_kernels,
    compiled,
    cubin_of,
    resources,
    tile_text,
    use_absent_gpu,
)


def innermost_loop(kernel) -> str:
    """Instructions between a backward jump and its target, where no other loop is inside; the longest such loop."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    listed = subprocess.run([tool, "-c", cubin_of(kernel)], capture_output=True, text=True, check=True).stdout
    labels, lines = {}, []
    for line in listed.splitlines():
        label = re.match(r"\s*(\.L_\S+):", line)
        if label:
            labels[label[1]] = len(lines)
        elif re.search(r"/\*[0-9a-f]{4,}\*/", line):
            lines.append(line)
    loops = []
    for last, line in enumerate(lines):
        jump = re.search(r"BRA.*`\((\.L_[^)]+)\)", line)
        if jump and labels.get(jump[1], last + 1) <= last:
            loops.append((labels[jump[1]], last))
    innermost = [
        (first, last)
        for first, last in loops
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops)
    ]
    first, last = max(innermost, key=lambda loop: loop[1] - loop[0])
    return f"{last - first + 1} + {sum('LDL' in line for line in lines[first : last + 1])}"


print("| card | channels | dtype | kernel | tile | registers | spilled (bytes) | loop | shared (KiB) |")
print("|---|---|---|---|---|---|---|---|---|")
planned = fused.plan_layout
if "identity" in sys.argv:
    fused.plan_layout = lambda operator: planned(operator)._replace(turn_key=0, turn_value=0)
for arch in [int(argument) for argument in sys.argv[1:] if argument != "identity"] or (80, 90, 100):
    use_absent_gpu(arch)
    for head_dim in (64, 128, 192):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            operator = MeRoPE(head_dim=head_dim).operator(random_drive(0))
            call_kernels(operator, dtype)
            for name in KERNELS:
                kernel = compiled(name, arch)[-1]
                taken = resources(kernel)
                print(
                    f"| sm_{arch} | {head_dim} | {str(dtype).removeprefix('torch.')} | {name} | "
                    f"{tile_text(name, operator, dtype, arch)} | {taken.registers} | {taken.spilled} | "
                    f"{innermost_loop(kernel)} | {taken.shared / 1024:.0f} |",
                    flush=True,
                )
