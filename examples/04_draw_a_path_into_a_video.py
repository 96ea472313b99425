"""Write a clip with its camera path drawn into a corner, as the demo does."""

import tempfile
from pathlib import Path

import numpy as np
import torch

import merope
from merope.data.clips.overlay import draw_path_inset, enlarge, side_by_side
from merope.data.clips.video import read_video, write_video

NUM_FRAMES = 17

T_world_cam = torch.eye(4, dtype=torch.float64).repeat(NUM_FRAMES, 1, 1)
T_world_cam[:, 2, 3] = 1.5 * torch.arange(NUM_FRAMES)
T_world_cam[:, 0, 3] = 3.0 * torch.sin(torch.arange(NUM_FRAMES) / 4)
poses = merope.Poses.from_matrices(T_world_cam)

# Stripes that move stand in for a render; small, as the small model's frames are.
columns = np.arange(80)[None, None, :] + 3 * np.arange(NUM_FRAMES)[:, None, None]
frames = np.broadcast_to((columns * 5 % 200)[..., None], (NUM_FRAMES, 48, 80, 3)).astype(np.uint8)

large = enlarge(frames, factor=6)
both = side_by_side(draw_path_inset(large, poses), large, labels=("commanded", "generated"))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "clip.mp4"
    write_video(path, both, fps=10)
    decoded, fps = read_video(path)
    print(f"{path.name}: {len(decoded)} frames of {decoded.shape[1]} x {decoded.shape[2]} at {fps} fps")
    assert decoded.shape == both.shape
