"""The folder of one generated clip, and a folder of many: what generation writes and evaluation reads.

``ROOT/clips.json`` lists what was asked for. ``ROOT/CASE/TRAJECTORY/`` holds ``frames/`` (lossless, for measurement),
``video.mp4`` (for eyes), ``commanded.json`` (poses, format merope), ``lens.json`` and ``result.json``, in which stands
how the clip was made.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merope.cameras import CameraModel
from merope.data.clips.video import Frames, read_frames, write_frames, write_video
from merope.data.poses.files import read_poses, write_poses
from merope.errors import MeropeError
from merope.files import write_text_atomically
from merope.geometry.poses import Poses

RESULT = "result.json"
_ASKED = "clips.json"
_FORMAT = "merope-generated-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedClip:
    """A generated clip on disk; frames are read when asked for."""

    folder: Path
    clip_id: str
    """CASE/TRAJECTORY."""
    commanded: Poses
    lens: CameraModel
    fps: float
    prefix_frames: int
    """Leading frames that were given; 0 where none were."""
    result: dict[str, Any]
    """The content of ``result.json``."""

    def frames(self) -> Frames:
        """The lossless frames.

        Raises:
            MeropeError: if there are not as many as commanded poses, or not of the lens's size.
        """
        frames = read_frames(self.folder / "frames")
        wanted = (len(self.commanded), self.lens.height, self.lens.width)
        if frames.shape[:3] != wanted:
            raise MeropeError(
                f"{self.folder / 'frames'} holds {frames.shape[0]} frames of {frames.shape[1]} x {frames.shape[2]}; poses "
                f"and lens are for {wanted[0]} of {wanted[1]} x {wanted[2]}. Generate the clip anew."
            )
        return frames


def write_generated(
    folder: str | Path,
    frames: Frames,
    *,
    commanded: Poses,
    lens: CameraModel,
    fps: float,
    prefix_frames: int,
    result: dict[str, Any],
) -> None:
    """Write a clip's folder in one step; an older clip at the same place stays until the new one is complete.

    Raises:
        ValueError: if poses, lens and frames do not agree in number or size.
    """
    folder = Path(folder)
    if len(commanded) != len(frames) or (lens.height, lens.width) != frames.shape[1:3]:
        raise ValueError(
            f"{len(frames)} frames of {frames.shape[1]} x {frames.shape[2]} need as many poses and a lens of their size; "
            f"got {len(commanded)} poses and a lens for {lens.height} x {lens.width}."
        )
    about = {
        "format": _FORMAT,
        "num_frames": len(frames),
        "prefix_frames": prefix_frames,
        "height": lens.height,
        "width": lens.width,
        "fps": fps,
    }
    with _replacing(folder) as unfinished:
        write_frames(unfinished / "frames", frames)
        write_video(unfinished / "video.mp4", frames, fps=fps, odd_size="pad")
        write_poses(unfinished / "commanded.json", commanded, format="merope", camera=lens.to_dict())
        (unfinished / "lens.json").write_text(json.dumps(lens.to_dict(), indent=1) + "\n", encoding="utf-8")
        content = json.dumps({**about, **result}, indent=1, allow_nan=False)
        (unfinished / RESULT).write_text(content + "\n", encoding="utf-8")


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of ``folder`` if the block succeeds, and is gone if it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    unfinished, aside = (
        folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.{ending}") for ending in ("tmp", "old")
    )
    unfinished.mkdir()
    # Held until the block or the process ends: other processes can tell what is being written from what was left.
    with _locked(unfinished):
        try:
            yield unfinished
            # A folder cannot be put in the place of another in one step.
            if os.path.lexists(folder):
                os.replace(folder, aside)
            try:
                os.replace(unfinished, folder)
            except BaseException:
                if os.path.lexists(aside):
                    os.replace(aside, folder)
                raise
        finally:
            # A link to a clip elsewhere gives its place away; the clip itself stays.
            if aside.is_symlink():
                aside.unlink()
            for path in (unfinished, aside):
                shutil.rmtree(path, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote this clip."""
    leftover = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]+\.(?:tmp|old)")
    for entry in folder.parent.glob(".*.*"):
        if leftover.fullmatch(entry.name):
            with _locked(entry) as free:
                if free:
                    shutil.rmtree(entry, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock within the block; False where another process has it, or the file system knows no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def read_result(folder: str | Path) -> dict[str, Any] | None:
    """The content of a clip's ``result.json``; None where there is no complete clip.

    Raises:
        MeropeError: if something else is at that place.
    """
    folder = Path(folder)
    if not folder.exists():
        return None
    path = folder / RESULT
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError("it is of another format")
    except (OSError, ValueError) as error:
        raise MeropeError(
            f"{folder} is there and is no generated clip: {path.name} cannot be read ({error}). Move it away, or choose "
            "another output folder."
        ) from None
    return content


def read_generated(folder: str | Path, *, clip_id: str | None = None) -> GeneratedClip:
    """A clip's folder, its frames left on disk. ``clip_id`` is the last two folder names by default.

    Raises:
        MeropeError: if the folder is missing or no complete clip.
    """
    folder = Path(folder)
    result = read_result(folder)
    if result is None:
        raise MeropeError(f"{folder} does not exist.")
    commanded = read_poses(folder / "commanded.json", format="merope")
    try:
        lens = CameraModel.from_dict(json.loads((folder / "lens.json").read_text(encoding="utf-8")))
        fps, prefix_frames = float(result["fps"]), int(result["prefix_frames"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise MeropeError(f"{folder} is not a complete clip: {error}. Generate it anew.") from None
    return GeneratedClip(
        folder=folder,
        clip_id=clip_id or f"{folder.resolve().parent.name}/{folder.resolve().name}",
        commanded=commanded,
        lens=lens,
        fps=fps,
        prefix_frames=prefix_frames,
        result=result,
    )


def note_asked(root: str | Path, clip_ids: Iterable[str]) -> None:
    """Add clips to the list of what was asked for in an output folder, before they are made."""
    path = Path(root) / _ASKED
    asked = sorted({*_asked(path), *clip_ids})
    write_text_atomically(path, json.dumps(asked, indent=1) + "\n")


def not_generated(root: str | Path) -> list[str]:
    """Clips that were asked for and are not there: the run was stopped, or they failed."""
    root = Path(root)
    return [clip_id for clip_id in _asked(root / _ASKED) if not (root / clip_id / RESULT).is_file()]


def _asked(path: Path) -> list[str]:
    if not path.exists():
        return []
    try:
        asked = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(asked, list) or not all(isinstance(name, str) for name in asked):
            raise ValueError("it is no list of names")
    except ValueError as error:
        raise MeropeError(
            f"{path} does not list clips: {error}. Delete it; `merope generate` writes it."
        ) from None
    return asked


def find_generated(root: str | Path) -> list[GeneratedClip]:
    """All clips of an output folder, in the order of their names; ``root`` may be a single clip's folder too.

    Raises:
        MeropeError: if there is none, or one is not complete.
    """
    root = Path(root)
    if not root.is_dir():
        raise MeropeError(f"{root} is no folder; `merope generate --out` makes one.")
    if (root / RESULT).is_file():
        return [read_generated(root)]
    found = sorted(path.parent for path in root.glob(f"*/*/{RESULT}") if not path.parent.name.startswith("."))
    if not found:
        raise MeropeError(
            f"{root} holds no generated clips: there is no CASE/TRAJECTORY/{RESULT} below it. "
            "`merope generate --out` writes them."
        )
    return [read_generated(folder, clip_id=folder.relative_to(root).as_posix()) for folder in found]
