"""The official devkit's cameras against ours. `make crosscheck` installs it, in an environment of its own."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from merope.data import ReadOptions, load_pose_file
from merope.data.datasets import open_dataset
from tests.support.nuscenes import write_nuscenes_root
from tests.support.shared import REPOSITORY

DEVKIT_PYTHON = Path(os.environ.get("MEROPE_NUSCENES_PYTHON") or REPOSITORY / ".venv-nuscenes/bin/python")


def complete(folder):
    """Add what the devkit wants and we do not: the other tables, links between rows, and a map."""

    def table(name):
        return json.loads((folder / f"{name}.json").read_text())

    def write(name, rows):
        (folder / f"{name}.json").write_text(json.dumps(rows))

    for name in ("category", "attribute", "visibility", "instance", "sample_annotation"):
        write(name, [])
    scenes, samples, rows = table("scene"), table("sample"), table("sample_data")
    for scene in scenes:
        own = [row for row in samples if row["scene_token"] == scene["token"]]
        scene |= {
            "log_token": "log",
            "nbr_samples": len(own),
            "first_sample_token": own[0]["token"],
            "last_sample_token": own[-1]["token"],
        }
    for row in samples:
        row |= {"prev": "", "next": ""}
    for row in rows:
        row |= {"prev": "", "next": "", "fileformat": "jpg"}
    write("scene", scenes)
    write("sample", samples)
    write("sample_data", rows)
    write("log", [{"token": "log", "logfile": "n015", "vehicle": "n015", "location": "singapore-onenorth"}])
    write(
        "map", [{"token": "map", "log_tokens": ["log"], "category": "semantic_prior", "filename": "map.png"}]
    )
    Image.new("L", (8, 8)).save(folder.parent / "map.png")


def test_cameras_are_those_of_the_official_devkit(tmp_path):
    if not DEVKIT_PYTHON.exists():
        pytest.skip("the official nuScenes devkit is missing; `make crosscheck` installs it and runs this")
    folder = write_nuscenes_root(tmp_path, count=18, dropped=(4, 11), scenes=("scene-0061", "scene-0103"))
    complete(folder)
    said = subprocess.run(
        # -P: a module of these tests is called nuscenes too.
        [DEVKIT_PYTHON, "-P", REPOSITORY / "tests/support/nuscenes_devkit.py", tmp_path, folder.name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    official = json.loads(said.stdout)
    assert len(official) == 2 * 16
    for scene in ("scene-0061", "scene-0103"):
        theirs = [image for image in official if image["scene"] == scene]
        ours = load_pose_file(
            tmp_path, format="nuscenes", options=ReadOptions(scene=scene, camera="CAM_FRONT")
        )
        assert list(ours.names) == [image["file"] for image in theirs]
        matrices = np.array([image["T_world_cam"] for image in theirs])
        assert np.abs(ours.poses.T_world_cam.numpy() - matrices).max() < 1e-12
        seconds = np.array([image["timestamp"] for image in theirs]) / 1e6
        assert np.abs(ours.poses.times.numpy() - seconds).max() < 1e-6
    # The clips of the data set, whose gaps are where images were dropped, have the same cameras.
    by_file = {image["file"]: image for image in official}
    clips = open_dataset("nuscenes", tmp_path)
    for number in range(len(clips)):
        clip = clips[number]
        first = next(name for name in by_file if name in json.dumps(clip.provenance))
        matrix = np.array(by_file[first]["T_world_cam"])
        assert np.abs(clip.poses.T_world_cam.numpy()[0] - matrix).max() < 1e-12
        (fx, _, cx), (_, fy, cy), _ = by_file[first]["intrinsics"]
        assert (clip.lens.fx, clip.lens.fy) == (fx, fy)
        shift = 0.5 if clip.lens.pixel_origin == "corner" else 0.0
        assert (clip.lens.cx, clip.lens.cy) == (cx + shift, cy + shift)
