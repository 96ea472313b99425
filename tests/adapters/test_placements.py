"""Every encoding on the real Wan transformer, wherever it works: in a branch, in the backbone's attention, or nowhere."""

import copy

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from merope.adapters import attach, load_adapter, save_adapter
from merope.attention import camera_attention
from merope.cameras.scenes import random_drive, straight_drive
from merope.encodings import MeRoPE
from merope.encodings.base import DepthEncoding, FeatureEncoding
from merope.encodings.latitude_up import LatitudeUpMap
from merope.encodings.registry import ENCODINGS, default_encoding, encoding_to_config
from merope.encodings.scale import TranslationScale
from merope.errors import CheckpointMismatch
from tests.support.wan import inputs, tiny_wan

CARVED = ("rerope", "rerope-merope")
BACKBONE = [name for name, kind in ENCODINGS.items() if kind.facts.placement == "backbone"]
BRANCH = [name for name, kind in ENCODINGS.items() if kind.facts.placement == "branch"]
INJECTED = [name for name in BACKBONE if name not in CARVED]
EVERY = pytest.mark.parametrize("name", ENCODINGS)


def attached(model, name, **options):
    """One head of 64 beside two of the backbone."""
    encoding = default_encoding(name, head_dim=64, num_heads=1)
    return attach(model, **{"encoding": encoding, "compression": 2, "schedule": "every", **options})


def stirred(adapter, seed=2):
    """The same adapter with every parameter away from its start."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    return adapter


def run(adapter, view=None, **options):
    with adapter.cameras(random_drive() if view is None else view):
        return adapter.transformer(**inputs(**options))[0]


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_new_adapter_changes_no_bit_unless_it_carves(name, dtype):
    model = tiny_wan().to(dtype)
    with torch.no_grad():
        before = model(**inputs(dtype=dtype))[0]
        adapter = attached(model, name)
        after = run(adapter, dtype=dtype)
    assert after.dtype == dtype
    assert torch.equal(after, before) == (name not in CARVED)
    assert adapter.is_zero == (name not in (*CARVED, "none"))


@EVERY
def test_a_new_adapter_changes_no_bit_under_autocast_unless_it_carves(name):
    model = tiny_wan()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = model(**inputs())[0]
        after = run(attached(model, name))
    assert torch.equal(after, before) == (name not in CARVED)


@EVERY
def test_detaching_leaves_the_transformer_as_it_was(name):
    model = tiny_wan()
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
    adapter = stirred(attached(tiny_wan(), name))
    one, other = run(adapter, random_drive(0)), run(adapter, random_drive(1))
    assert torch.equal(one, other) == (name in ("native", "none"))


@EVERY
def test_an_adapter_file_brings_back_the_same_model(name, tmp_path):
    adapter = stirred(attached(tiny_wan(), name))
    save_adapter(tmp_path / "a.safetensors", adapter)
    again = load_adapter(tmp_path / "a.safetensors", tiny_wan())
    assert encoding_to_config(again.encoding) == encoding_to_config(adapter.encoding)
    assert torch.equal(run(again), run(adapter))


@EVERY
def test_gradient_checkpointing_changes_no_gradient(name):
    found = []
    for checkpointing in (False, True):
        model = tiny_wan().requires_grad_(name in (*CARVED, "none"))
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
    adapter = stirred(attached(tiny_wan(), name))
    signals = adapter.signals(random_drive())
    assert torch.equal(run(adapter, signals), run(adapter))
    moved = signals.to("meta")
    tensors = [] if moved.operator is None else moved.operator.tensors()
    tensors += [part for part in (moved.features, moved.input_map) if part is not None]
    assert all(tensor.device.type == "meta" for tensor in tensors)


@EVERY
def test_a_fused_projection_serves_as_three_do(name):
    expected = run(stirred(attached(tiny_wan(), name)))
    model = tiny_wan()
    for block in model.blocks:
        block.attn1.fuse_projections()
    torch.testing.assert_close(run(stirred(attached(model, name))), expected, rtol=1e-5, atol=1e-5)


# Depth


@pytest.mark.parametrize("name", [n for n in BRANCH if ENCODINGS[n].facts.needs_depth])
def test_a_depth_head_starts_where_its_encoding_says_and_learns(name):
    adapter = attached(tiny_wan().requires_grad_(False), name)
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
    adapter = attached(tiny_wan(), name)
    operator = adapter.encoding.operator(random_drive())
    with adapter.cameras(operator), pytest.raises(ValueError, match="predicts a depth per token"):
        adapter.transformer(**inputs())


# The backbone's own attention


@pytest.mark.parametrize("name", BACKBONE)
def test_an_encoding_of_the_backbone_is_for_its_head_size(name):
    encoding = default_encoding(name, head_dim=128, num_heads=1)
    with pytest.raises(ValueError, match=r"heads have 64 channels; it was made for 128"):
        attach(tiny_wan(), encoding=encoding)


@pytest.mark.parametrize("name", CARVED)
def test_carved_channels_leave_the_native_rotary_where_cameras_coincide(name):
    # All cameras in one place: camera blocks are the identity, the backbone's low frequencies are gone.
    model = tiny_wan()
    adapter = attached(model, name)
    view = straight_drive()
    with adapter.recording_attention() as records:
        run(adapter, view)
    assert sorted(records) == [0, 1, 2, 3]
    record = records[0]
    assert record.query.shape == (2, 2, 18, 64)
    assert record.operator.head_dim == 64
    assert record.operator.acts_on == frozenset("qk")


@pytest.mark.parametrize("name", INJECTED)
def test_recorded_queries_and_keys_of_the_backbone_hold_the_cameras_already(name):
    adapter = stirred(attached(tiny_wan(), name))
    with adapter.recording_attention() as records:
        run(adapter, random_drive(0))
        first = records[1]
        run(adapter, random_drive(1))
    assert first.operator is None
    assert not torch.equal(first.query, records[1].query)
    assert adapter.attention_records is None


def test_recorded_queries_and_keys_of_a_branch_are_those_before_the_operator():
    adapter = stirred(attached(tiny_wan(), "merope"))
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


def test_queries_and_keys_of_the_backbone_alone_meet_plain_attention():
    model = tiny_wan()
    adapter = attached(model, INJECTED[0])
    attn = model.blocks[0].attn1
    seen = []
    attn.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    with torch.no_grad(), adapter.recording_attention() as records:
        run(adapter)
        hidden, out = seen[0]
        value = attn.to_v(hidden).unflatten(-1, (2, 64)).transpose(1, 2)
        mixed = scaled_dot_product_attention(records[0].query, records[0].key, value)
        torch.testing.assert_close(attn.to_out[0](mixed.transpose(1, 2).flatten(2)), out)


# Input map


def test_an_input_map_changes_nothing_at_first_and_something_later(tmp_path):
    model = tiny_wan()
    before = model(**inputs())[0]
    adapter = attached(model, "gta", input_map=LatitudeUpMap())
    assert torch.equal(run(adapter), before)
    assert adapter.branches[0].from_map.weight.shape == (128, 3)
    # UCPE starts this projection at random: the output's zeros keep a new branch silent.
    assert adapter.branches[0].from_map.weight.abs().max() > 0
    stirred(adapter)
    plain = attached(tiny_wan(), "gta")
    plain_state = {n: v for n, v in adapter.branches[0].state_dict().items() if not n.startswith("from_map")}
    plain.branches[0].load_state_dict(plain_state)
    assert not torch.equal(run(adapter), run(plain))
    save_adapter(tmp_path / "a.safetensors", adapter)
    again = load_adapter(tmp_path / "a.safetensors", tiny_wan())
    assert again.input_map == LatitudeUpMap()
    assert torch.equal(run(again), run(adapter))


@pytest.mark.parametrize("name", [BACKBONE[0], "none"])
def test_an_input_map_is_for_branches(name):
    with pytest.raises(ValueError, match="input_map is read by branches"):
        attached(tiny_wan(), name, input_map=LatitudeUpMap())


def test_a_branch_with_a_map_wants_the_map():
    adapter = attached(tiny_wan(), "gta", input_map=LatitudeUpMap())
    operator = adapter.encoding.operator(random_drive())
    with adapter.cameras(operator), pytest.raises(ValueError, match="made without one"):
        adapter.transformer(**inputs())


# Numbers of heads, and files


@pytest.mark.skipif("urope" not in ENCODINGS, reason="urope is not registered")
def test_an_encoding_that_tells_heads_apart_is_made_for_as_many_as_the_branch_has():
    encoding = default_encoding("urope", head_dim=64, num_heads=2)
    with pytest.raises(ValueError, match=r"made for 2 heads; the branch has 2 x 64 / 2 / 64 = 1"):
        attach(tiny_wan(), encoding=encoding, compression=2)
    assert attach(tiny_wan(), encoding=encoding, compression=1).branches[1].num_heads == 2


def test_a_file_of_another_scale_than_expected_is_refused_and_named(tmp_path):
    trained = default_encoding(
        "gta", head_dim=64, num_heads=1, scale=TranslationScale(per_metre=0.2, reach=30.0)
    )
    expected = default_encoding(
        "gta", head_dim=64, num_heads=1, scale=TranslationScale(per_metre=0.5, reach=30.0)
    )
    path = tmp_path / "a.safetensors"
    save_adapter(path, attach(tiny_wan(), encoding=trained, compression=2))
    model = tiny_wan()
    with pytest.raises(CheckpointMismatch, match=r"scale is .*0\.2.* in the file, .*0\.5.* here"):
        load_adapter(path, model, encoding=expected)
    assert not any(hasattr(block, "camera_branch") for block in model.blocks)
    assert load_adapter(path, model, encoding=trained).encoding == trained
    with pytest.raises(
        CheckpointMismatch, match=r"trained with another encoding: .*name is gta in the file, merope"
    ):
        load_adapter(path, tiny_wan(), encoding=MeRoPE(head_dim=64))


@pytest.mark.parametrize("name", INJECTED)
def test_additive_encodings_have_features_and_branches_do_not(name):
    assert isinstance(default_encoding(name, head_dim=64, num_heads=1), FeatureEncoding)
    assert not isinstance(MeRoPE(), FeatureEncoding)
    assert not isinstance(MeRoPE(), DepthEncoding)
