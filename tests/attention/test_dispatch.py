"""What a call must look like, and how a call that does not is answered."""

import pytest
import torch

from merope.attention import available_backends, camera_attention, why_not
from merope.cameras import scenes
from merope.encodings import MeRoPE
from tests.support.fresh_python import run_python
from tests.support.operators import BATCH, KEYS, random_operator

QUERIES, HEADS, SIZE = 12, 5, 46


def tensors(**changed):
    shapes = {
        "query": (BATCH, HEADS, QUERIES, SIZE),
        "key": (BATCH, HEADS, KEYS, SIZE),
        "value": (BATCH, HEADS, KEYS, SIZE),
        **changed,
    }
    return [torch.zeros(shape, dtype=torch.float64) for shape in shapes.values()]


# The test run checks shapes among the arguments before the library does; these pass that check.
@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        (
            {"query": (BATCH, HEADS, QUERIES + 1, SIZE)},
            {},
            r"query has 13 tokens; expected 12 of the operator's cameras \+ 0 extra = 12",
        ),
        (
            {"key": (BATCH, HEADS, 9, SIZE), "value": (BATCH, HEADS, 9, SIZE)},
            {},
            r"key has 9 tokens; expected 10 .* Pass extra_tokens=",
        ),
        ({}, {"extra_tokens": 2}, r"query has 12 tokens; expected 12 .* \+ 2 extra = 14"),
        ({}, {"extra_tokens": -1}, r"extra_tokens must be >= 0; got -1"),
        (
            dict.fromkeys(("query", "key", "value"), None),
            {},
            r"query has 48 channels per head; the operator has 5 \+ 12 \+ 9 \+ 6 \+ 4 \+ 8 \+ 2 = 46",
        ),
        (
            {
                "query": (3, HEADS, QUERIES, SIZE),
                "key": (3, HEADS, KEYS, SIZE),
                "value": (3, HEADS, KEYS, SIZE),
            },
            {},
            r"query has batch 3; the operator has 2",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_answered_with_the_arithmetic(changed, options, message):
    for name, shape in changed.items():
        if shape is None:
            changed = {**changed, name: (BATCH, HEADS, QUERIES if name == "query" else KEYS, 48)}
    with pytest.raises(ValueError, match=message):
        camera_attention(*tensors(**changed), random_operator(), **options)


def test_a_mask_of_another_length_is_refused():
    mask = torch.ones(BATCH, KEYS + 1, dtype=torch.bool)
    with pytest.raises((ValueError, TypeError), match="key_mask"):
        camera_attention(*tensors(), random_operator(), key_mask=mask)


def test_calls_that_the_test_run_s_type_checks_would_stop_are_answered_too():
    ran = run_python(
        """
import torch
from merope.attention import camera_attention
from tests.support.operators import random_operator
operator = random_operator()
q, k = torch.zeros(2, 5, 12, 46), torch.zeros(2, 5, 10, 46)
for arguments, options in (
    ((q, k, k), {"backend": "magic"}),
    ((q, k, k), {"key_mask": torch.ones(2, 10)}),
    ((q, k[:, :2], k[:, :2]), {}),
    ((q[0], k, k), {}),
):
    try:
        camera_attention(*arguments, operator, **options)
    except ValueError as error:
        print(error)
"""
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("backend 'magic' cannot serve this call: there is no backend 'magic'")
    assert lines[1] == "key_mask must be boolean with shape [2, 10]; got torch.float32 [2, 10]."
    assert lines[2] == "query, key and value must have equally many heads; got 5, 2, 2."
    assert lines[3] == "query must have shape [batch, head, token, channel]; got [5, 12, 46]."


def test_tensors_on_another_device_than_the_operator_are_answered_with_the_way_out():
    with pytest.raises(
        ValueError, match=r"must share a device; got cpu, cpu, cpu and meta.*operator.to\(query"
    ):
        camera_attention(*tensors(), random_operator().to("meta"))


def test_the_reference_declines_what_would_fill_the_memory():
    operator = random_operator()
    query = torch.zeros(BATCH, HEADS, QUERIES, SIZE)
    assert why_not("reference", query, operator) is None
    assert why_not("chunked", query, operator) is None
    assert available_backends() == ("reference", "chunked", "fused")
    assert why_not("fused", query, operator) is not None  # no GPU, or double precision
    import dataclasses

    huge = dataclasses.replace(operator, bands=operator.bands[:1], num_queries=120_000, num_keys=100_000)
    assert "it would hold every U_ab" in why_not("reference", query, huge)


def test_keys_without_a_ray_have_no_influence():
    rays = scenes.fisheye_200deg()
    assert not bool(rays.valid.all()), "the scene must hold tokens outside the image circle"
    operator = MeRoPE(head_dim=64).operator(rays, dtype=torch.float64)
    query, key, value = torch.randn(3, 2, 1, rays.num_tokens, 64, dtype=torch.float64)
    lost = ~rays.valid.flatten(1)[:, None, :, None].expand_as(key)
    other_key, other_value = key.clone(), value.clone()
    other_key[lost], other_value[lost] = float("nan"), 7.0
    for backend in ("reference", "chunked"):
        one = camera_attention(query, key, value, operator, backend=backend)
        other = camera_attention(query, other_key, other_value, operator, backend=backend)
        assert torch.equal(one, other)


def test_a_backend_asked_for_by_name_is_the_one_that_serves_or_raises(monkeypatch):
    operator = random_operator()
    q, k, v = tensors()
    with pytest.raises(
        ValueError, match=r"backend 'fused' cannot serve this call: .* Use 'chunked' or 'auto'"
    ):
        camera_attention(q, k, v, operator, backend="fused")

    def refuse(*arguments, **call):
        raise AssertionError("not asked for")

    monkeypatch.setattr("merope.attention.dispatch.chunked_attention", refuse)
    monkeypatch.setattr("merope.attention.dispatch.fused_attention", refuse)
    camera_attention(q, k, v, operator, backend="reference")
    for backend in ("auto", "chunked"):
        with pytest.raises(AssertionError, match="not asked for"):
            camera_attention(q, k, v, operator, backend=backend)


def test_on_a_cpu_auto_never_takes_the_interpreter(monkeypatch):
    monkeypatch.setattr("merope.attention.dispatch.why_not_fused", lambda query, operator: None)
    monkeypatch.setattr(
        "merope.attention.dispatch.fused_attention", lambda *arguments, **call: pytest.fail("on a CPU")
    )
    camera_attention(*tensors(), random_operator())
