"""The commands of docs/wan.md on a tiny Wan pipeline, each a fresh process that finds models by path and no network."""

import json
import subprocess
import sys

import pytest
import torch

from merope.cameras import Pinhole
from merope.data.clips.folder import clip_ids, read_clips
from merope.recipes.encode import ClipEncoder, EncodeConfig, encode_clips
from merope.recipes.rendered_clips import RenderedClipsConfig, render_clips
from merope.recipes.tiny_wan import make_tiny_wan

HEIGHT, WIDTH, FRAMES, GIVEN = 64, 96, 17, 9


def merope(folder, *arguments):
    """One command in a process of its own; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "merope", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and six encoded clips of two worlds."""
    root = tmp_path_factory.mktemp("walkthrough")
    model = make_tiny_wan(root / "tiny-wan")
    lens = Pinhole.from_fov(fov_x_deg=90.0, height=HEIGHT, width=WIDTH)
    config = RenderedClipsConfig(lens=lens.to_dict(), num_frames=FRAMES, fps=12.0, turn_start=8, samples=1)
    render_clips(root / "clips", config, count=2, progress=False)
    encoder = ClipEncoder.from_pretrained(
        model, EncodeConfig(height=HEIGHT, width=WIDTH, num_frames=FRAMES), text_dtype=torch.float32
    )
    clips = read_clips([root / "clips" / name for name in clip_ids(root / "clips")])
    encode_clips(clips, encoder, root / "cache", progress=False)
    return root


def manifest(root):
    """One case: the given frames of a world, along its own drive and the left variant of it."""
    at = "clips/world-0000001"
    drives = {name: {"poses": f"{at}-{name}/poses.json", "format": "merope"} for name in ("original", "left")}
    case = {
        "id": "street",
        "prompt": "View from a car that drives straight ahead.",
        "prefix": f"{at}-original/frames",
        "lens": f"{at}-original/lens.json",
        "trajectories": drives,
    }
    (root / "cases.json").write_text(json.dumps([case]))


def test_train_generate_evaluate_by_path(folder):
    trained = merope(
        folder,
        *(
            "train",
            "finetune",
            "nuscenes-merope",
            "--model",
            "tiny-wan",
            "--data",
            "cache",
            "--output",
            "run",
        ),
        *("--steps", "2", "--global-batch", "2", "--lr", "1e-3", "--trains", "branch"),
    )
    assert "finished at step 2" in trained
    losses = [json.loads(line)["loss"] for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    assert losses and all(0 < loss < 10 for loss in losses)

    manifest(folder)
    made = merope(
        folder,
        *("generate", "tiny-wan", "--adapter", "run/model", "--manifest", "cases.json", "--out", "generated"),
        *("--steps", "2", "--self-check"),
    )
    assert "2 clips made" in made
    for name in ("original", "left"):
        assert len(list((folder / "generated" / "street" / name / "frames").glob("*.png"))) == FRAMES

    result = json.loads(merope(folder, "evaluate", "generated", "--json"))
    assert {clip["clip_id"] for clip in result["results"][0]["clips"]} == {"street/original", "street/left"}
