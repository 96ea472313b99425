"""Camera signals as a whole: every part moves, none is cast, and tokens are counted."""

import pytest
import torch

from merope.adapters import CameraSignals, camera_signals
from merope.adapters.signals import tensors_in
from merope.cameras.scenes import random_drive, scene
from merope.encodings import CameraCtrl, LatitudeUpMap, MeRoPE, NoEncoding, RayRoPE

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


def every_part():
    """What no single encoding makes: an operator with a mask, relations, features and a map."""
    masked = scene("fisheye_200deg")
    parts = [camera_signals(encoding, masked) for encoding in (MeRoPE(), RayRoPE(), CameraCtrl())]
    return CameraSignals(
        operator=parts[0].operator,
        relations=parts[1].relations,
        features=parts[2].features,
        input_map=camera_signals(MeRoPE(), masked, input_map=LatitudeUpMap()).input_map,
    )


def test_every_part_moves_and_none_is_cast():
    signals = every_part()
    moved = signals.to("meta")
    assert signals.operator.key_valid is not None
    assert all(tensor.device.type == "cpu" for tensor in tensors_in(signals))
    assert all(tensor.device.type == "meta" for tensor in tensors_in(moved))
    before, after = ([tensor.dtype for tensor in tensors_in(part)] for part in (signals, moved))
    assert before == after and len(before) > 10


def test_each_encoding_makes_the_part_that_it_needs():
    view = random_drive()
    for encoding, part in ((MeRoPE(), "operator"), (RayRoPE(), "relations"), (CameraCtrl(), "features")):
        made = camera_signals(encoding, view)
        assert [n for n in CameraSignals.__slots__ if getattr(made, n) is not None] == [part]


def test_where_signals_are_is_known_unless_they_hold_no_tensor():
    assert every_part().device == torch.device("cpu")
    assert every_part().to("meta").device == torch.device("meta")
    relations = camera_signals(RayRoPE(), random_drive())
    assert relations.device == torch.device("cpu")
    assert relations.to("meta").device == torch.device("meta")
    assert camera_signals(NoEncoding(), random_drive()).device is None
