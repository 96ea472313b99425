"""The branch by itself: its size, its zero start, its precision beside a base in another."""

import pytest
import torch

from merope.adapters import CameraBranch, camera_signals
from merope.adapters.branch import Projection
from merope.attention import camera_attention
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE, RayRoPE
from merope.encodings.scale import TranslationScale

TOKENS, DIM = 18, 256


def a_branch(**changes):
    return CameraBranch(
        **{"dim": DIM, "num_heads": 4, "encoding": MeRoPE(head_dim=64), "compression": 2, **changes}
    )


def hidden(dtype=torch.float32):
    return torch.randn(2, TOKENS, DIM, generator=torch.Generator().manual_seed(3)).to(dtype)


def awake(branch):
    torch.nn.init.normal_(branch.to_out.weight, std=0.1)
    return branch


@pytest.fixture
def operator():
    return MeRoPE(head_dim=64).operator(random_drive())


@pytest.mark.parametrize(("compression", "heads"), [(1, 4), (2, 2), (4, 1)])
def test_width_and_heads_shrink_and_the_head_stays(compression, heads):
    branch = a_branch(compression=compression)
    assert (branch.num_heads, branch.head_dim) == (heads, 64)
    assert branch.to_q.weight.shape == (heads * 64, DIM)
    assert branch.to_out.weight.shape == (DIM, heads * 64)


def test_the_paper_s_branch_has_six_heads_of_128_beside_twenty_four():
    with torch.device("meta"):
        branch = CameraBranch(dim=3072, num_heads=24, encoding=MeRoPE(), compression=4)
    assert (branch.num_heads, branch.to_q.out_features) == (6, 768)
    per_block = sum(parameter.numel() for parameter in branch.parameters())
    # Fifteen blocks: 5.00 B to 5.14 B parameters.
    assert 0.141e9 < 15 * per_block < 0.143e9


def test_a_new_branch_says_nothing_and_is_zero(operator):
    branch = a_branch()
    assert branch.is_zero
    assert torch.equal(branch(hidden(), operator), torch.zeros(2, TOKENS, DIM))
    branch.to_out.bias.data[3] = 1e-30
    assert not branch.is_zero


def test_what_it_adds_is_projected_attention_under_the_operator():
    operator = MeRoPE(head_dim=64).operator(random_drive(), dtype=torch.float64)
    branch = awake(a_branch()).double()
    x = hidden(torch.float64)
    q, k, v = (
        p(x).reshape(2, TOKENS, 2, 64).transpose(1, 2) for p in (branch.to_q, branch.to_k, branch.to_v)
    )
    out = camera_attention(q, k, v, operator, backend="reference").transpose(1, 2).reshape(2, TOKENS, 128)
    torch.testing.assert_close(branch(x, operator), branch.to_out(out), rtol=0, atol=1e-12)


@pytest.mark.parametrize("given", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_an_input_of_any_precision_meets_float32_weights(given, operator):
    branch = awake(a_branch())
    x = hidden(given).requires_grad_()
    out = branch(x, operator)
    assert out.dtype == torch.float32
    assert torch.equal(out, branch(x.float(), operator))
    out.sum().backward()
    assert torch.isfinite(x.grad).all() and x.grad.dtype == given
    assert branch.to_q.weight.grad.dtype == torch.float32
    assert branch.to_q.weight.grad.abs().max() > 0


def test_a_branch_in_bfloat16_runs_too(operator):
    branch = awake(a_branch())
    exact = branch(hidden(), operator)
    rounded = branch.to(torch.bfloat16)(hidden(), operator)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() / exact.norm() < 2e-2


@pytest.mark.parametrize("given", [torch.bfloat16, torch.float32])
def test_autocast_computes_in_bfloat16_with_float32_weights(given, operator):
    branch = awake(a_branch())
    exact = branch(hidden(), operator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = branch(hidden(given), operator)
    assert out.dtype == torch.bfloat16
    assert (out.float() - exact).norm() / exact.norm() < 2e-2


def test_depths_are_predicted_in_float32_under_autocast():
    # Depths meet metric displacements: three digits are too few.
    encoding = RayRoPE(head_dim=64, scale=TranslationScale(per_metre=0.1, reach=100))
    branch = a_branch(encoding=encoding)
    torch.nn.init.normal_(branch.to_depth.weight, std=0.1)
    relations = camera_signals(encoding, random_drive())
    met = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        branch(hidden(), relations, lambda query, key, operator: met.append(operator))
    depth = branch.to_depth(hidden())
    exact = encoding.operator_at(relations.relations, depth, depth)
    assert all(torch.equal(*pair) for pair in zip(met[0].tensors(), exact.tensors(), strict=True))


@pytest.mark.parametrize("compression", [3, 0, -1, 5, 8])
def test_a_compression_that_does_not_divide_the_heads_names_those_that_do(compression):
    with pytest.raises(ValueError, match=rf"compression {compression} must divide .* 4 heads; .*\[1, 2, 4\]"):
        a_branch(compression=compression)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_projection_gives_the_same_in_either_layout(batch):
    projection = Projection(7, 12).double()
    x = torch.randn(batch, 5, 7, dtype=torch.float64)
    plain, last = projection(x), projection(x, token_last=True)
    torch.testing.assert_close(last, plain, rtol=0, atol=1e-14)
    assert last.shape == plain.shape and last.mT.is_contiguous()
    weights = torch.randn_like(plain)
    for ours, theirs in zip(
        *(torch.autograd.grad((out * weights).sum(), projection.parameters()) for out in (last, plain)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)


def test_the_branch_hands_attention_the_layout_that_it_reads(monkeypatch, operator):
    seen = []

    def recorded(query, key, value, operator):
        seen.append([x.mT.is_contiguous() for x in (query, key, value)])
        return camera_attention(query, key, value, operator)

    monkeypatch.setattr("merope.adapters.branch.camera_attention", recorded)
    branch, x = awake(a_branch()), hidden()
    out = branch(x, operator)
    assert seen == [[True] * 3]
    # Another library's layer in a projection's place is called as it is.
    other = torch.nn.Linear(DIM, branch.to_q.out_features)
    other.load_state_dict(branch.to_q.state_dict())
    branch.to_q = other
    torch.testing.assert_close(branch(x, operator), out, rtol=1e-5, atol=1e-5)
    assert seen[1] == [False, True, True]
    with torch.autocast("cpu", torch.bfloat16):
        branch(x, operator)
    assert seen[2] == [False] * 3
