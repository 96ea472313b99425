"""Losses of training runs against their steps."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from merope.evaluation.plots.canvas import cycle, new_figure
from merope.files import atomic_path


def plot_curves(path: str | Path, logs: Mapping[str, Path]) -> None:
    """Training and held-out loss of runs against their steps, from their ``log.jsonl``; the worth of the cameras below.

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    figure = new_figure(6.4, 5.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for (label, log), color in zip(logs.items(), cycle(len(logs)), strict=True):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        probes = [entry for entry in entries if "held_out" in entry]
        upper.plot(*_series(entries, "loss"), color=color, lw=1, alpha=0.7, label=f"{label}, training")
        upper.plot(
            *_series(probes, "held_out"), color=color, marker="o", ms=3, ls="--", label=f"{label}, held out"
        )
        lower.plot(*_series(probes, "control"), color=color, marker="o", ms=3, label=label)
    upper.set_ylabel("loss")
    upper.set_yscale("log")
    lower.set_ylabel("loss with another clip's\ncameras minus its own", fontsize=9)
    lower.set_xlabel("step")
    for axes in (upper, lower):
        axes.grid(color="#dddddd", lw=0.6, which="both")
        axes.legend(frameon=False, fontsize=9)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)


def _series(entries: Sequence[Mapping[str, float]], key: str) -> tuple[list[float], list[float]]:
    return [entry["step"] for entry in entries], [entry[key] for entry in entries]
