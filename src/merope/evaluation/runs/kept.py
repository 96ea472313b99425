"""Recovered cameras on disk: one text file a clip, written when it is done, that says what it was recovered from and how.

The first line is a comment with everything about the clip in JSON. Then comes a line for every frame: its number and the
3 x 4 camera-to-world matrix row by row, with every digit. Lines of frames that were not registered, filled by the
estimator's rule, are comments, so that readers of pose files see gaps (format kitti with frame numbers).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from merope.errors import MeropeError
from merope.evaluation.estimators.base import Recovered
from merope.files import write_text_atomically
from merope.geometry.poses import Poses

_FORMAT = "merope-recovered-1"
_HEAD, _FILLED = "# ", "# filled "


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What stands in a clip's file: where its cameras came from (``key``), and the cameras, or why there are none."""

    key: dict[str, Any]
    """Everything that the answer depends on: estimator identity, frames, lens, frame rate."""
    recovered: Recovered | None
    failure: str | None
    versions: dict[str, Any]


def write_kept(
    path: str | Path,
    *,
    key: Mapping[str, Any],
    outcome: Recovered | str,
    versions: Mapping[str, Any] | None = None,
) -> None:
    """Write a clip's file in one step; ``outcome`` is a trajectory, or why there is none."""
    head: dict[str, Any] = {"format": _FORMAT, **key, "versions": dict(versions or {})}
    lines: list[str] = []
    if isinstance(outcome, str):
        head["failure"] = outcome
    else:
        head |= {
            "failure": None,
            "scale": outcome.scale,
            "unit": outcome.poses.unit,
            "fill": outcome.fill,
            "notes": list(outcome.notes),
            "num_registered": int(outcome.registered.sum()),
        }
        rows = outcome.poses.T_world_cam[:, :3].flatten(1).tolist()
        for frame, (row, registered) in enumerate(zip(rows, outcome.registered.tolist(), strict=True)):
            lines.append(f"{'' if registered else _FILLED}{frame} {' '.join(map(repr, row))}")
    text = "\n".join([_HEAD + json.dumps(head, allow_nan=False), *lines]) + "\n"
    write_text_atomically(path, text)


def read_kept(path: str | Path) -> Kept | None:
    """What `write_kept` wrote, every bit of it; None where there is no such file, or it is of another kind.

    Raises:
        MeropeError: if the file is damaged.
    """
    path = Path(path)
    try:
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        head = json.loads(first.removeprefix(_HEAD)) if first.startswith(_HEAD + "{") else None
        if not isinstance(head, dict) or head.get("format") != _FORMAT:
            return None
        key = {name: head[name] for name in ("estimator", "frames", "lens", "fps")}
        if head["failure"] is not None:
            return Kept(key=key, recovered=None, failure=head["failure"], versions=head["versions"])
        recovered = _trajectory(head, rest.splitlines())
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise MeropeError(
            f"{path} is damaged: {error}. Delete it, and the clip's cameras are recovered anew."
        ) from None
    return Kept(key=key, recovered=recovered, failure=None, versions=head["versions"])


def kept_failure(path: str | Path) -> str | None:
    """Why a clip's file holds no cameras; None for a file that holds some, and for one of another kind. Reads one line."""
    with Path(path).open("rb") as stream:
        first = stream.readline(2**20)
    if not first.startswith((_HEAD + '{"format": "' + _FORMAT).encode()):
        return None
    try:
        return json.loads(first.decode().removeprefix(_HEAD)).get("failure")
    except ValueError:
        return None


def _trajectory(head: dict[str, Any], lines: list[str]) -> Recovered:
    registered = [not line.startswith(_FILLED) for line in lines]
    rows = [[float(word) for word in line.removeprefix(_FILLED).split()] for line in lines]
    frames = [row[0] for row in rows]
    if frames != list(range(head["frames"]["count"])) or sum(registered) != head["num_registered"]:
        raise ValueError("it does not hold a line for every frame")
    matrices = torch.tensor([row[1:] for row in rows], dtype=torch.float64).reshape(-1, 3, 4)
    return Recovered(
        poses=Poses(R_world_cam=matrices[:, :, :3], center_world=matrices[:, :, 3], unit=head["unit"]),
        registered=torch.tensor(registered),
        scale=head["scale"],
        fill=head["fill"],
        notes=tuple(head["notes"]),
    )


def write_manifest(folder: str | Path, files: Mapping[str, Path]) -> Path:
    """Write ``manifest.json``: what stands in the first line of every clip's file, the estimator once where all agree.

    Raises:
        MeropeError: if a file is missing or of another kind.
    """
    heads: dict[str, dict[str, Any]] = {}
    for clip_id, path in sorted(files.items()):
        kept = read_kept(path)
        if kept is None:
            raise MeropeError(f"{path} is no file of recovered cameras. Delete it and run again.")
        with path.open(encoding="utf-8") as stream:
            heads[clip_id] = json.loads(stream.readline().removeprefix(_HEAD))
        if kept.recovered is not None:
            lost = (~kept.recovered.registered).nonzero().flatten().tolist()
            heads[clip_id]["unregistered_frames"] = lost
    content: dict[str, Any] = {"format": "merope-recovered-manifest-1"}
    estimators = [head["estimator"] for head in heads.values()]
    if estimators and all(estimator == estimators[0] for estimator in estimators):
        content["estimator"] = estimators[0]
        heads = {name: {k: v for k, v in head.items() if k != "estimator"} for name, head in heads.items()}
    content["clips"] = heads
    path = Path(folder) / "manifest.json"
    write_text_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return path
