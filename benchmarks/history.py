"""Size and time of an index of frames, and of searching it, at 350 k, 1.05 M and 5 M frames.

``python benchmarks/history.py`` runs each size in a process of its own, on drives through a city of 2 x 2 km (streets every
100 m, two lanes each way, 20 s at 12 Hz, some of it at red lights) whose coordinates are 6 400 km from the origin. It
writes ``history.json`` and ``history.md`` into ``--out``. ``--check 20000`` compares searches with one that looks at
every frame.
"""

import math
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.measuring.by_size import run_by_size

SIZES = (350_000, 1_050_000, 5_000_000)
FRAMES = 240
FPS = 12.0
ORIGIN = 6.4e6
CITY, BLOCK, LANES = 2000.0, 100.0, (1.75, 5.25)
POSES = 49


def city(num_frames: int, seed: int = 0, *, size: float = CITY) -> Iterator:
    """Clips of drives along the streets, straight on, in a lane of either direction."""
    import torch

    from merope.cameras import Pinhole
    from merope.data.history import ClipRows
    from merope.geometry.rotations import matrix_to_quaternion, rotvec_to_matrix

    lens = Pinhole(fx=1266.0, fy=1266.0, cx=816.0, cy=491.0, height=900, width=1600, pixel_origin="center")
    rng = np.random.default_rng(seed)
    for number in range(max(2, num_frames // FRAMES)):
        heading = rng.integers(4) * math.pi / 2
        ahead = np.array([math.sin(heading), 0.0, math.cos(heading)])
        right = np.array([math.cos(heading), 0.0, -math.sin(heading)])
        street = np.round(rng.uniform(0, size, 2) / BLOCK) * BLOCK
        start = np.array([street[0], 0.0, street[1]]) + right * (rng.choice(LANES) + rng.normal(0, 0.25))
        speed = np.full(FRAMES, rng.uniform(4.0, 14.0))
        if rng.random() < 0.3:
            first = rng.integers(FRAMES)
            speed[first : first + rng.integers(30, 180)] = 0.0
        along = np.cumsum(speed) / FPS + rng.uniform(0, BLOCK)
        yaw = heading + rng.normal(0, 0.01) + np.cumsum(rng.normal(0, 5e-4, FRAMES))
        rotvecs = torch.tensor(np.stack([np.zeros(FRAMES), yaw, np.zeros(FRAMES)], axis=1))
        yield ClipRows(
            source="city",
            clip_id=f"clip-{number:07d}",
            world="city",
            traversal=f"drive-{number // 4:06d}",
            lens=lens,
            data_set=None,
            center_world=ORIGIN + start + ahead * along[:, None] + rng.normal(0, 0.02, (FRAMES, 3)),
            rotation_xyzw=matrix_to_quaternion(rotvec_to_matrix(rotvecs)).numpy(),
            frame=np.arange(FRAMES),
            time=np.arange(FRAMES) / FPS,
        )


def measure(num_frames: int) -> dict:
    """One size, in this process."""
    import torch

    from merope.data.history import HistoryIndex, Search, donors, write_shard

    torch.set_num_threads(1)
    clips = list(city(num_frames))
    with tempfile.TemporaryDirectory() as folder:
        seconds = {}
        started = time.perf_counter()
        written = write_shard(Path(folder), clips, [])
        seconds["write"] = time.perf_counter() - started
        names = [clip.clip_id for clip in clips]
        del clips
        size = sum(path.stat().st_size for path in written.iterdir())
        HistoryIndex.open(folder)
        started = time.perf_counter()
        index = HistoryIndex.open(folder)
        seconds["open"] = time.perf_counter() - started
        started = time.perf_counter()
        index.world_of("city", names[0])
        index.tree(0, "city")
        seconds["first use"] = time.perf_counter() - started
        rng = np.random.default_rng(1)
        paths = [index.path_of("city", names[number]) for number in rng.integers(len(names), size=100)]
        paths = [path.every(FRAMES // POSES) for path in paths]
        poses = sum(len(path) for path in paths)
        per_second, hits = {}, {}
        for name, search in (
            ("4 frames", Search()),
            ("16 frames", Search(k=16)),
            ("4 frames, any overlap", Search(min_overlap=0.0)),
        ):
            index.query(paths[0], search)
            started = time.perf_counter()
            found = [index.query(path, search) for path in paths]
            per_second[name] = round(poses / (time.perf_counter() - started))
            hits[name] = round(sum(int(each.counts.sum()) for each in found) / poses, 2)
        started = time.perf_counter()
        served = sum(bool(donors(index, path).counts.any()) for path in paths)
        seconds["donors of a path"] = (time.perf_counter() - started) / len(paths)
        near = index.tree(0, "city").query_ball_point(
            np.concatenate([path.poses.center_world.numpy() for path in paths]), 10.0, return_length=True
        )
    return {
        "frames": len(index),
        "bytes_per_frame": round(size / len(index), 1),
        "size_mb": round(size / 1e6, 1),
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "poses_per_second": per_second,
        "hits_per_pose": hits,
        "frames_within_10_m": round(float(near.mean()), 1),
        "paths_with_donor": f"{served} of {len(paths)}",
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def check(num_frames: int, *, num_paths: int = 10) -> dict:
    """Whether searches find the very frames that looking at every frame finds."""
    from merope.data.history import HistoryIndex, Search, write_shard
    from tests.support.history import brute_force

    # As many drives on a street as in the whole city at a million frames.
    clips = list(city(num_frames, seed=2, size=CITY * math.sqrt(num_frames / 1e6)))
    wanted = found = equal = 0
    with tempfile.TemporaryDirectory() as folder:
        write_shard(Path(folder), clips[: len(clips) // 2], [])
        write_shard(Path(folder), clips[len(clips) // 2 :], [])
        index = HistoryIndex.open(folder)
        for clip in clips[:: max(1, len(clips) // num_paths)]:
            path = index.path_of("city", clip.clip_id).every(60)
            for search in (Search(), Search(k=16, max_per_clip=4, min_overlap=0.6)):
                expected = brute_force(clips, path, search, own_traversal=clip.traversal)
                hits = index.query(path, search)
                for query, frames in enumerate(expected):
                    ours = [(hit.source, hit.clip_id, hit.frame) for hit in hits[query]]
                    theirs = [each[:3] for each in frames]
                    wanted, found = wanted + len(theirs), found + len(set(ours) & set(theirs))
                    equal += ours == theirs
    return {"frames": len(index), "wanted": wanted, "recall": found / max(wanted, 1), "same_order": equal}


def markdown(results: list[dict], machine: str) -> str:
    searches = list(results[0]["poses_per_second"])
    head = [
        *("frames", "size (MB)", "write (s)", "open (ms)", "first use (s)", "frames within 10 m"),
        *(f"poses/s, {name}" for name in searches),
        *("donors of a path (ms)", "peak (GiB)"),
    ]
    rows = []
    for result in results:
        seconds = result["seconds"]
        rows.append(
            [
                f"{result['frames']:,}",
                f"{result['size_mb']:.0f}",
                f"{seconds['write']:.2f}",
                f"{1000 * seconds['open']:.1f}",
                f"{seconds['first use']:.2f}",
                f"{result['frames_within_10_m']:.0f}",
                *(f"{result['poses_per_second'][name]:,}" for name in searches),
                f"{1000 * seconds['donors of a path']:.0f}",
                f"{result['peak_gib']:.2f}",
            ]
        )
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines]) + f"\n\n{machine}; one core used\n"


def main() -> int:
    return run_by_size(
        __file__,
        __doc__,
        sizes=SIZES,
        of="frames",
        measure=measure,
        check=check,
        passes=lambda result: bool(result["recall"] == 1 and result["wanted"]),
        markdown=markdown,
    )


if __name__ == "__main__":
    sys.exit(main())
