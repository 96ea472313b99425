"""Folders of many clips of which one video is broken: what every command does that goes through all of them."""

import json
import os
from pathlib import Path

import numpy as np
import torch

from merope.cameras import Pinhole
from merope.data.clips.video import write_video
from merope.data.poses.files import write_poses
from merope.geometry.poses import Poses

FRAMES, HEIGHT, WIDTH = 9, 32, 64


def write_clips(root: Path, count: int) -> None:
    """Clips of a video each, all different, in metres and in one world."""
    lens = Pinhole.from_fov(fov_x_deg=80.0, height=HEIGHT, width=WIDTH)
    for number in range(count):
        rng = np.random.default_rng(number)
        folder = root / name_of(number)
        write_video(
            folder / "video.mp4", rng.integers(0, 256, (FRAMES, HEIGHT, WIDTH, 3), dtype=np.uint8), fps=10
        )
        speed, bend = 0.3 + 0.7 * rng.random(), 0.02 * (number % 5 - 2)
        angles = torch.arange(FRAMES, dtype=torch.float64) * bend
        R = torch.zeros(FRAMES, 3, 3, dtype=torch.float64)
        R[:, 1, 1] = 1
        R[:, 0, 0] = R[:, 2, 2] = angles.cos()
        R[:, 0, 2], R[:, 2, 0] = angles.sin(), -angles.sin()
        poses = Poses(R_world_cam=R, center_world=(R[:, :, 2] * speed).cumsum(0), unit="m")
        write_poses(folder / "poses.json", poses, format="merope", camera=lens.to_dict())
        meta = {"format": "merope-clip-1", "source": "drives", "provenance": {"world": "town"}}
        (folder / "meta.json").write_text(json.dumps(meta))


def name_of(number: int) -> str:
    return f"clip-{number:04d}"


def cut(video: Path) -> None:
    os.truncate(video, video.stat().st_size // 2)


def rubbish(video: Path) -> None:
    video.write_bytes(np.random.default_rng(0).bytes(5000))


def missing(video: Path) -> None:
    video.unlink()


def pipe(video: Path) -> None:
    video.unlink()
    os.mkfifo(video)


def commands(root: Path, out: Path, model: Path) -> dict[str, list[str]]:
    """Every command that goes through a folder of clips."""
    clips = str(root)
    size = ["--height", str(HEIGHT), "--width", str(WIDTH), "--text-length", "16", "--device", "cpu"]
    return {
        "convert": ["data", "convert", clips, "--reader", "folder", "--out", str(out / "converted")],
        "encode": [
            *("data", "encode", clips, "--model", str(model), *size, "--frames", str(FRAMES)),
            *("--out", str(out / "cache")),
        ],
        "prototypes": [
            *("data", "prototypes", clips, "--frames", str(FRAMES), "--out", str(out / "prototypes")),
        ],
        "select": [
            *("data", "select", clips, "--frames", str(FRAMES), "--count", "3", "--turn-start", "2"),
            *("--out", str(out / "selected")),
        ],
        "check": ["data", "check", clips, "--out", str(out / "split.json")],
        "history index": ["history", "index", clips, "--out", str(out / "index")],
    }
