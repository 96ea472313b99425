"""The clips of one set, real or generated: where their frames are, and what must agree before they are compared."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from merope.data.clips.clip import Clip, ClipError
from merope.data.clips.generated import GeneratedClip, find_generated, not_generated
from merope.data.clips.video import Frames, frame_paths, read_frames
from merope.data.datasets import open_dataset
from merope.errors import MeropeError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparedClip:
    """One clip whose frames are read when asked for."""

    clip_id: str
    num_frames: int
    height: int
    width: int
    fps: float
    read: Callable[[Sequence[int]], Frames]
    """Frames by their numbers, uint8."""
    prefix_frames: int = 0
    """Leading frames that a generated clip was given."""
    files: Callable[[], Sequence[Path]] | None = None
    """A file for every frame, where frames are kept so; they are then known by the bytes of these files."""

    def fingerprint(self, numbers: Sequence[int]) -> str:
        """A hash of these frames' content and size: of their files, which saves decoding, else of the frames."""
        digest = hashlib.sha256(f"{self.height} {self.width} {list(numbers)}".encode())
        if self.files is None:
            frames = self.read(numbers)
            require_uint8(frames, self.clip_id)
            digest.update(b"pixels" + frames.tobytes())
        else:
            paths = self.files()
            for number in numbers:
                digest.update(hashlib.sha256(paths[number].read_bytes()).digest())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClipCollection:
    """The clips of one method, or the real ones, in the order of their names."""

    label: str
    clips: tuple[ComparedClip, ...]
    missing: tuple[str, ...] = ()
    """Clips that should be there and are not, by name, with the reason where one is known."""

    def __post_init__(self) -> None:
        counts = Counter(clip.clip_id for clip in self.clips)
        if doubled := sorted(name for name, count in counts.items() if count > 1):
            raise ValueError(f"{self.label}: clips must be there once; {', '.join(doubled[:5])} came twice.")
        object.__setattr__(self, "clips", tuple(sorted(self.clips, key=lambda clip: clip.clip_id)))


def generated_collection(root: str | Path, *, label: str | None = None) -> ClipCollection:
    """The clips in a folder that ``merope generate`` wrote: their lossless frames, and how many of them were given.

    Raises:
        MeropeError: if there is none, or one is not complete.
    """
    root = Path(root)
    return ClipCollection(
        label=label or root.resolve().name,
        clips=tuple(_of_generated(clip) for clip in find_generated(root)),
        missing=tuple(not_generated(root)),
    )


def real_collection(root: str | Path, *, reader: str = "folder", **options: Any) -> ClipCollection:
    """The clips of a data set; those that cannot be opened are missing, with the reason.

    Raises:
        ValueError: if there is no such reader or option.
        FileNotFoundError: if there is no such folder.
        MeropeError: if it does not look like this data set, or no clip of it can be opened.
    """
    opened = list(open_dataset(reader, root, **options).clips(skip_broken=True))
    clips = [clip for clip in opened if not isinstance(clip, ClipError)]
    broken = tuple(str(clip) for clip in opened if isinstance(clip, ClipError))
    if not clips:
        raise MeropeError(f"none of the {len(broken)} clips of {root} can be opened: {broken[0]}")
    folder = Path(root) if reader == "folder" else None
    return ClipCollection(
        label=Path(root).resolve().name,
        clips=tuple(_of_clip(clip, folder) for clip in clips),
        missing=broken,
    )


def _of_generated(clip: GeneratedClip) -> ComparedClip:
    folder = clip.folder / "frames"
    count = len(frame_paths(folder))
    if count != len(clip.commanded):
        raise MeropeError(
            f"{folder} holds {count} frames for {len(clip.commanded)} poses. Generate the clip anew."
        )
    return ComparedClip(
        clip_id=clip.clip_id,
        num_frames=count,
        height=clip.lens.height,
        width=clip.lens.width,
        fps=clip.fps,
        prefix_frames=clip.prefix_frames,
        read=lambda numbers: read_frames(folder, numbers),
        files=lambda: frame_paths(folder),
    )


def _of_clip(clip: Clip, root: Path | None) -> ComparedClip:
    pictures = None if root is None else root / clip.clip_id / "frames"
    return ComparedClip(
        clip_id=clip.clip_id,
        num_frames=len(clip),
        height=clip.lens.height,
        width=clip.lens.width,
        fps=clip.fps,
        read=clip.frames,
        files=None if pictures is None or not pictures.is_dir() else lambda: frame_paths(pictures),
    )


def require_uint8(frames: np.ndarray, clip_id: str) -> None:
    """Raise unless frames are uint8 [frame, height, width, 3].

    Raises:
        TypeError: if they are not.
    """
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3:
        raise TypeError(
            f"{clip_id}: fidelity takes uint8 frames [frame, height, width, 3], and nothing is rescaled by guess; got "
            f"{frames.dtype} {frames.shape}."
        )
