"""A tiny Wan pipeline's folder with a stirred adapter beside it, and cases for it, made once per test process."""

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from diffusers import WanTransformer3DModel

from merope.adapters import attach, save_adapter
from merope.adapters.spec import VideoSpec, wan_spec
from merope.cameras import Pinhole
from merope.data import write_poses
from merope.data.clips.video import write_frames
from merope.encodings import MeRoPE
from merope.geometry.poses import Poses
from merope.geometry.rotations import rotvec_to_matrix
from merope.recipes.tiny_wan import make_tiny_wan
from tests.support.wan import stirred

HEIGHT, WIDTH = 64, 96
LENS = Pinhole.from_fov(fov_x_deg=90, height=HEIGHT, width=WIDTH)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="merope-tests-wan-")


@functools.cache
def wan_folder() -> Path:
    """A pipeline with random weights, in diffusers' layout."""
    return make_tiny_wan(Path(_folder().name) / "wan")


@functools.cache
def adapter_file() -> Path:
    """Branches on it whose every weight was moved, trained (it says) for `spec`."""
    transformer = WanTransformer3DModel.from_pretrained(wan_folder() / "transformer")
    adapter = stirred(attach(transformer, encoding=MeRoPE(head_dim=64), compression=4))
    path = Path(_folder().name) / "adapter.safetensors"
    save_adapter(path, adapter, summary={"steps": 0}, spec=spec())
    return path


def spec() -> VideoSpec:
    """9 frames of 64 x 96 at 10 Hz, 5 of them given."""
    configs = [
        json.loads((wan_folder() / part / "config.json").read_text()) for part in ("transformer", "vae")
    ]
    return wan_spec(*configs, height=HEIGHT, width=WIDTH, num_frames=9, prefix_frames=5, fps=10.0, shift=5.0)


def bend(num_frames: int, *, turn_deg: float = 20.0, step: float = 0.6) -> Poses:
    """A level bend to the right, looking along it."""
    heading = torch.linspace(0, np.radians(turn_deg), num_frames, dtype=torch.float64)
    forward = torch.stack([heading.sin(), 0 * heading, heading.cos()], dim=-1)
    centers = torch.cat([torch.zeros(1, 3, dtype=torch.float64), (step * forward[:-1]).cumsum(0)])
    yaw = torch.stack([0 * heading, heading, 0 * heading], dim=-1)
    return Poses(R_world_cam=rotvec_to_matrix(yaw), center_world=centers)


def write_cases(folder: Path) -> Path:
    """A manifest of two cases and three clips, and the files that it names."""
    write_poses(folder / "bend.txt", bend(33), format="kitti")
    write_poses(folder / "left.json", bend(9, turn_deg=-15), format="merope")
    (folder / "lens.json").write_text(json.dumps(LENS.to_dict()))
    write_frames(
        folder / "given", np.random.default_rng(0).integers(0, 256, (6, HEIGHT, WIDTH, 3), dtype=np.uint8)
    )
    cases = [
        {
            "id": "street",
            "prompt": "a car drives along the street",
            "prefix": "given",
            "lens": "lens.json",
            "trajectories": {
                "bend": {"poses": "bend.txt", "format": "kitti"},
                "slow": {"poses": "bend.txt", "format": "kitti", "fps": 5, "start": 2},
            },
        },
        {
            "id": "rain",
            "prompt": "rain",
            "negative_prompt": "sun",
            "prefix": "given",
            "fov": 90,
            "seed": 7,
            "trajectories": {"left": {"poses": "left.json", "format": "merope"}},
        },
    ]
    path = folder / "cases.json"
    path.write_text(json.dumps(cases))
    return path
