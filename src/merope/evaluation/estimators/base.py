"""What recovers camera poses from frames: the protocol every estimator follows, and what it hands back."""

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from merope.cameras import CameraModel
from merope.errors import MeropeError
from merope.geometry.poses import Poses

Scale = Literal["metric", "up_to_scale"]


class RecoveryFailed(MeropeError):
    """No trajectory could be recovered from the frames; the message says how far it got."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A recovered trajectory: one pose per frame, and which of them were really observed.

    ``registered`` is False where an estimator found no pose; ``poses`` holds filled-in values there and
    ``fill`` says by which rule. ``scale`` says whether centres are metres or right up to one factor.
    ``notes`` are for the reader of a report.
    """

    poses: Poses
    registered: Bool[Tensor, "time"]
    scale: Scale
    fill: str = "none needed"
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.registered.shape != (len(self.poses),):
            raise ValueError(
                f"registered must have one entry per pose, [{len(self.poses)}]; got {list(self.registered.shape)}."
            )
        if not bool(self.registered.any()):
            raise ValueError("registered must be True for at least one frame; raise RecoveryFailed instead.")

    @classmethod
    def complete(cls, poses: Poses, *, scale: Scale = "metric", notes: tuple[str, ...] = ()) -> "Recovered":
        """A trajectory whose every frame was observed."""
        return cls(poses=poses, registered=torch.ones(len(poses), dtype=torch.bool), scale=scale, notes=notes)


@runtime_checkable
class PoseEstimator(Protocol):
    """Frames and lens in, trajectory out. An estimator never sees the command.

    Raises `RecoveryFailed` where the frames do not hold enough to recover a trajectory.
    """

    name: str

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, in OpenCV axes, in any world frame."""
        ...


def fill_unregistered(poses: Poses, frame_ids: list[int], num_frames: int) -> Poses:
    """One pose for each of ``num_frames`` frames from poses at ``frame_ids``.

    Between registered frames centres go linearly and rotations along the shorter way at constant speed;
    before the first and after the last the nearest pose is held.
    """
    first, last = frame_ids[0], frame_ids[-1]
    between = poses
    if first != last:
        ids = torch.tensor(frame_ids, dtype=torch.float64)
        timed = Poses(
            R_world_cam=poses.R_world_cam, center_world=poses.center_world, times=ids, unit=poses.unit
        )
        between = timed.interpolate(torch.arange(first, last + 1, dtype=torch.float64))
    rows = torch.arange(num_frames).clamp(first, last) - first
    return Poses(
        R_world_cam=between.R_world_cam[rows], center_world=between.center_world[rows], unit=poses.unit
    )
