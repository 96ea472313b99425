"""``merope benchmark held-out``: the shipped models on worlds-N, with a report and the benchmark's verdict."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from merope.cli.benchmark.naming import named_benchmark, require_positive
from merope.cli.extras import require

if TYPE_CHECKING:
    from merope.adapters.spec import VideoSpec
    from merope.cli.street import StreetClip
    from merope.data.clips.video import Frames
    from merope.evaluation.benchmarks.benchmark import Benchmark, ExpectedClip
    from merope.evaluation.estimators.motion_network.estimator import NetworkEstimator
    from merope.evaluation.result import EvaluationResult
    from merope.evaluation.runs.run import ScoredRun


def held_out(
    *,
    kitti: Path | None = None,
    worlds: int = 64,
    output: Path | None = None,
    steps: int = 16,
    weights: Path | None = None,
) -> None:
    """Measure the shipped tiny models on worlds that they never saw: the benchmark worlds-N, or worlds-N-kitti.

    Every world is driven along a command and its left and right variants, with --kitti every second one along KITTI. The
    report has CamMC of each model above the estimator's noise floor, and says whether the run is the benchmark's.

    Args:
        kitti: Folder with KITTI odometry poses (00.txt, 04.txt, 06.txt, 09.txt); without it all drives are procedural.
        worlds: Number of held-out worlds.
        output: Folder for the report; default out/held-out.
        steps: Denoising steps.
        weights: Folder with other weights.
    """
    require_positive(worlds=worlds, steps=steps)
    benchmark = named_benchmark(f"worlds-{worlds}" + ("-kitti" if kitti else ""))
    require("matplotlib", purpose="the report's figures")
    from tqdm import tqdm

    from merope.cli import street
    from merope.evaluation.benchmarks.worlds import held_out_commands, with_variants
    from merope.evaluation.comparison import compare
    from merope.evaluation.report.page import write_report
    from merope.files import write_text_atomically

    folder = weights or street.WEIGHTS
    models = street.load_models(folder=folder)
    estimator = street.load_estimator(folder)
    output = output or Path("out") / "held-out"
    spec = models["merope"].spec
    expected = benchmark.expected(kitti)
    clips = [
        clip
        for name, seed, poses in tqdm(
            held_out_commands(worlds, spec, kitti=kitti), desc="rendering", unit="world"
        )
        for clip in street.render_commands(name, with_variants(poses, spec), spec, seed=seed)
    ]
    videos = {
        street.LABELS[name]: street.generate_clips(model, clips, steps=steps)
        for name, model in models.items()
    }
    videos[street.FLOOR] = [clip.truth for clip in clips]
    runs = [
        _judged(_scored(clips, frames, estimator, spec, label=label), benchmark, expected)
        for label, frames in videos.items()
    ]
    results = {run.label: run.result for run in runs}
    mean = {label: _mean_cammc(result) for label, result in results.items()}
    excess = {label: mean[label] - mean[street.FLOOR] for label in street.LABELS.values()}
    ratio = excess[street.LABELS["merope"]] / excess[street.LABELS["native"]]
    write_report(
        output,
        runs,
        title=f"{worlds} held-out worlds, three drives each",
        comparisons=[compare(results[street.LABELS["native"]], results[street.LABELS["merope"]])],
        notes=(f"Excess CamMC over the noise floor: {excess}. Ratio {ratio:.3f}.",),
    )
    write_text_atomically(
        output / "excess.json", json.dumps({"cammc": mean, "excess": excess, "ratio": ratio}, indent=1)
    )
    print(street.table(results))
    print(
        f"\n{len(clips)} clips. CamMC above the noise floor: "
        + ", ".join(f"{k} {v:.2f}" for k, v in excess.items())
    )
    print(
        f"{street.LABELS['merope']}'s excess is {ratio:.3f} of the excess without camera encoding; written to {output}"
    )
    verdict = runs[0].result.verdict
    assert verdict is not None
    print(f"{benchmark.name}: {'comparable' if verdict.comparable else 'not comparable'}")
    for reason in verdict.reasons:
        print(f"  {reason}")


def _scored(
    clips: "Sequence[StreetClip]",
    videos: "Sequence[Frames]",
    estimator: "NetworkEstimator",
    spec: "VideoSpec",
    *,
    label: str,
) -> "ScoredRun":
    """One row: cameras recovered from every video, against the commands."""
    from merope.adapters.command import spec_lens
    from merope.cli import street
    from merope.evaluation.estimators.base import Recovered
    from merope.evaluation.runs.run import RunClip
    from merope.evaluation.runs.scored import score_run

    lens = spec_lens(spec)
    found = [
        RunClip(
            clip_id=clip.clip_id,
            commanded=clip.poses,
            recovered=Recovered.complete(poses),
            first_generated=spec.prefix_frames,
            fps=spec.fps,
            lens=lens,
            frames=partial(_given, frames),
        )
        for clip, poses, frames in zip(clips, street.recover(estimator, videos, spec), videos, strict=True)
    ]
    settings = {"estimator": "network", "estimator_identity": estimator.identity()}
    return score_run(found, label=label, scale="metric", reference=label == street.FLOOR, settings=settings)


def _given(frames: "Frames") -> "Frames":
    return frames


def _judged(run: "ScoredRun", benchmark: "Benchmark", expected: "tuple[ExpectedClip, ...]") -> "ScoredRun":
    verdict = benchmark.verdict(run, expected)
    return replace(run, result=replace(run.result, num_expected=len(expected), verdict=verdict))


def _mean_cammc(result: "EvaluationResult") -> float:
    value = result.summary()["cammc"].metric.value
    assert value is not None, "CamMC is defined for every clip"
    return value
