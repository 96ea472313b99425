"""Adapters with a latitude and up map must be told which way is up: by a call, a manifest or the command line."""

import json
from dataclasses import replace

import pytest
import torch
from diffusers import WanTransformer3DModel

from merope.adapters import attach, save_adapter
from merope.cli.main import run
from merope.data.clips.generated import find_generated
from merope.encodings import LatitudeUpMap, MeRoPE
from merope.generation.cases import open_cases
from merope.generation.manifest import ManifestError, read_manifest
from merope.generation.model_files import ModelConfigs
from merope.generation.request import check_request
from merope.geometry.rotations import rotvec_to_matrix
from tests.support.tiny_pipeline import FRAMES, fresh_pipeline, lens_of, made, path, pipeline
from tests.support.wan import stirred
from tests.support.wan_run import spec, wan_folder, write_cases

UP = (0.0, 0.0, 1.0)
R_OWN = rotvec_to_matrix(torch.tensor([0.9, -0.3, 1.7], dtype=torch.float64))
NO_MAP, MAP = ({"input_map": made_map} for made_map in (None, {"name": "LatitudeUpMap"}))


@pytest.fixture(scope="module")
def mapped():
    """A pipeline whose branches read the map."""
    pipe = fresh_pipeline(trained=False)
    pipe.adapter.detach()
    pipe.adapter = attach(
        pipe.transformer, encoding=MeRoPE(head_dim=64), compression=2, input_map=LatitudeUpMap()
    )
    stirred(pipe.adapter)
    return pipe


def tilted(pitch_deg):
    """The street's path with a camera that looks up by this much."""
    street = path()
    pitch = rotvec_to_matrix(torch.deg2rad(torch.tensor([pitch_deg, 0.0, 0.0], dtype=torch.float64)))
    return type(street)(R_world_cam=street.R_world_cam @ pitch, center_world=street.center_world)


def test_a_call_needs_it(mapped):
    with pytest.raises(ValueError, match=r"up_world is needed: .*\(0, 0, 1\) where z points up"):
        made(mapped)
    with pytest.raises(ValueError, match="up_world must be one for all clips or one per clip, 3 here; got 2"):
        made(mapped, poses=[path()] * 3, up_world=[UP, UP])


def test_the_first_camera_s_tilt_reaches_the_model_and_the_world_s_axes_do_not(mapped):
    video = made(mapped, poses=tilted(20.0), up_world=UP).frames
    turned = tilted(20.0).transformed(R_OWN, torch.tensor([5.0, 70.0, -2.0], dtype=torch.float64))
    up = (R_OWN @ torch.tensor(UP, dtype=torch.float64)).tolist()
    torch.testing.assert_close(made(mapped, poses=turned, up_world=up).frames, video, rtol=0, atol=1e-4)
    # As if it stood level, which is all that poses alone can tell.
    as_level = (tilted(20.0).R_world_cam[0] @ torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)).tolist()
    level = made(mapped, poses=tilted(20.0), up_world=as_level).frames
    assert (level - video).abs().max() > 1e-2
    both = made(mapped, poses=[tilted(20.0)] * 2, up_world=[UP, as_level], seeds=3).frames
    torch.testing.assert_close(both, torch.cat([video, level]), rtol=0, atol=1e-4)


def test_without_a_map_it_changes_nothing():
    assert torch.equal(made(pipeline(), up_world=UP).frames, made(pipeline()).frames)


@pytest.mark.parametrize("adapter", [NO_MAP, MAP])
def test_it_is_asked_for_before_weights_load(adapter):
    pipe = pipeline()
    configs = ModelConfigs(
        pipeline=pipe.config,
        transformer=pipe.transformer.config,
        vae=pipe.vae.config,
        adapter={"base": {}, "pose_policy": "last", "summary": {}, "spec": None, **adapter},
    )
    asked = {"poses": [path()] * 2, "lens": lens_of("2.2"), "num_frames": FRAMES}
    request = check_request(configs, **asked, up_world=[0.0, 0, 2])
    if adapter is NO_MAP:
        assert request.up_world is None
        check_request(configs, **asked)
    else:
        assert request.up_world == (UP, UP)
        with pytest.raises(ValueError, match="up_world is needed"):
            check_request(configs, **asked)
    with pytest.raises(ValueError, match="up_world must be the direction against gravity"):
        check_request(configs, **asked, up_world=(0, 1))


def manifest_with(folder, up):
    path = write_cases(folder)
    cases = json.loads(path.read_text())
    for case in cases:
        for trajectory in case["trajectories"].values():
            trajectory["up_world"] = up
    path.write_text(json.dumps(cases))
    return path


def test_a_manifest_s_trajectory_says_it(tmp_path):
    path = manifest_with(tmp_path, [0, -2, 0])
    clips = open_cases(read_manifest(path), spec(), source="cases")
    assert [clip.up_world for clip in clips] == [(0, -1, 0)] * 3
    # What decides about the frames is where up is as the first camera sees it.
    (first, *_), R_own = clips, R_OWN
    moved = replace(
        first,
        poses=first.poses.transformed(R_own, torch.zeros(3)),
        up_world=tuple((R_own @ torch.tensor(first.up_world, dtype=torch.float64)).tolist()),
    )
    assert first.inputs()["up_in_first_camera"] == [0, -1, 0]
    assert moved.inputs() == first.inputs()
    assert replace(first, up_world=UP).inputs() != first.inputs()
    assert "up_in_first_camera" not in replace(first, up_world=None).inputs()
    for wrong, words in ((3, "'up_world' must be a list"), ([0, 0, 0], "up_world must be the direction")):
        with pytest.raises(ManifestError, match=words):
            read_manifest(manifest_with(tmp_path, wrong))


def test_the_command_line_says_it(tmp_path, capsys):
    transformer = WanTransformer3DModel.from_pretrained(wan_folder() / "transformer")
    adapter = attach(transformer, encoding=MeRoPE(head_dim=64), compression=4, input_map=LatitudeUpMap())
    save_adapter(tmp_path / "map.safetensors", stirred(adapter), summary={"steps": 0}, spec=spec())
    write_cases(tmp_path)
    places = [wan_folder(), "--adapter", tmp_path / "map.safetensors", "--out", tmp_path / "out"]
    clip = ["--trajectory", tmp_path / "bend.txt", "--format", "kitti", "--prompt", "rain"]
    given = ["--prefix", tmp_path / "given", "--lens", tmp_path / "lens.json", "--steps", "1"]
    command = ["generate", *map(str, places + clip + given), "--guidance", "1"]
    assert run([*command, "--dry-run"]) == 1
    assert "trajectory 'bend': up_world is needed" in capsys.readouterr().err
    assert run([*command, "--up", "0", "-2", "0"]) == 0
    (made_clip,) = find_generated(tmp_path / "out")
    assert made_clip.result["up_world"] == [0, -1, 0]
    capsys.readouterr()
    assert run([*command, "--up", "0", "-1", "0", "--dry-run"]) == 0
    assert "1 more are there" in capsys.readouterr().out
    assert run([*command, "--up", "0", "0", "1"]) == 1
    assert "up_in_first_camera" in capsys.readouterr().err
