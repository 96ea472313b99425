"""`torch.compile(fullgraph=True)` with the operator as an argument, in a process without shape checks."""

import pytest

from tests.support.fresh_python import run_python

PROGRAM = """
import sys
import torch
from torch._dynamo.utils import counters
from merope.attention import camera_attention
from merope.encodings import MeRoPE
from merope.cameras.scenes import random_drive

budget = int(sys.argv[1])
encoding = MeRoPE(head_dim=64)


def attend(q, k, v, operator):
    return camera_attention(q, k, v, operator, memory_budget=budget)


graphs = []


def backend(graph, inputs):
    graphs.append(graph)
    return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)


compiled = torch.compile(attend, fullgraph=True, backend=backend)
for seed in (0, 1):
    operator = encoding.operator(random_drive(seed, views=2))
    tensors = [torch.randn(2, 3, 12, 64, requires_grad=True) for _ in range(3)]
    found = []
    for function in (attend, compiled):
        out = function(*tensors, operator)
        found.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    for eager, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
assert len(graphs) == 1, f"{len(graphs)} graphs: the second clip's operator compiled anew"
assert counters["stats"]["unique_graphs"] == 1
for node in graphs[0].graph.nodes:
    value = node.meta.get("example_value")
    assert not (isinstance(value, torch.Tensor) and value.is_complex()), node
print("compiled")
"""


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, 2**28])
def test_attention_compiles_to_one_graph_that_serves_every_clip(budget):
    ran = run_python(PROGRAM, arguments=[str(budget)], timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "compiled"
