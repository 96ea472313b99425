"""The geometry of one query token and one key token, as MeRoPE reads it (Figure 2), in the query camera's frame."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.cameras.scenes import matrices, pinhole_lens
from merope.encodings.ucpe import ray_frames
from merope.geometry.rotations import rotvec_to_matrix
from merope.geometry.sphere import epipolar_anchors, minrot

GRID = (3, 5)
"""Rows and columns of the two cameras' tokens."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairGeometry:
    """Everything that Figure 2 draws; vectors and points in the query camera's frame, metres, float64."""

    offset_query: Float[Tensor, "3"]
    """Centre of the key camera, Δo_{j|i} (Eq. 2)."""
    R_query_key: Float[Tensor, "3 3"]
    """Rotation from the key camera's frame, R_i^T R_j."""
    dir_query: Float[Tensor, "3"]
    """The query ray, d_{i,p}."""
    dir_key_query: Float[Tensor, "3"]
    """The key ray turned into the query frame: where its point is seen at infinite depth, u_inf."""
    frame_query: Float[Tensor, "3 3"]
    """A_{i,p}, columns x, y, z."""
    frame_key_query: Float[Tensor, "3 3"]
    """R_ij A_{j,q}, the key ray's frame turned into the query frame."""
    fractions: tuple[float, ...]
    """Places on the arc, rho."""
    anchors: Float[Tensor, "anchor 3"]
    """Directions u_beta (Eq. 9)."""
    anchor_frames: Float[Tensor, "anchor 3 3"]
    """A_{i,beta} of every anchor."""
    anchor_depths: Float[Tensor, " anchor"]
    """Distance from the key camera, along the key ray, of the point that is seen in each anchor's direction; infinite
    for the first, zero for the last."""

    @property
    def epipole(self) -> Float[Tensor, "3"]:
        """Direction of the key camera, e."""
        return self.offset_query / self.offset_query.norm()

    @property
    def arc(self) -> float:
        """Angle between the key ray's far direction and the epipole, beta_max, radians."""
        across = torch.linalg.cross(self.dir_key_query, self.epipole).norm()
        return float(torch.atan2(across, self.dir_key_query @ self.epipole))


def two_cameras(offset: Sequence[float], yaw_deg: float) -> ViewRays:
    """A query camera at the origin and a key camera at ``offset`` metres, turned about the vertical axis.

    Positive ``yaw_deg`` looks to the right. Both share a pinhole with one pixel per token; time is the same.
    """
    lens = pinhole_lens(GRID)
    turns = torch.zeros(2, 3, dtype=torch.float64)
    turns[1, 1] = math.radians(yaw_deg)
    centers = torch.stack(
        [torch.zeros(3, dtype=torch.float64), torch.tensor(list(offset), dtype=torch.float64)]
    )
    return ViewRays.from_poses(
        matrices(rotvec_to_matrix(turns), centers)[None],
        lens.pixel_rays()[0].flatten(0, 1).expand(1, 2, -1, -1),
        grid=GRID,
        camera=lens,
        time=torch.zeros(2, dtype=torch.float64),
    )


def pair_geometry(
    view_rays: ViewRays, query_token: int, key_token: int, fractions: Sequence[float]
) -> PairGeometry:
    """The geometry of token ``query_token`` of the first view and ``key_token`` of the second one, first clip.

    Raises:
        ValueError: if a token is not of its view, or the two cameras coincide.
    """
    require_tokens(view_rays, query_token, key_token)
    rotations, centers = view_rays.R_world_cam[0], view_rays.center_world[0]
    R_query_world = rotations[0].mT
    offset_query = R_query_world @ (centers[1] - centers[0])
    if not offset_query.norm() > 0:
        raise ValueError(
            "the two cameras coincide: MeRoPE's geometry has no epipole to draw. Move one of them."
        )
    R_query_key = R_query_world @ rotations[1]
    dir_query, dir_key = view_rays.dirs_cam[0, 0, query_token], view_rays.dirs_cam[0, 1, key_token]
    dir_key_query = R_query_key @ dir_key
    anchors = epipolar_anchors(dir_key_query, offset_query, fractions)
    return PairGeometry(
        offset_query=offset_query,
        R_query_key=R_query_key,
        dir_query=dir_query,
        dir_key_query=dir_key_query,
        frame_query=minrot(dir_query),
        frame_key_query=R_query_key @ minrot(dir_key),
        fractions=tuple(fractions),
        anchors=anchors,
        anchor_frames=minrot(anchors),
        anchor_depths=_depths(anchors, dir_key_query, offset_query),
    )


def require_tokens(view_rays: ViewRays, query_token: int, key_token: int) -> None:
    """Raise ValueError unless both are tokens of a view, counted row by row from 0."""
    for name, token in (("query_token", query_token), ("key_token", key_token)):
        if not 0 <= token < view_rays.tokens_per_view:
            raise ValueError(
                f"{name} must lie in 0 ... {view_rays.tokens_per_view - 1}, row by row; got {token}."
            )


def _depths(anchors: Tensor, dir_key_query: Tensor, offset_query: Tensor) -> Tensor:
    """Where along the key ray a line of sight meets it: ``|o x u| / |u x d|``, the sines of a triangle's angles."""
    opposite = torch.linalg.cross(offset_query.expand_as(anchors), anchors).norm(dim=-1)
    across = torch.linalg.cross(anchors, dir_key_query.expand_as(anchors)).norm(dim=-1)
    return torch.where(across > 1e-12, opposite / across.clamp(min=1e-12), math.inf)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameSweep:
    """Ray-local frames of one construction as the ray goes up to the vertical."""

    label: str
    orthonormality: Float[Tensor, " place"]
    """Largest entry of B^T B - I."""
    roll_deg: Float[Tensor, " place"]
    """Turn about the ray against the minimum rotation."""
    turn_rate: Float[Tensor, " place"]
    """Radians by which the frame turns per radian of the ray, in the direction where that is most."""


def frame_sweeps(
    from_vertical_deg: Float[Tensor, " place"], *, azimuth_deg: float = 40.0
) -> tuple[FrameSweep, ...]:
    """UCPE's frames, as released and made orthonormal, and the minimum rotation, at angles from straight up.

    ``azimuth_deg`` is how far to the right of the optical axis the ray stands.
    """
    angles = torch.deg2rad(from_vertical_deg.double())
    azimuth = torch.full_like(angles, math.radians(azimuth_deg))
    builds = {
        "UCPE, as released": lambda dirs: ray_frames(dirs, degenerate="zero"),
        "UCPE, orthonormal": lambda dirs: ray_frames(dirs, degenerate="orthonormal"),
        "minimum rotation": minrot,
    }
    # A step that is small beside the distance from the vertical.
    step = 1e-3 * angles
    dirs = _upward(angles, azimuth)
    neighbours = (_upward(angles + step, azimuth), _upward(angles, azimuth + 1e-3))
    least = minrot(dirs)
    sweeps = []
    for label, build in builds.items():
        frames = build(dirs)
        gram = frames.mT @ frames - torch.eye(3, dtype=torch.float64)
        against = least.mT @ frames
        rates = [
            # |R - R'|_F is sqrt(2) times the angle between two rotations that are close.
            (build(other) - frames).flatten(-2).norm(dim=-1) / math.sqrt(2) / (other - dirs).norm(dim=-1)
            for other in neighbours
        ]
        sweeps.append(
            FrameSweep(
                label=label,
                orthonormality=gram.abs().amax((-2, -1)),
                roll_deg=torch.rad2deg(torch.atan2(against[..., 1, 0], against[..., 0, 0])),
                turn_rate=torch.maximum(*rates),
            )
        )
    return tuple(sweeps)


def _upward(from_vertical: Tensor, azimuth: Tensor) -> Tensor:
    """Unit rays at an angle from straight up (-y in OpenCV axes), azimuth to the right of e_z."""
    level = from_vertical.sin()
    return torch.stack([level * azimuth.sin(), -from_vertical.cos(), level * azimuth.cos()], -1)
