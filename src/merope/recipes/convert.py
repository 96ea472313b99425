"""Any data set into the plain folder of clips, one clip after another; a broken one costs itself alone."""

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from merope.data.checks.clip_report import clip_report
from merope.data.clips.clip import Clip, ClipError
from merope.data.clips.folder import write_clip
from merope.data.clips.given_frames import fit_view
from merope.data.datasets import ClipSet
from merope.errors import CheckpointMismatch, MeropeError
from merope.files import require_folder, write_text_atomically
from merope.recipes.ahead import ahead

REPORT = "convert.json"
"""The file beside the clips that says how they were made, and which could not be."""

_FORMAT = "merope-convert-1"
# Seconds of work that an interrupted run may have to look at again.
_SAVE_EVERY = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertConfig:
    """What is cut from each clip; a folder holds clips of one configuration.

    Raises:
        ValueError: if height and width are not given together, or a number is not positive.
    """

    num_frames: int | None = None
    """Frames per window; None keeps clips whole."""
    window_stride: int | None = None
    """Frames from the start of a window to that of the next; None for windows that share no frame."""
    fps: float | None = None
    """Frames per second that faster clips are thinned to; None keeps each clip's own."""
    height: int | None = None
    """Rows that frames are brought to, pixels; None keeps them."""
    width: int | None = None
    """Columns that frames are brought to, pixels."""
    crop: bool = False
    """Whether clips of another shape are cut about the middle; else they are left out."""
    allow_gaps: bool = False
    """Whether windows may reach over missing frames."""
    interpolate_poses: bool = False
    """Whether thinned clips have poses at even times, in place of those of their frames."""
    depth: bool = True
    """Whether depth maps are kept."""

    def __post_init__(self) -> None:
        if (self.height is None) != (self.width is None):
            raise ValueError(f"height and width go together; got {self.height} and {self.width}.")
        for name in ("num_frames", "window_stride", "fps", "height", "width"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive; got {value}.")
        if self.window_stride is not None and self.num_frames is None:
            raise ValueError("window_stride needs num_frames: clips that are kept whole have no windows.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """What became of a data set's clips."""

    through: int
    """Clips of the data set of which something is in the folder now."""
    written: int
    """Clips or windows that were written now."""
    there: int
    """Clips or windows that were there already."""
    broken: list[ClipError]
    """Clips that could not be converted, and why."""
    notes: list[str]
    """Sentences about clips that are unlikely to be as they are meant."""


def convert_clips(
    clips: ClipSet,
    root: str | Path,
    config: ConvertConfig,
    *,
    origin: dict[str, Any] | None = None,
    source: str | None = None,
    workers: int = 1,
    progress: bool = True,
) -> ConvertReport:
    """Write the clips of a data set that are not there yet, and `REPORT` about all of them.

    It is safe to stop: clips appear whole or not at all, and those that are there are not opened again. ``origin`` says
    where they come from, as JSON values; clips of one folder have one origin. ``source`` goes before what clips say.
    ``workers`` threads decode and write.

    Raises:
        CheckpointMismatch: if the folder holds clips that were converted otherwise.
        ValueError: if ``workers`` is not positive.
    """
    if workers < 1:
        raise ValueError(f"workers must be positive; got {workers}.")
    root = Path(root)
    require_folder(root)
    report = _opened_report(root, {"config": asdict(config), "origin": origin or {}, "source": source})
    done: dict[str, Any] = report["clips"]
    report["broken"] = broken = {}
    missing = [
        clip_id
        for clip_id in clips.ids
        if clip_id not in done or not all((root / name).is_dir() for name in done[clip_id])
    ]
    left = set(missing)
    written, there = 0, sum(len(done[clip_id]) for clip_id in clips.ids if clip_id not in left)
    errors: list[ClipError] = []
    saved = time.monotonic()
    convert = partial(_convert, clips, root=root, config=config, source=source)
    with tqdm(
        total=len(clips), initial=len(clips) - len(missing), desc="convert", unit="clip", disable=not progress
    ) as bar:
        try:
            for clip_id, outcome in ahead(convert, missing, workers=workers, count=2 * workers):
                parts, new, problems = outcome
                if parts:
                    done[clip_id] = parts
                written, there = written + new, there + len(parts) - new
                for problem in problems:
                    broken[problem.clip_id] = problem.reason
                    errors.append(problem)
                bar.update()
                if time.monotonic() - saved > _SAVE_EVERY:
                    _save(root, report)
                    saved = time.monotonic()
        finally:
            _save(root, report)
    notes = [
        f"{name}: {note}"
        for clip_id in clips.ids
        for name, facts in done.get(clip_id, {}).items()
        for note in facts["notes"]
    ]
    through = sum(clip_id in done for clip_id in clips.ids)
    return ConvertReport(through=through, written=written, there=there, broken=errors, notes=notes)


def _convert(
    clips: ClipSet, clip_id: str, *, root: Path, config: ConvertConfig, source: str | None
) -> tuple[str, tuple[dict[str, Any], int, list[ClipError]]]:
    """The clip's name; what is there of it now, with facts, how many parts are new, and what could not be written."""
    try:
        clip = clips.clip(clip_id)
        parts = _parts(clip, config)
    except ClipError as error:
        return clip_id, ({}, 0, [error])
    there: dict[str, Any] = {}
    new, problems = 0, []
    for part in parts:
        try:
            new += _write(part, root, config, source)
            there[part.clip_id] = clip_report(part)
        except ClipError as error:
            problems.append(error)
        # An OSError is of the folder that is written to, and the next clip would meet it too.
        except (MeropeError, ValueError) as error:
            problems.append(part.error(error))
    # A clip that is there in part is tried again by the next run.
    return clip_id, (there if not problems else {}, new, problems)


def _parts(clip: Clip, config: ConvertConfig) -> list[Clip]:
    gaps, interpolate = config.allow_gaps, config.interpolate_poses
    if config.num_frames is not None:
        return clip.windows(
            config.num_frames,
            stride=config.window_stride,
            fps=config.fps,
            allow_gaps=gaps,
            interpolate_poses=interpolate,
        )
    if config.fps is not None:
        return [clip.at_rate(config.fps, allow_gaps=gaps, interpolate_poses=interpolate)]
    return [clip]


def _write(clip: Clip, root: Path, config: ConvertConfig, source: str | None) -> bool:
    """Write a clip unless it is there; whether it was."""
    if (root / clip.clip_id).is_dir():
        return False
    frames, lens = clip.frames(), clip.lens
    depth = clip.depth() if config.depth else None
    if config.height is not None and config.width is not None:
        if depth is not None and (config.height, config.width) != (lens.height, lens.width):
            raise clip.error(
                "it has depth maps, and these cannot be resized. Keep its size, or leave them out (--drop-depth)."
            )
        fitted, lens, _ = fit_view(frames, lens, height=config.height, width=config.width, crop=config.crop)
        assert fitted is not None
        frames = fitted
    write_clip(
        root,
        clip.clip_id,
        frames,
        poses=clip.poses,
        lens=lens,
        fps=clip.fps,
        source=source or clip.source,
        caption=clip.caption,
        cluster=clip.cluster,
        up_world=clip.up_world,
        provenance=clip.provenance,
        depth=None if depth is None else depth.astype(np.float32),
    )
    return True


def _opened_report(root: Path, made: dict[str, Any]) -> dict[str, Any]:
    """The report of an earlier run on this folder, or a new one."""
    made = json.loads(json.dumps(made))
    path = root / REPORT
    if not path.exists():
        return {"format": _FORMAT, **made, "clips": {}, "broken": {}}
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if report.get("format") != _FORMAT or not isinstance(report["clips"], dict):
            raise ValueError("it is of another format")
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointMismatch(
            f"{path} is no report of a conversion: {error}. Choose another folder."
        ) from None
    different = [name for name, value in made.items() if report.get(name) != value]
    if not different:
        return dict(report)
    # After a first try of which nothing came there is nothing to mix with.
    if not report["clips"] and not any(entry.is_dir() for entry in root.iterdir()):
        return {"format": _FORMAT, **made, "clips": {}, "broken": {}}
    changes = "; ".join(
        f"{name}: {report.get(name)!r:.200} then, {made[name]!r:.200} now" for name in different
    )
    raise CheckpointMismatch(
        f"{root} holds clips that were converted otherwise ({path}): {changes}. Choose another folder."
    )


def _save(root: Path, report: dict[str, Any]) -> None:
    write_text_atomically(root / REPORT, json.dumps(report, indent=1) + "\n")
