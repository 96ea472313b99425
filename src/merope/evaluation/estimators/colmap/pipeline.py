"""The calls of pycolmap behind `ColmapEstimator`: pictures into a folder, features, matches, models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from merope.errors import MissingDependency

Matching = Literal["exhaustive", "sequential"]
Mapper = Literal["global", "incremental"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """What the mappers get: one camera for all pictures, and the options that change what they find."""

    model: str
    params: list[float]
    refine_focal: bool
    matching: Matching
    overlap: int
    max_features: int
    guided_matching: bool
    num_threads: int
    seed: int


def import_pycolmap() -> Any:
    """The package, or an error that says how to install it."""
    try:
        import pycolmap
    except ImportError:
        raise MissingDependency.for_extra("pycolmap", extra="eval", purpose="COLMAP pose recovery") from None
    return pycolmap


class Workspace:
    """A folder with the pictures of a clip, their features and matches; `models` maps them, by either mapper."""

    def __init__(
        self,
        folder: Path,
        frames: UInt8[np.ndarray, "time height width 3"],
        masks: Bool[np.ndarray, "time height width"] | None,
        mapping: Mapping,
    ) -> None:
        self.pycolmap, self.mapping = import_pycolmap(), mapping
        self.folder, self.images, self.database = folder, folder / "images", folder / "database.db"
        self.images.mkdir()
        for index, frame in enumerate(frames):
            Image.fromarray(frame).save(self.images / image_name(index), compress_level=1)
        self.masks = None if masks is None else folder / "masks"
        if masks is not None and self.masks is not None:
            self.masks.mkdir()
            for index, mask in enumerate(masks):
                # COLMAP looks for the picture's name with another ".png" and skips features where the mask is black.
                kept = np.where(mask, 255, 0).astype(np.uint8)
                Image.fromarray(kept).save(self.masks / f"{image_name(index)}.png", compress_level=1)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """COLMAP reports its progress to stderr; what matters is in the result."""
        logging = self.pycolmap.logging
        level, logging.minloglevel = logging.minloglevel, logging.FATAL.value
        try:
            yield
        finally:
            logging.minloglevel = level

    def prepare(self) -> None:
        """Features of all pictures, and verified matches between pairs of them."""
        colmap, mapping = self.pycolmap, self.mapping
        colmap.set_random_seed(mapping.seed)
        reader = colmap.ImageReaderOptions(
            camera_model=mapping.model, camera_params=", ".join(map(repr, mapping.params))
        )
        if self.masks is not None:
            reader.mask_path = self.masks
        extraction = colmap.FeatureExtractionOptions(num_threads=mapping.num_threads, use_gpu=False)
        extraction.sift.max_num_features = mapping.max_features
        colmap.extract_features(
            self.database,
            self.images,
            camera_mode=colmap.CameraMode.SINGLE,
            reader_options=reader,
            extraction_options=extraction,
            device=colmap.Device.cpu,
        )
        matching = colmap.FeatureMatchingOptions(num_threads=mapping.num_threads, use_gpu=False)
        matching.guided_matching = mapping.guided_matching
        verification = colmap.TwoViewGeometryOptions()
        verification.ransac.random_seed = mapping.seed
        shared = {
            "matching_options": matching,
            "verification_options": verification,
            "device": colmap.Device.cpu,
        }
        if mapping.matching == "sequential":
            pairing = colmap.SequentialPairingOptions(overlap=mapping.overlap)
            colmap.match_sequential(self.database, pairing_options=pairing, **shared)
        else:
            colmap.match_exhaustive(self.database, **shared)

    def models(self, mapper: Mapper) -> list[Any]:
        """Connected models with at least two registered pictures, the one with most pictures first."""
        output = self.folder / mapper
        if mapper == "global":
            found = self.pycolmap.global_mapping(self.database, self.images, output, self._global_options())
        else:
            output.mkdir()
            options = self._incremental_options()
            found = self.pycolmap.incremental_mapping(self.database, self.images, output, options)
        models = [model for _, model in sorted(found.items()) if model.num_reg_images() >= 2]
        # Of models of one size the one with more points; sorting is stable beyond that.
        return sorted(models, key=lambda model: (-model.num_reg_images(), -model.num_points3D()))

    def reason(self) -> str:
        """What the features and matches say of a clip without a model, in sentences."""
        with self.pycolmap.Database.open(self.database) as database:
            features = [
                database.num_keypoints_for_image(image.image_id) for image in database.read_all_images()
            ]
            verified = database.num_verified_image_pairs()
        num_pairs = len(features) * (len(features) - 1) // 2
        return (
            f"Features a frame: {int(np.median(features))} in the median, {min(features)} at least; {verified} of "
            f"{num_pairs} pairs of frames have matches."
        )

    def _global_options(self) -> Any:
        mapping = self.mapping
        options = self.pycolmap.GlobalPipelineOptions(
            num_threads=mapping.num_threads, random_seed=mapping.seed
        )
        adjustment = options.mapper.bundle_adjustment
        adjustment.refine_focal_length = mapping.refine_focal
        adjustment.refine_principal_point = False
        adjustment.refine_extra_params = False
        adjustment.ceres.use_gpu = False
        options.mapper.global_positioning.use_gpu = False
        return options

    def _incremental_options(self) -> Any:
        mapping = self.mapping
        options = self.pycolmap.IncrementalPipelineOptions(
            num_threads=mapping.num_threads, random_seed=mapping.seed
        )
        options.min_model_size = 2
        options.extract_colors = False
        options.ba_refine_focal_length = mapping.refine_focal
        options.ba_refine_principal_point = False
        options.ba_refine_extra_params = False
        options.mapper.abs_pose_refine_focal_length = mapping.refine_focal
        options.mapper.abs_pose_refine_extra_params = False
        return options


def registered_poses(model: Any, *, min_points: int) -> dict[int, np.ndarray]:
    """Camera-to-world matrices [3, 4] by frame number, of frames that see at least ``min_points`` triangulated points."""
    found = {}
    for image_id in model.reg_image_ids():
        image = model.image(image_id)
        if image.num_points3D < min_points:
            continue
        matrix = np.asarray(image.cam_from_world().matrix(), dtype=np.float64)
        rotation = matrix[:, :3].T
        found[frame_number(image.name)] = np.concatenate([rotation, -rotation @ matrix[:, 3:]], axis=1)
    return found


def image_name(index: int) -> str:
    """The name under which COLMAP knows a frame."""
    return f"{index:06d}.png"


def frame_number(name: str) -> int:
    """The inverse of `image_name`."""
    return int(name.split(".")[0])
