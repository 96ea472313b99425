"""COLMAP's global mapper on a clip with a known lens: poses up to scale, without any learned weights."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from merope.cameras import CameraModel, KannalaBrandt, OpenCV, Pinhole, UnifiedCamera
from merope.errors import MissingDependency
from merope.evaluation.estimators.base import Recovered, RecoveryFailed, fill_unregistered, identity_of
from merope.geometry.poses import Poses

Matching = Literal["exhaustive", "sequential"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmapEstimator:
    """SIFT, matching and global structure from motion (GLOMAP), as pycolmap has them.

    Intrinsics stay fixed to the given lens; no mask, no depth and no earlier pose is used. The scale is free.
    Frames should be at least about 200 pixels high and show texture and parallax: a camera that stands or only
    turns has no path to recover, and the estimator says so rather than inventing one.
    """

    min_registered: float = 0.5
    """Share of frames that must be registered, else the clip counts as failed."""
    matching: Matching = "exhaustive"
    """All pairs of frames, or each with its next `overlap`; all pairs for clips of up to about 60 frames."""
    overlap: int = 10
    """Neighbours of a frame under sequential matching."""
    max_features: int = 4096
    """SIFT features a frame."""
    num_threads: int = 1
    """Threads; more than one makes results differ in the last digits from run to run."""
    seed: int = 0
    """Seed of RANSAC and of the mapper's random initial positions."""
    name: str = "colmap"

    def __post_init__(self) -> None:
        if not 0 < self.min_registered <= 1:
            raise ValueError(f"min_registered must lie in (0, 1], got {self.min_registered}.")

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, up to one scale.

        Frames that were not registered are filled: interpolated between their registered neighbours, the nearest
        pose held at the ends.

        Raises:
            MissingDependency: if pycolmap is not installed.
            ValueError: if COLMAP has no such lens, or the frames are not of the camera's size.
            RecoveryFailed: if fewer than two frames, or less than ``min_registered`` of them, could be registered.
        """
        pycolmap = _import_pycolmap()
        if frames.shape[1:3] != (camera.height, camera.width):
            raise ValueError(
                f"frames must have the camera's size, {camera.height} x {camera.width} (height x width), got "
                f"{frames.shape[1]} x {frames.shape[2]}. Resize the camera with camera.resize(height=, width=)."
            )
        model, parameters = colmap_camera(camera)
        with tempfile.TemporaryDirectory(prefix="merope-colmap-") as folder:
            reconstruction = self._reconstruct(pycolmap, Path(folder), frames, model, parameters)
            found = _registered_poses(reconstruction) if reconstruction is not None else {}
        if len(found) < max(2, self.min_registered * len(frames)):
            raise RecoveryFailed(
                f"COLMAP registered {len(found)} of {len(frames)} frames ({self.min_registered:.0%} are needed). "
                "A camera that stands or only turns cannot be recovered; small or blurred frames have too few features."
            )
        ids = sorted(found)
        matrices = torch.from_numpy(np.stack([found[frame] for frame in ids]))
        registered = torch.zeros(len(frames), dtype=torch.bool)
        registered[ids] = True
        assert reconstruction is not None
        return Recovered(
            poses=fill_unregistered(Poses.from_matrices(matrices, unit="unknown"), ids, len(frames)),
            registered=registered,
            scale="up_to_scale",
            fill="none needed" if bool(registered.all()) else "interpolated, nearest pose held at the ends",
            notes=(
                f"pycolmap {pycolmap.__version__} global mapping, {model}, intrinsics fixed",
                f"{reconstruction.num_points3D()} points, "
                f"mean reprojection error {reconstruction.compute_mean_reprojection_error():.2f} px",
            ),
        )

    def identity(self) -> dict[str, Any]:
        """Every option, and the version of pycolmap."""
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        return identity_of(self.name, options, packages=["pycolmap"])

    def _reconstruct(
        self, pycolmap: Any, folder: Path, frames: np.ndarray, model: str, parameters: list[float]
    ) -> Any:
        """The largest model that the global mapper finds, or None."""
        images, database = folder / "images", folder / "database.db"
        images.mkdir()
        for index, frame in enumerate(frames):
            Image.fromarray(frame).save(images / _image_name(index), compress_level=1)
        pycolmap.set_random_seed(self.seed)
        # COLMAP reports its progress to stderr; what matters is in the result.
        level, pycolmap.logging.minloglevel = pycolmap.logging.minloglevel, pycolmap.logging.FATAL.value
        try:
            reader = pycolmap.ImageReaderOptions(
                camera_model=model, camera_params=", ".join(map(repr, parameters))
            )
            extraction = pycolmap.FeatureExtractionOptions(num_threads=self.num_threads, use_gpu=False)
            extraction.sift.max_num_features = self.max_features
            pycolmap.extract_features(
                database,
                images,
                camera_mode=pycolmap.CameraMode.SINGLE,
                reader_options=reader,
                extraction_options=extraction,
                device=pycolmap.Device.cpu,
            )
            matching = pycolmap.FeatureMatchingOptions(num_threads=self.num_threads, use_gpu=False)
            verification = pycolmap.TwoViewGeometryOptions()
            verification.ransac.random_seed = self.seed
            shared = {
                "matching_options": matching,
                "verification_options": verification,
                "device": pycolmap.Device.cpu,
            }
            if self.matching == "sequential":
                pairing = pycolmap.SequentialPairingOptions(overlap=self.overlap)
                pycolmap.match_sequential(database, pairing_options=pairing, **shared)
            else:
                pycolmap.match_exhaustive(database, **shared)
            models = pycolmap.global_mapping(
                database, images, folder / "model", self._mapper_options(pycolmap)
            )
        finally:
            pycolmap.logging.minloglevel = level
        return max(models.values(), key=lambda found: found.num_reg_images(), default=None)

    def _mapper_options(self, pycolmap: Any) -> Any:
        options = pycolmap.GlobalPipelineOptions(num_threads=self.num_threads, random_seed=self.seed)
        adjustment = options.mapper.bundle_adjustment
        adjustment.refine_focal_length = False
        adjustment.refine_principal_point = False
        adjustment.refine_extra_params = False
        adjustment.ceres.use_gpu = False
        options.mapper.global_positioning.use_gpu = False
        return options


def colmap_camera(camera: CameraModel) -> tuple[str, list[float]]:
    """COLMAP's name and parameters of a lens, its principal point counted from the raster's corner.

    The unified camera is COLMAP's EUCM with beta 1: alpha = xi / (1 + xi), focal lengths over 1 + xi.

    Raises:
        ValueError: if COLMAP has no such lens, or the parameters differ by view.
    """
    if camera.view_shape not in ((), (1,)):
        raise ValueError(
            f"COLMAP takes one lens for all frames; this one has views {list(camera.view_shape)}."
        )

    def numbers(*names: str) -> list[float]:
        return [float(getattr(camera, name)) for name in names]

    shift = 0.5 if camera.pixel_origin == "center" else 0.0
    fx, fy, cx, cy = numbers("fx", "fy", "cx", "cy")
    affine = [fx, fy, cx + shift, cy + shift]
    known: dict[type[CameraModel], Callable[[], tuple[str, list[float]]]] = {
        Pinhole: lambda: ("PINHOLE", affine),
        OpenCV: lambda: ("FULL_OPENCV", affine + numbers("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")),
        KannalaBrandt: lambda: ("OPENCV_FISHEYE", affine + numbers("k1", "k2", "k3", "k4")),
    }
    if isinstance(camera, UnifiedCamera):
        (xi,) = numbers("xi")
        return "EUCM", [affine[0] / (1 + xi), affine[1] / (1 + xi), *affine[2:], xi / (1 + xi), 1.0]
    if type(camera) not in known:
        raise ValueError(
            f"COLMAP recovery takes Pinhole, OpenCV, KannalaBrandt or UnifiedCamera lenses, got "
            f"{type(camera).__name__}. Resample the frames into one of these first."
        )
    return known[type(camera)]()


def _registered_poses(reconstruction: Any) -> dict[int, np.ndarray]:
    """Camera-to-world matrices [3, 4] by frame number, by the closed-form inverse."""
    found = {}
    for image_id in reconstruction.reg_image_ids():
        image = reconstruction.image(image_id)
        matrix = np.asarray(image.cam_from_world().matrix(), dtype=np.float64)
        rotation = matrix[:, :3].T
        found[_frame_number(image.name)] = np.concatenate([rotation, -rotation @ matrix[:, 3:]], axis=1)
    return found


def _image_name(index: int) -> str:
    return f"{index:06d}.png"


def _frame_number(name: str) -> int:
    return int(name.split(".")[0])


def _import_pycolmap() -> Any:
    try:
        import pycolmap
    except ImportError:
        raise MissingDependency.for_extra("pycolmap", extra="eval", purpose="COLMAP pose recovery") from None
    return pycolmap
