"""`MeropePipeline` on disk: diffusers' own folder with an adapter in it, and what is told before weights are read."""

import hashlib
import json
import logging as python_logging
import shutil

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from diffusers import DiffusionPipeline, WanPipeline, WanTransformer3DModel
from diffusers.utils import logging
from safetensors.torch import load_file

import merope
from merope.adapters import load_adapter, save_adapter
from merope.errors import CheckpointMismatch
from merope.generation.request import check_request
from tests.support.fresh_python import run_python
from tests.support.tiny_pipeline import (
    FRAMES,
    PROMPT,
    VERSIONS,
    fresh_pipeline,
    given,
    made,
    path,
    size_of,
    trained_spec,
    wan_folder,
)

both = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A pipeline that knows what it was trained for, and its folder."""
    pipe = fresh_pipeline()
    pipe.trained, pipe.summary = trained_spec(), {"steps": 12}
    folder = tmp_path_factory.mktemp("saved") / "model"
    pipe.save_pretrained(folder)
    return pipe, folder


def loaded(folder, **options):
    pipe = merope.MeropePipeline.from_pretrained(folder, **options)
    pipe.set_progress_bar_config(disable=True)
    return pipe


AGAIN = """
import hashlib, sys
import merope
import numpy as np
from merope.worlds.drives import drive

pipe = merope.MeropePipeline.from_pretrained(sys.argv[1])
poses = drive("curve", seed=1, num_frames=9, fps=10)
prefix = np.load(sys.argv[2])
frames = pipe("a car drives along the street", poses=poses, prefix=prefix, num_inference_steps=2, seeds=3).frames
print(hashlib.sha256(frames.tobytes()).hexdigest())
"""


def test_a_fresh_process_makes_the_same_video_of_a_saved_pipeline(saved, tmp_path):
    pipe, folder = saved
    np.save(tmp_path / "prefix.npy", given("2.2", 5))
    options = {"prefix": given("2.2", 5), "num_inference_steps": 2, "seeds": 3}
    frames = pipe(PROMPT, poses=path(), **options).frames
    done = run_python(
        AGAIN,
        arguments=[str(folder), str(tmp_path / "prefix.npy")],
        environment={"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == hashlib.sha256(frames.tobytes()).hexdigest()


def test_diffusers_loads_the_folder_without_a_word(saved, caplog):
    pipe, folder = saved
    assert json.loads((folder / "model_index.json").read_text())["_class_name"] == "WanPipeline"
    logging.enable_propagation()
    try:
        with caplog.at_level(python_logging.WARNING):
            plain = WanPipeline.from_pretrained(folder)
            either = DiffusionPipeline.from_pretrained(folder)
    finally:
        logging.disable_propagation()
    assert not caplog.records
    assert type(plain) is type(either) is WanPipeline
    base = WanTransformer3DModel.from_pretrained(wan_folder("2.2") / "transformer").state_dict()
    for name, value in plain.transformer.state_dict().items():
        assert torch.equal(value, base.pop(name))
    assert not base
    assert plain.config.expand_timesteps
    # The pipeline that was saved has its cameras still.
    assert pipe.self_check() > 0


def test_a_loaded_pipeline_knows_what_it_was_trained_for(saved):
    pipe, folder = saved
    again = loaded(folder)
    assert again.trained == pipe.trained and again.summary == {"steps": 12}
    prefix = given("2.2", 5)
    out = again(PROMPT, poses=path(), prefix=prefix, num_inference_steps=2, seeds=3, output_type="uint8")
    size = size_of("2.2")
    assert out.frames.shape == (1, FRAMES, size["height"], size["width"], 3)
    # An empty folder is taken, such as push_to_hub makes.
    folder.with_name("again").mkdir()
    again.save_pretrained(folder.with_name("again"))
    for name in ("adapter/adapter.safetensors", "transformer/diffusion_pytorch_model.safetensors"):
        one, other = (load_file(place / name) for place in (folder, folder.with_name("again")))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_folder_that_is_there_stays_as_it_is(saved, tmp_path):
    pipe, _ = saved
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(FileExistsError, match="choose another folder"):
        pipe.save_pretrained(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]
    assert pipe.self_check() > 0


def test_lora_weights_are_not_saved_as_something_that_cannot_be_loaded(tmp_path):
    pipe = fresh_pipeline()
    peft = pytest.importorskip("peft")
    pipe.transformer.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q"]))
    with pytest.raises(ValueError, match=r"carries LoRA weights.*fuse_lora"):
        pipe.save_pretrained(tmp_path / "folder")
    assert not list(tmp_path.iterdir())
    pipe.unload_lora_weights()
    pipe.save_pretrained(tmp_path / "folder")


@both
def test_the_adapter_may_come_from_elsewhere(version, tmp_path):
    pipe = fresh_pipeline(version)
    expected = made(pipe, version).frames
    run = tmp_path / "run"
    save_adapter(run / "adapter.safetensors", pipe.adapter)
    for place in (run, run / "adapter.safetensors"):
        assert torch.equal(made(loaded(wan_folder(version), adapter=place), version).frames, expected)
    with pytest.raises(FileNotFoundError, match="no adapter file"):
        loaded(wan_folder(version), adapter=tmp_path)


def test_a_transformer_that_was_trained_with_the_adapter_comes_with_it(tmp_path):
    pipe = fresh_pipeline()
    with torch.no_grad():
        for parameter in pipe.transformer.parameters():
            parameter.mul_(1.1)
    expected = made(pipe).frames
    run = tmp_path / "run"
    save_adapter(run / "adapter.safetensors", pipe.adapter)
    with pipe.adapter.taken_off():
        pipe.transformer.save_pretrained(run / "transformer")
    assert torch.equal(made(loaded(wan_folder("2.2"), adapter=run)).frames, expected)
    # The weights beside it are what it belongs to; another base has to be asked for.
    alone = tmp_path / "alone.safetensors"
    shutil.copy(run / "adapter.safetensors", alone)
    with pytest.raises(CheckpointMismatch, match="other_base=True"):
        loaded(wan_folder("2.2"), adapter=alone)
    assert loaded(wan_folder("2.2"), adapter=alone, other_base=True).adapter is not None


def test_a_base_that_does_not_fit_is_told_before_weights_are_read(tmp_path):
    pipe = fresh_pipeline("2.1")
    save_adapter(tmp_path / "adapter.safetensors", pipe.adapter)
    with pytest.raises(CheckpointMismatch, match=r"in_channels = 16; this one has 48"):
        loaded(without_weights(tmp_path / "other"), adapter=tmp_path)
    described = without_weights(tmp_path / "second")
    index = json.loads((described / "model_index.json").read_text())
    index |= {"transformer_2": ["diffusers", "WanTransformer3DModel"], "boundary_ratio": 0.875}
    (described / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"two transformers.*Wan2.2-T2V-A14B.*Use Wan2.2-TI2V-5B, Wan2.1"):
        loaded(described)


def without_weights(folder, version="2.2"):
    """The configuration files of a pipeline."""
    return shutil.copytree(
        wan_folder(version), folder, ignore=shutil.ignore_patterns("*.safetensors", "tokenizer")
    )


def test_a_request_is_checked_without_weights(saved, tmp_path):
    _, folder = saved
    described = without_weights(tmp_path / "configs")
    (described / "adapter").mkdir()
    shutil.copy(folder / "adapter" / "adapter.safetensors", described / "adapter")
    request = check_request(described, poses=path(), prefix=given("2.2", 5))
    # Each clip has its lens beside the spec.
    assert request.spec == trained_spec(camera=None)
    assert request.lenses[0].to_dict() == trained_spec().camera
    assert request.num_clips == 1


def test_a_hub_name_in_the_cache_brings_its_own_adapter(saved, tmp_path):
    pipe, folder = saved
    expected = made(pipe, prefix=given("2.2", 5)).frames
    cached(tmp_path, "someone/streets", folder)
    hub = {"cache_dir": tmp_path, "local_files_only": True}
    again = loaded("someone/streets", **hub)
    assert torch.equal(made(again, prefix=given("2.2", 5)).frames, expected)
    cached(tmp_path, "someone/base", wan_folder("2.2"))
    with pytest.warns(UserWarning, match=r"no adapter of someone/base is in the cache.*adapter="):
        assert loaded("someone/base", **hub).adapter is None


def cached(cache, name, folder):
    """Put a folder where the hub's client keeps what it has fetched."""
    home = cache / f"models--{name.replace('/', '--')}"
    commit = "0" * 40
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    shutil.copytree(folder, home / "snapshots" / commit)


# Precision and memory


def test_one_precision_for_all_leaves_autoencoder_and_branches_in_float32(saved):
    pipe, folder = saved
    half = loaded(folder, dtype=torch.bfloat16)
    assert half.transformer.dtype == half.text_encoder.dtype == torch.bfloat16
    assert half.vae.dtype == torch.float32
    assert {parameter.dtype for parameter in half.adapter.parameters()} == {torch.float32}
    seen = []
    branch = half.adapter.branches[1]
    branch.register_forward_hook(lambda module, args, out: seen.append((args[0].dtype, out.dtype)))
    prefix = given("2.2", 5)
    out = made(half, prefix=prefix)
    assert set(seen) == {(torch.bfloat16, torch.bfloat16)}
    exact = made(pipe, prefix=prefix).frames
    assert out.frames.dtype == torch.float32
    assert (out.frames - exact).norm() < 3e-2 * exact.norm()
    assert half.self_check() > 0
    other = loaded(folder, dtype={"default": torch.float32, "vae": torch.bfloat16})
    assert other.vae.dtype == torch.bfloat16 and other.transformer.dtype == torch.float32


@pytest.mark.parametrize("kind", ["model", "sequential", "group"])
def test_cameras_follow_an_offloaded_pipeline(saved, kind):
    _, folder = saved
    pipe = loaded(folder)
    options = {"prefix": given("2.2", 5), "output_type": "pt", "guidance_scale": 2.0}
    expected = made(pipe, **options).frames
    if kind == "model":
        pipe.enable_model_cpu_offload(device="cpu")
    elif kind == "sequential":
        # What enable_sequential_cpu_offload does, which cannot name a CPU: accelerate takes no "cpu:0".
        for module in (pipe.text_encoder, pipe.transformer, pipe.vae):
            cpu_offload(module, torch.device("cpu"))
        assert next(pipe.adapter.parameters()).device.type == "meta"
    else:
        pipe.enable_group_offload(
            onload_device=torch.device("cpu"), offload_type="block_level", num_blocks_per_group=1
        )
    for _ in range(2):
        torch.testing.assert_close(made(pipe, **options).frames, expected, rtol=0, atol=1e-5)
    assert pipe.self_check() > 0


def test_decoding_in_tiles_is_the_autoencoder_s_own_switch(saved, monkeypatch):
    _, folder = saved
    pipe = loaded(folder)
    options = {"prefix": given("2.2", 5), "output_type": "pt"}
    whole = made(pipe, **options).frames
    tiles = []
    decode = pipe.vae.tiled_decode
    monkeypatch.setattr(
        pipe.vae, "tiled_decode", lambda *args, **kw: (tiles.append(1), decode(*args, **kw))[1]
    )
    pipe.vae.enable_tiling(
        tile_sample_min_height=32,
        tile_sample_min_width=32,
        tile_sample_stride_height=32,
        tile_sample_stride_width=32,
    )
    apart = made(pipe, **options).frames
    assert tiles and apart.shape == whole.shape
    assert (apart - whole).abs().mean() < 0.1


def test_an_adapter_loads_onto_a_pipeline_that_is_there(saved):
    pipe, folder = saved
    plain = fresh_pipeline(trained=False)
    plain.adapter.detach()
    plain.adapter = load_adapter(folder, plain.transformer)
    prefix = given("2.2", 5)
    assert torch.equal(made(plain, prefix=prefix).frames, made(pipe, prefix=prefix).frames)
