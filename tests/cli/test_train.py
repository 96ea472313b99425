"""`merope train`: trains the real preset, goes on where it stopped, says why it cannot."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from merope.cli.main import run
from merope.evaluation.estimators.motion_network.estimator import NetworkEstimator
from merope.generation import load_video_model
from merope.recipes.tiny_street import tiny_street, tiny_street_clips
from merope.training.street_clips import world_paths

WORLDS = 19


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """A folder of clips as rendering leaves it: real drives, frames of drifting noise (rendering takes half a minute)."""
    folder = tmp_path_factory.mktemp("clips")
    config = tiny_street_clips(replace(tiny_street(steps=2), num_worlds=WORLDS))
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, size=(3 * WORLDS, 1, 5, 8 + config.num_frames, 3), dtype=np.uint8)
    wide = coarse.repeat(8, axis=2).repeat(8, axis=3)
    frames = [wide[:, :, :, 8 * t : 8 * t + 64] for t in range(config.num_frames)]
    np.save(folder / "frames.npy", np.concatenate(frames, axis=1))
    poses = [path.T_world_cam.numpy() for seed in range(WORLDS) for path in world_paths(seed, config)]
    np.save(folder / "poses.npy", np.stack(poses))
    np.save(folder / "done.npy", np.ones(WORLDS, dtype=bool))
    (folder / "config.json").write_text(json.dumps(asdict(config)), encoding="utf-8")
    return folder


def train(clips, output, *options, preset="tiny-street", steps=2):
    places = ["--clips", str(clips), "--output", str(output), "--threads", "1"]
    return run(["train", preset, "--steps", str(steps), "--worlds", str(WORLDS), *places, *options])


@pytest.fixture(scope="module")
def finished(clips, tmp_path_factory):
    """Two steps of the preset."""
    folder = tmp_path_factory.mktemp("run")
    assert train(clips, folder) == 0
    return folder


def test_preset_trains_and_leaves_a_model_to_generate_with(finished):
    entries = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [2]
    assert {"loss", "held_out", "control", "residual_ratio"} <= entries[0].keys()
    model = load_video_model(finished / "model")
    assert model.spec == tiny_street().spec
    assert not model.adapter.is_zero
    described = json.loads((finished / "model" / "config.json").read_text())
    assert described["training"]["name"] == "tiny-street-merope"
    assert described["training"]["num_worlds"] == WORLDS


def test_same_command_again_has_nothing_left_to_do(clips, finished, capsys):
    state = (finished / "state.pt").stat().st_mtime_ns
    assert train(clips, finished) == 0
    assert "finished at step 2" in capsys.readouterr().out
    assert (finished / "state.pt").stat().st_mtime_ns == state


@pytest.mark.parametrize(("options", "steps"), [((), 3), (("--encoding", "native"), 2)])
def test_folder_of_another_run_is_one_line_that_names_the_difference(clips, finished, capsys, options, steps):
    assert train(clips, finished, *options, steps=steps) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("merope train tiny-street: ")
    assert "holds a run of another configuration: " in error
    assert ("steps is 2, this run has 3" if steps == 3 else "name is tiny-street-merope") in error
    assert "--output" in error


def test_clips_of_another_number_of_worlds_are_one_line(clips, tmp_path, capsys):
    arguments = ["train", "tiny-street", "--steps", "2", "--worlds", "20", "--clips", str(clips)]
    assert run([*arguments, "--output", str(tmp_path)]) == 1
    assert "clips of another configuration" in capsys.readouterr().err


def test_too_few_worlds_are_refused_before_anything_is_rendered(tmp_path, capsys):
    arguments = ["train", "tiny-street", "--worlds", "3", "--clips", str(tmp_path / "clips")]
    assert run(arguments) == 1
    error = capsys.readouterr().err
    assert "--worlds 3 gives 9 clips" in error
    assert "or more" in error
    assert not (tmp_path / "clips").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--encoding", "gtaa"), "unknown encoding 'gtaa'; known are ['cameractrl', "),
        (("--encoding", "GTA"), "Did you mean 'gta'?"),
        (("--encoding", "reropemerope"), "Did you mean 'rerope-merope'?"),
        (("--device", "cuba"), "--device cuba cannot be used: "),
    ],
)
def test_a_wrong_name_is_one_line_with_a_way_out_before_anything_is_rendered(
    tmp_path, capsys, options, message
):
    assert run(["train", "tiny-street", "--clips", str(tmp_path / "clips"), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("merope train tiny-street: ") and error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "clips").exists()


@pytest.mark.parametrize("options", [("--encoding", "gta"), ("--device", "meta")])
def test_the_estimator_ignores_no_option(tmp_path, capsys, options):
    with pytest.raises(SystemExit) as stop:
        run(["train", "tiny-street-estimator", "--clips", str(tmp_path / "clips"), *options])
    assert stop.value.code == 2
    assert options[0] in capsys.readouterr().err
    assert not (tmp_path / "clips").exists()


def test_estimator_trains_on_the_same_clips(clips, tmp_path):
    assert train(clips, tmp_path, preset="tiny-street-estimator", steps=1) == 0
    estimator = NetworkEstimator.load(tmp_path / "estimator.safetensors")
    assert estimator.fps == tiny_street().spec.fps
    assert estimator.camera == tiny_street().spec.camera
    entry = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert {"end_rotation_deg", "end_distance_m", "end_distance_share"} <= entry.keys()


def test_unknown_preset_exits_2(capsys):
    assert run(["train", "tiny-city"]) == 2
    assert "tiny-street-estimator" in capsys.readouterr().err


def test_help_lists_what_can_be_trained(capsys):
    assert run(["train", "--help"]) == 0
    text = capsys.readouterr().out
    for command in ("tiny-street", "tiny-street-estimator", "finetune", "recipes"):
        assert f"  {command} " in text


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as stop:
        run(["train", "tiny-street", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in ("--encoding", "--steps", "--worlds", "--output", "--clips", "--workers", "--threads"):
        assert option in text
