"""The weights that ship with the package: whole, small, trained alike, and better with cameras than without."""

import json

import numpy as np
import pytest
import torch
from diffusers import WanTransformer3DModel

from merope.adapters.branch import CameraBranch
from merope.cli import street
from merope.data.caches.latents import video_from_frames
from merope.encodings.registry import encoding_from_config, encoding_to_config
from merope.evaluation.benchmarks.worlds import held_out_commands
from merope.recipes.tiny_street import tiny_street, tiny_street_spec

FILES = [f"{name}/config.json" for name in ("merope", "native")] + ["estimator.safetensors"]
MISSING = [name for name in FILES if not (street.WEIGHTS / name).exists()]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"shipped weights missing: {', '.join(MISSING)} under merope/weights/tiny-street"
)
SPEC = tiny_street_spec()


@pytest.fixture(scope="module")
def models():
    return street.load_models()


@pytest.fixture(scope="module")
def estimator():
    return street.load_estimator()


@pytest.fixture(scope="module")
def clips():
    """The first held-out world, with its variants."""
    name, seed, poses = held_out_commands(1, SPEC, kitti=None)[0]
    return street.render_commands(name, street.with_variants(poses, SPEC), SPEC, seed=seed)


def described(name):
    return json.loads((street.WEIGHTS / name / "config.json").read_text(encoding="utf-8"))


def test_all_weights_together_are_at_most_25_megabytes():
    sizes = [path.stat().st_size for path in street.WEIGHTS.rglob("*") if path.is_file()]
    assert sum(sizes) <= 25_000_000


def test_no_temporary_file_ships():
    names = {path.name for path in street.WEIGHTS.rglob("*") if path.is_file()}
    assert not [name for name in names if name.startswith(".") or ".tmp" in name]


@pytest.mark.parametrize("name", ["merope", "native"])
def test_shipped_model_is_the_preset_trained_to_its_end(models, name):
    trained = described(name)["training"]
    # Options that came later have the values that the model was trained under.
    trained["encoding"] = encoding_to_config(encoding_from_config(trained["encoding"]))
    assert {"input_map": None, **trained} == json.loads(json.dumps(tiny_street(encoding=name).to_dict()))
    assert described(name)["summary"]["finished"] is True
    assert described(name)["summary"]["steps"] == tiny_street().steps
    model = models[name]
    assert type(model.transformer) is WanTransformer3DModel
    assert all(type(branch) is CameraBranch for branch in model.adapter.branches.values())
    assert model.spec == SPEC
    assert not model.adapter.is_zero
    assert all(torch.isfinite(value).all() for value in model.transformer.state_dict().values())


def test_both_models_have_equal_budgets(models):
    ours, native = described("merope")["training"], described("native")["training"]
    assert {name for name in ours if ours[name] != native[name]} == {"name", "encoding"}
    counts = [sum(p.numel() for p in model.transformer.parameters()) for model in models.values()]
    assert counts[0] == counts[1]
    codecs = [(street.WEIGHTS / name / "codec.safetensors").read_bytes() for name in ("merope", "native")]
    assert codecs[0] == codecs[1]


def test_codec_reconstructs_a_held_out_world(models, clips):
    video = video_from_frames(torch.from_numpy(np.stack([clip.truth for clip in clips])))
    codec = models["merope"].codec
    error = (codec.decode(codec.encode(video)) - video).square().mean()
    assert float(10 * torch.log10(4 / error)) > 25


def test_estimator_reads_metres_off_true_renders_of_a_world_it_never_saw(estimator, clips):
    recovered = street.recover(estimator, [clip.truth for clip in clips], SPEC)
    for clip, poses in zip(clips, recovered, strict=True):
        assert poses.path_length == pytest.approx(clip.poses.path_length, rel=0.2)


def test_generated_video_follows_its_command_better_with_cameras_than_without(models, estimator, clips):
    cammc = {}
    for name, model in models.items():
        videos = street.generate_clips(model, clips, steps=6, progress=False)
        result = street.score(clips, street.recover(estimator, videos, SPEC), SPEC, label=name)
        cammc[name] = result.summary()["cammc"].metric.value
    assert cammc["merope"] < cammc["native"]
