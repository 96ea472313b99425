"""What feed-forward models mean by a camera, turned into ours: the one place that knows their conventions.

VGGT and VGGT-Omega give nine numbers a frame ("absT_quaR_FoV": translation, quaternion, vertical and horizontal field
of view), Depth Anything 3 gives matrices. Both are camera-from-world in OpenCV axes, so x_cam = R x_world + t, while
`Poses` hold camera-to-world. Both take the principal point for the middle of the image they were shown, whose corner is
the origin of their pixels.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras import Pinhole
from merope.evaluation.estimators.base import RecoveryFailed
from merope.geometry.poses import Poses
from merope.geometry.rotations import quaternion_to_matrix

# Relative disagreement between a model's field of view and the lens's from which on it is worth a note.
FOV_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCameras:
    """What a model said about each frame of one pass."""

    poses: Poses
    fov_x: Float[Tensor, "time"]
    """Horizontal field of view of the image it was shown, radians."""
    fov_y: Float[Tensor, "time"]
    """Vertical field of view of the image it was shown, radians."""
    is_metric: bool = False
    """The model says that centres are metres."""


def cameras_of_encoding(encoding: Float[Tensor, "time 9"]) -> ModelCameras:
    """Cameras out of pose encodings: t (3), quaternion x y z w (4), vertical and horizontal field of view (2).

    The quaternion need not have unit length, as the models do not normalise it.

    Raises:
        ValueError: if there are not nine numbers a frame.
        RecoveryFailed: if a number is not finite, or a quaternion is zero.
    """
    if encoding.ndim != 2 or encoding.shape[-1] != 9:
        raise ValueError(
            f"encoding must have shape [T, 9] (translation, quaternion, two fields of view); got {list(encoding.shape)}."
        )
    values = encoding.detach().cpu().double()
    _require_finite(values)
    quaternions = values[:, 3:7]
    if bool((quaternions.norm(dim=-1) < 1e-6).any()):
        raise RecoveryFailed("the model gave a quaternion of length zero. Are these its own weights?")
    extrinsics = torch.cat([quaternion_to_matrix(quaternions), values[:, :3, None]], dim=-1)
    return ModelCameras(poses=_poses(extrinsics), fov_y=values[:, 7], fov_x=values[:, 8])


def cameras_of_matrices(
    T_cam_world: Float[Tensor, "time rows 4"],
    intrinsics: Float[Tensor, "time 3 3"],
    *,
    height: int,
    width: int,
    is_metric: bool = False,
) -> ModelCameras:
    """Cameras out of camera-from-world matrices [T, 3 or 4, 4] and calibration matrices for images of this size.

    Raises:
        RecoveryFailed: if a number is not finite, or a rotation is none.
    """
    extrinsics, calibration = T_cam_world.detach().cpu().double(), intrinsics.detach().cpu().double()
    _require_finite(extrinsics, calibration)
    return ModelCameras(
        poses=_poses(extrinsics),
        fov_x=2 * torch.atan(width / 2 / calibration[:, 0, 0]),
        fov_y=2 * torch.atan(height / 2 / calibration[:, 1, 1]),
        is_metric=is_metric,
    )


def fov_note(cameras: ModelCameras, camera: Pinhole) -> str | None:
    """How far the model's field of view is from that of the lens of the images it was shown; None within 5 %."""
    found = float(cameras.fov_x.median())
    true = 2 * math.atan(camera.width / 2 / float(camera.fx))
    off = found / true - 1
    if abs(off) <= FOV_TOLERANCE:
        return None
    return (
        f"the model sees a horizontal field of view of {math.degrees(found):.1f} degrees (median), the lens has "
        f"{math.degrees(true):.1f}: {abs(off):.0%} too {'wide' if off > 0 else 'narrow'}, so its rotations and directions "
        "are worth less"
    )


def _require_finite(*values: Tensor) -> None:
    if not all(bool(torch.isfinite(value).all()) for value in values):
        raise RecoveryFailed(
            "the model gave numbers that are not finite. In half precision that happens: try another device."
        )


def _poses(extrinsics: Tensor) -> Poses:
    try:
        # Models compute in float32 or less; the nearest rotation is taken.
        return Poses.from_world_to_camera(extrinsics, unit="unknown", tolerance=2e-2)
    except ValueError as error:
        raise RecoveryFailed(f"the model's matrices are no poses: {error}") from error
