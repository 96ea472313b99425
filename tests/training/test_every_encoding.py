"""Every registered encoding trains, is saved, comes back and generates: by its name alone."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from merope.encodings.registry import ENCODINGS, default_encoding, encoding_from_config, encoding_to_config
from merope.encodings.scale import TranslationScale
from merope.generation import generate, load_video_model
from merope.training.motion import with_motion_scale
from tests.support.tiny_run import tiny_clips, tiny_config, tiny_trainer
from tests.support.wan import stirred

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")

NEEDS_SCALE = [name for name, kind in ENCODINGS.items() if kind.facts.needs_scale]


def config_of(name):
    """The tiny run's configuration with this encoding: one head of 64 beside two of the backbone."""
    return encoding_to_config(default_encoding(name, head_dim=64, num_heads=1))


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_encoding_trains_by_its_name_sees_the_cameras_and_generates_from_its_files(name, tmp_path):
    trainer = tiny_trainer(tmp_path, encoding=config_of(name), steps=2, log_every=1, probe_every=2)
    trainer.run(progress=False)
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [1, 2]
    assert all(math.isfinite(entry["loss"]) for entry in entries)
    model = load_video_model(tmp_path / "model")
    assert encoding_to_config(model.adapter.encoding) == trainer.config.encoding
    poses = tiny_clips().poses(0)[:13]
    prefix = tiny_clips().window(0, start=0, num_frames=5)[0].numpy()[None]
    videos = generate(model, prefix, [poses], seeds=(1,), steps=1, progress=False, allow_untrained=True)
    assert videos.shape == (1, 13, 24, 32, 3)
    # Two steps teach too little to tell cameras apart in float32.
    stirred(trainer.adapter)
    batch = trainer.source.probe(0)
    with torch.no_grad():
        own = trainer.losses(batch)
        other = trainer.losses(batch, T_world_cam=batch.T_world_cam.roll(1, 0))
    assert torch.equal(own, other) == (name in ("native", "none"))


@pytest.mark.parametrize("name", NEEDS_SCALE)
def test_the_translation_scale_comes_from_the_clips_that_are_trained_on(name):
    config = with_motion_scale(tiny_config(encoding=config_of(name)), tiny_clips())
    scale = encoding_from_config(config.encoding).scale
    assert scale.per_metre != 1
    spec = config.spec
    typical = []
    for clip in range(9):
        for start in (0, 3):
            centers = tiny_clips().poses(clip)[start : start + spec.num_frames].center_world[[0, 4, 8, 12]]
            apart = torch.pdist(centers)
            typical.append(apart.square().mean().sqrt().item())
    assert 1 / scale.per_metre == pytest.approx(np.sort(typical)[(len(typical) - 1) // 2], rel=1e-9)
    assert min(typical) < scale.reach


def test_an_encoding_in_metres_is_left_as_it_is():
    config = tiny_config()
    assert with_motion_scale(config, tiny_clips()) is config


def test_training_a_branch_that_has_no_parameters_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"encoding NoEncoding has no parameters of its own. Use trains='all'"
    ):
        tiny_trainer(tmp_path, encoding=config_of("none"), trains="branch")


def test_encodings_are_told_apart_by_their_scale():
    one = default_encoding(NEEDS_SCALE[0], head_dim=64, num_heads=1)
    other = dataclasses.replace(one, scale=TranslationScale(per_metre=0.5, reach=3.0))
    assert encoding_to_config(one) != encoding_to_config(other)
