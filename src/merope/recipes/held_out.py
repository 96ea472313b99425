"""Held-out commands, fixed before any model was trained: their seeds and KITTI windows."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from merope.adapters.spec import VideoSpec
from merope.data.poses.files import read_poses
from merope.errors import TrajectoryError
from merope.geometry.poses import Poses
from merope.recipes.tiny_street import HELD_OUT_SEED
from merope.worlds import place_on_ground
from merope.worlds.drives import random_drive

KITTI_SEQUENCES = ("00", "04", "06", "09")
# A command shorter than this says little about control: CamMC divides by the longest offset.
_SHORTEST_PATH = 5.0
# Seeds of the metres experiment and of the demo start here, apart from the held-out ones.
_METRES_SEED = HELD_OUT_SEED + 500_000
DEMO_SEED = HELD_OUT_SEED + 900_000


def held_out_commands(count: int, spec: VideoSpec, *, kitti: Path | None) -> list[tuple[str, int, Poses]]:
    """Name, world seed and command of each held-out world; every second one along KITTI where it is given.

    Drives and windows whose path is below 5 m are passed over: the drive's seed goes up by 1000, the window
    is drawn again.
    """
    return list(_commands(count, spec, kitti))


def _commands(count: int, spec: VideoSpec, kitti: Path | None) -> Iterator[tuple[str, int, Poses]]:
    sequences = (
        {}
        if kitti is None
        else {name: read_poses(kitti / f"{name}.txt", format="kitti") for name in KITTI_SEQUENCES}
    )
    for index in range(count):
        seed = HELD_OUT_SEED + index
        if sequences and index % 2:
            yield f"kitti-{index:02d}", seed, _kitti_window(sequences, seed, spec)
        else:
            yield f"drive-{index:02d}", seed, _long_drive(seed, spec)


def _long_drive(seed: int, spec: VideoSpec) -> Poses:
    for attempt in range(100):
        poses = random_drive(seed + 1000 * attempt, spec.num_frames, spec.fps)
        if poses.path_length >= _SHORTEST_PATH:
            return poses
    raise RuntimeError(f"no drive of {_SHORTEST_PATH} m in 100 attempts from seed {seed}")


def _kitti_window(sequences: dict[str, Poses], seed: int, spec: VideoSpec) -> Poses:
    rng = np.random.default_rng([seed, 0x817])
    for _ in range(100):
        poses = sequences[KITTI_SEQUENCES[int(rng.integers(len(KITTI_SEQUENCES)))]]
        if len(poses) <= spec.num_frames:
            raise TrajectoryError(
                f"a KITTI sequence has {len(poses)} poses; windows of {spec.num_frames} need more. Is the file cut?"
            )
        start = int(rng.integers(len(poses) - spec.num_frames))
        window = poses[start : start + spec.num_frames]
        if window.path_length >= _SHORTEST_PATH:
            return place_on_ground(window)
    raise TrajectoryError(f"no KITTI window of {_SHORTEST_PATH} m in 100 attempts from seed {seed}")


def metres_commands(count: int, spec: VideoSpec) -> list[tuple[str, int, dict[str, Poses]]]:
    """Name, world seed, and one drive whose path after the given frames is taken times 0.5, 1 and 2.

    The given frames are the same; from the last of them on, offsets from its camera are multiplied and
    rotations kept, so the only thing that changes is how many metres are commanded.
    """
    out = []
    for index in range(count):
        seed = _METRES_SEED + index
        poses = _slow_drive(seed, spec)
        out.append(
            (
                f"metres-{index:02d}",
                seed,
                {f"x{factor:g}": stretched(poses, factor, spec) for factor in (0.5, 1.0, 2.0)},
            )
        )
    return out


def stretched(poses: Poses, factor: float, spec: VideoSpec) -> Poses:
    """The path with its metres after the given frames multiplied by ``factor``; heights stay."""
    last = spec.prefix_frames - 1
    centers = poses.center_world.clone()
    offsets = centers[last + 1 :, :2] - centers[last, :2]
    centers[last + 1 :, :2] = centers[last, :2] + factor * offsets
    return Poses(R_world_cam=poses.R_world_cam, center_world=centers, times=poses.times, unit=poses.unit)


def _slow_drive(seed: int, spec: VideoSpec) -> Poses:
    for attempt in range(200):
        poses = random_drive(seed + 1000 * attempt, spec.num_frames, spec.fps)
        # Twice the path must stay within the 20 m/s of the training data.
        if poses.path_length >= _SHORTEST_PATH and float(poses.step_lengths.max()) * spec.fps <= 10.0:
            return poses
    raise RuntimeError(f"no drive between {_SHORTEST_PATH} m and 10 m/s in 200 attempts from seed {seed}")
