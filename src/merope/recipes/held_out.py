"""Commands of the metres experiment and of the demo, in worlds apart from the held-out ones of `worlds-N`."""

from merope.adapters.spec import VideoSpec
from merope.evaluation.benchmarks.worlds import SHORTEST_PATH
from merope.geometry.poses import Poses
from merope.worlds.drives import random_drive
from merope.worlds.seeds import HELD_OUT_SEED

# Seeds of the metres experiment and of the demo start here, apart from the held-out ones.
_METRES_SEED = HELD_OUT_SEED + 500_000
DEMO_SEED = HELD_OUT_SEED + 900_000


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
        if poses.path_length >= SHORTEST_PATH and float(poses.step_lengths.max()) * spec.fps <= 10.0:
            return poses
    raise RuntimeError(f"no drive between {SHORTEST_PATH} m and 10 m/s in 200 attempts from seed {seed}")
