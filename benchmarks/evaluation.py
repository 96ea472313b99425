"""Seconds that `merope evaluate` takes to score 384 clips of 49 frames from pose files, and the memory of one long clip.

``python benchmarks/evaluation.py`` writes a folder of commanded and one of estimated files (seeded, in the format of
KITTI), runs the command in a process of its own, and prints what start, reading, scoring and tables take. Then it scores
one clip of 5 000 frames in another process and prints the most memory that one had. ``--out`` keeps the tables of the
command; ``--clips``, ``--frames`` and ``--long`` change the sizes. One thread: OMP_NUM_THREADS=1 before the command.
"""

import argparse
import contextlib
import io
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np


def drives(num_clips: int, num_frames: int, seed: int):
    """Commanded drives with turns, and estimates of them that shake, drift and have another scale."""
    import torch

    from merope.geometry.poses import Poses
    from merope.geometry.rotations import rotvec_to_matrix

    rng = np.random.default_rng(seed)
    for _ in range(num_clips):
        yaw = np.cumsum(rng.normal(0, 0.02) + rng.normal(0, 0.01, num_frames))
        speed = rng.uniform(0.3, 1.5)
        steps = speed * np.stack([np.sin(yaw), np.zeros(num_frames), np.cos(yaw)], axis=1)
        center = np.concatenate([np.zeros((1, 3)), np.cumsum(steps[:-1], axis=0)])
        level = np.stack([np.zeros(num_frames), yaw, np.zeros(num_frames)], axis=1)
        shaken = level + rng.normal(0, math.radians(0.3), (num_frames, 3))
        moved = center * rng.uniform(0.9, 1.1) + np.cumsum(rng.normal(0, 0.01, (num_frames, 3)), axis=0)
        yield tuple(
            Poses(R_world_cam=rotvec_to_matrix(torch.from_numpy(turn)), center_world=torch.from_numpy(place))
            for turn, place in ((level, center), (shaken, moved))
        )


def write_folders(root: Path, num_clips: int, num_frames: int, seed: int) -> None:
    """``root/commanded/CLIP.txt`` and ``root/estimated/CLIP.txt``."""
    from merope.data.poses.files import write_poses

    for number, (commanded, estimated) in enumerate(drives(num_clips, num_frames, seed)):
        write_poses(root / "commanded" / f"clip-{number:04d}.txt", commanded, format="kitti")
        write_poses(root / "estimated" / f"clip-{number:04d}.txt", estimated, format="kitti")


def score(root: Path, out: Path | None) -> dict[str, float]:
    """Seconds of the parts of one command in this process; `start` counts from its first line of Python."""
    began = time.perf_counter()
    from merope.cli.main import run
    from merope.data.poses import files
    from merope.evaluation.runs import scored

    spent = {"reading": 0.0, "scoring": 0.0}

    def timed(module, name, part):
        original = getattr(module, name)

        def call(*args, **kwargs):
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent[part] += time.perf_counter() - start

        setattr(module, name, call)

    timed(files, "load_pose_file", "reading")
    timed(scored, "score_run", "scoring")
    arguments = ["evaluate", "--commanded", str(root / "commanded"), "--estimated", str(root / "estimated")]
    arguments += ["--format", "kitti", *([] if out is None else ["--out", str(out)])]
    started = time.perf_counter()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run(arguments)
    if code:
        raise SystemExit(code)
    whole = time.perf_counter() - started
    return {
        "start": started - began,
        **spent,
        "tables and the rest": whole - sum(spent.values()),
        "in this process": time.perf_counter() - began,
        "cpu": time.process_time(),
    }


def memory(num_frames: int, seed: int) -> dict[str, float]:
    """Seconds and the most memory, MiB, of one clip; what was there before it is told apart."""
    from merope.evaluation.scoring import evaluate_clip

    ((commanded, estimated),) = drives(1, num_frames, seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    evaluate_clip(commanded, estimated, first_generated=9)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "before_mib": before, "peak_mib": peak}


def in_own_process(*arguments: str) -> tuple[dict[str, float], float]:
    """What this program prints with other arguments, and the seconds of the whole process."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]), time.perf_counter() - start


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=384)
    parser.add_argument("--frames", type=int, default=49)
    parser.add_argument("--long", type=int, default=5000, help="frames of the long clip")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest is printed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="folder for the report of the command")
    parser.add_argument("--score", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.score is not None:
        print(json.dumps(score(options.score, options.out)))
        return
    if options.memory:
        print(json.dumps(memory(options.long, options.seed)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_folders(Path(folder), options.clips, options.frames, options.seed)
        extra = [] if options.out is None else ["--out", str(options.out)]
        runs = [in_own_process("--score", folder, *extra) for _ in range(options.repeat)]
    parts, whole = min(runs, key=lambda run: run[1])
    print(
        f"{options.clips} clips of {options.frames} frames, a folder of files on each side; fastest of {options.repeat}"
    )
    parts["start"] += whole - parts.pop("in this process")
    cpu = parts.pop("cpu")
    for name, seconds in parts.items():
        print(f"  {name:<20} {seconds:6.2f} s")
    print(f"  {'whole process':<20} {whole:6.2f} s, of the processor {cpu:.2f} s")
    long, _ = in_own_process("--memory", "--long", str(options.long), "--seed", str(options.seed))
    print(
        f"one clip of {options.long} frames: {long['seconds']:.2f} s, {long['peak_mib']:.0f} MiB at most, of which "
        f"{long['before_mib']:.0f} MiB before scoring"
    )


if __name__ == "__main__":
    main()
