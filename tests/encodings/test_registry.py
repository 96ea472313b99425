"""Encodings to and from the plain values that are stored beside weights."""

import json

import pytest
import torch

from merope.cameras.scenes import random_drive
from merope.encodings import (
    CarvedMeRoPE,
    HeadLayout,
    MeRoPE,
    Native,
    ReRoPE,
    ViewRope,
    encoding_from_config,
    encoding_to_config,
)

ENCODINGS = (
    MeRoPE(),
    MeRoPE(head_dim=64, single_frequency=3.0, components=frozenset(("trans", "rot"))),
    MeRoPE(fractions=(0.0, 0.5, 1.0), anchor_frames="transported", min_scene_depth=1.5, native_base=77.0),
    MeRoPE(
        head_dim=32, layout=HeadLayout(disp=0, rot=12, trans=12, native=(4, 2, 2)), components=frozenset()
    ),
    Native(),
    Native(head_dim=48, native_widths=(8, 6, 0), native_base=5.0),
)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_survives_json_and_makes_the_same_operator(encoding):
    stored = json.loads(json.dumps(encoding_to_config(encoding)))
    again = encoding_from_config(stored)
    assert type(again) is type(encoding)
    assert again.head_dim == encoding.head_dim
    assert encoding_to_config(again) == stored
    view = random_drive(views=2)
    assert torch.equal(again.operator(view).dense(), encoding.operator(view).dense())


def test_what_the_paper_leaves_open_is_stored_resolved():
    stored = encoding_to_config(MeRoPE())
    assert stored["name"] == "merope"
    assert stored["layout"] == {"disp": 36, "rot": 36, "trans": 24, "native": [16, 8, 8]}
    assert stored["native_base"] == 10_000.0
    assert stored["fractions"] == [0.0, 0.05, 0.15, 0.4, 0.7, 1.0]


@pytest.mark.parametrize(
    ("default", "same"),
    [
        (MeRoPE(), MeRoPE(layout=HeadLayout.for_head_dim(128))),
        (ViewRope(), ViewRope(native_widths=(16, 8, 8))),
        (ReRoPE(), ReRoPE(pairs=12)),
        (CarvedMeRoPE(), CarvedMeRoPE(layout=CarvedMeRoPE().resolved_layout)),
    ],
)
def test_a_default_is_stored_as_what_it_stands_for(default, same):
    assert encoding_to_config(default) == encoding_to_config(same)
    assert encoding_from_config(encoding_to_config(default)) == same


def test_stored_values_do_not_depend_on_the_order_of_a_set():
    one = MeRoPE(components=frozenset(("trans", "disp", "rot")))
    two = MeRoPE(components=frozenset(("rot", "trans", "disp")))
    assert encoding_to_config(one) == encoding_to_config(two)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"name": "mirope"},
            r"unknown encoding 'mirope'; known are \[.*'merope', 'native'.*Did you mean 'merope'\?",
        ),
        ({"name": "zzz"}, r"unknown encoding 'zzz'; known are \[[^?]*\]\.$"),
        ({}, r"unknown encoding None; known are \[[^?]*\]\.$"),
        ({"name": "native", "wavelength_min": 1.0}, r"'native' has no options \['wavelength_min'\]"),
        ({"name": "merope", "head_dim": 100}, r"no head layout is known for head_dim 100"),
    ],
)
def test_configurations_that_cannot_be_made_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        encoding_from_config(config)


def test_objects_that_are_no_registered_encoding_are_refused():
    class Other:
        head_dim = 3

    with pytest.raises(TypeError, match="Other is not a registered encoding"):
        encoding_to_config(Other())
