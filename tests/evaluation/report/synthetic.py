"""Runs that the report's tests share: commanded drives, estimates with known errors, small pictures."""

import functools
import re

import numpy as np

from merope.cameras import Pinhole, UnifiedCamera
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.scored import score_run
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import perturbed, turning

LENSES = (
    Pinhole.from_fov(fov_x_deg=70.0, height=18, width=32),
    UnifiedCamera.from_fov(fov_x_deg=150.0, xi=0.8, height=18, width=32),
)
TRAJECTORIES = ("original", "left", "right")
NUM_FRAMES = 17
GIVEN = 5


def pictures(seed, *, num_frames=NUM_FRAMES, height=18, width=32):
    """Frames of coloured noise, different for each clip."""
    return np.random.default_rng(seed).integers(0, 255, (num_frames, height, width, 3), dtype=np.uint8)


@functools.cache
def command(index, num_frames=NUM_FRAMES):
    """The drive of clip ``index``: each one longer than the one before."""
    return turning(num_frames, step=1.0 + 0.2 * index, turn_deg=(5.0, -40.0, 40.0)[index % 3])


def backwards(poses):
    return Poses(R_world_cam=poses.R_world_cam, center_world=-poses.center_world)


def run(
    label,
    *,
    num_clips=6,
    turn_deg=1.0,
    shift=0.1,
    factor=1.0,
    scale="metric",
    reference=False,
    with_frames=True,
    reversed_clip=None,
    failed_clip=None,
    **options,
):
    """Clips scene-0/original, scene-0/left, ... with an estimate that is off by stated noise."""
    clips = []
    for index in range(num_clips):
        commanded = command(index)
        estimate = perturbed(commanded, index, turn_deg=turn_deg, shift=shift, scale=factor)
        if index == reversed_clip:
            estimate = backwards(estimate)
        failed = index == failed_clip
        clips.append(
            RunClip(
                clip_id=f"scene-{index // 3}/{TRAJECTORIES[index % 3]}",
                commanded=commanded,
                recovered=None if failed else Recovered.complete(estimate, scale=scale),
                failure="two frames had matches" if failed else None,
                first_generated=GIVEN,
                fps=10.0,
                lens=LENSES[index % 2],
                frames=functools.partial(pictures, index) if with_frames else None,
            )
        )
    settings = {"estimator": {"name": "network", "options": {"size": 32}}, **options.pop("settings", {})}
    return score_run(clips, label=label, reference=reference, settings=settings, **options)


def visible(path):
    """The words of the page."""
    text = re.sub(r"<(style|script)>.*?</\1>", " ", path.read_text(), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))
