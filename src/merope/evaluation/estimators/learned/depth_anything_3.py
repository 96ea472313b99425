"""Depth Anything 3 as a pose estimator: the package ``depth-anything-3`` with weights from a file or folder."""

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from merope.cameras import CameraModel
from merope.errors import CheckpointMismatch, MissingDependency
from merope.evaluation.estimators.base import Recovered, RecoveryFailed, identity_of
from merope.evaluation.estimators.checks import check_device
from merope.evaluation.estimators.learned.conventions import ModelCameras, cameras_of_matrices
from merope.evaluation.estimators.learned.frames import FramePlan
from merope.evaluation.estimators.learned.passes import check_pieces, recover
from merope.evaluation.estimators.weights import load_into, read_state, require_weights

# Of one image each: these give depth and no poses.
_WITHOUT_POSES = ("da3metric-large", "da3mono-large")
# Means and deviations of ImageNet's colours, by which the package normalises its input.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAnything3Estimator:
    """Depth Anything 3 (Lin et al., 2025), the any-view models; metric with the nested one, else up to scale.

    The nested model (``da3nested-giant-large``) scales its poses by a second network's metric depth and says so itself;
    ``da3-small``, ``da3-base``, ``da3-large`` and ``da3-giant`` are up to scale. The lens is not told to the model: its
    own field of view is compared with it and a disagreement noted.

    Weights of small and base are under Apache 2.0, those of large, giant and nested under CC BY-NC 4.0.
    """

    weights: Path | None = None
    """A file (.safetensors or PyTorch), or the folder of a checkpoint with model.safetensors and config.json."""
    device: str = "cpu"
    checkpoint: str | None = None
    """The package's name of the model, such as da3-large; None takes it from the folder's config.json."""
    resolution: int = 504
    """Longer side of the images shown to the model, pixels; a multiple of 14. It was trained at 504."""
    ray_poses: bool = False
    """Poses from the ray head, which the authors find more accurate and slower, and not from the camera head."""
    max_frames: int = 100
    """Frames of one pass; longer clips are seen in pieces."""
    overlap: int = 10
    """Frames that neighbouring pieces share at least."""
    name: str = "depth-anything-3"

    def __post_init__(self) -> None:
        check_pieces(self.max_frames, self.overlap)
        self._plan()
        if self.checkpoint in _WITHOUT_POSES:
            raise ValueError(
                f"checkpoint {self.checkpoint!r} gives depth of single images and no poses. Take da3-small, da3-base, "
                "da3-large, da3-giant or da3nested-giant-large."
            )

    def _plan(self) -> FramePlan:
        return FramePlan(patch=14, resolution=self.resolution, sizing="longest")

    def identity(self) -> dict[str, Any]:
        """Name, options, versions and the hash of the weights."""
        return identity_of(
            self.name,
            {key: value for key, value in asdict(self).items() if key not in ("name", "weights")},
            packages=("depth-anything-3", "torch"),
            weights=self._weights(),
        )

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame: in metres with the nested model, else up to one scale.

        Raises:
            MissingDependency: if depth-anything-3, or something that it imports, is not installed.
            ValueError: if there are no weights at the path, the checkpoint's name is unknown or missing, or the frames
                are not of the lens's size.
            CheckpointMismatch: if the weights are of another model.
            RecoveryFailed: if there is one frame only, the model's numbers are no poses, or memory does not suffice.
        """
        check_device(self.device)
        model, checkpoint = self._model()
        version = identity_of("", {}, packages=("depth-anything-3",))["versions"]["depth-anything-3"]
        return recover(
            frames,
            camera,
            self._plan(),
            lambda images: self._run(model, images),
            max_frames=self.max_frames,
            overlap=self.overlap,
            notes=(
                f"depth-anything-3 {version}, {checkpoint}, {'ray' if self.ray_poses else 'camera'} head",
            ),
        )

    def _run(self, model: Any, images: torch.Tensor) -> ModelCameras:
        mean, deviation = torch.tensor(_MEAN)[:, None, None], torch.tensor(_DEVIATION)[:, None, None]
        batch = ((images - mean) / deviation)[None].to(self.device)
        kind = torch.device(self.device).type
        # The package's own call takes float16 on a CPU; its network is called directly, in float32 there.
        with (
            _quiet(),
            torch.inference_mode(),
            torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"),
        ):
            try:
                output = model.model(batch, None, None, [], False, self.ray_poses, "saddle_balanced")
            except AssertionError as error:
                # The nested model asserts that it sees more than sky, from which it takes its metres.
                raise RecoveryFailed(f"Depth Anything 3 cannot use these frames: {error}.") from error
        # Models that are not metric have no such entry, and their dictionary answers an empty one for it.
        is_metric = output.get("is_metric", 0) == 1
        return cameras_of_matrices(
            output["extrinsics"][0].float(),
            output["intrinsics"][0].float(),
            height=images.shape[-2],
            width=images.shape[-1],
            is_metric=is_metric,
        )

    def _weights(self) -> Path:
        return require_weights(
            self.weights,
            estimator=self.name,
            where="the folder of a checkpoint, such as depth-anything/DA3-LARGE-1.1, with model.safetensors and config.json",
        )

    def _model(self) -> tuple[torch.nn.Module, str]:
        path = self._weights()
        with _quiet():
            try:
                from depth_anything_3.api import DepthAnything3
                from depth_anything_3.registry import MODEL_REGISTRY
            except ImportError as error:
                raise MissingDependency(
                    f"Depth Anything 3 pose recovery needs the package 'depth-anything-3' and what it imports; {error}. "
                    "Install it with: pip install depth-anything-3 (it needs torchvision)."
                ) from None
            checkpoint = self._checkpoint(path, sorted(MODEL_REGISTRY))
            model: torch.nn.Module = DepthAnything3(model_name=checkpoint)
        file = path / "model.safetensors" if path.is_dir() else path
        if not file.is_file():
            raise CheckpointMismatch(
                f"{path} has no model.safetensors. Pass the file itself, or a whole checkpoint's folder."
            )
        load_into(model, read_state(file), file)
        return model.to(self.device).eval(), checkpoint

    def _checkpoint(self, path: Path, known: list[str]) -> str:
        """The model's name: as given, or as a folder's config.json has it."""
        poses = [name for name in known if name not in _WITHOUT_POSES]
        name, config = self.checkpoint, path / "config.json"
        if name is None and config.is_file():
            try:
                name = json.loads(config.read_text(encoding="utf-8")).get("model_name")
            except (ValueError, AttributeError) as error:
                raise CheckpointMismatch(f"{config} is no checkpoint's configuration: {error}.") from error
        if name not in poses:
            found = (
                "none is given, and there is no config.json that says" if name is None else f"got {name!r}"
            )
            raise ValueError(
                f"checkpoint must be one of {', '.join(poses)}; {found}. Set it: --set checkpoint=da3-large."
            )
        return name


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Swallows what the package prints; only the command line talks here."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
