"""What two views of a still scene say about each other: rotation, direction of motion, and which matches obey.

Everything is on unit rays, so that any lens serves. A residual is an angle over the angle that a pixel spans at the
place of the observation: it reads as pixels in the middle of a pinhole and stays meaningful at the rim of a fisheye.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras import CameraModel
from merope.errors import MissingDependency
from merope.geometry.rotations import hat, project_to_so3

# Rays further than this from the axis stay out of the robust solvers, which work in the image plane of a pinhole; they
# are judged and refined like all others afterwards.
_MIN_AXIAL = 0.26
_SAMPLING = {"min_iterations": 150, "max_iterations": 3000, "success_prob": 0.9999}


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySet:
    """Where a camera looked: unit rays in its frame, and the angle that one pixel spans at each, radians."""

    dirs_cam: Float[Tensor, "point 3"]
    angle_per_px: Float[Tensor, "point"]

    def __getitem__(self, rows: Tensor) -> "RaySet":
        return RaySet(dirs_cam=self.dirs_cam[rows], angle_per_px=self.angle_per_px[rows])

    def __len__(self) -> int:
        return len(self.dirs_cam)


def rays_of_pixels(
    camera: CameraModel, pixels: Float[Tensor, "point 2"]
) -> tuple[RaySet, Bool[Tensor, "point"]]:
    """Rays of ``pixels`` and which of them have one.

    The angle of a pixel is the root of the area that its half-pixel cross spans on the sphere.
    """
    steps = torch.tensor([[0.5, 0.0], [-0.5, 0.0], [0.0, 0.5], [0.0, -0.5]], dtype=torch.float64)
    dirs_cam, valid = camera.unproject(pixels)
    around, seen = camera.unproject(pixels[:, None] + steps)
    across, down = around[:, 0] - around[:, 1], around[:, 2] - around[:, 3]
    angle = torch.linalg.cross(across, down).norm(dim=-1).sqrt()
    usable = valid & seen.all(-1) & (angle > 1e-9)
    return RaySet(dirs_cam=dirs_cam, angle_per_px=torch.where(usable, angle, 1.0)), usable


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoView:
    """The second camera in the frame of the first, up to the distance between them."""

    R_first_second: Float[Tensor, "3 3"]
    direction_first: Float[Tensor, "3"]
    """Unit vector from the first centre to the second, in the first camera's frame."""
    inliers: Bool[Tensor, "match"]
    parallax_px: float
    """Median of what the best rotation alone leaves unexplained of the inliers, pixels: noise where there was no motion."""


def relative_pose(first: RaySet, second: RaySet, *, threshold_px: float, seed: int = 0) -> TwoView | None:
    """Robust relative pose of matched rays, or None with fewer than eight that agree on one.

    The five-point solver in a locally optimised RANSAC (poselib) sees the rays in front of both cameras as points of
    a pinhole whose pixel spans the median angle. Inliers are all rays within ``threshold_px`` by the first-order
    (Sampson) error on the sphere that meet in front of both cameras.

    Where the camera only turned the direction is arbitrary and ``parallax_px`` small: take `turn_between` then.
    """
    poselib = import_poselib()
    front = (first.dirs_cam[:, 2] > _MIN_AXIAL) & (second.dirs_cam[:, 2] > _MIN_AXIAL)
    if int(front.sum()) < 8:
        return None
    camera = _virtual_pinhole(first, second)
    points = [_virtual_pixels(rays[front], camera) for rays in (first, second)]
    pose, _ = poselib.estimate_relative_pose(
        *points,
        camera,
        camera,
        {"max_epipolar_error": threshold_px, "seed": seed, **_SAMPLING},
        {"loss_type": "CAUCHY", "loss_scale": threshold_px / 2},
    )
    R_second_first = project_to_so3(torch.from_numpy(np.array(pose.R)))
    center_first = -(R_second_first.mT @ torch.from_numpy(np.array(pose.t)))
    if not float(center_first.norm()) > 0:
        return None
    R_first_second, direction = R_second_first.mT, center_first / center_first.norm()
    errors = epipolar_errors_px(first, second, R_first_second, direction)
    inliers = (errors < threshold_px) & _meet_in_front(first, second, R_first_second, direction)
    if int(inliers.sum()) < 8:
        return None
    _, left = turn_between(first[inliers], second[inliers])
    return TwoView(
        R_first_second=R_first_second,
        direction_first=direction,
        inliers=inliers,
        parallax_px=float(left.median()),
    )


def turn_between(first: RaySet, second: RaySet) -> tuple[Float[Tensor, "3 3"], Float[Tensor, "match"]]:
    """R_first_second that best explains matched rays without any motion, and each one's residual in pixels.

    Weighted orthogonal Procrustes with Cauchy weights of one pixel, reweighted until far points rule.
    """
    weights = torch.ones(len(first), dtype=torch.float64)
    rotation, left = torch.eye(3, dtype=torch.float64), torch.zeros(len(first), dtype=torch.float64)
    for _ in range(15):
        rotation = project_to_so3(torch.einsum("n,ni,nj->ij", weights, first.dirs_cam, second.dirs_cam))
        gap = (second.dirs_cam @ rotation.mT - first.dirs_cam).norm(dim=-1)
        left = gap / first.angle_per_px
        weights = 1 / (1 + left**2)
    return rotation, left


def epipolar_errors_px(
    first: RaySet, second: RaySet, R_first_second: Float[Tensor, "3 3"], direction_first: Float[Tensor, "3"]
) -> Float[Tensor, "match"]:
    """First-order distance of matched rays from the epipolar condition r1 . (d x R r2) = 0, in pixels."""
    essential = hat(direction_first) @ R_first_second
    normal_first = second.dirs_cam @ essential.mT
    normal_second = first.dirs_cam @ essential
    algebraic = (first.dirs_cam * normal_first).sum(-1).abs()
    slope = (
        normal_first.square().sum(-1) * first.angle_per_px**2
        + normal_second.square().sum(-1) * second.angle_per_px**2
    ).sqrt()
    return algebraic / slope.clamp_min(1e-15)


def resect(
    points_world: Float[Tensor, "point 3"], rays: RaySet, *, threshold_px: float, seed: int = 0
) -> tuple[Float[Tensor, "3 3"], Float[Tensor, "3"], Bool[Tensor, "point"]] | None:
    """R_world_cam, the centre and the inliers of a camera that sees known points along ``rays``; None where none fits.

    The three-point solver in a locally optimised RANSAC (poselib), on the rays in front.
    """
    poselib = import_poselib()
    front = rays.dirs_cam[:, 2] > _MIN_AXIAL
    if int(front.sum()) < 6:
        return None
    camera = _virtual_pinhole(rays, rays)
    pose, found = poselib.estimate_absolute_pose(
        _virtual_pixels(rays[front], camera),
        points_world[front].numpy(),
        camera,
        {"max_reproj_error": threshold_px, "seed": seed, **_SAMPLING},
        {"loss_type": "CAUCHY", "loss_scale": threshold_px / 2},
    )
    if found["num_inliers"] < 6:
        return None
    R_world_cam = project_to_so3(torch.from_numpy(np.array(pose.R))).mT
    center = -(R_world_cam @ torch.from_numpy(np.array(pose.t)))
    away = points_world - center
    gap = (away / away.norm(dim=-1, keepdim=True).clamp_min(1e-12)) @ R_world_cam - rays.dirs_cam
    return R_world_cam, center, gap.norm(dim=-1) / rays.angle_per_px < threshold_px


def _meet_in_front(
    first: RaySet, second: RaySet, R_first_second: Tensor, direction_first: Tensor
) -> Bool[Tensor, "match"]:
    """Whether the nearest points of two rays lie ahead on both; rays parallel within a pixel count as meeting far away."""
    a, b = first.dirs_cam, second.dirs_cam @ R_first_second.mT
    cosine, on_a, on_b = (a * b).sum(-1), a @ direction_first, b @ direction_first
    ahead = (on_a - cosine * on_b > 0) & (cosine * on_a - on_b > 0)
    far = (a - b).norm(dim=-1) < first.angle_per_px + second.angle_per_px
    return ahead | far


def _virtual_pinhole(first: RaySet, second: RaySet) -> dict[str, Any]:
    focal_px = float(1 / torch.cat([first.angle_per_px, second.angle_per_px]).median())
    return {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [focal_px, 0.0, 0.0]}


def _virtual_pixels(rays: RaySet, camera: dict[str, Any]) -> np.ndarray:
    return (camera["params"][0] * rays.dirs_cam[:, :2] / rays.dirs_cam[:, 2:]).numpy()


def import_poselib() -> Any:
    """The package poselib.

    Raises:
        MissingDependency: if it is not installed.
    """
    try:
        import poselib
    except ImportError:
        raise MissingDependency.for_extra("poselib", extra="eval", purpose="Two-view pose recovery") from None
    return poselib
