"""A Wan pipeline that is commanded by cameras: prompt, first frames, poses and lens to video; saved and loaded again.

The pipeline is of the real classes at a small size and knows nothing, so its videos are noise. With
``Wan-AI/Wan2.2-TI2V-5B-Diffusers`` and a trained adapter in the places of the two folders the calls are the same.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from diffusers import WanPipeline
from diffusers.utils import logging

import merope
from merope.adapters import attach, save_adapter
from merope.recipes.tiny_wan import make_tiny_wan
from merope.worlds import drive

logging.disable_progress_bar()
NUM_FRAMES, HEIGHT, WIDTH = 17, 64, 96

with tempfile.TemporaryDirectory() as folder:
    base, run, saved = (Path(folder) / name for name in ("base", "run", "saved"))
    make_tiny_wan(base, version="2.2")

    # What a training run leaves: an adapter whose branches are away from zero.
    torch.manual_seed(0)
    transformer = WanPipeline.from_pretrained(base).transformer
    adapter = attach(transformer, encoding=merope.MeRoPE(head_dim=64), compression=2)
    for branch in adapter.branches.values():
        torch.nn.init.normal_(branch.to_out.weight, std=0.1)
    save_adapter(run / "adapter.safetensors", adapter)

    pipe = merope.MeropePipeline.from_pretrained(base, adapter=run)
    pipe.set_progress_bar_config(disable=True)
    print(f"two trajectories, one noise: answers differ by {pipe.self_check():.1%}")

    # Nine frames are given: three latent frames, clean at every step. Two clips, each along a trajectory of its own.
    prefix = np.full((9, HEIGHT, WIDTH, 3), 120, dtype=np.uint8)
    command = {
        "prompt": "a car drives along the street",
        "prefix": prefix,
        "poses": [drive(kind, seed=1, num_frames=NUM_FRAMES, fps=10) for kind in ("straight", "curve")],
        "lens": merope.Pinhole.from_fov(fov_x_deg=90, height=HEIGHT, width=WIDTH),
        "num_frames": NUM_FRAMES,
        "num_inference_steps": 4,
        "seeds": [1, 2],
        "output_type": "uint8",
    }
    made = pipe(**command)
    print(
        f"videos {made.frames.shape}, {made.frames.dtype}; noise levels {[round(s, 2) for s in made.sigmas]}"
    )
    print(f"colours jump by {[round(jump, 1) for jump in made.prefix_color_jump]} after the given frames")

    # The folder is one of diffusers' own, with the adapter beside the components.
    pipe.save_pretrained(saved)
    print("saved:", ", ".join(sorted(path.name for path in saved.iterdir())))
    assert isinstance(WanPipeline.from_pretrained(saved), WanPipeline)
    again = merope.MeropePipeline.from_pretrained(saved)
    again.set_progress_bar_config(disable=True)
    assert np.array_equal(again(**command).frames, made.frames)
    print("loaded: the same videos to the bit")
