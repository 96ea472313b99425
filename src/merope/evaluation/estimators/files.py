"""A file of poses as an estimator: whatever recovered them, elsewhere and earlier."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from merope.cameras import CameraModel
from merope.data.poses.files import load_pose_file
from merope.data.poses.table import ReadOptions
from merope.evaluation.estimators.base import (
    Recovered,
    RecoveryFailed,
    Scale,
    fill_unregistered,
    identity_of,
    sha256_of_path,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseFileEstimator:
    """Hands back the poses in ``path``; the pixels are only counted.

    Where rows carry frame numbers, frames without a row are filled by interpolation and marked unregistered.
    """

    path: Path
    format: str
    options: ReadOptions | None = None
    scale: Scale = "metric"
    name: str = "file"

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """One pose per frame from the file.

        Raises:
            RecoveryFailed: if the file has another number of poses and no frame numbers, or too few of them.
        """
        loaded = load_pose_file(self.path, format=self.format, options=self.options)
        num_frames = len(frames)
        notes = (f"poses read from {self.path.name}",)
        if loaded.frame_ids is None:
            if len(loaded.poses) != num_frames:
                raise RecoveryFailed(
                    f"{self.path} has {len(loaded.poses)} poses for {num_frames} frames and no frame numbers to match by."
                )
            return Recovered.complete(loaded.poses, scale=self.scale, notes=notes)
        rows = [row for row, frame in enumerate(loaded.frame_ids) if 0 <= frame < num_frames]
        if not rows:
            raise RecoveryFailed(f"{self.path} has no pose for any of the frames 0 to {num_frames - 1}.")
        ids = [loaded.frame_ids[row] for row in rows]
        registered = torch.zeros(num_frames, dtype=torch.bool)
        registered[ids] = True
        return Recovered(
            poses=fill_unregistered(loaded.poses[rows], ids, num_frames),
            registered=registered,
            scale=self.scale,
            fill="none needed" if bool(registered.all()) else "interpolated, nearest pose held at the ends",
            notes=notes,
        )

    def identity(self) -> dict[str, Any]:
        """The bytes of the file (of all files of a folder), and how they are read."""
        options = {"format": self.format, "read_options": self.options or ReadOptions(), "scale": self.scale}
        return identity_of(self.name, options | {"poses_sha256": sha256_of_path(self.path)})
