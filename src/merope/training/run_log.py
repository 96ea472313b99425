"""A run's log: one JSON object per line, cut back to the checkpoint that a run goes on from."""

import json
from collections.abc import Sequence
from pathlib import Path

from merope.files import write_text_atomically


def append_entry(path: Path, entry: dict[str, float]) -> None:
    """Add a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def read_entries(path: Path) -> list[dict[str, float]]:
    """The entries of a log; a line that was cut off by a crash is passed over."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return entries


def cut_entries(path: Path, step: int) -> dict[str, float]:
    """Forget entries after ``step``, which are written again; the last one that stays, or an empty one."""
    entries = [entry for entry in read_entries(path) if entry["step"] <= step]
    write_text_atomically(path, "".join(json.dumps(entry) + "\n" for entry in entries))
    return entries[-1] if entries else {}


def binned_losses(losses: Sequence[tuple[float, float]], bins: int) -> dict[str, float]:
    """Mean loss in equal bins of the noise level, from pairs (noise level, loss); empty bins are left out."""
    entry = {}
    for index in range(bins):
        chosen = [loss for sigma, loss in losses if min(int(sigma * bins), bins - 1) == index]
        if chosen:
            entry[f"loss_sigma_{index / bins:.1f}_{(index + 1) / bins:.1f}"] = sum(chosen) / len(chosen)
    return entry
