"""Every encoding on the real Wan transformer, wherever it works: in a branch, in the backbone's attention, or nowhere."""

import copy
import dataclasses

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from merope.adapters import attach, load_adapter, save_adapter
from merope.attention import camera_attention
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from merope.encodings.base import DepthEncoding, FeatureEncoding
from merope.encodings.latitude_up import LatitudeUpMap
from merope.encodings.registry import ENCODINGS, default_encoding, encoding_to_config
from merope.encodings.scale import TranslationScale
from merope.errors import CheckpointMismatch
from tests.support.fresh_python import run_python
from tests.support.wan import attached, inputs, run, stirred, tiny_wan

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

CARVED = ("rerope", "rerope-merope")
BACKBONE = [name for name, kind in ENCODINGS.items() if kind.facts.placement == "backbone"]
BRANCH = [name for name, kind in ENCODINGS.items() if kind.facts.placement == "branch"]
INJECTED = [name for name in BACKBONE if name not in CARVED]
EVERY = pytest.mark.parametrize("name", ENCODINGS)


def two_blocks():
    """Encodings do the same in every block; two say whether blocks keep apart."""
    return tiny_wan(num_layers=2)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_new_adapter_changes_no_bit_unless_it_carves(name, dtype):
    model = two_blocks().to(dtype)
    with torch.no_grad():
        before = model(**inputs(dtype=dtype))[0]
        adapter = attached(model, name)
        after = run(adapter, dtype=dtype)
    assert after.dtype == dtype
    assert torch.equal(after, before) == (name not in CARVED)
    assert adapter.is_zero == (name not in (*CARVED, "none"))


@EVERY
def test_a_new_adapter_changes_no_bit_under_autocast_unless_it_carves(name):
    model = two_blocks()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = model(**inputs())[0]
        after = run(attached(model, name))
    assert torch.equal(after, before) == (name not in CARVED)


@EVERY
def test_detaching_leaves_the_transformer_as_it_was(name):
    model = two_blocks()
    untouched = copy.deepcopy(model)
    processors = [block.attn1.processor for block in model.blocks]
    types = [type(module) for module in model.modules()]
    adapter = stirred(attached(model, name))
    changed = not torch.equal(run(adapter), untouched(**inputs())[0])
    assert changed == (name != "none")
    assert adapter.detach() is model
    assert [type(module) for module in model.modules()] == types
    assert [block.attn1.processor for block in model.blocks] == processors
    assert list(model.state_dict()) == list(untouched.state_dict())
    assert torch.equal(model(**inputs())[0], untouched(**inputs())[0])


@EVERY
def test_the_cameras_matter_once_something_is_learned(name):
    adapter = stirred(attached(two_blocks(), name))
    one, other = run(adapter, random_drive(0)), run(adapter, random_drive(1))
    assert torch.equal(one, other) == (name in ("native", "none"))


@EVERY
def test_an_adapter_file_brings_back_the_same_model(name, tmp_path):
    adapter = stirred(attached(two_blocks(), name))
    save_adapter(tmp_path / "a.safetensors", adapter)
    again = load_adapter(tmp_path / "a.safetensors", two_blocks())
    assert encoding_to_config(again.encoding) == encoding_to_config(adapter.encoding)
    assert torch.equal(run(again), run(adapter))


@EVERY
def test_gradient_checkpointing_changes_no_gradient(name):
    found = []
    for checkpointing in (False, True):
        model = two_blocks().requires_grad_(name in (*CARVED, "none"))
        adapter = stirred(attached(model, name))
        if checkpointing:
            model.enable_gradient_checkpointing()
            model.train()
        out = run(adapter)
        out.square().mean().backward()
        found.append([out.detach(), *(p.grad for p in model.parameters() if p.requires_grad)])
    for one, other in zip(*found, strict=True):
        assert one.abs().max() > 0 or name == "none"
        torch.testing.assert_close(one, other, rtol=0, atol=1e-7)


@EVERY
def test_signals_made_once_say_what_rays_say(name):
    adapter = stirred(attached(two_blocks(), name))
    signals = adapter.signals(random_drive())
    assert torch.equal(run(adapter, signals), run(adapter))
    moved = signals.to("meta")
    tensors = [] if moved.operator is None else moved.operator.tensors()
    tensors += [part for part in (moved.features, moved.input_map) if part is not None]
    assert all(tensor.device.type == "meta" for tensor in tensors)


@pytest.mark.parametrize("first", ["none", "merope", "scope"])
def test_one_adapter_at_a_time(first):
    model = two_blocks()
    before = model(**inputs())[0]
    adapter = attached(model, first)
    for second in ("none", "gta", "rerope"):
        with pytest.raises(ValueError, match="carries a camera adapter already; detach it first"):
            attached(model, second)
    adapter.detach()
    assert torch.equal(model(**inputs())[0], before)


@pytest.mark.parametrize("name", INJECTED)
def test_cameras_of_other_clips_or_tokens_are_refused_before_they_are_added(name):
    adapter = attached(two_blocks(), name)
    with pytest.raises(
        ValueError, match=r"cameras are 2 clips of 24 tokens; the transformer's input has 2 of 18"
    ):
        run(adapter, random_drive(views=4))
    signals = adapter.signals(random_drive())
    with pytest.raises(ValueError, match=r"1 clips of 18 tokens; the transformer's input has 2 of 18"):
        run(adapter, dataclasses.replace(signals, features=signals.features[:1]))


@EVERY
def test_a_fused_projection_serves_as_three_do(name):
    expected = run(stirred(attached(two_blocks(), name)))
    model = two_blocks()
    for block in model.blocks:
        block.attn1.fuse_projections()
    torch.testing.assert_close(run(stirred(attached(model, name))), expected, rtol=1e-5, atol=1e-5)


# Depth


@pytest.mark.parametrize("name", [n for n in BRANCH if ENCODINGS[n].facts.needs_depth])
def test_a_depth_head_starts_where_its_encoding_says_and_learns(name):
    adapter = attached(two_blocks().requires_grad_(False), name)
    assert isinstance(adapter.encoding, DepthEncoding)
    for branch in adapter.branches.values():
        assert not branch.to_depth.weight.any()
        assert branch.to_depth.bias.tolist() == list(adapter.encoding.depth_bias)
    target = torch.randn(inputs()["hidden_states"].shape, generator=torch.Generator().manual_seed(7))
    optimizer = torch.optim.Adam(adapter.parameters(), lr=1e-2)
    before = {
        block: copy.deepcopy(branch.to_depth.state_dict()) for block, branch in adapter.branches.items()
    }
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = (run(adapter) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for block, branch in adapter.branches.items():
        assert not torch.equal(branch.to_depth.weight, before[block]["weight"])
        assert not torch.equal(branch.to_depth.bias, before[block]["bias"])


@pytest.mark.parametrize("name", [n for n in BRANCH if ENCODINGS[n].facts.needs_depth])
def test_an_encoding_that_predicts_depth_wants_rays_and_not_an_operator(name):
    adapter = attached(two_blocks(), name)
    operator = adapter.encoding.operator(random_drive())
    with adapter.cameras(operator), pytest.raises(ValueError, match="predicts a depth per token"):
        adapter.transformer(**inputs())


# The backbone's own attention


@pytest.mark.parametrize("name", BACKBONE)
def test_an_encoding_of_the_backbone_is_for_its_head_size(name):
    encoding = default_encoding(name, head_dim=128, num_heads=1)
    with pytest.raises(ValueError, match=r"heads have 64 channels; it was made for 128"):
        attach(two_blocks(), encoding=encoding)


@pytest.mark.parametrize("name", CARVED)
def test_recorded_queries_and_keys_of_carved_channels_come_with_their_operator(name):
    adapter = attached(two_blocks(), name)
    with adapter.recording_attention() as records:
        run(adapter)
    assert sorted(records) == [0, 1]
    record = records[0]
    assert record.query.shape == (2, 2, 18, 64)
    assert record.operator.head_dim == 64
    assert record.operator.acts_on == frozenset("qk")


@pytest.mark.parametrize("name", INJECTED)
def test_recorded_queries_and_keys_of_the_backbone_hold_the_cameras_already(name):
    adapter = stirred(attached(two_blocks(), name))
    with adapter.recording_attention() as records:
        run(adapter, random_drive(0))
        first = records[1]
        run(adapter, random_drive(1))
    assert first.operator is None
    assert not torch.equal(first.query, records[1].query)
    assert adapter.attention_records is None


def test_recorded_queries_and_keys_of_a_branch_are_those_before_the_operator():
    adapter = stirred(attached(two_blocks(), "merope"))
    block = adapter.branches[0]
    seen = []
    block.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    with adapter.recording_attention() as records:
        run(adapter)
    hidden, out = seen[0]
    record = records[0]
    value = block.to_v(hidden).unflatten(-1, (1, 64)).transpose(1, 2)
    mixed = camera_attention(record.query, record.key, value, record.operator)
    torch.testing.assert_close(block.to_out(mixed.transpose(1, 2).flatten(2)), out)


def by_hand(attn, injection, hidden, signals, rotary):
    """The block's self-attention with what is injected, projection by projection."""
    for_query, for_key, for_value = injection.inputs(hidden, signals.features)
    query, key = (
        turned_by_wan(norm(project(x)).unflatten(-1, (2, 64)), *rotary)
        for norm, project, x in ((attn.norm_q, attn.to_q, for_query), (attn.norm_k, attn.to_k, for_key))
    )
    query, key = injection.turned(query, key, signals.features)
    value = attn.to_v(for_value).unflatten(-1, (2, 64))
    heads = (x.transpose(1, 2) for x in (query, key, value))
    out = scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
    return injection.output(attn.to_out[0](out))


def turned_by_wan(x, cos, sin):
    """Interleaved pairs as complex numbers."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.complex(cos[..., 0::2], sin[..., 0::2])).flatten(-2)


@pytest.mark.parametrize("name", INJECTED)
def test_injected_features_reach_the_projections_that_their_encoding_names(name):
    adapter = stirred(attached(two_blocks(), name))
    attn, injection = adapter.transformer.blocks[1].attn1, adapter.branches[1]
    seen = []
    attn.register_forward_hook(lambda module, args, out: seen.append((args, out)))
    with torch.no_grad():
        run(adapter)
        (hidden, _, _, rotary), out = seen[0]
        torch.testing.assert_close(by_hand(attn, injection, hidden, rotary.signals, rotary), out)


@pytest.mark.parametrize("name", CARVED)
def test_carved_attention_is_that_of_its_dense_operator(name):
    adapter = attached(two_blocks(), name)
    attn = adapter.transformer.blocks[1].attn1
    seen = []
    attn.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    with torch.no_grad():
        run(adapter)
        hidden, out = seen[0]
        query, key, value = (
            x.unflatten(-1, (2, 64))
            for x in (attn.norm_q(attn.to_q(hidden)), attn.norm_k(attn.to_k(hidden)), attn.to_v(hidden))
        )
        dense = adapter.encoding.operator(random_drive()).dense()
        logits = torch.einsum("bihd,bijde,bjhe->bhij", query, dense, key) / 8
        mixed = torch.einsum("bhij,bjhd->bihd", logits.softmax(-1), value)
        torch.testing.assert_close(attn.to_out[0](mixed.flatten(2)), out, rtol=1e-4, atol=1e-5)


# Input map


def test_an_input_map_changes_nothing_at_first_and_something_later(tmp_path):
    model = two_blocks()
    before = model(**inputs())[0]
    adapter = attached(model, "gta", input_map=LatitudeUpMap())
    assert torch.equal(run(adapter), before)
    assert adapter.branches[0].from_map.weight.shape == (128, 3)
    # UCPE starts this projection at random: the output's zeros keep a new branch silent.
    assert adapter.branches[0].from_map.weight.abs().max() > 0
    stirred(adapter)
    # Each block's branch reads h + W m.
    seen = []
    branch = adapter.branches[1]
    branch.register_forward_hook(lambda module, args, out: seen.append((args, out)))
    out = run(adapter)
    (hidden, signals, _), extra = seen[0]
    plain = attached(two_blocks(), "gta").branches[1]
    plain.load_state_dict(
        {name: value for name, value in branch.state_dict().items() if not name.startswith("from_map")}
    )
    features = LatitudeUpMap().features(random_drive())
    torch.testing.assert_close(extra, plain(hidden + branch.from_map(features), signals.operator))
    assert (extra - plain(hidden, signals.operator)).abs().max() > 1e-3
    save_adapter(tmp_path / "a.safetensors", adapter)
    again = load_adapter(tmp_path / "a.safetensors", two_blocks())
    assert again.input_map == LatitudeUpMap()
    assert torch.equal(run(again), out)


@pytest.mark.parametrize("name", [BACKBONE[0], "none"])
def test_an_input_map_is_for_branches(name):
    with pytest.raises(ValueError, match="input_map is read by branches"):
        attached(two_blocks(), name, input_map=LatitudeUpMap())


def test_a_branch_with_a_map_wants_the_map_of_these_tokens():
    adapter = attached(two_blocks(), "gta", input_map=LatitudeUpMap())
    with pytest.raises(ValueError, match=r"cameras are 2 clips of 24 tokens"):
        run(adapter, random_drive(views=4))
    operator = adapter.encoding.operator(random_drive())
    with adapter.cameras(operator), pytest.raises(ValueError, match="made without one"):
        adapter.transformer(**inputs())


# Numbers of heads, and files


def test_an_encoding_that_tells_heads_apart_is_made_for_as_many_as_the_branch_has():
    encoding = default_encoding("urope", head_dim=64, num_heads=2)
    with pytest.raises(ValueError, match=r"made for 2 heads; the branch has 2 x 64 / 2 / 64 = 1"):
        attach(two_blocks(), encoding=encoding, compression=2)
    assert attach(two_blocks(), encoding=encoding, compression=1).branches[1].num_heads == 2


def test_a_file_of_another_scale_than_expected_is_refused_and_named(tmp_path):
    trained = default_encoding(
        "gta", head_dim=64, num_heads=1, scale=TranslationScale(per_metre=0.2, reach=30.0)
    )
    expected = default_encoding(
        "gta", head_dim=64, num_heads=1, scale=TranslationScale(per_metre=0.5, reach=30.0)
    )
    path = tmp_path / "a.safetensors"
    save_adapter(path, attach(two_blocks(), encoding=trained, compression=2))
    model = two_blocks()
    with pytest.raises(CheckpointMismatch, match=r"scale is .*0\.2.* in the file, .*0\.5.* here"):
        load_adapter(path, model, encoding=expected)
    assert not any(hasattr(block, "camera_branch") for block in model.blocks)
    assert load_adapter(path, model, encoding=trained).encoding == trained
    with pytest.raises(
        CheckpointMismatch, match=r"trained with another encoding: .*name is gta in the file, merope"
    ):
        load_adapter(path, two_blocks(), encoding=MeRoPE(head_dim=64))


@pytest.mark.parametrize("name", INJECTED)
def test_additive_encodings_have_features_and_branches_do_not(name):
    assert isinstance(default_encoding(name, head_dim=64, num_heads=1), FeatureEncoding)
    assert not isinstance(MeRoPE(), FeatureEncoding)
    assert not isinstance(MeRoPE(), DepthEncoding)


def test_the_name_of_an_encoding_is_no_encoding():
    # In a process without the type checks of the test run, which would come first.
    ran = run_python(
        "from tests.support.wan import tiny_wan; from merope.adapters import attach; attach(tiny_wan(), encoding='ucpe')"
    )
    assert ran.returncode == 1
    assert "TypeError: encoding must be a camera encoding" in ran.stderr
    assert "default_encoding" in ran.stderr
