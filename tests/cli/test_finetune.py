"""`merope train finetune`: a pipeline in diffusers' layout, a cache, and one command."""

import contextlib
import io
import json
import shutil

import pytest
from safetensors.torch import load_file

from merope.adapters import read_adapter_config
from merope.cli import extras
from merope.cli.main import run
from merope.recipes.tiny_wan import make_tiny_wan
from merope.training.run_log import read_entries
from tests.support.finetune_run import CLIPS, write_cache

pytestmark = pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_wan(tmp_path_factory.mktemp("model") / "tiny", num_layers=2)


@pytest.fixture(scope="module")
def cache(model, tmp_path_factory):
    return write_cache(tmp_path_factory.mktemp("cache") / "cache", model=model)


def finetune(model, cache, output, *options, recipe="nuscenes-merope"):
    places = ["--model", str(model), "--data", str(cache), "--output", str(output), "--device", "cpu"]
    small = ["--global-batch", "4", "--prefix-frames", "5", "--parallel", "replicate"]
    return run(["train", "finetune", recipe, *places, *small, *options])


@pytest.fixture(scope="module")
def finished(model, cache, tmp_path_factory):
    """The folder of a run of two steps, and what it said."""
    folder = tmp_path_factory.mktemp("run")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = finetune(model, cache, folder, "--trains", "branch", "--steps", "2", "--log-every", "1")
    assert code == 0
    return folder, said.getvalue()


def test_a_recipe_trains_and_leaves_an_adapter(finished):
    finished, _ = finished
    assert [entry["step"] for entry in read_entries(finished / "log.jsonl")] == [1, 2]
    described = read_adapter_config(finished / "model")
    assert described["summary"]["recipe"] == "nuscenes-merope"
    assert described["spec"]["num_frames"] == 9 and described["spec"]["fps"] == 10.0
    assert described["spec"]["prefix_frames"] == 5
    assert described["blocks"] == [1]
    assert load_file(finished / "model" / "adapter.safetensors")["1.to_out.weight"].any()


def test_it_says_what_trains_what_it_takes_and_where_it_stands(finished):
    finished, out = finished
    assert "the clips decide: height 64 (the recipe's: 288), width 96 (the recipe's: 512)" in out
    assert "fps 10.0 (the recipe's: 12.0)" in out
    assert "Adam's two moments" in out
    assert "parameters train (branch); 2 steps of 4 clips = 1 processes x 1 x 4, replicate" in out
    assert f"on {CLIPS} clips of 2 clusters" in out
    assert f"finished at step 2; the model is in {finished / 'model'}" in out


def test_another_encoding_takes_its_scale_from_the_clips(model, cache, tmp_path, capsys):
    options = ("--encoding", "gta", "--trains", "all", "--steps", "1", "--dtype", "float32", "--lr", "1e-4")
    assert finetune(model, cache, tmp_path, *options, "--no-checkpointing", "--seed", "4") == 0
    assert "units per metre, from the clips' motion" in capsys.readouterr().out
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["name"] == "nuscenes-merope-gta"
    assert config["encoding"]["scale"]["per_metre"] != 1.0
    assert config["optimizer"]["learning_rate"] == 1e-4
    assert (config["compute_dtype"], config["gradient_checkpointing"], config["seed"]) == (
        "float32",
        False,
        4,
    )
    assert (tmp_path / "model" / "transformer" / "config.json").exists()
    # Going on from an adapter takes its scale and the base that trained with it along.
    start = ("--adapter", str(tmp_path / "model"), "--encoding", "gta", "--trains", "branch", "--steps", "1")
    assert finetune(model, cache, tmp_path / "next", *start) == 0
    assert "per metre, the adapter's" in capsys.readouterr().out
    first, second = (read_adapter_config(tmp_path / place) for place in ("model", "next/model"))
    assert second["encoding"] == first["encoding"]
    assert second["base"]["fingerprint"] == first["base"]["fingerprint"]
    assert read_entries(tmp_path / "next" / "log.jsonl")[0]["residual_ratio"] > 0


def test_a_plan_for_no_gpu_is_a_wrong_option(model, capsys):
    assert run(["train", "finetune", "nuscenes-merope", "--model", str(model), "--plan", "0"]) == 2
    assert "--plan must be a number of GPUs, 1 or more; got 0." in capsys.readouterr().err


def test_a_plan_needs_configurations_alone(model, capsys):
    assert run(["train", "finetune", "nuscenes-merope", "--model", str(model), "--plan", "64"]) == 0
    assert "each of 64 process(es), hsdp, weights cut 4-fold" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("nuscenes-merop", (), "unknown recipe 'nuscenes-merop'"),
        ("nuscenes-merope", ("--encoding", "gtaa"), "unknown encoding 'gtaa'"),
        ("nuscenes-merope", ("--encoding", "gta", "--scale", "gone.json"), "gone.json: no such file"),
        ("nuscenes-merope", ("--micro-batch", "3"), "does not divide it"),
        ("nuscenes-merope", ("--shard-size", "2"), "mode 'replicate' with shard_size 2"),
        ("panshot-merope", (), "no head layout is known for head_dim 32"),
        ("panshot-gta", (), "clip clips/clip-0 does not say"),
    ],
)
def test_what_cannot_be_is_one_line(model, cache, tmp_path, capsys, recipe, options, message):
    assert finetune(model, cache, tmp_path / "run", *options, recipe=recipe) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("merope train finetune: ") and message in error
    assert not (tmp_path / "run").exists()


def test_a_missing_extra_is_named_before_anything_is_read(model, cache, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert finetune(model, cache, tmp_path / "run", "--wandb", "cameras") == 1
    assert "pip install 'merope[wandb]'" in capsys.readouterr().err


def test_data_is_asked_for(model, capsys):
    assert run(["train", "finetune", "nuscenes-merope", "--model", str(model)]) == 1
    assert "--data must name at least one cache of latents" in capsys.readouterr().err


def test_recipes_are_listed(capsys):
    assert run(["train", "recipes"]) == 0
    assert "nuscenes-merope " in capsys.readouterr().out


def test_latents_of_another_autoencoder_are_refused(model, cache, tmp_path, capsys):
    other = shutil.copytree(model, tmp_path / "other")
    described = other / "vae" / "config.json"
    config = json.loads(described.read_text())
    config["latents_std"][0] *= 2
    described.write_text(json.dumps(config))
    assert finetune(other, cache, tmp_path / "run") == 1
    assert "normalised with another latents_std" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_clips_of_another_unit_are_refused_before_the_model_is_loaded(model, tmp_path, capsys):
    clips = write_cache(tmp_path / "clips", model=model, unit="normalized")
    assert finetune(model, clips, tmp_path / "run") == 1
    output = capsys.readouterr()
    assert "the clips are in unit normalized; nuscenes-merope takes m" in output.err
    assert "GiB" not in output.out
