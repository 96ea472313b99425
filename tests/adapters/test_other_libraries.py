"""Adapted transformers in the hands of other libraries: offloaded, cast, sharded, copied, given other processors."""

import copy
import pickle

import pytest
import torch
from accelerate import cpu_offload, cpu_offload_with_hook
from diffusers.hooks import apply_group_offloading
from diffusers.models.attention_dispatch import _AttentionBackendRegistry
from diffusers.models.transformers.transformer_wan import WanAttnProcessor
from peft import LoraConfig
from safetensors.torch import load_file
from torch import nn

from merope.adapters import load_adapter, save_adapter
from merope.adapters.base_identity import base_identity
from merope.adapters.checkpoint import adapter_tensors
from merope.adapters.wrapping import WrappedBranchWarning
from merope.cameras.scenes import random_drive
from merope.encodings.latitude_up import LatitudeUpMap
from tests.support.fresh_python import run_python
from tests.support.wan import attached, inputs, run, stirred, tiny_wan

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

# A branch, a branch that predicts depth, injections without and with parameters of their own, carved channels, nothing.
KINDS = pytest.mark.parametrize("name", ["merope", "rayrope", "cameractrl", "scope", "rerope-merope", "none"])
IN_THE_BACKBONE = pytest.mark.parametrize("name", ["cameractrl", "rerope"])


def two_blocks():
    return tiny_wan(num_layers=2)


class Doubled(WanAttnProcessor):
    """Another library's attention."""

    def __call__(self, *args, **kwargs):
        return 2 * super().__call__(*args, **kwargs)


# Offloading


@KINDS
def test_weights_that_are_fetched_for_each_call_give_the_same_answer(name):
    adapter = stirred(attached(two_blocks(), name))
    expected = run(adapter)
    cpu_offload(adapter.transformer, execution_device=torch.device("cpu"))
    assert all(parameter.device.type == "meta" for parameter in adapter.parameters())
    torch.testing.assert_close(run(adapter), expected)


@KINDS
def test_a_model_that_is_moved_for_each_call_gives_the_same_answer(name):
    # What a pipeline's enable_model_cpu_offload puts on every model; it asks for a GPU by itself.
    adapter = stirred(attached(two_blocks(), name))
    expected = run(adapter)
    _, hook = cpu_offload_with_hook(adapter.transformer, execution_device=torch.device("cpu"))
    torch.testing.assert_close(run(adapter), expected)
    hook.offload()
    torch.testing.assert_close(run(adapter), expected)


@KINDS
@pytest.mark.parametrize("level", ["block_level", "leaf_level"])
def test_groups_of_weights_that_are_fetched_for_each_call_give_the_same_answer(name, level):
    adapter = stirred(attached(two_blocks(), name))
    with torch.no_grad():
        expected = run(adapter)
        apply_group_offloading(
            adapter.transformer,
            onload_device=torch.device("cpu"),
            offload_device=torch.device("cpu"),
            offload_type=level,
            num_blocks_per_group=1 if level == "block_level" else None,
        )
        torch.testing.assert_close(run(adapter), expected)
        # Every weight of the cameras is in a group: nothing of them would stay behind.
        assert _not_in_a_group(adapter) == []


def _not_in_a_group(adapter):
    """Names of camera weights that group offloading would leave where they are."""
    held = set()
    for module in adapter.transformer.modules():
        hooks = getattr(module, "_diffusers_hook", None)
        hook = hooks.get_hook("group_offloading") if hooks else None
        if hook is not None:
            for inner in hook.group.modules:
                held |= {id(parameter) for parameter in inner.parameters()}
            held |= {id(parameter) for parameter in hook.group.parameters}
    return [
        name
        for block, branch in adapter.branches.items()
        for name, parameter in branch.named_parameters()
        if id(parameter) not in held
    ]


def _groups(model):
    apply_group_offloading(
        model,
        onload_device=torch.device("cpu"),
        offload_device=torch.device("cpu"),
        offload_type="leaf_level",
    )
    return model


@pytest.mark.parametrize("offload", [lambda m: cpu_offload(m, execution_device=torch.device("cpu")), _groups])
@pytest.mark.parametrize("name", ["merope", "scope"])
def test_an_offloaded_transformer_takes_no_new_modules(name, offload):
    model = offload(two_blocks())
    with pytest.raises(ValueError, match=r"weights of block 0 are offloaded.*Attach first, then offload"):
        attached(model, name)
    assert not any(hasattr(block, "camera_branch") for block in model.blocks)


@pytest.mark.parametrize("name", ["merope", "rayrope", "cameractrl", "scope"])
def test_offloaded_adapters_are_saved_and_asked_whether_they_are_zero(name, tmp_path):
    path = tmp_path / "adapter.safetensors"
    model = two_blocks()
    identity = base_identity(model)
    adapter = attached(model, name)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert adapter.is_zero
    model = two_blocks()
    adapter = stirred(attached(model, name))
    expected = run(adapter)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert not adapter.is_zero
    save_adapter(path, adapter, base=identity)
    assert torch.equal(run(load_adapter(path, two_blocks())), expected)


@KINDS
def test_cameras_follow_the_tokens_to_where_the_transformer_computes(name):
    adapter = attached(two_blocks(), name, input_map=LatitudeUpMap() if name == "merope" else None)
    signals = adapter.signals(random_drive())
    # As if the model had been moved for this call, after the cameras were made.
    adapter.transformer.rope.to("meta")
    with adapter.cameras(signals):
        rotary = adapter.transformer.rope(inputs()["hidden_states"].to("meta"))
        assert rotary.signals.device == (None if name == "none" else torch.device("meta"))
    assert signals.device == (None if name == "none" else torch.device("cpu"))


# Casting


@KINDS
def test_modules_of_cameras_are_not_stored_in_eight_bits(name):
    model = two_blocks().to(torch.bfloat16)
    adapter = stirred(attached(model, name))
    expected = run(adapter, dtype=torch.bfloat16).float()
    model.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.bfloat16)
    assert model.blocks[0].ffn.net[2].weight.dtype == torch.float8_e4m3fn
    assert {parameter.dtype for parameter in adapter.parameters()} <= {torch.float32}
    # What is left is the rounding of the backbone's weights to three bits.
    difference = run(adapter, dtype=torch.bfloat16).float() - expected
    assert difference.norm() < 0.1 * expected.norm()


def test_what_a_user_said_of_casting_comes_back():
    model = two_blocks()
    name = "_skip_layerwise_casting_patterns"
    attached(model, "gta").detach()
    assert name not in vars(model)
    setattr(model, name, None)
    adapter = attached(model, "gta")
    assert getattr(model, name) == ("camera_branch",)
    adapter.detach()
    assert vars(model)[name] is None


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from tests.support.wan import attached, run, stirred, tiny_wan

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
exact = MixedPrecisionPolicy(cast_forward_inputs=False)
rounded = MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False)
for name in ("recammaster", "scope"):
    expected = run(stirred(attached(tiny_wan(num_layers=2), name)))
    model = tiny_wan(num_layers=2)
    adapter = stirred(attached(model, name))
    for block in model.blocks:
        fully_shard(block.camera_branch, mesh=mesh, mp_policy=exact)
        fully_shard(block, mesh=mesh, mp_policy=rounded)
    fully_shard(model, mesh=mesh, mp_policy=rounded)
    seen = []
    encoder = next(iter(adapter.branches[1].children()))
    encoder.register_forward_pre_hook(lambda module, args: seen.append((args[0].dtype, module.weight.dtype)))
    out = run(adapter, dtype=torch.bfloat16)
    assert seen == [(torch.float32, torch.float32)], seen
    assert (out.float() - expected).norm() < 3e-2 * expected.norm()
    out.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in adapter.parameters())
dist.destroy_process_group()
print("sharded")
"""


def test_injections_that_are_sharded_by_themselves_read_metres_in_float32():
    ran = run_python(SHARDED)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "sharded"


# Processors and projections


@IN_THE_BACKBONE
def test_another_library_s_attention_is_not_replaced_without_a_word(name):
    model = two_blocks()
    model.blocks[1].attn1.set_processor(Doubled())
    before = model(**inputs())[0]
    with pytest.raises(ValueError, match=r"runs under Doubled; its work would be lost"):
        attached(model, name)
    assert torch.equal(model(**inputs())[0], before)
    # Blocks that the encoding leaves alone may have any.
    assert attached(model, name, schedule=[0]).blocks == (0,)


def test_a_branch_stands_beside_any_attention():
    model = two_blocks()
    model.blocks[1].attn1.set_processor(Doubled())
    before = model(**inputs())[0]
    adapter = attached(model, "gta")
    assert torch.equal(run(adapter), before)
    model.blocks[0].attn1.set_processor(Doubled())
    assert torch.equal(run(adapter), adapter.detach()(**inputs())[0])


@IN_THE_BACKBONE
def test_cameras_are_not_ignored_where_a_processor_was_changed_later(name):
    model = two_blocks()
    before = model(**inputs())[0]
    adapter = stirred(attached(model, name))
    model.blocks[1].attn1.set_processor(WanAttnProcessor())
    with pytest.raises(ValueError, match=r"self-attention of block 1 runs under WanAttnProcessor since"):
        run(adapter)
    later = model.blocks[1].attn1.processor
    adapter.detach()
    assert model.blocks[1].attn1.processor is later
    assert torch.equal(model(**inputs())[0], before)


@IN_THE_BACKBONE
def test_an_attention_backend_that_was_set_meanwhile_stays(name, monkeypatch):
    # The call also sets it for the whole process; it is put back for the tests that follow.
    monkeypatch.setattr(
        _AttentionBackendRegistry, "_active_backend", _AttentionBackendRegistry._active_backend
    )
    model = two_blocks()
    adapter = attached(model, name, schedule=[1])
    model.set_attention_backend("_native_math")
    adapter.detach()
    first, second = (block.attn1.processor._attention_backend for block in model.blocks)
    assert first == second == "_native_math"


class LowRank(nn.Module):
    """A projection with a low-rank addition, as adapters of other libraries wrap one."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.up(self.down(x))


@IN_THE_BACKBONE
def test_wrapped_projections_of_the_backbone_are_called_as_they_are(name):
    model = two_blocks()
    expected = run(attached(copy.deepcopy(model), name))
    attn = model.blocks[1].attn1
    for part in ("to_q", "to_k", "to_v"):
        setattr(attn, part, LowRank(getattr(attn, part)))
    out = run(attached(model, name))
    assert (out - expected).abs().max() > 1e-3
    out.square().sum().backward()
    added = [layer for part in (attn.to_q, attn.to_k, attn.to_v) for layer in (part.down, part.up)]
    assert all(layer.weight.grad.abs().max() > 0 for layer in added)


LORA = LoraConfig(r=2, target_modules=["to_q", "to_k", "to_v", "to_out.0"], init_lora_weights=False)


def lora_names(model):
    return [name for name, _ in model.named_parameters() if ".lora_" in name]


@pytest.mark.parametrize("name", ["merope", "scope", "rerope"])
def test_low_rank_additions_of_the_backbone_stay_when_cameras_come_and_go(name, tmp_path):
    torch.manual_seed(3)
    model = two_blocks()
    model.add_adapter(LORA)
    before, added = model(**inputs())[0], lora_names(model)
    assert (before - two_blocks()(**inputs())[0]).abs().max() > 1e-3
    keys = list(model.state_dict())
    adapter = attached(model, name)
    if name != "rerope":
        assert torch.equal(run(adapter), before)
    assert lora_names(model) == added
    save_adapter(tmp_path / "a.safetensors", stirred(adapter))
    assert not [
        key for key in load_file(str(tmp_path / "a.safetensors")) if "lora" in key or "base_layer" in key
    ]
    expected = run(adapter)
    adapter.detach()
    assert list(model.state_dict()) == keys
    assert torch.equal(model(**inputs())[0], before)
    # The base is known by its own weights, whatever stands beside them.
    assert torch.equal(run(load_adapter(tmp_path / "a.safetensors", model)), expected)
    assert load_adapter(tmp_path / "a.safetensors", two_blocks()).blocks == (0, 1)


@pytest.mark.filterwarnings("ignore::merope.adapters.wrapping.WrappedBranchWarning")
def test_low_rank_additions_that_reach_a_branch_are_said_and_not_saved(tmp_path):
    path = tmp_path / "a.safetensors"
    adapter = stirred(attached(two_blocks(), "merope"))
    keys = list(adapter_tensors(adapter))
    save_adapter(path, adapter)
    alone = load_file(str(path))
    adapter.transformer.add_adapter(LORA)
    assert any("camera_branch" in name for name in lora_names(adapter.transformer))
    with pytest.warns(
        WrappedBranchWarning, match=r"wrapped 6 layers .*0\.to_q, .*exclude_modules=.*camera_branch"
    ) as said:
        run(adapter)
    assert len(said) == 1
    save_adapter(path, adapter)
    saved = load_file(str(path))
    assert list(adapter_tensors(adapter)) == keys
    assert saved.keys() == alone.keys()
    assert all(torch.equal(saved[key], alone[key]) for key in saved)
    adapter.detach()
    assert lora_names(adapter.transformer)


def test_low_rank_additions_that_leave_branches_out_are_not_mentioned(recwarn):
    model = two_blocks()
    adapter = stirred(attached(model, "merope"))
    model.add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_k"], exclude_modules=r".*camera_branch.*"))
    run(adapter)
    assert lora_names(model) and not any("camera_branch" in name for name in lora_names(model))
    assert not [warning for warning in recwarn if warning.category is WrappedBranchWarning]


# Copies


@KINDS
def test_a_copy_and_a_pickle_are_models_of_their_own(name):
    adapter = stirred(attached(two_blocks(), name))
    expected = run(adapter)
    for again in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
        assert torch.equal(run(again), expected)
        with torch.no_grad():
            again.transformer.proj_out.bias.add_(1)
        assert not torch.equal(run(again), expected)
        assert torch.equal(run(adapter), expected)
        again.detach()
    assert torch.equal(run(adapter), expected)
