"""Small generated clips, and an estimator that answers by what it sees; both go to other processes."""

import time

import numpy as np
import torch

from merope.cameras import Pinhole
from merope.data.clips.generated import write_generated
from merope.evaluation.estimators.base import Recovered, RecoveryFailed
from tests.evaluation.trajectories import perturbed, turning

LENS = Pinhole.from_fov(fov_x_deg=90, height=20, width=32)


def write_clip(root, clip_id, *, poses=None, lens=LENS, fps=10.0, fill=None, prefix_frames=5, **settings):
    """Frames of noise, or of one value; returns them."""
    poses = turning(9) if poses is None else poses
    shape = (len(poses), lens.height, lens.width, 3)
    frames = np.random.default_rng(sum(map(ord, clip_id))).integers(2, 255, shape, dtype=np.uint8)
    if fill is not None:
        frames[:] = fill
    write_generated(
        root / clip_id,
        frames,
        commanded=poses,
        lens=lens,
        fps=fps,
        prefix_frames=prefix_frames,
        result={"settings": settings},
    )
    return frames


# A first pixel that `Knowing` has an error for.
ODD = 255


class Knowing:
    """Answers by the first pixel.

    0 fails, 255 is an error in the estimator itself, 1 knows half of the frames, anything else is off by a random motion
    of its own.

    Every call leaves a line in ``asked``, a file, for calls come from several processes.
    """

    name = "knowing"

    def __init__(self, asked=None, noise=0.05):
        self.asked, self.noise = asked, noise

    def identity(self):
        return {"name": self.name, "options": {"noise": self.noise}, "versions": {}, "weights_sha256": None}

    def estimate(self, frames, camera, *, fps):
        kind = int(frames[0, 0, 0, 0])
        if self.asked is not None:
            with open(self.asked, "a", encoding="utf-8") as stream:
                stream.write(f"{kind}\n")
        if kind == 0:
            raise RecoveryFailed("nothing to see")
        if kind == ODD:
            raise ZeroDivisionError("an odd clip")
        poses = perturbed(turning(len(frames)), kind, turn_deg=0.5, shift=self.noise)
        if kind == 1:
            registered = torch.arange(len(frames)) % 2 == 0
            return Recovered(poses=poses, registered=registered, scale="metric", fill="made up")
        # The sum of many products: its last digits hang on the order, and so on the number of threads.
        turned = torch.einsum("thwc->t", torch.from_numpy(frames).double().square().sqrt())
        scale = "up_to_scale" if kind % 2 else "metric"
        return Recovered.complete(
            poses.scaled(1 + float(turned.sum()) * 1e-12), scale=scale, notes=("knows", f"saw {kind}")
        )


class Slow(Knowing):
    """Takes long enough over a clip to be killed at it."""

    def estimate(self, frames, camera, *, fps):
        time.sleep(0.3)
        return super().estimate(frames, camera, fps=fps)
