"""Frames that may be gone: a picture goes without them, and the page says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from merope.data.clips.video import Frames
from merope.evaluation.runs.run import RunClip, ScoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesWatch:
    """Wraps the frames of runs so that clips whose frames cannot be read have none, and remembers why."""

    lost: dict[tuple[str, str], str] = field(default_factory=dict)
    """By run and clip, what reading said."""

    def over(self, runs: Sequence[ScoredRun]) -> list[ScoredRun]:
        """The same runs, whose frames raise nothing."""
        return [
            replace(run, clips=tuple(self._watched(run.label, clip) for clip in run.clips)) for run in runs
        ]

    def notes(self) -> list[str]:
        """A sentence about what could not be read; nothing where all could."""
        if not self.lost:
            return []
        (label, clip_id), reason = next(iter(self.lost.items()))
        count = len(self.lost)
        return [
            f"Pictures lack the frames of {count} clip{'s' if count > 1 else ''}, which could not be read when they were "
            f"drawn; no number depends on that. The first: {label}, {clip_id}: {reason}"
        ]

    def _watched(self, label: str, clip: RunClip) -> RunClip:
        if clip.frames is None:
            return clip
        return replace(clip, frames=self._safe((label, clip.clip_id), clip.frames))

    def _safe(self, name: tuple[str, str], read: Callable[[], Frames]) -> Callable[[], Frames]:
        def frames() -> Frames:
            if name not in self.lost:
                try:
                    return read()
                # Readers of films and folders each raise their own, and scores of hours are not lost for a picture.
                except Exception as error:
                    self.lost[name] = f"{type(error).__name__}: {error}"
            return np.empty((0, 1, 1, 3), dtype=np.uint8)

        return frames
