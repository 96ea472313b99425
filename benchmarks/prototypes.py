"""Time and peak memory of finding prototypes at 10 k, 100 k and the paper's 347.7 k trajectories of 49 poses.

``python benchmarks/prototypes.py`` runs each size in a process of its own, on a mixture of drives: straight at many speeds,
curves, turns, lane changes, stops and manoeuvres to the side, 30 % forward corridors ("real") and 70 % wide ones
("rendered"). It writes ``prototypes.json`` and ``prototypes.md`` into ``--out``. ``--check 5000`` compares the result
with brute force.
"""

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.measuring.by_size import run_by_size

SIZES = (10_000, 100_000, 347_700)
NUM_POSES = 49
FPS = 12.0
# What a car on tyres can do sideways, m/s^2.
LATERAL = 4.0


def drives(count: int, seed: int = 0, *, real_share: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Centres [N, 49, 3] in the first camera's axes, float64 metres, and which of them are "real".

    Speed and turn rate are integrated over 4 s at 12 Hz; height follows a slope and a little noise.
    """
    rng = np.random.default_rng(seed)
    time_s = np.arange(NUM_POSES) / FPS
    real = rng.random(count) < real_share
    centers = np.empty((count, NUM_POSES, 3))
    for start in range(0, count, 16_384):
        stop = min(start + 16_384, count)
        centers[start:stop] = _drives(rng, time_s, real[start:stop])
    return centers, real


def _drives(rng: np.random.Generator, time_s: np.ndarray, real: np.ndarray) -> np.ndarray:
    count = len(real)
    speed_0 = np.where(real, rng.gamma(4.0, 2.2, count), rng.uniform(1.0, 18.0, count)).clip(0.0, 30.0)
    kind = np.where(
        real,
        rng.choice(5, count, p=[0.62, 0.16, 0.08, 0.06, 0.08]),
        rng.choice(5, count, p=[0.12, 0.30, 0.28, 0.25, 0.05]),
    )
    # Turns at crossings are slow.
    speed_0 = np.where(kind == 2, speed_0.clip(2.5, 9.0), speed_0)
    acceleration = rng.normal(0.0, 0.7, count)
    acceleration = np.where(kind == 4, -speed_0 / rng.uniform(1.0, 4.0, count), acceleration)
    speed = (speed_0[:, None] + acceleration[:, None] * time_s).clip(0.0, 30.0)
    standing = rng.random(count) < np.where(real, 0.12, 0.01)
    speed[standing] = 0.0
    most = LATERAL / np.maximum(speed_0, 3.0)
    side = rng.choice([-1.0, 1.0], count)
    onset, length = rng.uniform(0.0, 2.0, count), rng.uniform(1.5, 4.0, count)
    phase = ((time_s - onset[:, None]) / length[:, None]).clip(0.0, 1.0)
    straight = rng.normal(0.0, 0.006, (count, 1)) * np.ones(len(time_s))
    curve = side[:, None] * (rng.uniform(0.02, 0.5, count) * most)[:, None] * np.ones(len(time_s))
    turn = (
        side[:, None] * (rng.uniform(0.5, 1.0, count) * most.clip(0.0, 0.9))[:, None] * np.sin(np.pi * phase)
    )
    change = side[:, None] * (rng.uniform(0.1, 0.6, count) * most)[:, None] * np.sin(2 * np.pi * phase)
    rate = np.select(
        [kind[:, None] == number for number in range(4)], [straight, curve, turn, change], straight
    )
    rate = rate * (speed > 0.2)
    heading = np.concatenate([np.zeros((count, 1)), np.cumsum(rate[:, :-1], axis=1)], axis=1) / FPS
    steps = np.stack([np.sin(heading) * speed, np.zeros_like(speed), np.cos(heading) * speed], axis=-1) / FPS
    # Rendered manoeuvres also slide sideways, as no car does.
    slide = (~real & (rng.random(count) < 0.25))[:, None] * rng.normal(0.0, 1.5, (count, 1))
    steps[..., 0] += slide * (speed > 0.2) / FPS
    steps[..., 1] = rng.normal(0.0, 0.02, (count, 1)) * steps[..., 2]
    centers = np.concatenate([np.zeros((count, 1, 3)), np.cumsum(steps[:, :-1], axis=1)], axis=1)
    shake = rng.normal(0.0, 0.004, centers.shape)
    shake[:, 0] = 0.0
    return centers + shake * (speed > 0.0)[..., None]


def measure(count: int) -> dict:
    """One size, in this process: seconds of each stage after compiling, and the peak memory of all."""
    from merope.data.selection.prototypes import PrototypeConfig, find_prototypes
    from merope.data.selection.prototypes.arc_length import resample_paths
    from merope.data.selection.prototypes.clusters import group_by_shape
    from merope.data.selection.prototypes.selection import select
    from merope.data.selection.prototypes.suppression import suppress

    find_prototypes(resample_paths(drives(300)[0], NUM_POSES), PrototypeConfig())
    centers, _ = drives(count)
    seconds = {}
    started = time.perf_counter()
    paths = np.concatenate(
        [resample_paths(centers[first : first + 4096], NUM_POSES) for first in range(0, count, 4096)]
    )
    seconds["resample"] = time.perf_counter() - started
    del centers
    started = time.perf_counter()
    found = find_prototypes(paths, PrototypeConfig())
    seconds["prototypes"] = time.perf_counter() - started
    started = time.perf_counter()
    select(paths[found.kept], count=128)
    seconds["select 128"] = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    # The two halves of "prototypes", once more and by themselves.
    started = time.perf_counter()
    groups = group_by_shape(paths)
    seconds["of which k-means"] = time.perf_counter() - started
    moving = np.flatnonzero(groups.labels >= 0)
    started = time.perf_counter()
    suppress(paths[moving], np.argsort(groups.distances[moving], kind="stable"))
    seconds["of which suppression"] = time.perf_counter() - started
    return {
        "trajectories": count,
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "total_s": round(seconds["resample"] + seconds["prototypes"] + seconds["select 128"], 1),
        "peak_gib": round(peak, 2),
        "static": len(found.static),
        "prototypes": len(found.kept),
        "largest": int(found.sizes.max()),
    }


def check(count: int) -> dict:
    """Whether suppression equals brute force, to the last label."""
    from merope.data.selection.prototypes.arc_length import path_extents, resample_paths
    from merope.data.selection.prototypes.suppression import suppress, suppress_plainly

    paths = resample_paths(drives(count, seed=1)[0], NUM_POSES)
    paths = paths[path_extents(paths) > 0.5]
    order = np.random.default_rng(0).permutation(len(paths))
    fast, plain = suppress(paths, order), suppress_plainly(paths, order)
    same = np.array_equal(fast.kept, plain.kept) and np.array_equal(fast.kept_by, plain.kept_by)
    return {"trajectories": count, "moving": len(paths), "kept": len(fast.kept), "equal": bool(same)}


def markdown(results: list[dict], machine: str) -> str:
    stages = list(results[0]["seconds"])
    head = [
        "trajectories",
        "static",
        "prototypes",
        *(f"{stage} (s)" for stage in stages),
        "all (s)",
        "peak (GiB)",
    ]
    rows = [
        [
            f"{result['trajectories']:,}",
            f"{result['static']:,}",
            f"{result['prototypes']:,}",
            *(f"{result['seconds'][stage]:.1f}" for stage in stages),
            f"{result['total_s']:.1f}",
            f"{result['peak_gib']:.2f}",
        ]
        for result in results
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines]) + f"\n\n{machine}\n"


def main() -> int:
    return run_by_size(
        __file__,
        __doc__,
        sizes=SIZES,
        of="trajectories",
        measure=measure,
        check=check,
        passes=lambda result: bool(result["equal"]),
        markdown=markdown,
    )


if __name__ == "__main__":
    sys.exit(main())
