"""VGGT as a pose estimator: frames in, one pass, cameras out."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from merope.cameras import CameraModel
from merope.evaluation.estimators.base import Recovered, identity_of
from merope.evaluation.estimators.checks import check_device
from merope.evaluation.estimators.learned.encoders import build, missing_package, package_note, run_encoder
from merope.evaluation.estimators.learned.frames import FramePlan
from merope.evaluation.estimators.learned.passes import check_pieces, recover
from merope.evaluation.estimators.weights import require_weights

# Heads that poses do not need. They are not built, so that their memory and time are saved.
_OTHER_HEADS = ("point_head.", "depth_head.", "track_head.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VGGTEstimator:
    """VGGT (Wang et al., CVPR 2025), the package ``vggt`` with weights from a file; up to scale.

    The lens is not told to the model: its own field of view is compared with it and a disagreement noted. Weights of 1.2
    billion parameters; on a CPU a clip takes minutes.
    """

    weights: Path | None = None
    """The checkpoint, ``model.pt`` or ``model.safetensors`` of VGGT-1B or VGGT-1B-Commercial."""
    device: str = "cpu"
    resolution: int = 518
    """Width of the images shown to the model, pixels; a multiple of 14. It was trained at 518."""
    max_frames: int = 100
    """Frames of one pass; longer clips are seen in pieces."""
    overlap: int = 10
    """Frames that neighbouring pieces share at least."""
    name: str = "vggt"

    def __post_init__(self) -> None:
        check_pieces(self.max_frames, self.overlap)
        self._plan()

    def _plan(self) -> FramePlan:
        return FramePlan(patch=14, resolution=self.resolution, sizing="width")

    def identity(self) -> dict[str, Any]:
        """Name, options, versions and the hash of the weights."""
        return identity_of(
            self.name,
            {key: value for key, value in asdict(self).items() if key not in ("name", "weights")},
            packages=("vggt", "torch"),
            weights=self._weights(),
        )

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, up to one scale.

        Raises:
            MissingDependency: if vggt is not installed.
            ValueError: if there are no weights at the path, no such device, or the frames are not of the lens's size.
            CheckpointMismatch: if the weights are of another model.
            RecoveryFailed: if there is one frame only, the model's numbers are no poses, or memory does not suffice.
        """
        check_device(self.device)
        model = self._model()
        return recover(
            frames,
            camera,
            self._plan(),
            lambda images: run_encoder(model, images, self.device),
            max_frames=self.max_frames,
            overlap=self.overlap,
            notes=(package_note("vggt"),),
        )

    def _weights(self) -> Path:
        return require_weights(
            self.weights, estimator=self.name, where="model.pt or model.safetensors of facebook/VGGT-1B"
        )

    def _model(self) -> torch.nn.Module:
        try:
            from vggt.models.vggt import VGGT
        except ImportError as error:
            raise missing_package("vggt", "VGGT", error) from None
        path = self._weights()
        return build(
            VGGT,
            path,
            self.device,
            without=("enable_point", "enable_depth", "enable_track"),
            ignored=_OTHER_HEADS,
        )
