"""A selection of four drives made by the real commands, a benchmark of their size, and runs that score perfectly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from merope.cameras import Pinhole
from merope.cli.main import run as merope
from merope.data.clips.folder import write_clip
from merope.evaluation.benchmarks.registry import NUSCENES_384
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.runs.run import RunClip, ScoredRun
from merope.evaluation.runs.scored import score_run
from merope.geometry.poses import Poses
from merope.worlds.drives import random_drive

CASES = 4
LENS = Pinhole.from_fov(fov_x_deg=70.0, height=288, width=512)
SMALL = Pinhole.from_fov(fov_x_deg=70.0, height=9, width=16)
BENCHMARK = replace(NUSCENES_384, num_clips=3 * CASES)
"""nuscenes-384 with four drives in place of 128."""


def write_clips(root: Path, count: int) -> None:
    """Windows as `merope data convert --frames 49 --fps 12` names them, of tiny frames."""
    written = seed = 0
    while written < count:
        poses = random_drive(seed := seed + 1, 49, 12.0)
        if poses.path_length < 10:
            continue
        write_clip(
            root,
            f"scene-{written:04d}_CAM_FRONT@{49 * written:05d}",
            np.full((49, 9, 16, 3), written, np.uint8),
            poses=poses,
            lens=SMALL,
            fps=12.0,
            source="nuscenes",
            caption=f"a street, number {written}",
            up_world=(0, 0, 1),
        )
        written += 1


def select(clips: Path, out: Path, *options: str) -> None:
    """`merope data select`, as docs/benchmarks.md says it."""
    command = ["data", "select", str(clips), "--whole", "--count", str(CASES), "--out", str(out), *options]
    assert merope(command) == 0


def run_clip(clip_id: str, commanded: Poses, **changes) -> RunClip:
    given = {
        "clip_id": clip_id,
        "commanded": commanded,
        "recovered": Recovered.complete(commanded, scale="up_to_scale"),
        "first_generated": 9,
        "fps": 12.0,
        "lens": LENS,
        **changes,
    }
    return RunClip(**given)


def scored(clips, **changes) -> ScoredRun:
    """A run of these clips; by the paper's estimator unless settings say otherwise."""
    return score_run(clips, **{"label": "mine", "settings": {"estimator": "vggt-omega"}, **changes})


def moved(poses: Poses, metres: float, *, frame: int = 30) -> Poses:
    """The same path with one camera moved to the side."""
    centers = poses.center_world.clone()
    centers[frame] += torch.tensor([metres, 0.0, 0.0], dtype=torch.float64)
    return Poses(R_world_cam=poses.R_world_cam, center_world=centers, times=poses.times, unit=poses.unit)
