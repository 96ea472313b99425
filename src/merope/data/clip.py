"""`Clip`: frames that are decoded when asked for, their cameras, and what is known about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from merope.cameras import CameraModel
from merope.data.video import RATE_SLACK, Frames
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
        depth = self.decode_depth
        return replace(
            self,
            clip_id=clip_id,
            poses=self.poses[chosen],
            fps=self.fps if fps is None else fps,
            decode=lambda wanted: self.decode([chosen[index] for index in wanted]),
            decode_depth=None if depth is None else lambda wanted: depth([chosen[index] for index in wanted]),
        )

    def windows(self, num_frames: int, *, stride: int | None = None, fps: float | None = None) -> list[Self]:
        """Stretches of ``num_frames`` frames at ``fps``, which start every ``stride`` frames of that rate.

        Of a faster clip the frames nearest in time are taken, each with its own pose; poses are never made up. Without
        ``stride`` windows follow each other and share no frame. A window is named after its first frame: "ID@00049".

        Raises:
            ValueError: if a count or the rate is not positive.
            ClipError: if the clip is too short for one window, or slower than ``fps``.
        """
        stride = num_frames if stride is None else stride
        rate = self.fps if fps is None else fps
        if num_frames < 1 or stride < 1 or not rate > 0:
            raise ValueError(
                f"num_frames, stride and fps must be positive; got {num_frames}, {stride}, {rate}."
            )
        if self.fps < rate * (1 - RATE_SLACK):
            raise self.error(
                f"it has {self.fps:g} frames a second and {rate:g} are wanted; frames would have to be repeated."
            )
        step = self.fps / rate
        if abs(step - 1) <= RATE_SLACK:
            step = 1.0
        at_rate = [round(number * step) for number in range(int((len(self) - 1) / step + 0.5) + 1)]
        at_rate = [index for index in at_rate if index < len(self)]
        if len(at_rate) < num_frames:
            raise self.error(f"it has {len(at_rate)} frames at {rate:g} a second; a window has {num_frames}.")
        return [
            self.take(
                at_rate[start : start + num_frames], clip_id=f"{self.clip_id}@{at_rate[start]:05d}", fps=rate
            )
            for start in range(0, len(at_rate) - num_frames + 1, stride)
        ]
