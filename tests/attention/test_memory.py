"""The working set of `chunked` over the platform's attention: a few query cameras' keys and values, also backward."""

import pytest
import torch

from merope.attention import camera_attention
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from tests.support.memory import LiveBytes

HEADS, SIZE = 2, 64


@pytest.fixture(autouse=True)
def without_tiles(monkeypatch):
    """As on a device that tiles are not made for; what those hold is tested beside them."""
    monkeypatch.setattr("merope.attention.chunked.why_not_tiled", lambda *arguments: "not here")


def peaks(views, budget):
    """Most bytes alive at once in the forward and in the backward pass, beside inputs and operator."""
    operator = MeRoPE(head_dim=SIZE).operator(random_drive(0, views=views, grid=(3, 4)))
    q, k, v = (torch.randn(2, HEADS, views * 12, SIZE, requires_grad=True) for _ in range(3))
    with LiveBytes() as live:
        out = camera_attention(q, k, v, operator, memory_budget=budget)
        forward, held = live.peak, live.current
        live.restart()
        out.sum().backward()
        return forward, held, live.peak


def one_camera(views):
    """Bytes of the keys and values of every token as one query camera sees them."""
    return 2 * 2 * HEADS * views * 12 * SIZE * 4


def test_one_camera_s_budget_never_holds_all_cameras_keys_and_values():
    views = 24
    whole = peaks(views, 2**40)
    tight = peaks(views, 1)
    everything = views * one_camera(views)
    # Kept at once: more than all transformed keys and values.
    assert whole[1] > everything
    # One at a time: in no phase more than a third of them, all copies for the backward pass included.
    assert max(tight) < everything / 3
    assert max(tight) < max(whole) / 4


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_the_working_set_of_a_small_budget_grows_with_tokens_and_not_with_pairs_of_cameras(phase):
    few, many = peaks(6, 1)[phase], peaks(24, 1)[phase]
    # Four times the cameras are four times the tokens; kept pairs would be sixteen times.
    assert many < 6 * few


def test_a_larger_budget_takes_more_cameras_at_once():
    views = 12
    by_budget = [max(peaks(views, cameras * one_camera(views))) for cameras in (1, 4)]
    assert by_budget[1] > 1.5 * by_budget[0]
    assert by_budget[1] < max(peaks(views, 2**40))


def test_what_is_saved_for_the_backward_pass_does_not_hold_every_camera():
    views = 12
    operator = MeRoPE(head_dim=SIZE).operator(random_drive(0, views=views, grid=(3, 4)))
    q, k, v = (torch.randn(2, HEADS, views * 12, SIZE, requires_grad=True) for _ in range(3))
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    sizes = {}
    for budget in (1, 2**40):
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = camera_attention(q, k, v, operator, memory_budget=budget)
        sizes[budget] = sum(saved.values())
        del out
    assert sizes[2**40] > views * one_camera(views)
    assert sizes[1] < views * one_camera(views) / 3
