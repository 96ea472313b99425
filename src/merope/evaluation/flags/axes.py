"""What the paper's driving metrics cannot see, found and named: reversed motion and wrong camera axes.

Eq. 37 lets the scale be negative and Eq. 41 ignores the sign of a direction. A path driven backwards, or one
left in OpenGL camera axes on a straight road, therefore scores perfectly on rot, tr and AUC.
"""

from dataclasses import dataclass
from itertools import permutations, product

import torch
from jaxtyping import Float
from torch import Tensor

from merope.evaluation.metrics.paper import Aligned, cammc, geodesic_angle
from merope.geometry.poses import Poses
from merope.geometry.rotations import project_to_so3

# An alternative reading is suspected where the estimate is off by more than this per frame (of a CamMC term
# between 0 and about 3.5) and the reading takes away at least three quarters of the error.
_MIN_CAMMC_PER_FRAME = 0.1
_MAX_CAMMC_RATIO = 0.25
_MAX_SPREAD_DEG = 2.0
_MAX_OFF_AXIS_DEG = 10.0

_NAMED_AXES = {
    (1, 0, 0, 0, -1, 0, 0, 0, -1): "OpenGL camera axes (x right, y up, z back)",
    (-1, 0, 0, 0, -1, 0, 0, 0, 1): "a camera turned upside down (half turn about its z axis)",
    (-1, 0, 0, 0, 1, 0, 0, 0, -1): "a camera that looks backwards (half turn about its y axis)",
    (0, -1, 0, 0, 0, -1, 1, 0, 0): "vehicle axes (x forward, y left, z up)",
    (0, 1, 0, 0, 0, 1, 1, 0, 0): "vehicle axes (x forward, y right, z down)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AxesSuspicion:
    """A reading of the estimate that fits the command far better than the one given.

    ``cammc_as_given`` and ``cammc_as_read`` are the evidence. ``constant_turn_deg`` is how far R_gt^T R_est is
    from the suspected axes before any gauge, where it is the same turn in every frame (spread below 2 degrees);
    None where it is not, that is where the two trajectories use different world frames.
    """

    reading: str
    cammc_as_given: float
    cammc_as_read: float
    constant_turn_deg: float | None

    @property
    def text(self) -> str:
        """The suspicion in words, with the numbers it rests on."""
        words = (
            f"the estimate looks like {self.reading}: read so, CamMC falls from "
            f"{self.cammc_as_given:.3g} to {self.cammc_as_read:.3g}"
        )
        if self.constant_turn_deg is not None:
            return words + "; R_gt^T R_est is that same turn in every frame"
        return words + "; on a path without turns, motion in the opposite direction looks the same"


def suspect_axes(commanded: Poses, estimated: Poses) -> AxesSuspicion | None:
    """The reading of ``estimated`` that explains it far better than camera-to-world poses in OpenCV axes, if any.

    Tried are the 23 other right-handed axis conventions of the camera, world-to-camera matrices, and transposed
    rotations. Each is judged by CamMC, which sees orientation and signed motion at once.
    """
    aligned = Aligned.from_poses(commanded, estimated)
    given = cammc(aligned)
    if given < _MIN_CAMMC_PER_FRAME * len(aligned):
        return None
    turn = constant_turn(commanded, estimated)
    best: tuple[float, int, str, float | None] | None = None
    for rank, (reading, aligned_read, axes) in enumerate(_readings(aligned, commanded, estimated)):
        score = cammc(aligned_read)
        confirmed = None
        if axes is not None and turn is not None:
            off_axis_deg = float(torch.rad2deg(geodesic_angle(turn, axes)))
            confirmed = off_axis_deg if off_axis_deg < _MAX_OFF_AXIS_DEG else None
        # Several readings explain a straight path equally well: one that the raw rotations confirm goes
        # first, then the order of _readings, which starts with the common mistakes.
        key = (round(score, 6) + (0 if confirmed is not None else 1e-6), rank, reading, confirmed)
        if best is None or key[:2] < best[:2]:
            best = key
    assert best is not None
    score = max(best[0], 0.0)
    if score > _MAX_CAMMC_RATIO * given:
        return None
    return AxesSuspicion(
        reading=best[2], cammc_as_given=given, cammc_as_read=score, constant_turn_deg=best[3]
    )


def constant_turn(commanded: Poses, estimated: Poses) -> Float[Tensor, "3 3"] | None:
    """The rotation R_gt^T R_est where it is the same in every frame to 2 degrees, before any gauge; else None."""
    R_cam_estimated = commanded.R_world_cam.mT @ estimated.R_world_cam
    mean = project_to_so3(R_cam_estimated.mean(0))
    spread_deg = torch.rad2deg(geodesic_angle(mean.expand_as(R_cam_estimated), R_cam_estimated)).max()
    return mean if float(spread_deg) < _MAX_SPREAD_DEG else None


def _readings(
    aligned: Aligned, commanded: Poses, estimated: Poses
) -> list[tuple[str, Aligned, Tensor | None]]:
    readings: list[tuple[str, Aligned, Tensor | None]] = []
    for axes in _right_handed_axes():
        name = _NAMED_AXES.get(tuple(axes.flatten().long().tolist()))
        if name is None:
            rows = axes.long().tolist()
            name = f"other camera axes (x_opencv = {rows} x_estimate)"
        readings.append(
            (
                name,
                _with_estimate(aligned, axes @ aligned.R_hat_rel @ axes.T, aligned.center_hat_rel @ axes.T),
                axes,
            )
        )
    # Named conventions first: they are the mistakes people make.
    readings.sort(key=lambda reading: reading[0].startswith("other"))
    inverse = Poses(
        R_world_cam=estimated.R_world_cam.mT,
        center_world=-(estimated.R_world_cam.mT @ estimated.center_world[..., None]).squeeze(-1),
        unit=estimated.unit,
    )
    readings.append(
        ("world-to-camera matrices read as camera-to-world", Aligned.from_poses(commanded, inverse), None)
    )
    transposed = Poses(
        R_world_cam=estimated.R_world_cam.mT, center_world=estimated.center_world, unit=estimated.unit
    )
    readings.append(
        ("transposed rotations (row-vector matrices)", Aligned.from_poses(commanded, transposed), None)
    )
    return readings


def _with_estimate(aligned: Aligned, R_hat_rel: Tensor, center_hat_rel: Tensor) -> Aligned:
    return Aligned(
        R_rel=aligned.R_rel,
        center_rel=aligned.center_rel,
        R_hat_rel=R_hat_rel,
        center_hat_rel=center_hat_rel,
        vanishing=aligned.vanishing,
    )


def _right_handed_axes() -> list[Tensor]:
    """The 23 signed permutations of the axes with determinant 1, the identity left out."""
    named = [torch.tensor(flat, dtype=torch.float64).reshape(3, 3) for flat in _NAMED_AXES]
    identity = torch.eye(3, dtype=torch.float64)
    others: list[Tensor] = []
    for order in permutations(range(3)):
        for signs in product((1.0, -1.0), repeat=3):
            axes = identity[list(order)] * torch.tensor(signs, dtype=torch.float64)[:, None]
            known = [identity, *named, *others]
            if torch.det(axes) > 0 and not any(torch.equal(axes, other) for other in known):
                others.append(axes)
    return [*named, *others]
