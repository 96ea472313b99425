"""Bundle adjustment on unit rays: poses and points of a clip together, for any lens (`adjust`)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from merope.evaluation.estimators.features.two_view import RaySet
from merope.geometry.rotations import hat, project_to_so3, rotvec_to_matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """Cameras, points and who saw what: observation n is of point ``point_of[n]`` in view ``view_of[n]``."""

    R_world_cam: Float[Tensor, "view 3 3"]
    center_world: Float[Tensor, "view 3"]
    points_world: Float[Tensor, "point 3"]
    view_of: Int[Tensor, "obs"]
    point_of: Int[Tensor, "obs"]
    rays: RaySet

    def offsets_cam(self) -> Float[Tensor, "obs 3"]:
        """From each observation's camera to its point, in the camera's frame."""
        away = self.points_world[self.point_of] - self.center_world[self.view_of]
        return (self.R_world_cam[self.view_of].mT @ away[..., None]).squeeze(-1)

    def errors_px(self) -> Float[Tensor, "obs"]:
        """Angle between where a point is and where it was seen, in pixels."""
        offsets = self.offsets_cam()
        seen = offsets / offsets.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        return (seen - self.rays.dirs_cam).norm(dim=-1) / self.rays.angle_per_px


def triangulate(
    R_world_cam: Float[Tensor, "view 3 3"],
    center_world: Float[Tensor, "view 3"],
    view_of: Int[Tensor, "obs"],
    point_of: Int[Tensor, "obs"],
    dirs_cam: Float[Tensor, "obs 3"],
    num_points: int,
) -> tuple[Float[Tensor, "point 3"], Float[Tensor, "point"]]:
    """Points nearest to all their rays in the least-squares sense, and the widest angle between two rays of each.

    The normal equations are sum (I - r r^T) x = sum (I - r r^T) c. Rays that are parallel leave them singular: such a
    point has a widest angle near zero and must not be used.
    """
    dirs = (R_world_cam[view_of] @ dirs_cam[..., None]).squeeze(-1)
    across = torch.eye(3, dtype=torch.float64) - dirs[:, :, None] * dirs[:, None, :]
    left = torch.zeros(num_points, 3, 3, dtype=torch.float64).index_add(0, point_of, across)
    right = torch.zeros(num_points, 3, dtype=torch.float64).index_add(
        0, point_of, (across @ center_world[view_of][..., None]).squeeze(-1)
    )
    # A tiny pull keeps parallel rays solvable; real points have eigenvalues far above it.
    points = torch.linalg.solve(left + 1e-12 * torch.eye(3, dtype=torch.float64), right[..., None]).squeeze(
        -1
    )
    order = torch.argsort(point_of, stable=True)
    starts = torch.searchsorted(point_of[order], torch.arange(num_points))
    lone = dirs[order][starts.clamp_max(len(order) - 1)]
    cosine = (dirs * lone[point_of]).sum(-1)
    narrowest = torch.ones(num_points, dtype=torch.float64).scatter_reduce(0, point_of, cosine, "amin")
    return points, narrowest.clamp(-1, 1).arccos()


def adjust(
    structure: Structure, *, free: Bool[Tensor, "view"], scale_px: float = 1.0, num_steps: int = 20
) -> Structure:
    """Poses and points that make the Cauchy loss of all angular residuals smallest, by Levenberg-Marquardt.

    A residual is the part of a point's direction across the observed ray, two numbers in pixels. ``scale_px`` is
    where the loss starts to level off. Views that are not ``free`` keep their pose. Points are eliminated (Schur
    complement), so a step costs one dense system of six unknowns a view. The scale of the whole is free: it moves only
    as far as damping lets it, and means nothing.
    """
    across = _tangents(structure.rays.dirs_cam)
    damping, cost = 1e-4, _cost(structure, scale_px)
    for _ in range(num_steps):
        step = _step(structure, across, free, scale_px, damping)
        trial_cost = _cost(step, scale_px)
        if trial_cost < cost:
            gain, structure, cost = (cost - trial_cost) / cost, step, trial_cost
            damping = max(damping / 5, 1e-9)
            if gain < 1e-6:
                break
        else:
            damping *= 10
            if damping > 1e6:
                break
    return structure


def _cost(structure: Structure, scale_px: float) -> float:
    errors = structure.errors_px()
    return float(torch.log1p((errors / scale_px) ** 2).sum())


def _tangents(dirs: Float[Tensor, "obs 3"]) -> Float[Tensor, "obs 2 3"]:
    """Two unit vectors across each ray."""
    axis = torch.eye(3, dtype=torch.float64)[dirs.abs().argmin(-1)]
    first = torch.linalg.cross(dirs, axis)
    first = first / first.norm(dim=-1, keepdim=True)
    return torch.stack([first, torch.linalg.cross(dirs, first)], dim=1)


def _step(structure: Structure, across: Tensor, free: Tensor, scale_px: float, damping: float) -> Structure:
    num_views, num_points = len(structure.R_world_cam), len(structure.points_world)
    view_of, point_of = structure.view_of, structure.point_of
    offsets = structure.offsets_cam()
    length = offsets.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    seen = offsets / length
    identity = torch.eye(3, dtype=torch.float64)
    scaled = across / structure.rays.angle_per_px[:, None, None]
    onto_plane = scaled @ (identity - seen[:, :, None] * seen[:, None, :]) / length[..., None]
    residual = (scaled @ seen[..., None]).squeeze(-1)
    # The angle counts, not its projection: a point behind the camera has a small sideways part.
    errors = structure.errors_px()
    weight = 1 / (1 + (errors / scale_px) ** 2)
    # Rotation is perturbed on the camera's side: R exp(w), so an offset moves by its cross product with w.
    by_turn = onto_plane @ hat(offsets)
    by_point = onto_plane @ structure.R_world_cam[view_of].mT
    by_pose = torch.cat([by_turn, -by_point], dim=-1) * free[view_of][:, None, None]
    weighted = weight[:, None, None] * by_point
    points_block = torch.zeros(num_points, 3, 3, dtype=torch.float64).index_add(
        0, point_of, by_point.mT @ weighted
    )
    points_side = torch.zeros(num_points, 3, dtype=torch.float64).index_add(
        0, point_of, -(weighted.mT @ residual[..., None]).squeeze(-1)
    )
    pose_weighted = weight[:, None, None] * by_pose
    pose_block = torch.zeros(num_views, 6, 6, dtype=torch.float64).index_add(
        0, view_of, by_pose.mT @ pose_weighted
    )
    pose_side = torch.zeros(num_views, 6, dtype=torch.float64).index_add(
        0, view_of, -(pose_weighted.mT @ residual[..., None]).squeeze(-1)
    )
    _damp(points_block, damping)
    _damp(pose_block, damping)
    inverse = torch.linalg.inv(points_block)
    mixed = torch.zeros(num_points, num_views, 3, 6, dtype=torch.float64)
    mixed.index_put_((point_of, view_of), by_point.mT @ pose_weighted, accumulate=True)
    mixed = mixed.transpose(1, 2).reshape(num_points, 3, num_views * 6)
    eliminated = (inverse @ mixed).flatten(0, 1)
    reduced = torch.block_diag(*pose_block) - mixed.flatten(0, 1).mT @ eliminated
    side = pose_side.flatten() - eliminated.mT @ points_side.flatten()
    moves = torch.linalg.solve(reduced, side)
    point_moves = (inverse @ (points_side - mixed @ moves)[..., None]).squeeze(-1)
    moves = moves.reshape(num_views, 6)
    return Structure(
        R_world_cam=project_to_so3(structure.R_world_cam @ rotvec_to_matrix(moves[:, :3])),
        center_world=structure.center_world + moves[:, 3:],
        points_world=structure.points_world + point_moves,
        view_of=view_of,
        point_of=point_of,
        rays=structure.rays,
    )


def _damp(blocks: Tensor, damping: float) -> None:
    """Marquardt's damping in place; views that are held have zero blocks, which get the identity."""
    diagonal = blocks.diagonal(dim1=-2, dim2=-1)
    diagonal += damping * diagonal + torch.where(diagonal > 0, 1e-12, 1.0)
