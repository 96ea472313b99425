"""Held-out procedural worlds: their seeds and commands were fixed before any model was trained."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from merope.cameras import Pinhole
from merope.data.poses.files import read_poses
from merope.data.selection.splits import SplitError
from merope.errors import TrajectoryError
from merope.evaluation.benchmarks.benchmark import Benchmark, ExpectedClip
from merope.evaluation.command_digest import digest_of_command
from merope.geometry.poses import Poses
from merope.geometry.turns import turn_variant
from merope.worlds import place_on_ground
from merope.worlds.drives import random_drive
from merope.worlds.seeds import HELD_OUT_SEED

KITTI_SEQUENCES = ("00", "04", "06", "09")
FOV_X_DEG = 90.0
VARIANTS = ("original", "left", "right")
# A command shorter than this says little about control: CamMC divides by the longest offset.
SHORTEST_PATH = 5.0


class Timed(Protocol):
    """The frames of a video: a `VideoSpec`, whose package imports diffusers, or a benchmark."""

    @property
    def num_frames(self) -> int:
        """All frames, given ones included."""
        ...

    @property
    def prefix_frames(self) -> int:
        """Leading frames that are given."""
        ...

    @property
    def fps(self) -> float:
        """Frames per second."""
        ...


def held_out_commands(count: int, spec: Timed, *, kitti: Path | None) -> list[tuple[str, int, Poses]]:
    """Name, world seed and command of each held-out world; every second one along KITTI where it is given.

    Drives and windows whose path is below 5 m are passed over: the drive's seed goes up by 1000, the window
    is drawn again.
    """
    return list(_commands(count, spec, kitti))


def with_variants(poses: Poses, spec: Timed) -> dict[str, Poses]:
    """The command and its left-turn and right-turn variants; all share the given frames."""
    start = spec.prefix_frames - 1
    return {
        "original": poses,
        "left": turn_variant(poses, side="left", start=start, up_world=(0, 0, 1), fps=spec.fps),
        "right": turn_variant(poses, side="right", start=start, up_world=(0, 0, 1), fps=spec.fps),
    }


def expected_worlds(benchmark: Benchmark, split: Path | None) -> tuple[ExpectedClip, ...]:
    """The clips of worlds-N, which follow from N; ``split`` is the folder of KITTI poses where half follow KITTI.

    Raises:
        SplitError: if there is a split, and the benchmark takes none.
    """
    along_kitti = benchmark.name.endswith("-kitti")
    if split is not None and not along_kitti:
        raise SplitError(
            f"{benchmark.name} takes no split, and {split} was given: its clips follow from its name. Leave it out "
            f"(--split), or say {benchmark.name}-kitti with the folder of KITTI poses."
        )
    if along_kitti and split is None:
        return ()
    lens = Pinhole.from_fov(fov_x_deg=FOV_X_DEG, height=benchmark.height, width=benchmark.width)
    commands = held_out_commands(
        benchmark.num_clips // len(VARIANTS), benchmark, kitti=split if along_kitti else None
    )
    return tuple(
        ExpectedClip(
            clip_id=f"{name}-{variant}",
            num_frames=benchmark.num_frames,
            digest=digest_of_command(poses),
            group=variant,
            commanded=poses,
            lens=lens,
        )
        for name, _, base in commands
        for variant, poses in with_variants(base, benchmark).items()
    )


@cache
def shipped_estimator_sha256() -> str:
    """The hash by which the identity of the shipped network knows its weights."""
    from merope.evaluation.estimators.motion_network.estimator import SHIPPED_WEIGHTS, NetworkEstimator

    digest: str = NetworkEstimator.load(SHIPPED_WEIGHTS).identity()["weights_sha256"]
    return digest


def _commands(count: int, spec: Timed, kitti: Path | None) -> Iterator[tuple[str, int, Poses]]:
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


def _long_drive(seed: int, spec: Timed) -> Poses:
    for attempt in range(100):
        poses = random_drive(seed + 1000 * attempt, spec.num_frames, spec.fps)
        if poses.path_length >= SHORTEST_PATH:
            return poses
    raise RuntimeError(f"no drive of {SHORTEST_PATH} m in 100 attempts from seed {seed}")


def _kitti_window(sequences: dict[str, Poses], seed: int, spec: Timed) -> Poses:
    rng = np.random.default_rng([seed, 0x817])
    for _ in range(100):
        poses = sequences[KITTI_SEQUENCES[int(rng.integers(len(KITTI_SEQUENCES)))]]
        if len(poses) <= spec.num_frames:
            raise TrajectoryError(
                f"a KITTI sequence has {len(poses)} poses; windows of {spec.num_frames} need more. Is the file cut?"
            )
        start = int(rng.integers(len(poses) - spec.num_frames))
        window = poses[start : start + spec.num_frames]
        if window.path_length >= SHORTEST_PATH:
            return place_on_ground(window)
    raise TrajectoryError(f"no KITTI window of {SHORTEST_PATH} m in 100 attempts from seed {seed}")
