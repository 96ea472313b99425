"""`Clip`: frames that are decoded when asked for, their cameras, and what is known about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float

from merope.cameras import CameraModel
from merope.data.clips.frame_timing import GAP, FrameTiming, frames_at_rate, stretches
from merope.data.clips.video import RATE_SLACK, Frames
from merope.errors import MeropeError
from merope.geometry.gravity import Up, unit_up
from merope.geometry.poses import Poses, Unit


class ClipError(MeropeError):
    """One clip cannot be used; the message begins with its name. The others of its data set can."""

    def __init__(self, source: str, clip_id: str, reason: object) -> None:
        super().__init__(f"{source}/{clip_id}: {reason}")
        self.source, self.clip_id, self.reason = source, clip_id, str(reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.clip_id, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clip:
    """A video with one pose per frame. A data set is a sequence of these, whatever its files look like.

    Raises:
        ClipError: if the frame rate is not positive, the lens has parameters per view, or up is no direction.
    """

    clip_id: str
    """Name, unique within its source."""
    poses: Poses
    """The camera of every frame."""
    lens: CameraModel
    """The lens of the frames as they are decoded."""
    fps: float
    """Frames per second."""
    decode: Callable[[Sequence[int]], Frames]
    """Frames by their numbers, which increase; `frames` calls it."""
    decode_depth: Callable[[Sequence[int]], Any] | None = None
    """Depth maps by the numbers of their frames; `depth` calls it."""
    caption: str = ""
    """What can be seen, as a prompt; empty where there is no caption."""
    source: str = "clips"
    """Data set or folder that the clip comes from."""
    cluster: str = "all"
    """Kind of motion, for `BalancedSampler`."""
    up_world: Up | None = None
    """Unit vector against gravity in the world of the poses; None where nobody knows."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """How the clip came to be, as JSON values: files, seeds, licences."""

    def __post_init__(self) -> None:
        if not self.fps > 0:
            raise self.error(f"fps must be > 0; got {self.fps}.")
        if self.lens.view_shape:
            raise self.error(
                f"its lens has parameters for each of {tuple(self.lens.view_shape)} views; a clip has one lens."
            )
        if self.up_world is not None:
            try:
                object.__setattr__(self, "up_world", unit_up(self.up_world))
            except ValueError as error:
                raise self.error(error) from None

    def error(self, reason: object) -> ClipError:
        """An error that names this clip."""
        return ClipError(self.source, self.clip_id, reason)

    @property
    def unit(self) -> Unit:
        """What a length of 1 is in the poses."""
        return self.poses.unit

    def __len__(self) -> int:
        return len(self.poses)

    def frames(self, indices: Sequence[int] | None = None) -> Frames:
        """The frames with these numbers, which increase; all of them without.

        Raises:
            ClipError: if they cannot be decoded, are not as many as there are poses, or not of the lens's size.
        """
        wanted = range(len(self)) if indices is None else indices
        try:
            frames = self.decode(wanted)
        except (MeropeError, OSError) as error:
            raise self.error(error) from error
        found = frames.shape[:3]
        if found != (len(wanted), self.lens.height, self.lens.width):
            raise self.error(
                f"it has {found[0]} frames of {found[1]} x {found[2]} (height x width) where poses and lens are for "
                f"{len(wanted)} of {self.lens.height} x {self.lens.width}."
            )
        return frames

    def depth(self, indices: Sequence[int] | None = None) -> Float[np.ndarray, "_ _ _"] | None:
        """Depth maps [frame, height, width] of the frames with these numbers, or None where there are none.

        In the poses' unit along the ray of each pixel's centre, infinite in the sky and 0 where a pixel has no ray.

        Raises:
            ClipError: if they cannot be read or do not fit the frames.
        """
        if self.decode_depth is None:
            return None
        wanted = range(len(self)) if indices is None else indices
        try:
            depth = self.decode_depth(wanted)
        except (MeropeError, OSError) as error:
            raise self.error(error) from error
        if depth.shape != (len(wanted), self.lens.height, self.lens.width):
            raise self.error(f"depth of shape {depth.shape} does not fit its frames.")
        return depth

    @property
    def times(self) -> Float[np.ndarray, "time"]:
        """Seconds at which the frames were taken: those of the poses, else frame numbers divided by ``fps``."""
        if self.poses.times is not None:
            return self.poses.times.numpy()
        return np.arange(len(self)) / self.fps

    @property
    def timing(self) -> FrameTiming | None:
        """How even the frames are, by the times of the poses; None where they have none, or there is but one."""
        return None if self.poses.times is None else FrameTiming.of(self.times)

    def take(self, indices: Sequence[int], *, clip_id: str, fps: float | None = None) -> Self:
        """Some of the frames with their own poses, as a clip; nothing is decoded yet.

        Raises:
            ValueError: if an index is outside the clip.
        """
        chosen = list(indices)
        if not chosen or min(chosen) < 0 or max(chosen) >= len(self):
            raise ValueError(
                f"indices must be among the {len(self)} frames of {self.clip_id}; got {chosen[:8]}."
            )
        return self._with(chosen, self.poses[chosen], clip_id=clip_id, fps=self.fps if fps is None else fps)

    def at_rate(self, fps: float, *, allow_gaps: bool = False, interpolate_poses: bool = False) -> Self:
        """The clip at a lower frame rate: the frames nearest to every 1 / ``fps`` s, each with its own time and pose.

        With ``interpolate_poses`` poses and times are those of these moments instead, while the frames stay the nearest
        ones, up to half a frame away: even times are bought with poses that are off by the motion in that time.

        Raises:
            ValueError: if the rate is not positive.
            ClipError: if the clip is slower than ``fps``, or a step is longer than 1.5 frame periods, unless
                ``allow_gaps``.
        """
        parts = self._at_rate(fps, allow_gaps=allow_gaps, interpolate_poses=interpolate_poses)
        if len(parts) > 1:
            raise self._gap_error("")
        indices, poses = parts[0]
        return self._with(indices, poses, clip_id=self.clip_id, fps=fps)

    def windows(
        self,
        num_frames: int,
        *,
        stride: int | None = None,
        fps: float | None = None,
        allow_gaps: bool = False,
        interpolate_poses: bool = False,
    ) -> list[Self]:
        """Stretches of ``num_frames`` frames at ``fps``, which start every ``stride`` frames of that rate.

        Of a faster clip the frames nearest in time are taken, each with its own pose; poses are never made up, unless
        with ``interpolate_poses`` (see `at_rate`). No window reaches over a step of more than 1.5 frame periods, where
        frames are missing, unless ``allow_gaps``. Without ``stride`` windows follow each other and share no frame. A
        window is named after its first frame: "ID@00049".

        Raises:
            ValueError: if a count or the rate is not positive.
            ClipError: if the clip is too short for one window, slower than ``fps``, or has gaps that leave no window.
        """
        stride = num_frames if stride is None else stride
        rate = self.fps if fps is None else fps
        if num_frames < 1 or stride < 1:
            raise ValueError(f"num_frames and stride must be positive; got {num_frames}, {stride}.")
        parts = self._at_rate(rate, allow_gaps=allow_gaps, interpolate_poses=interpolate_poses)
        longest = max(len(indices) for indices, _ in parts)
        if longest < num_frames:
            if len(parts) > 1:
                raise self._gap_error(
                    f" The longest stretch without one has {longest} frames at {rate:g} a second; a window has {num_frames}."
                )
            raise self.error(f"it has {longest} frames at {rate:g} a second; a window has {num_frames}.")
        return [
            self._with(
                indices[start : start + num_frames],
                poses[start : start + num_frames],
                clip_id=f"{self.clip_id}@{indices[start]:05d}",
                fps=rate,
            )
            for indices, poses in parts
            for start in range(0, len(indices) - num_frames + 1, stride)
        ]

    def _at_rate(
        self, rate: float, *, allow_gaps: bool, interpolate_poses: bool
    ) -> list[tuple[list[int], Poses]]:
        """Frame numbers and poses at this rate, for each stretch without a gap."""
        if not rate > 0:
            raise ValueError(f"fps must be positive; got {rate}.")
        if self.fps < rate * (1 - RATE_SLACK):
            raise self.error(
                f"it has {self.fps:g} frames a second and {rate:g} are wanted; frames would have to be repeated."
            )
        times, parts = self.times, []
        for part in [range(len(self))] if allow_gaps else stretches(times, fps=self.fps):
            numbers, moments = frames_at_rate(times[part.start : part.stop], fps=self.fps, rate=rate)
            indices = [part.start + number for number in numbers]
            poses = self._poses_at(moments) if interpolate_poses else self.poses[indices]
            parts.append((indices, poses))
        return parts

    def _poses_at(self, moments: Float[np.ndarray, "out"]) -> Poses:
        """Poses between those of the frames; the last one's stands for moments after it."""
        times = torch.tensor(self.times)
        return self.poses.with_times(times).interpolate(torch.tensor(moments).clamp(max=float(times[-1])))

    def _with(self, indices: list[int], poses: Poses, *, clip_id: str, fps: float) -> Self:
        """These frames with these poses."""
        depth = self.decode_depth
        return replace(
            self,
            clip_id=clip_id,
            poses=poses,
            fps=fps,
            decode=lambda wanted: self.decode([indices[index] for index in wanted]),
            decode_depth=None
            if depth is None
            else lambda wanted: depth([indices[index] for index in wanted]),
        )

    def _gap_error(self, more: str) -> ClipError:
        steps = np.diff(self.times)
        gaps = np.flatnonzero(steps > GAP / self.fps)
        return self.error(
            f"frames are missing in {len(gaps)} places: first, frame {gaps[0] + 1} comes {steps[gaps[0]]:.3f} s after "
            f"the one before, at {self.fps:g} frames a second.{more} Take it as it is with allow_gaps=True (--allow-gaps)."
        )
