"""COLMAP on a clip, through any lens: poses up to scale, without any learned weights."""

import tempfile
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from PIL import Image

from merope.cameras import CameraModel
from merope.cameras.resampling import resample_frames
from merope.evaluation.estimators.base import (
    Recovered,
    RecoveryFailed,
    fill_unregistered,
    identity_of,
    sha256_of_path,
)
from merope.evaluation.estimators.checks import check_frames, check_options
from merope.evaluation.estimators.colmap.lens import colmap_camera, lens_for_colmap
from merope.evaluation.estimators.colmap.pipeline import (
    Mapper,
    Mapping,
    Matching,
    Workspace,
    import_pycolmap,
    registered_poses,
)
from merope.geometry.poses import Poses

Masks = Bool[np.ndarray, "time height width"]

# Rays within this of the image plane have slopes that a perspective camera model cannot hold (cosine of 88 degrees).
_LEAST_COSINE = 0.035


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmapEstimator:
    """SIFT, matching and structure from motion, as pycolmap has them; global (GLOMAP) unless the mapper says otherwise.

    A lens that COLMAP has is handed over exactly, frames of any other are resampled into one that it has, and the notes say
    so. No depth and no earlier pose is used. The scale is free. Pixels without a ray, or with one that is not in front of
    the image plane, are left out unless the frames are whole panoramas.
    Frames should be at least about 200 pixels high and show texture and parallax: a camera that stands or only
    turns has no path to recover, and the estimator says so rather than inventing one.
    """

    intrinsics: Literal["known", "estimate"] = "known"
    """known: the given lens is fixed. estimate: its focal length is the start of a search; the notes say what was found."""
    mapper: Mapper = "global"
    """All frames at once, or one after another; see docs/estimators.md for how they compare."""
    min_registered: float = 0.5
    """Share of frames that must be registered, else the clip counts as failed."""
    min_points: int = 15
    """Triangulated points that a frame must see, else its pose does not count: without parallax there are next to none."""
    matching: Matching = "exhaustive"
    """All pairs of frames, or each with its next `overlap`; all pairs for clips of up to about 60 frames."""
    overlap: int = 10
    """Neighbours of a frame under sequential matching."""
    max_features: int = 4096
    """SIFT features a frame."""
    guided_matching: bool = False
    """Whether verified pairs are matched once more along their epipolar lines."""
    moving_masks: Path | Masks | None = field(default=None, compare=False)
    """What moves by itself and is left out: True in an array, or not black in a folder of pictures, one a frame by name."""
    num_threads: int = 1
    """Threads; more than one makes results differ in the last digits from run to run."""
    seed: int = 0
    """Seed of RANSAC and of the mapper's random initial positions."""
    name: str = "colmap"

    def __post_init__(self) -> None:
        # What COLMAP itself refuses it refuses in a thread of its own, which ends the whole process.
        check_options(self, min_points=0, overlap=1, max_features=1, num_threads=1)

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, up to one scale.

        Frames that were not registered are filled: interpolated between their registered neighbours, the nearest
        pose held at the ends. Where the frames fall into models that share no points, the one with most frames counts.

        Raises:
            MissingDependency: if pycolmap is not installed.
            ValueError: if the frames are not bytes, they or the masks are not of the camera's size, or the lens differs
                by view.
            RecoveryFailed: if fewer than two frames, or less than ``min_registered`` of them, could be registered.
        """
        pycolmap = import_pycolmap()
        check_frames(frames, camera)
        moving, own = self._moving(frames), lens_for_colmap(camera)
        model, params = colmap_camera(own)
        notes = [
            f"pycolmap {pycolmap.__version__} {self.mapper} mapping, {model}, intrinsics {self.intrinsics}"
        ]
        if own is not camera:
            frames, moving = _through(frames, moving, camera, own)
            notes.append(
                f"COLMAP has no {type(camera).__name__} like this one: frames resampled into {own.model} of the same size"
            )
        if moving is not None:
            notes.append(
                f"{float(moving.mean()):.0%} of all pixels left out: moving, or not seen by the lens"
            )
        mapping = Mapping(
            model=model,
            params=params,
            refine_focal=self.intrinsics == "estimate",
            matching=self.matching,
            overlap=self.overlap,
            max_features=self.max_features,
            guided_matching=self.guided_matching,
            num_threads=self.num_threads,
            seed=self.seed,
        )
        with tempfile.TemporaryDirectory(prefix="merope-colmap-") as folder:
            workspace = Workspace(Path(folder), frames, _kept(own, moving, len(frames)), mapping)
            with workspace.quiet():
                workspace.prepare()
                models = workspace.models(self.mapper)
                found = [registered_poses(model, min_points=self.min_points) for model in models]
                best = found[0] if found else {}
                if len(best) < max(2, self.min_registered * len(frames)):
                    raise RecoveryFailed(self._failure(len(frames), best, models, workspace.reason()))
        ids = sorted(best)
        registered = torch.zeros(len(frames), dtype=torch.bool)
        registered[ids] = True
        error_px = models[0].compute_mean_reprojection_error()
        notes.append(f"{models[0].num_points3D()} points, mean reprojection error {error_px:.2f} px")
        if self.intrinsics == "estimate":
            notes.append(_found_focal(models[0], params))
        if len(ids) < len(frames):
            notes.append(f"no pose for frames {ranges(set(range(len(frames))) - set(ids))}")
        for other in found[1:]:
            notes.append(f"a part that shares no points with the rest was dropped: frames {ranges(other)}")
        matrices = torch.from_numpy(np.stack([best[frame] for frame in ids]))
        return Recovered(
            poses=fill_unregistered(Poses.from_matrices(matrices, unit="unknown"), ids, len(frames)),
            registered=registered,
            scale="up_to_scale",
            fill="none needed" if bool(registered.all()) else "interpolated, nearest pose held at the ends",
            notes=tuple(notes),
        )

    def identity(self) -> dict[str, Any]:
        """Every option, the contents of masks, and the version of pycolmap."""
        options = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "name"}
        if isinstance(self.moving_masks, Path):
            options["moving_masks"] = {"sha256": sha256_of_path(_folder(self.moving_masks))}
        return identity_of(self.name, options, packages=["pycolmap"])

    def _failure(self, num_frames: int, best: dict[int, Any], models: list[Any], seen: str) -> str:
        text = f"COLMAP registered {len(best)} of {num_frames} frames ({self.min_registered:.0%} are needed)"
        text += f": {ranges(best)}. " if best else ". "
        if models and models[0].num_reg_images() > len(best):
            text += (
                f"It placed {models[0].num_reg_images()}, on {models[0].num_points3D()} points with parallax in all; a "
                f"frame counts from {self.min_points} of them on. "
            )
        return (
            f"{text}{seen} A camera that stands or only turns cannot be recovered; small or blurred frames have too few "
            "features."
        )

    def _moving(self, frames: np.ndarray) -> Masks | None:
        """The masks as an array of the frames' size."""
        masks = self.moving_masks
        if isinstance(masks, Path):
            files = sorted(
                file for file in _folder(masks).iterdir() if file.suffix.lower() in (".png", ".jpg", ".bmp")
            )
            if not files:
                raise ValueError(f"moving_masks must be a folder of pictures, one a frame; {masks} has none.")
            pictures = [_is_moving(file) for file in files]
            sizes = {picture.shape for picture in pictures}
            if len(sizes) > 1:
                raise ValueError(
                    f"moving_masks must be pictures of one size, those of {masks} have {sorted(sizes)}."
                )
            masks = np.stack(pictures)
        if masks is not None and masks.dtype != np.bool_:
            raise ValueError(
                f"moving_masks must be True where something moves, got an array of {masks.dtype}."
            )
        if masks is not None and masks.shape != frames.shape[:3]:
            raise ValueError(
                f"moving_masks must have the frames' shape {list(frames.shape[:3])} (time, height, width), got "
                f"{list(masks.shape)}."
            )
        return masks


def ranges(frames: Any) -> str:
    """Frame numbers in words: "0-4, 7, 9-12"."""
    ids, parts, start = sorted(frames), [], 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or ids[end] != ids[end - 1] + 1:
            first, last = ids[start], ids[end - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = end
    return ", ".join(parts)


def _folder(masks: Path) -> Path:
    if not masks.is_dir():
        raise ValueError(f"moving_masks must be a folder of pictures, one a frame; there is none at {masks}.")
    return masks


def _is_moving(file: Path) -> np.ndarray:
    try:
        return np.asarray(Image.open(file).convert("L")) > 0
    except OSError as error:
        raise ValueError(f"moving_masks must be pictures; {file} is none.") from error


def _through(
    frames: np.ndarray, moving: Masks | None, camera: CameraModel, own: CameraModel
) -> tuple[np.ndarray, Masks | None]:
    """Frames and masks as ``own`` would have seen them; what it sees and ``camera`` does not counts as moving."""
    resampled, covered = resample_frames(frames, camera, own)
    uncovered = np.broadcast_to(~covered, resampled.shape[:3])
    if moving is None:
        return resampled, None if bool(covered.all()) else uncovered
    levels = np.repeat(np.where(moving, 255, 0).astype(np.uint8)[..., None], 3, axis=-1)
    # Anything of a moving thing in a pixel spoils it.
    return resampled, (resample_frames(levels, camera, own)[0][..., 0] > 0) | uncovered


def _kept(camera: CameraModel, moving: Masks | None, num_frames: int) -> Masks | None:
    """Pixels in which features are looked for, None for all."""
    dirs_cam, valid = camera.pixel_rays()
    seen = valid.reshape(camera.height, camera.width).numpy()
    if camera.model != "equirectangular":
        seen = seen & (dirs_cam[..., 2] > _LEAST_COSINE).reshape(seen.shape).numpy()
    if moving is None and bool(seen.all()):
        return None
    still = np.ones((num_frames, *seen.shape), dtype=bool) if moving is None else ~moving
    return still & seen


def _found_focal(model: Any, params: list[float]) -> str:
    (camera,) = model.cameras.values()
    now = [float(camera.params[index]) for index in camera.focal_length_idxs()]
    before = [params[index] for index in camera.focal_length_idxs()]
    return (
        f"focal length {' and '.join(f'{value:.1f}' for value in now)} px found, "
        f"from {' and '.join(f'{value:.1f}' for value in before)} px"
    )
