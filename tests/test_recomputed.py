"""Right maps that are made when a query camera's turn comes: the same attention, nothing kept."""

from dataclasses import replace

import pytest
import torch

from merope.attention import camera_attention
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from merope.operators import Recomputed
from tests.attention.test_backends_agree import inputs

CASES = {
    "minrot": MeRoPE(head_dim=64),
    "transported": MeRoPE(head_dim=64, anchor_frames="transported"),
}


def pair(encoding, **call):
    """The operator with its anchors stored, and without."""
    rays = random_drive(3, views=4, grid=(1, 3))
    stored = encoding.operator(rays, dtype=torch.float64, **call)
    made = encoding.operator(rays, dtype=torch.float64, anchor_bytes=0, **call)
    return stored, made


def attended(operator, *, budget=2**28, **call):
    leaves = [x.requires_grad_() for x in inputs(operator, heads=3, extra=call.get("extra_tokens", 0))]
    out = camera_attention(*leaves, operator, memory_budget=budget, **call)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


@pytest.mark.parametrize("backend", ["chunked", "reference"])
@pytest.mark.parametrize("budget", [1, 40_000, 2**28])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_attention_is_the_same(name, causal, budget, backend):
    stored, made = pair(CASES[name])
    call = {"backend": backend, "budget": budget, "frame_causal": causal, "extra_tokens": 2}
    for ours, theirs in zip(attended(made, **call), attended(stored, **call), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_nothing_of_the_anchors_is_stored():
    stored, made = pair(CASES["minrot"])
    assert isinstance(made.bands[0].right, Recomputed)
    numbers = stored.bands[0].right.axis
    missing = sum(x.nbytes for x in stored.tensors()) - sum(x.nbytes for x in made.tensors())
    assert missing == numbers.nbytes == 4 * made.recomputed_bytes
    assert stored.recomputed_bytes == 0
    assert made.stored().recomputed_bytes == 0
    assert torch.equal(made.stored().bands[0].right.axis, numbers)


def test_a_budget_decides():
    encoding, rays = CASES["minrot"], random_drive(3, views=4, grid=(1, 3))
    exact = encoding.operator(rays).bands[0].right.axis.nbytes
    assert encoding.operator(rays, anchor_bytes=exact).recomputed_bytes == 0
    assert encoding.operator(rays, anchor_bytes=exact - 1).recomputed_bytes == exact // 4


def test_as_many_cameras_are_made_at_once_as_the_budget_holds_and_again_in_the_backward_pass():
    _, made = pair(CASES["minrot"])
    asked = []
    band = made.bands[0]
    right = band.right

    def make(first, last):
        asked.append((first, last))
        return right.make(first, last)

    watched = replace(made, bands=(replace(band, right=replace(right, make=make)), *made.bands[1:]))
    with torch.no_grad():
        camera_attention(*inputs(made, heads=2), watched, memory_budget=3 * made.recomputed_bytes)
    assert asked == [(0, 3), (3, 4)]
    asked.clear()
    attended(watched, budget=3 * made.recomputed_bytes)
    assert sorted(asked) == sorted(2 * [(0, 3), (3, 4)])


def test_pairs_and_runs_of_cameras_are_those_of_the_stored_operator():
    stored, made = pair(CASES["minrot"])
    torch.testing.assert_close(made.dense(), stored.dense(), rtol=0, atol=0)
    torch.testing.assert_close(made.pair(4, 7), stored.pair(4, 7), rtol=0, atol=0)
    run = {"first": 1, "last": 3, "num_keys": 9}
    torch.testing.assert_close(
        made.for_query_cameras(**run).dense(), stored.for_query_cameras(**run).dense(), rtol=0, atol=1e-14
    )
    halved = [x.map_tensors(lambda tensor: tensor / 2).dense() for x in (made, stored)]
    torch.testing.assert_close(*halved, rtol=0, atol=0)
    assert made.num_heads == stored.num_heads == 1
    assert made.to("cpu").recomputed_bytes == made.recomputed_bytes


def test_some_query_cameras_are_still_made_when_their_turn_comes():
    stored, made = pair(CASES["minrot"])
    some = made.for_query_cameras(1, 3, store=False)
    assert some.recomputed_bytes == made.recomputed_bytes
    for ours, theirs in (
        (some, stored.for_query_cameras(1, 3)),
        (some.for_query_cameras(1, 2, store=False), stored.for_query_cameras(2, 3)),
    ):
        torch.testing.assert_close(ours.dense(), theirs.dense(), rtol=0, atol=1e-14)
    # Where keys are cut there is nothing else to do than to make them.
    assert made.for_query_cameras(1, 3, num_keys=6, store=False).recomputed_bytes == 0
