"""Which base an adapter belongs to: the same for every copy of a checkpoint, another for other weights."""

import copy
import json

import pytest
import torch
from accelerate import cpu_offload
from diffusers import WanTransformer3DModel
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from merope.adapters import load_adapter, read_adapter_config, save_adapter
from merope.adapters.base_identity import base_identity, weights_fingerprint
from merope.adapters.checkpoint import checksum
from merope.errors import CheckpointMismatch
from tests.support.wan import attached, awake, run, tiny_wan, with_branches


def fingerprint(model):
    return base_identity(model)["fingerprint"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "adapter.safetensors"


def test_every_copy_of_a_checkpoint_has_one_fingerprint(tmp_path):
    model = tiny_wan()
    expected = fingerprint(model)
    assert expected.startswith("sha256:")
    assert fingerprint(copy.deepcopy(model).to(torch.bfloat16)) == expected
    assert fingerprint(copy.deepcopy(model).to(torch.bfloat16).float()) == expected
    model.save_pretrained(tmp_path)
    # Wan keeps some of its weights in float32 there.
    half = WanTransformer3DModel.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    assert {value.dtype for value in half.state_dict().values()} == {torch.float32, torch.bfloat16}
    assert fingerprint(half) == expected


def test_what_is_put_beside_the_weights_does_not_change_their_fingerprint():
    model = tiny_wan()
    expected = fingerprint(model)
    awake(with_branches(model))
    assert fingerprint(model) == expected
    model.fuse_qkv_projections()
    assert fingerprint(model) == expected


def test_a_base_inside_another_library_s_module_is_the_same_base(path):
    model = tiny_wan()
    expected = base_identity(model)
    save_adapter(path, awake(with_branches(tiny_wan())))
    assert base_identity(torch.compile(model)) == expected
    load_adapter(path, torch.compile(tiny_wan()))
    compiled = tiny_wan()
    for number, block in enumerate(compiled.blocks):
        compiled.blocks[number] = torch.compile(checkpoint_wrapper(block))
    assert base_identity(compiled) == expected
    assert weights_fingerprint(torch.compile(model).state_dict()) == expected["fingerprint"]
    assert base_identity(get_peft_model(model, LoraConfig(target_modules=["to_out.0"]))) == expected
    # Not the hash of nothing, which all would share.
    assert weights_fingerprint({"elsewhere.scale_shift_table": torch.ones(1)}) is None


@pytest.mark.parametrize(
    "trained",
    [
        "scale_shift_table",
        "blocks.0.ffn.net.2.bias",
        "blocks.3.attn1.to_out.0.bias",
        "blocks.2.attn1.norm_k.weight",
    ],
)
def test_other_weights_have_another_fingerprint(trained):
    model = tiny_wan()
    expected = fingerprint(model)
    with torch.no_grad():
        model.get_parameter(trained)[..., 0] += 0.01
    assert fingerprint(model) != expected
    assert fingerprint(tiny_wan(seed=1)) != expected


def test_weights_that_cannot_be_read_as_they_are_have_none():
    with torch.device("meta"):
        assert fingerprint(tiny_wan()) is None
    assert fingerprint(tiny_wan().to(torch.float16)) is None
    model = tiny_wan()
    whole = fingerprint(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert fingerprint(model) is None
    assert base_identity(model, weights)["fingerprint"] == whole == weights_fingerprint(weights)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (None, None),
        ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", "Wan-AI/Wan2.2-TI2V-5B-Diffusers"),
        ("cache/models--Wan-AI--Wan2.1-T2V/snapshots/0123/transformer", "Wan-AI/Wan2.1-T2V"),
        ("/somebody/models/tiny/transformer", "tiny"),
        ("/somebody/models/tiny", "tiny"),
    ],
)
def test_a_base_is_named_for_people_without_their_folders(said, name):
    model = tiny_wan()
    model.register_to_config(_name_or_path=said)
    assert base_identity(model)["name"] == name


def test_a_file_says_which_base_it_belongs_to(path):
    save_adapter(path, with_branches(tiny_wan()))
    base = read_adapter_config(path)["base"]
    assert base["class"] == "WanTransformer3DModel"
    assert base["patch_size"] == [1, 2, 2]
    assert (base["num_layers"], base["in_channels"], base["text_dim"], base["ffn_dim"]) == (4, 4, 8, 64)
    assert base["fingerprint"] == fingerprint(tiny_wan())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_channels": 6, "out_channels": 6}, r"a base with in_channels = 4; this one has 6"),
        ({"text_dim": 16}, r"text_dim = 8; this one has 16"),
        ({"patch_size": (1, 1, 1)}, r"patch_size = \[1, 2, 2\]; this one has \[1, 1, 1\]"),
        ({"cross_attn_norm": False}, r"cross_attn_norm = True; this one has False"),
    ],
)
def test_a_base_of_another_configuration_is_refused_unless_it_is_asked_for(path, change, message):
    adapter = awake(with_branches(tiny_wan()))
    save_adapter(path, adapter)
    with pytest.raises(CheckpointMismatch, match=message):
        load_adapter(path, tiny_wan(**change))
    assert load_adapter(path, tiny_wan(**change), other_base=True).blocks == adapter.blocks


def test_a_base_that_no_weights_would_fit_is_refused_even_if_it_is_asked_for(path):
    save_adapter(path, with_branches(tiny_wan()))
    with pytest.raises(CheckpointMismatch, match="num_layers = 4; this one has 5"):
        load_adapter(path, tiny_wan(num_layers=5), other_base=True)


def test_other_weights_of_the_same_configuration_are_refused_unless_they_are_asked_for(path):
    save_adapter(path, awake(with_branches(tiny_wan())))
    other = tiny_wan(seed=1)
    keys = list(other.state_dict())
    with pytest.raises(CheckpointMismatch, match=r"beside other weights than these.*other_base=True"):
        load_adapter(path, other)
    assert list(other.state_dict()) == keys
    load_adapter(path, other, other_base=True)


def test_where_either_side_has_no_fingerprint_the_configuration_decides(path):
    adapter = awake(with_branches(tiny_wan()))
    save_adapter(path, adapter, base={**base_identity(adapter.transformer), "fingerprint": None})
    load_adapter(path, tiny_wan(seed=1))
    save_adapter(path, adapter)
    load_adapter(path, tiny_wan(seed=1).to(torch.float16))


def test_files_of_the_first_format_know_three_fields_and_no_checksum(path):
    adapter = awake(with_branches(tiny_wan()))
    save_adapter(path, adapter)
    with safe_open(str(path), framework="pt") as file:
        config = json.loads(file.metadata()["config"])
    three = ("num_layers", "num_attention_heads", "attention_head_dim")
    config["base"] = {name: config["base"][name] for name in three}
    old = {"format": "merope-adapter-1", "config": json.dumps(config), "summary": "{}"}
    save_file(load_file(str(path)), str(path), metadata=old)
    assert torch.equal(run(load_adapter(path, tiny_wan())), run(adapter))
    load_adapter(path, tiny_wan(seed=1))
    # One that has a checksum all the same is held to it.
    save_file(load_file(str(path)), str(path), metadata={**old, "checksum": checksum({}, old)})
    with pytest.raises(CheckpointMismatch, match="is damaged: its checksum"):
        load_adapter(path, tiny_wan())


def test_a_backbone_s_own_encoding_knows_its_base_too(path):
    save_adapter(path, attached(tiny_wan(), "rerope"))
    with pytest.raises(CheckpointMismatch, match="beside other weights"):
        load_adapter(path, tiny_wan(seed=1))
