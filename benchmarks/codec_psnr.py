"""PSNR of the shipped latent codec on worlds that neither it nor any model has seen.

The codec of another run: ``python benchmarks/codec_psnr.py PATH/TO/codec.safetensors``.
"""

import sys
from pathlib import Path

import torch

from merope.cameras import CameraModel
from merope.cli.street import WEIGHTS
from merope.data.caches.latents import LinearCodec, frames_from_video, video_from_frames
from merope.recipes.tiny_street import HELD_OUT_SEED, tiny_street_spec
from merope.worlds import build_world, render
from merope.worlds.drives import random_drive

NUM_WORLDS = 16
# Apart from the worlds of the held-out benchmark, which count up from HELD_OUT_SEED.
FIRST_SEED = HELD_OUT_SEED + 900_000


def psnr(truth: torch.Tensor, coded: torch.Tensor) -> float:
    """Decibels of byte frames, over all of their pixels together."""
    error = (truth.double() - coded.double()).square().mean()
    return float(10 * torch.log10(255.0**2 / error))


codec = LinearCodec.load(Path(sys.argv[1]) if len(sys.argv) > 1 else WEIGHTS / "merope" / "codec.safetensors")
spec = tiny_street_spec()
camera = CameraModel.from_dict(spec.camera)
clips = []
for seed in range(FIRST_SEED, FIRST_SEED + NUM_WORLDS):
    path = random_drive(seed, spec.num_frames, spec.fps)
    clips.append(torch.from_numpy(render(build_world(seed, paths=[path]), camera, path).rgb))
frames = torch.stack(clips)
coded = frames_from_video(codec.decode(codec.encode(video_from_frames(frames))))
print(
    f"{NUM_WORLDS} clips of {spec.num_frames} frames, {codec.channels} numbers a token: "
    f"first frames {psnr(frames[:, :1], coded[:, :1]):.2f} dB, later frames {psnr(frames[:, 1:], coded[:, 1:]):.2f} dB, "
    f"all {psnr(frames, coded):.2f} dB"
)
