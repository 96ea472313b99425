"""Adapter files: strict in both directions, whole or absent, and never half loaded."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from merope.adapters import load_adapter, read_adapter_config, save_adapter
from merope.adapters.checkpoint import checksum
from merope.adapters.spec import VideoSpec
from merope.cameras.scenes import random_drive
from merope.encodings import HeadLayout, MeRoPE, Native
from merope.errors import CheckpointMismatch
from tests.support.tiny_run import tiny_spec
from tests.support.wan import awake, inputs, run, tiny_wan, with_branches


@pytest.fixture
def path(tmp_path):
    return tmp_path / "adapter.safetensors"


@pytest.fixture
def saved(path):
    adapter = awake(with_branches(tiny_wan()))
    save_adapter(path, adapter, summary={"steps": 7, "loss": 0.25})
    return adapter


def rewritten(path, *, tensors=None, config=None, metadata=None):
    """The file as one made so on purpose: tensors, configuration fields or metadata changed; None deletes."""
    with safe_open(str(path), framework="pt") as file:
        old = dict(file.metadata())
    values = load_file(str(path))
    for changes, target in ((tensors, values), (metadata, old)):
        for name, value in (changes or {}).items():
            target.pop(name, None) if value is None else target.update({name: value})
    if config:
        stored = json.loads(old["config"])
        for name, value in config.items():
            stored.pop(name, None) if value is None else stored.update({name: value})
        old["config"] = json.dumps(stored)
    if old.pop("checksum", None):
        old["checksum"] = checksum(values, old)
    save_file(values, str(path), metadata=old)


def assert_untouched(model):
    """As if no load had been tried."""
    fresh = tiny_wan()
    assert list(model.state_dict()) == list(fresh.state_dict())
    assert torch.equal(model(**inputs())[0], fresh(**inputs())[0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": [0, 3], "compression": 1, "pose_policy": "mean"},
        {"schedule": "every", "encoding": Native(head_dim=64)},
        {
            "encoding": MeRoPE(
                head_dim=64,
                layout=HeadLayout(disp=36, rot=6, trans=12, native=(4, 2, 4)),
                components=frozenset(("trans",)),
                anchor_frames="transported",
                min_scene_depth=1.5,
                native_base=77.0,
            )
        },
    ],
)
def test_a_loaded_adapter_says_what_the_saved_one_said(path, options):
    adapter = awake(with_branches(tiny_wan(), **options))
    save_adapter(path, adapter)
    again = load_adapter(path, tiny_wan())
    assert torch.equal(run(again), run(adapter))
    for name in ("blocks", "compression", "pose_policy"):
        assert getattr(again, name) == getattr(adapter, name)
    view = random_drive(3)
    assert torch.equal(again.encoding.operator(view).dense(), adapter.encoding.operator(view).dense())


def test_a_file_carries_its_configuration_and_summary_as_plain_values(path, saved):
    config = read_adapter_config(path)
    assert config["summary"] == {"steps": 7, "loss": 0.25}
    assert config["blocks"] == [1, 3]
    assert config["compression"] == 2
    assert config["pose_policy"] == "last"
    assert config["spec"] is None
    assert config["encoding"]["acts_on"] == "qkvo"
    assert config["encoding"]["name"] == "merope"
    assert config["encoding"]["layout"]["native"] == [8, 4, 4]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_file_in_half_precision_is_loaded_into_float32_weights(path, saved, dtype):
    save_adapter(path, saved, dtype=dtype)
    assert {value.dtype for value in load_file(str(path)).values()} == {dtype}
    again = load_adapter(path, tiny_wan().to(torch.bfloat16))
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}
    for ours, theirs in zip(again.parameters(), saved.parameters(), strict=True):
        assert torch.equal(ours, theirs.to(dtype).float())


def test_keys_that_are_missing_or_unknown_are_listed_with_five_examples(path, saved):
    values = load_file(str(path))
    renamed = {f"model.{name}": value for name, value in values.items()}
    rewritten(path, tensors={**dict.fromkeys(values), **renamed})
    model = tiny_wan()
    with pytest.raises(CheckpointMismatch) as caught:
        load_adapter(path, model)
    message = str(caught.value)
    assert (
        "missing: 1.to_k.bias, 1.to_k.weight, 1.to_out.bias, 1.to_out.weight, 1.to_q.bias and 11 more"
        in message
    )
    assert "unexpected: model.1.to_k.bias" in message
    assert_untouched(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"3.to_v.weight": None}, r"missing: 3\.to_v\.weight"),
        ({"3.to_v.extra": torch.zeros(2)}, r"unexpected: 3\.to_v\.extra"),
        (
            {"1.to_q.weight": torch.zeros(64, 127)},
            r"of another shape: 1\.to_q\.weight \[64, 127\] for \[64, 128\]",
        ),
    ],
)
def test_one_wrong_tensor_is_enough_to_refuse_the_file(path, saved, change, message):
    rewritten(path, tensors=change)
    model = tiny_wan()
    with pytest.raises(CheckpointMismatch, match=message):
        load_adapter(path, model)
    assert_untouched(model)
    assert loads_again_when_good(path, saved, model)


def loads_again_when_good(path, saved, model):
    """A good file loads into the same model after a bad one was refused."""
    save_adapter(path, saved)
    return torch.equal(run(load_adapter(path, model)), run(saved))


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ({"num_layers": 5}, r"made for a base with num_layers = 4; this one has 5"),
        ({"num_attention_heads": 4}, r"num_attention_heads = 2; this one has 4"),
        ({"num_attention_heads": 1, "attention_head_dim": 128}, r"num_attention_heads = 2; this one has 1"),
    ],
)
def test_another_base_is_named_by_the_field_that_differs(path, saved, base, message):
    with pytest.raises(CheckpointMismatch, match=message):
        load_adapter(path, tiny_wan(**base))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"compression": 1}, r"of another shape"),
        ({"blocks": [0, 1]}, r"missing: 0\.to_k\.bias.*unexpected: 3\.to_k\.bias"),
        ({"encoding": {"name": "mirope"}}, r"encoding that cannot be made: unknown encoding 'mirope'"),
        ({"encoding": {"name": "merope", "head_dim": 64, "speed": 3}}, r"no options \['speed'\]"),
        ({"encoding": {"name": "merope", "head_dim": 100}}, r"no head layout is known for head_dim 100"),
        ({"pose_policy": None, "blocks": None}, r"lacks blocks, pose_policy"),
    ],
)
def test_a_configuration_that_does_not_fit_its_weights_is_refused(path, saved, config, message):
    rewritten(path, config=config)
    model = tiny_wan()
    with pytest.raises(CheckpointMismatch, match=message):
        load_adapter(path, model)
    assert_untouched(model)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "merope-adapter-0"}, r"its format is 'merope-adapter-0', expected 'merope-adapter-2'"),
        ({"format": None}, r"not an adapter file: its format is None"),
        ({"config": None}, r"no readable configuration"),
        ({"config": "{"}, r"no readable configuration"),
        ({"config": "[1]"}, r"no readable configuration"),
    ],
)
def test_files_of_another_format_are_refused(path, saved, metadata, message):
    rewritten(path, metadata=metadata)
    with pytest.raises(CheckpointMismatch, match=message):
        load_adapter(path, tiny_wan())


@pytest.mark.parametrize("keep", [0, 5, 400, -1])
def test_a_cut_off_file_is_refused(path, saved, keep):
    content = path.read_bytes()
    path.write_bytes(content[:keep])
    model = tiny_wan()
    with pytest.raises(CheckpointMismatch, match=r"adapter\.safetensors is damaged or no safetensors file"):
        load_adapter(path, model)
    assert_untouched(model)


def test_a_file_that_is_not_there_is_said_to_be_absent(path):
    with pytest.raises(FileNotFoundError, match=r"no adapter file at .*adapter\.safetensors"):
        load_adapter(path, tiny_wan())


def test_a_model_with_branches_is_not_loaded_over(path, saved):
    model = tiny_wan()
    adapter = with_branches(model)
    with pytest.raises(ValueError, match="carries a camera adapter already"):
        load_adapter(path, model)
    assert adapter.is_zero
    run(adapter)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path, saved, monkeypatch):
    before = path.read_bytes()

    def fails(tensors, filename, **kwargs):
        Path(filename).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("merope.adapters.checkpoint.save_file", fails)
    with pytest.raises(OSError, match="disk full"):
        save_adapter(path, saved)
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == [path]


def test_saving_makes_the_folder_and_replaces_the_file(tmp_path, saved):
    path = tmp_path / "runs" / "one" / "adapter.safetensors"
    save_adapter(path, saved)
    save_adapter(path, saved, summary={"steps": 8})
    assert read_adapter_config(path)["summary"] == {"steps": 8}
    assert sorted(path.parent.iterdir()) == [path]


def test_five_examples_of_each_kind_of_wrong_key(path, saved):
    values = load_file(str(path))
    missing = [name for name in values if name.startswith("1.")][:7]
    reshaped = [name for name in values if name.startswith("3.")][:7]
    rewritten(
        path,
        tensors={
            **dict.fromkeys(missing),
            **{name: values[name][:-1].contiguous() for name in reshaped},
            **{f"extra.{number}": torch.zeros(1) for number in range(6)},
        },
    )
    with pytest.raises(CheckpointMismatch) as caught:
        load_adapter(path, tiny_wan())
    parts = str(caught.value).split("; tensors ")[1].split("; ")
    assert [part.split(":")[0] for part in parts] == ["missing", "unexpected", "of another shape"]
    assert [part.count(word) for part, word in zip(parts, ("1.to", "extra.", " for "), strict=True)] == [
        5,
        5,
        5,
    ]
    assert [part.rstrip(".").split(" and ")[-1] for part in parts] == ["2 more", "1 more", "2 more"]


@pytest.mark.parametrize("place", [0.02, 0.1, 0.2, 0.5, 0.8, 0.999])
def test_one_corrupt_byte_is_noticed_wherever_it_is(path, saved, place):
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0x01
    path.write_bytes(content)
    model = tiny_wan()
    with pytest.raises(CheckpointMismatch):
        load_adapter(path, model)
    assert_untouched(model)


def test_every_letter_of_the_configuration_is_guarded(path, saved):
    content = path.read_bytes()
    start = content.index(b"compression")
    for changed in range(start, start + 120, 7):
        damaged = bytearray(content)
        damaged[changed] ^= 0x01
        path.write_bytes(damaged)
        with pytest.raises(CheckpointMismatch):
            load_adapter(path, tiny_wan())


class Calls:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_in_disguise_is_refused_and_not_run(path, tmp_path):
    made = tmp_path / "made"
    torch.save({"1.to_q.weight": Calls(made)}, path)
    model = tiny_wan()
    with pytest.raises(CheckpointMismatch, match="damaged or no safetensors file"):
        load_adapter(path, model)
    assert not made.exists()
    assert_untouched(model)


def test_a_folder_stands_for_the_adapter_in_it(tmp_path, saved):
    for name, place in (("run", "adapter.safetensors"), ("pipeline", "adapter/adapter.safetensors")):
        save_adapter(tmp_path / name / place, saved)
        assert read_adapter_config(tmp_path / name)["blocks"] == [1, 3]
        assert torch.equal(run(load_adapter(tmp_path / name, tiny_wan())), run(saved))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no adapter file in .*; looked for adapter.safetensors and"):
        load_adapter(tmp_path / "empty", tiny_wan())


def test_an_expected_pose_of_a_latent_frame_is_compared(path, saved):
    with pytest.raises(CheckpointMismatch, match=r"pose_policy 'last' .*not 'mean'"):
        load_adapter(path, tiny_wan(), pose_policy="mean")
    assert load_adapter(path, tiny_wan(), pose_policy="last").pose_policy == "last"


def test_a_file_keeps_the_spec_that_it_was_trained_for(path, saved):
    spec = tiny_spec()
    save_adapter(path, saved, spec=spec)
    assert VideoSpec.from_dict(read_adapter_config(path)["spec"]) == spec
    with pytest.raises(ValueError, match=r"spec takes the 'mean' pose of a latent frame, the adapter 'last'"):
        save_adapter(path, saved, spec=replace(spec, pose_policy="mean"))


def test_weights_are_not_loaded_into_a_model_without_memory(path, saved):
    with torch.device("meta"):
        model = tiny_wan()
    with pytest.raises(ValueError, match="no memory"):
        load_adapter(path, model)
    assert not any("camera_branch" in name for name in model.state_dict())


def test_a_detached_adapter_is_not_saved_over_its_file(path, saved):
    saved.detach()
    with pytest.raises(
        ValueError, match="was detached and has no weights; save it before, or use `taken_off`"
    ):
        save_adapter(path, saved)
    assert load_adapter(path, tiny_wan()).blocks


def test_weights_are_not_rounded_to_integers(path, saved):
    with pytest.raises(ValueError, match=r"floating-point format such as torch\.bfloat16; got torch\.int8"):
        save_adapter(path, saved, dtype=torch.int8)


def test_a_model_without_memory_has_nothing_to_save(path):
    with torch.device("meta"):
        adapter = with_branches(tiny_wan())
    with pytest.raises(ValueError, match=r"weight 1\.to_q\.weight is a Tensor on meta"):
        save_adapter(path, adapter)
    assert not path.exists()
