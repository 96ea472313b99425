"""The compiled softmax: to rounding what plain operations give, for every number that can come."""

import math

import numpy as np
import pytest
import torch

from merope.attention.softmax_loops import differentiate, soften

# A few units of the last place.
CLOSE = {torch.float32: 4e-7, torch.float64: 8e-16}
SMALLEST = {torch.float32: -87.0, torch.float64: -708.0}


def softened(logits, out, top, total, *, is_first):
    soften(logits.numpy(), out.numpy(), top.numpy(), total.numpy(), is_first)


def empty(logits, channels=3):
    heads, _, queries = logits.shape
    return [logits.new_full((heads, rows, queries), math.nan) for rows in (channels, 1, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_are_exponentials_down_to_the_smallest_normal_number(dtype):
    # Every query's largest logit is 0, so that no rounding comes before the exponential.
    logits = torch.linspace(SMALLEST[dtype], 0, 4 * 1001, dtype=dtype).flip(0).reshape(1, -1, 4)
    logits[:, 0] = 0
    expected = logits.double().exp() if dtype == torch.float32 else torch.from_numpy(np.exp(logits.numpy()))
    weights, state = logits.clone(), empty(logits)
    softened(weights, *state, is_first=True)
    assert ((weights.double() - expected) / expected).abs().max() < CLOSE[dtype]
    torch.testing.assert_close(state[2].double(), expected.sum(1, keepdim=True), rtol=1e-5, atol=0)
    assert torch.equal(state[1], torch.zeros_like(state[1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_smaller_is_zero(dtype):
    low = SMALLEST[dtype]
    logits = torch.tensor([0.0, 1.01 * low, 10 * low, -1e30, -math.inf], dtype=dtype).reshape(1, -1, 1)
    softened(logits, *empty(logits), is_first=True)
    assert logits.flatten().tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize("queries", [1, 3, 8, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiles_one_after_another_are_one_softmax(dtype, queries, tokens):
    logits = 30 * torch.randn(2, 3 * tokens, queries, dtype=dtype)
    logits[:, :tokens, 0] = -math.inf
    values = torch.randn(2, 5, 3 * tokens, dtype=dtype)
    out, top, total = empty(logits, channels=5)
    for n, (tile, value) in enumerate(zip(logits.split(tokens, 1), values.split(tokens, 2), strict=True)):
        weights = tile.contiguous()
        softened(weights, out, top, total, is_first=n == 0)
        out = value @ weights if n == 0 else out + value @ weights
    expected = values @ logits.softmax(1)
    tolerance = 20 * CLOSE[dtype]
    torch.testing.assert_close(out / total, expected, rtol=0, atol=tolerance * values.abs().max().item())
    torch.testing.assert_close(
        top + total.log(), logits.logsumexp(1, keepdim=True), rtol=tolerance, atol=tolerance
    )


def test_hidden_keys_leave_nothing_and_nan_comes_out():
    logits = torch.randn(1, 6, 3)
    logits[..., 0] = -math.inf
    logits[0, 4, 1] = math.nan
    expected = logits[..., 2].softmax(1)
    state = empty(logits)
    softened(logits, *state, is_first=True)
    assert torch.equal(logits[..., 0], torch.zeros(1, 6))
    assert state[2][0, 0, 0] == 0
    assert logits[0, 4, 1].isnan()
    assert state[2][0, 0, 1].isnan()
    torch.testing.assert_close(logits[..., 2] / state[2][..., 2], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_logits(dtype):
    logits = 5 * torch.randn(2, 3, 11, dtype=dtype)
    logits[0, 1, 4] = -math.inf
    d_weights = torch.randn(2, 3, 11, dtype=dtype)
    weights = logits.softmax(-1)
    delta = (weights * d_weights).sum(-1)
    # Of eight queries these are the last three; the one in the middle sees nothing.
    lse = torch.full((2, 8), math.nan, dtype=dtype)
    sums = lse.clone()
    lse[:, 5:], sums[:, 5:] = logits.logsumexp(-1), delta
    lse[1, 6], logits[1, 1] = math.inf, -math.inf
    expected = weights * (d_weights - delta[..., None])
    weights[1, 1], expected[1, 1] = 0, 0
    differentiate(logits.numpy(), d_weights.numpy(), lse.numpy(), sums.numpy(), 5)
    torch.testing.assert_close(logits, weights, rtol=0, atol=20 * CLOSE[dtype])
    torch.testing.assert_close(d_weights, expected, rtol=0, atol=60 * CLOSE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_weight_is_above_one(dtype):
    # A logit of 1e10, multiplied out in another order, can be a thousand above the log-sum-exp of the forward pass.
    logits = torch.tensor([[[1e3, 88.5, 709.9, 1e10, math.nan, -1.0]]], dtype=dtype)
    gradients = torch.ones_like(logits)
    differentiate(
        logits.numpy(),
        gradients.numpy(),
        np.zeros((1, 1), logits.numpy().dtype),
        np.zeros((1, 1), logits.numpy().dtype),
        0,
    )
    assert logits.flatten()[:4].tolist() == [1, 1, 1, 1]
    assert logits[0, 0, 4].isnan()
    assert logits[0, 0, 5].item() == pytest.approx(math.exp(-1))
