"""Frames per second of CPU time that the street renderer makes on one thread.

CPU time rather than wall time: other work on the machine moves it little. The first frame, which compiles
or loads the kernels, is not counted.
"""

import time

import torch

from merope.cameras import Pinhole
from merope.worlds import build_world, drive, render

SIZES = ((48, 80, 100), (288, 512, 10))
"""Height, width, frames to time."""
SAMPLES = 2

torch.set_num_threads(1)
for height, width, num_frames in SIZES:
    camera = Pinhole.from_fov(fov_x_deg=90, height=height, width=width)
    poses = drive("curve", seed=3, num_frames=num_frames, fps=10.0)
    started = time.process_time()
    world = build_world(3, paths=[poses])
    built = time.process_time() - started
    render(world, camera, poses[:1], samples=SAMPLES)
    started = time.process_time()
    render(world, camera, poses, samples=SAMPLES)
    seconds = time.process_time() - started
    print(
        f"{height} x {width}, {SAMPLES} x {SAMPLES} rays a pixel: {num_frames / seconds:.1f} frames per second of CPU time "
        f"({num_frames} frames; building the world took {built:.2f} s)"
    )
