"""Real and generated clips of a few small frames."""

import numpy as np

from merope.cameras import Pinhole
from merope.data.clips.folder import write_clip
from merope.data.clips.generated import write_generated
from merope.evaluation.fidelity.clips import ClipCollection, ComparedClip
from tests.evaluation.trajectories import turning

LENS = Pinhole.from_fov(fov_x_deg=90, height=24, width=32)


def pixels(seed, *, num_frames=13, shift=0, lens=LENS):
    """Smooth frames, so that resizing does not turn all of them grey; ``shift`` brightens them."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 200, (num_frames, lens.height // 4, lens.width // 4, 3))
    fine = np.repeat(np.repeat(coarse, 4, axis=1), 4, axis=2) + rng.integers(-20, 21, (1, 1, 1, 3))
    return np.clip(fine + shift, 0, 255).astype(np.uint8)


def write_real(root, *, count=5, num_frames=13, fps=10.0, lens=LENS):
    for number in range(count):
        frames = pixels(number, num_frames=num_frames, lens=lens)
        write_clip(
            root, f"c{number:02d}", frames, poses=turning(num_frames), lens=lens, fps=fps, source="test"
        )
    return root


def write_run(root, *, count=5, num_frames=13, prefix_frames=3, shift=25, fps=10.0, seed=100, poison=None):
    """A folder of generated clips; ``poison`` replaces the frames that were given by one value."""
    for number in range(count):
        frames = pixels(seed + number, num_frames=num_frames, shift=shift)
        if poison is not None:
            frames[:prefix_frames] = poison
        write_generated(
            root / f"c{number:02d}" / "original",
            frames,
            commanded=turning(num_frames),
            lens=LENS,
            fps=fps,
            prefix_frames=prefix_frames,
            result={},
        )
    return root


def in_memory(label, videos, *, fps=10.0, prefix_frames=0):
    """A set of arrays [frame, height, width, 3]."""
    return ClipCollection(
        label=label,
        clips=tuple(
            ComparedClip(
                clip_id=f"{number:04d}",
                num_frames=len(video),
                height=video.shape[1],
                width=video.shape[2],
                fps=fps,
                prefix_frames=prefix_frames,
                read=lambda numbers, video=video: video[list(numbers)],
            )
            for number, video in enumerate(videos)
        ),
    )
