"""Pose recovery for the procedural world's small frames, by a network that was trained on renders only."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from merope.cameras import CameraModel
from merope.errors import CheckpointMismatch
from merope.evaluation.estimators.base import Recovered, RecoveryFailed, identity_of
from merope.evaluation.estimators.checks import check_frames
from merope.evaluation.estimators.motion_network.network import MotionNetwork, integrate_motion
from merope.files import atomic_path
from merope.geometry.poses import Poses
from merope.geometry.rotations import project_to_so3

_FORMAT = "merope-motion-network-1"

SHIPPED_WEIGHTS = Path(__file__).resolve().parents[3] / "weights" / "tiny-street" / "estimator.safetensors"
"""The network that comes with the package, for clips of the procedural street."""


class NetworkEstimator:
    """Metric poses of a street clip from its pixels, lens and frame rate.

    Trained on renders of the procedural world, never on generated frames, for one lens, size and frame
    rate; any other raises. It sees neither the command nor the world.
    """

    name = "motion-network"

    def __init__(
        self, network: MotionNetwork, *, camera: dict[str, Any], fps: float, summary: dict[str, Any]
    ) -> None:
        self.network = network.eval()
        self.camera, self.fps, self.summary = camera, fps, summary

    @torch.no_grad()
    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Integrate the network's steps over the clip.

        Raises:
            ValueError: if the frames are not bytes of the lens's size.
            RecoveryFailed: if the lens, the size or the frame rate are not what the network was trained for.
        """
        check_frames(frames, camera)
        trained = CameraModel.from_dict(self.camera)
        if camera.to_dict() != trained.to_dict() or abs(fps - self.fps) > 1e-6:
            raise RecoveryFailed(
                f"the motion network reads {trained.width} x {trained.height} frames of its own lens at {self.fps:g} Hz; "
                f"these are {camera.width} x {camera.height} at {fps:g} Hz. For other clips use "
                "merope.evaluation.estimators.ColmapEstimator."
            )
        video = torch.from_numpy(np.ascontiguousarray(frames)).movedim(-1, 1).float()[None] / 127.5 - 1
        rotations, centers = integrate_motion(self.network(video).double())
        return Recovered.complete(Poses(R_world_cam=project_to_so3(rotations[0]), center_world=centers[0]))

    def identity(self) -> dict[str, Any]:
        """Lens, rate and the values of all weights, so that a network in memory and its file in half precision differ."""
        digest = hashlib.sha256()
        for name, value in sorted(self.network.state_dict().items()):
            array = value.detach().cpu().contiguous().numpy()
            digest.update(f"{name} {array.dtype.str} {list(array.shape)} ".encode() + array.tobytes())
        options = {"camera": self.camera, "fps": self.fps}
        return identity_of(self.name, options, packages=["torch"], weights_sha256=digest.hexdigest())

    def save(self, path: str | Path) -> None:
        """Write weights in half precision, with lens, rate and training summary in the metadata."""
        config = {
            "camera": self.camera,
            "fps": self.fps,
            "height": self.network.height,
            "width": self.network.width,
            "summary": self.summary,
        }
        tensors = {
            name: value.detach().half().contiguous() for name, value in self.network.state_dict().items()
        }
        with atomic_path(path) as temporary:
            save_file(tensors, str(temporary), metadata={"format": _FORMAT, "config": json.dumps(config)})

    @classmethod
    def load(cls, path: str | Path) -> "NetworkEstimator":
        """Read what `save` wrote.

        Raises:
            CheckpointMismatch: if the file is missing or something else, or lacks part of what `save` writes.
        """
        try:
            with safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise CheckpointMismatch(
                        f"{path} is not a motion network: its format is {metadata.get('format')!r}, "
                        f"expected {_FORMAT!r}."
                    )
                tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointMismatch(
                f"{path} is not there, damaged or no motion network: {error}."
            ) from error
        try:
            config = json.loads(metadata["config"])
            camera, fps, summary = config["camera"], float(config["fps"]), config["summary"]
            network = MotionNetwork(height=config["height"], width=config["width"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointMismatch(
                f"{path} does not say what its motion network was trained for: its metadata must hold 'config', JSON "
                f"with camera, fps, height, width and summary ({type(error).__name__}: {error}). "
                "Write it with NetworkEstimator.save."
            ) from error
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            raise CheckpointMismatch(
                f"{path} is of another version of the motion network: {error}"
            ) from error
        return cls(network, camera=camera, fps=fps, summary=summary)
