"""The motion network behind lenses that it was not trained for: frames go through their rays into its own lens."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from merope.cameras import CameraModel
from merope.cameras.resampling import resample_frames
from merope.evaluation.estimators.base import Recovered, RecoveryFailed
from merope.evaluation.estimators.checks import check_frames
from merope.evaluation.estimators.motion_network.estimator import SHIPPED_WEIGHTS, NetworkEstimator

# With less of its picture a network that never saw black borders reads mostly those.
_MIN_COVERED = 0.5


class ResampledNetworkEstimator:
    """A `NetworkEstimator` for frames of any lens and size, with a note of what was done to them.

    Frames are resampled into the network's own lens (`resample_frames`), black where the other lens does not look.
    Another frame rate changes nothing but is noted: the network reads the motion between neighbouring frames, and was
    trained on the steps of its own rate.
    """

    name = NetworkEstimator.name

    def __init__(self, network: NetworkEstimator) -> None:
        self.network = network
        self.camera = CameraModel.from_dict(network.camera)

    @classmethod
    def load(cls, path: str | Path | None = None) -> "ResampledNetworkEstimator":
        """Read what `NetworkEstimator.save` wrote; None takes the network that comes with the package.

        Raises:
            CheckpointMismatch: if the file is missing, something else, or lacks part of what `NetworkEstimator.save` writes.
        """
        return cls(NetworkEstimator.load(SHIPPED_WEIGHTS if path is None else path))

    def identity(self) -> dict[str, Any]:
        """The network's own, marked as one that resamples."""
        own = self.network.identity()
        return {**own, "options": {**own["options"], "resampled_into_own_lens": True}}

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, in metres.

        Raises:
            ValueError: if the frames are not bytes of the lens's size, or the rate is not positive.
            RecoveryFailed: if they show less than half of what the network's lens sees, or hold no motion.
        """
        check_frames(frames, camera)
        if not (math.isfinite(fps) and fps > 0):
            raise ValueError(f"fps must be positive, got {fps}.")
        own, notes = self.camera, []
        if camera != own:
            shape = f"{camera.height} x {camera.width}"
            frames, covered = resample_frames(frames, camera, own)
            share = float(covered.mean())
            if share < _MIN_COVERED:
                raise RecoveryFailed(
                    f"these frames show {share:.0%} of what the motion network's lens sees; {_MIN_COVERED:.0%} are needed. "
                    "For a narrow lens use the colmap estimator."
                )
            note = f"frames of {shape} resampled into the network's own lens of {own.height} x {own.width}"
            notes.append(note if share == 1 else f"{note}, {share:.0%} covered and the rest black")
        if abs(fps - self.network.fps) > 1e-6:
            notes.append(
                f"the network was trained at {self.network.fps:g} frames a second and reads these at {fps:g}: its steps are "
                f"{self.network.fps / fps:.2g} times as long or as short as it knows them"
            )
        found = self.network.estimate(frames, own, fps=self.network.fps)
        return replace(found, notes=(*found.notes, *notes))
