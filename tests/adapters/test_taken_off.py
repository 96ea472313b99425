"""An adapter that is taken off for a while: the transformer is the base in between, and the same as before after it."""

import pytest
import torch

from merope.adapters import attach
from tests.support.wan import attached, inputs, run, stirred, tiny_wan

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

# A branch, an injection with parameters, carved channels, no modules at all.
KINDS = pytest.mark.parametrize("name", ["merope", "scope", "rerope", "none"])


class Mixin:
    """What another library derives a module's class from."""


def two_blocks():
    return tiny_wan(num_layers=2)


def described(model):
    """All that other code can see of a model: classes, processors, attributes, keys."""
    processors = [type(processor) for processor in model.attn_processors.values()]
    attributes = {name: value for name, value in vars(model).items() if not name.startswith("_modules")}
    return (
        [type(module) for module in model.modules()],
        processors,
        list(model.state_dict()),
        list(attributes),
    )


@KINDS
def test_within_the_block_the_transformer_is_the_base_and_after_it_the_cameras_are_back(name):
    model = two_blocks()
    base, bare = model(**inputs())[0], described(model)
    adapter = stirred(attached(model, name))
    expected, dressed = run(adapter), described(model)
    weights = {key: id(value) for key, value in model.named_parameters()}
    with adapter.taken_off() as transformer, adapter.taken_off():
        assert transformer is model
        assert described(model) == bare
        assert torch.equal(model(**inputs())[0], base)
        assert len(adapter.branches) == len(adapter.blocks)
    assert described(model) == dressed
    assert {key: id(value) for key, value in model.named_parameters()} == weights
    assert torch.equal(run(adapter), expected)
    assert described(adapter.detach()) == bare


@KINDS
def test_an_error_in_the_block_brings_the_cameras_back_too(name):
    adapter = stirred(attached(two_blocks(), name))
    expected = run(adapter)
    with pytest.raises(OSError, match="disk full"), adapter.taken_off():
        raise OSError("disk full")
    assert torch.equal(run(adapter), expected)


def test_what_is_saved_within_the_block_is_the_base(tmp_path):
    model = two_blocks()
    base = model(**inputs())[0]
    adapter = stirred(attached(model, "merope"))
    with adapter.taken_off():
        model.save_pretrained(tmp_path)
    again, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"] and not report["missing_keys"]
    assert torch.equal(again.eval()(**inputs())[0], base)


def test_cameras_wait_until_the_adapter_is_back():
    adapter = attached(two_blocks(), "merope")
    with adapter.taken_off(), pytest.raises(ValueError, match="this adapter is taken off"):
        run(adapter)
    adapter.detach()
    with pytest.raises(ValueError, match="this adapter was detached"), adapter.taken_off():
        pass


def test_an_adapter_that_was_left_in_its_place_is_not_overwritten():
    adapter = attached(two_blocks(), "merope")
    with pytest.raises(ValueError, match="carries a camera adapter already"), adapter.taken_off() as model:
        other = attach(model, encoding=adapter.encoding, compression=2)
    run(other)
    other.detach()
    with adapter.taken_off():
        pass


def test_a_module_that_another_library_has_taken_over_is_not_torn_apart():
    adapter = stirred(attached(two_blocks(), "merope"))
    expected = run(adapter)
    attention = adapter.transformer.blocks[1].attn1
    kind = type(attention)
    # As fully_shard does it.
    attention.__class__ = type(f"FSDP{kind.__name__}", (Mixin, kind), {})
    for leave in (adapter.detach, adapter.taken_off().__enter__):
        with pytest.raises(
            ValueError, match=r"became a FSDPCameraSelfAttention.*Give whole blocks to fully_shard"
        ):
            leave()
    assert torch.equal(run(adapter), expected)
    attention.__class__ = kind
    adapter.detach()


def test_an_adapter_that_is_detached_meanwhile_stays_away():
    model = two_blocks()
    bare = described(model)
    adapter = attached(model, "merope")
    with adapter.taken_off():
        adapter.detach()
    assert described(model) == bare


@pytest.mark.parametrize("first", ["attach", "compile"])
def test_blocks_that_were_put_into_compiled_ones_are_given_back(first):
    model = two_blocks()
    base = model(**inputs())[0]
    adapter = stirred(attached(model, "merope")) if first == "attach" else None
    for number, block in enumerate(model.blocks):
        model.blocks[number] = torch.compile(block, backend="eager")
    adapter = adapter or stirred(attached(model, "merope"))
    # What compiling makes of them is tested in test_wan.py, without type checks that it cannot look into.
    with torch.compiler.set_stance("force_eager"):
        expected = run(adapter)
        with adapter.taken_off():
            assert not any("camera_branch" in name for name in model.state_dict())
            assert torch.equal(model(**inputs())[0], base)
        assert torch.equal(run(adapter), expected)
    assert not any("camera_branch" in name for name in adapter.detach().state_dict())
