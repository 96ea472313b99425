"""VGGT-Omega as a pose estimator, called and never copied: its licence allows research only."""

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

_OTHER_HEADS = ("dense_head.", "alignment_head.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VGGTOmegaEstimator:
    """VGGT-Omega (Wang et al., 2026), the package ``vggt_omega`` with weights from a file; up to scale.

    The lens is not told to the model: its own field of view is compared with it and a disagreement noted. By its
    authors' table the 1B model takes 6 GB of GPU memory for one frame at 512, 10 GB for 50 and 13 GB for 100.

    Its code and weights are under a non-commercial research licence.
    """

    weights: Path | None = None
    """The checkpoint, a PyTorch file such as vggt_omega_1b_512.pt."""
    device: str = "cpu"
    resolution: int = 512
    """Side of the square with as many patches as the model is shown, pixels: 512, 416 or 256 by checkpoint."""
    max_frames: int = 200
    """Frames of one pass; longer clips are seen in pieces."""
    overlap: int = 10
    """Frames that neighbouring pieces share at least."""
    name: str = "vggt-omega"

    def __post_init__(self) -> None:
        check_pieces(self.max_frames, self.overlap)
        self._plan()

    def _plan(self) -> FramePlan:
        return FramePlan(patch=16, resolution=self.resolution, sizing="area", aspect_limits=(0.5, 2.0))

    def identity(self) -> dict[str, Any]:
        """Name, options, versions and the hash of the weights."""
        return identity_of(
            self.name,
            {key: value for key, value in asdict(self).items() if key not in ("name", "weights")},
            packages=("vggt-omega", "torch"),
            weights=self._weights(),
        )

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, up to one scale.

        Raises:
            MissingDependency: if vggt_omega is not installed.
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
            notes=(package_note("vggt-omega"),),
        )

    def _weights(self) -> Path:
        return require_weights(
            self.weights, estimator=self.name, where="vggt_omega_1b_512.pt of facebook/VGGT-Omega"
        )

    def _model(self) -> torch.nn.Module:
        try:
            from vggt_omega.models import VGGTOmega
        except ImportError as error:
            raise missing_package("vggt_omega", "VGGT-Omega", error) from None
        return build(VGGTOmega, self._weights(), self.device, without=("enable_depth",), ignored=_OTHER_HEADS)
