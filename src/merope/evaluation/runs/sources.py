"""Where clips with frames come from: folders of generated clips, and true clips that an estimator's floor is measured on."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from merope.cameras import CameraModel
from merope.data.clips.folder import clip_ids, read_clip
from merope.data.clips.generated import RESULT, GeneratedClip, find_generated, read_generated
from merope.data.clips.video import Frames, frame_paths, read_frames
from merope.errors import MeropeError
from merope.geometry.poses import Poses

# Where a generated clip's folder keeps the frames that the command would show, if anybody knows them.
TRUE_FRAMES = "true_frames"

# What generated clips are told by; where all clips agree it stands in the settings of the evaluation.
_TOLD = ("model", "adapter", "dtype", "steps", "guidance", "flow_shift")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSource:
    """A clip on disk with the command for its camera. It is small and goes to other processes; frames stay on disk."""

    clip_id: str
    folder: Path
    kind: Literal["generated", "true frames", "true clip"]
    commanded: Poses
    lens: CameraModel
    fps: float
    first_generated: int | None = None

    def frames(self) -> Frames:
        """The frames that cameras are recovered from, lossless wherever they were kept so.

        Raises:
            MeropeError: if they cannot be read, or do not fit poses and lens.
        """
        if self.kind == "generated":
            return read_generated(self.folder, clip_id=self.clip_id).frames()
        if self.kind == "true clip":
            return read_clip(self.folder).frames()
        frames = read_frames(self.folder / TRUE_FRAMES)
        if frames.shape[:3] != (len(self.commanded), self.lens.height, self.lens.width):
            raise MeropeError(
                f"{self.folder / TRUE_FRAMES} holds {frames.shape[0]} frames of {frames.shape[1]} x {frames.shape[2]}; "
                f"poses and lens are for {len(self.commanded)} of {self.lens.height} x {self.lens.width}."
            )
        return frames

    def frames_sha256(self) -> str:
        """The sha256 of names and bytes of the files that `frames` reads."""
        digest = hashlib.sha256()
        for path in self._files():
            with path.open("rb") as stream:
                digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
                while block := stream.read(2**22):
                    digest.update(block)
        return digest.hexdigest()

    def _files(self) -> list[Path]:
        name = TRUE_FRAMES if self.kind == "true frames" else "frames"
        if (self.folder / name).is_dir():
            return frame_paths(self.folder / name)
        return [self.folder / "video.mp4"]


def generated_sources(root: str | Path) -> list[ClipSource]:
    """The clips of a folder that `merope generate` wrote.

    Raises:
        MeropeError: if there is none, one is not complete, or the folder holds true clips.
    """
    root = Path(root)
    if _holds_true_clips(root):
        raise MeropeError(
            f"{root} holds true clips, as `merope data convert` writes them, and no generated ones. Their cameras give the "
            f"noise floor of an estimator: merope evaluate RUN --floor {root}."
        )
    return [_of_generated(clip, "generated") for clip in find_generated(root)]


def true_sources(root: str | Path, *, first_generated: int | None = None) -> list[ClipSource]:
    """True frames with their true cameras: a plain folder of clips, or generated clips that have ``true_frames/``.

    ``first_generated`` is for plain clips, so that their figures over the later frames are those of a run.

    Raises:
        MeropeError: if there are none, or one cannot be read.
        FileNotFoundError: if there is no such folder.
    """
    root = Path(root)
    if (root / RESULT).is_file() or (root.is_dir() and any(root.glob(f"*/*/{RESULT}"))):
        clips = find_generated(root)
        have = [clip for clip in clips if (clip.folder / TRUE_FRAMES).is_dir()]
        if not have:
            raise MeropeError(
                f"{root} holds generated clips and no true frames ({TRUE_FRAMES}/ in a clip's folder). The floor needs true "
                "clips: a folder as `merope data convert` or `merope worlds render` writes it (--floor CLIPS)."
            )
        return [_of_generated(clip, "true frames") for clip in have]
    folders = [root] if (root / "poses.json").is_file() else [root / name for name in clip_ids(root)]
    sources = []
    for folder in folders:
        clip = read_clip(folder)
        sources.append(
            ClipSource(
                clip_id=clip.clip_id,
                folder=folder,
                kind="true clip",
                commanded=clip.poses,
                lens=clip.lens,
                fps=clip.fps,
                first_generated=first_generated,
            )
        )
    return sources


def generated_with(root: str | Path) -> dict[str, Any]:
    """What all generated clips of a folder were made with: model, adapter, steps and the like."""
    told = [clip.result.get("settings", {}) for clip in find_generated(root)]
    shared = {}
    for key in _TOLD:
        values = [settings.get(key) for settings in told]
        if all(value == values[0] for value in values):
            shared[key] = values[0]
    return shared


def _of_generated(clip: GeneratedClip, kind: Literal["generated", "true frames"]) -> ClipSource:
    return ClipSource(
        clip_id=clip.clip_id,
        folder=clip.folder,
        kind=kind,
        commanded=clip.commanded,
        lens=clip.lens,
        fps=clip.fps,
        first_generated=clip.prefix_frames or None,
    )


def _holds_true_clips(root: Path) -> bool:
    return root.is_dir() and any(root.glob("*/poses.json")) and not any(root.glob(f"*/*/{RESULT}"))
