"""``merope benchmark``: the measurements of docs/reproduce.md on held-out worlds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from merope.cli.extras import require

if TYPE_CHECKING:
    from merope.evaluation.estimators.network import NetworkEstimator
    from merope.evaluation.result import EvaluationResult
    from merope.generation import VideoModel


def benchmark(
    which: Annotated[Literal["held-out", "metres"], tyro.conf.Positional],
    *,
    kitti: Path | None = None,
    worlds: int = 64,
    output: Path | None = None,
    steps: int = 16,
    weights: Path | None = None,
) -> None:
    """Measure the shipped tiny models on worlds that they never saw.

    held-out: worlds with a drive and its left and right variants, half of them along KITTI; CamMC of each model
    above the estimator's noise floor. metres: the same prefix with the commanded path times 0.5, 1 and 2;
    recovered against commanded metres.

    Args:
        which: The measurement.
        kitti: Folder with KITTI odometry poses (00.txt, 04.txt, 06.txt, 09.txt); without it all drives are procedural.
        worlds: Number of held-out worlds.
        output: Folder for the report; default out/WHICH.
        steps: Denoising steps.
        weights: Folder with other weights.
    """
    if which == "metres":
        require("matplotlib", purpose="the plot of metres")
    from merope.cli import street

    folder = weights or street.WEIGHTS
    models = street.load_models(folder=folder)
    estimator = street.load_estimator(folder)
    output = output or Path("out") / which
    if which == "held-out":
        _held_out(models, estimator, kitti=kitti, worlds=worlds, output=output, steps=steps)
    else:
        _metres(models, estimator, worlds=worlds, output=output, steps=steps)


def _held_out(
    models: "Mapping[str, VideoModel]",
    estimator: "NetworkEstimator",
    *,
    kitti: Path | None,
    worlds: int,
    output: Path,
    steps: int,
) -> None:
    from tqdm import tqdm

    from merope.cli import street
    from merope.evaluation.report.page import write_report
    from merope.files import write_text_atomically
    from merope.recipes.held_out import held_out_commands

    spec = models["merope"].spec
    clips = [
        clip
        for name, seed, poses in tqdm(
            held_out_commands(worlds, spec, kitti=kitti), desc="rendering", unit="world"
        )
        for clip in street.render_commands(name, street.with_variants(poses, spec), spec, seed=seed)
    ]
    results = {}
    for name, model in models.items():
        videos = street.generate_clips(model, clips, steps=steps)
        label = street.LABELS[name]
        results[label] = street.score(clips, street.recover(estimator, videos, spec), spec, label=label)
    floor = street.recover(estimator, [clip.truth for clip in clips], spec)
    results[street.FLOOR] = street.score(clips, floor, spec, label=street.FLOOR)
    mean = {label: _mean_cammc(result) for label, result in results.items()}
    excess = {label: mean[label] - mean[street.FLOOR] for label in street.LABELS.values()}
    ratio = excess[street.LABELS["merope"]] / excess[street.LABELS["native"]]
    write_report(
        output,
        list(results.values()),
        title=f"{worlds} held-out worlds, three drives each",
        references=(street.FLOOR,),
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


def _mean_cammc(result: "EvaluationResult") -> float:
    value = result.summary()["cammc"].metric.value
    assert value is not None, "CamMC is defined for every clip"
    return value


def _metres(
    models: "Mapping[str, VideoModel]",
    estimator: "NetworkEstimator",
    *,
    worlds: int,
    output: Path,
    steps: int,
) -> None:
    import numpy as np
    from tqdm import tqdm

    from merope.cli import street
    from merope.evaluation.plots.metres import fit_line, plot_metres
    from merope.files import write_text_atomically
    from merope.recipes.held_out import metres_commands

    spec = models["merope"].spec
    first = spec.prefix_frames - 1
    clips: list[street.StreetClip] = []
    commanded: list[float] = []
    for name, seed, commands in tqdm(metres_commands(worlds, spec), desc="rendering", unit="world"):
        clips.extend(street.render_commands(name, commands, spec, seed=seed))
        commanded.extend(float(poses[first:].path_length) for poses in commands.values())
    recovered = {
        street.LABELS[name]: street.recover(estimator, street.generate_clips(model, clips, steps=steps), spec)
        for name, model in models.items()
    }
    recovered[street.FLOOR] = street.recover(estimator, [clip.truth for clip in clips], spec)
    travelled = {label: [float(p[first:].path_length) for p in poses] for label, poses in recovered.items()}
    lines = {label: fit_line(np.array(commanded), np.array(metres)) for label, metres in travelled.items()}
    summary = {
        label: {"slope": line.slope, "intercept": line.intercept, "r_squared": line.r_squared}
        for label, line in lines.items()
    }
    write_text_atomically(
        output / "metres.json",
        json.dumps({"lines": summary, "commanded": commanded, "recovered": travelled}, indent=1),
    )
    plot_metres(
        output / "metres.png",
        dict.fromkeys(travelled, commanded),
        travelled,
        title="Metres travelled after the given frames",
    )
    print(f"{len(clips)} clips: {worlds} prefixes, the commanded path after the prefix times 0.5, 1 and 2")
    for label, line in summary.items():
        print(
            f"{label:<20} slope {line['slope']:.3f}  intercept {line['intercept']:+.2f} m  R^2 {line['r_squared']:.3f}"
        )
    print(f"written to {output}: metres.png, metres.json")
