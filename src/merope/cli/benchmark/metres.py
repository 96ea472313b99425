"""``merope benchmark metres``: recovered against commanded metres of the shipped models."""

import json
from pathlib import Path

from merope.cli.benchmark.naming import require_positive
from merope.cli.extras import require


def metres(
    *, worlds: int = 64, output: Path | None = None, steps: int = 16, weights: Path | None = None
) -> None:
    """Measure whether twice the commanded metres are twice the metres driven.

    The same prefix with the commanded path after it times 0.5, 1 and 2; a line through recovered against commanded metres
    for each shipped model, and for the estimator on true renders.

    Args:
        worlds: Number of prefixes, in worlds that no model has seen.
        output: Folder for metres.png and metres.json; default out/metres.
        steps: Denoising steps.
        weights: Folder with other weights.
    """
    require_positive(worlds=worlds, steps=steps)
    require("matplotlib", purpose="the plot of metres")
    import numpy as np
    from tqdm import tqdm

    from merope.cli import street
    from merope.evaluation.plots.metres import fit_line, plot_metres
    from merope.files import write_text_atomically
    from merope.recipes.held_out import metres_commands

    folder = weights or street.WEIGHTS
    models = street.load_models(folder=folder)
    estimator = street.load_estimator(folder)
    output = output or Path("out") / "metres"
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
