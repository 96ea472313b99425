"""Score two methods on the same commands, compare them clip by clip, and write the report.

The commands are held-out drives of procedural streets. "steady" follows them with a little noise; "drifting" turns a
little too much in every frame. What an estimator would recover from their videos is made up here, so that nothing has to
be generated. The benchmark says that such a run is not comparable, and why.
"""

import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

import merope
from merope.cameras import Pinhole
from merope.evaluation.benchmarks.registry import find_benchmark
from merope.evaluation.comparison import compare
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.report.page import write_report
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.scored import score_run
from merope.geometry.rotations import rotvec_to_matrix

benchmark = find_benchmark("worlds-4")
expected = benchmark.expected()
lens = Pinhole.from_fov(fov_x_deg=90.0, height=benchmark.height, width=benchmark.width)


def followed(commanded, *, seed, noise, turn_deg):
    """The command with noise on its centres, and turned about the vertical by so much more in every frame."""
    frames = len(commanded)
    generator = torch.Generator().manual_seed(seed)
    shift = noise * torch.randn(frames, 3, dtype=torch.float64, generator=generator)
    angles = torch.zeros(frames, 3, dtype=torch.float64)
    angles[:, 1] = torch.deg2rad(turn_deg * torch.arange(frames, dtype=torch.float64))
    return merope.Poses(
        R_world_cam=commanded.R_world_cam @ rotvec_to_matrix(angles),
        center_world=commanded.center_world + shift,
    )


runs = []
for label, noise, turn_deg in (("steady", 0.05, 0.02), ("drifting", 0.05, 0.2)):
    clips = [
        RunClip(
            clip_id=clip.clip_id,
            commanded=clip.commanded,
            recovered=Recovered.complete(
                followed(clip.commanded, seed=number, noise=noise, turn_deg=turn_deg)
            ),
            first_generated=benchmark.first_generated,
            fps=benchmark.fps,
            lens=lens,
        )
        for number, clip in enumerate(expected)
    ]
    run = score_run(clips, label=label, scale="metric")
    verdict = benchmark.verdict(run, expected)
    runs.append(replace(run, result=replace(run.result, verdict=verdict)))

steady, drifting = (run.result for run in runs)
paired = compare(steady, drifting)
cammc = paired.metrics["cammc"]
print(
    f"CamMC {cammc.a:.2f} and {cammc.b:.2f}; drifting minus steady {cammc.difference:.2f} "
    f"({cammc.interval.low:.2f} to {cammc.interval.high:.2f}), sign test p = {cammc.p_value:.2g}"
)
print(f"{benchmark.name}: {'comparable' if verdict.comparable else 'not comparable'}")
for reason in verdict.reasons:
    print(f"  {reason}")

if find_spec("matplotlib") is None:
    print("no report: its figures need matplotlib (pip install 'merope[plot]')")
else:
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(folder, runs, title="Two methods, twelve drives", comparisons=[paired])
        beside = sorted(path.name for path in Path(folder).iterdir() if path != page)
        print(f"{page.name} of {page.stat().st_size // 1000} kB, beside {', '.join(beside)}")

assert cammc.better == "a"
assert not verdict.comparable
