"""The standing scenes: the arrangements of cameras where camera encodings break, by name.

Each is a `ViewRays` with a batch of two clips, three views and a grid that is not square. Metres, OpenCV
axes. `SCENES` maps names to functions of nothing; `scene(name)` calls one. Where one lens has all the rays of a
scene, the scene carries it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from merope.cameras.base import CameraModel
from merope.cameras.kannala_brandt import KannalaBrandt
from merope.cameras.pinhole import Pinhole
from merope.cameras.rays import ViewRays
from merope.geometry.rotations import rotvec_to_matrix

GRID = (2, 3)
BATCH = 2
VIEWS = 3


def pinhole_lens(
    grid: tuple[int, int] = GRID, *, half_width: float = 0.7, center: tuple[float, float] | None = None
) -> Pinhole:
    """A pinhole on a raster of one pixel per token; by default no token looks along the optical axis."""
    rows, cols = grid
    cx, cy = (cols / 2 - 0.03, rows / 2 - 0.01) if center is None else center
    focal_px = cols / 2 / half_width
    return Pinhole(fx=focal_px, fy=focal_px, cx=cx, cy=cy, width=cols, height=rows, pixel_origin="corner")


def pinhole_dirs(grid: tuple[int, int] = GRID, *, half_width: float = 0.7) -> Tensor:
    """Unit rays of `pinhole_lens`, [P, 3] float64."""
    return pinhole_lens(grid, half_width=half_width).pixel_rays()[0].flatten(0, 1)


def matrices(rotations: Tensor, centers: Tensor) -> Tensor:
    """Camera-to-world matrices of [..., 3, 3] rotations and [..., 3] centres."""
    out = torch.zeros(*centers.shape[:-1], 4, 4, dtype=torch.float64)
    out[..., :3, :3] = rotations
    out[..., :3, 3] = centers
    out[..., 3, 3] = 1
    return out


def rays(rotations: Tensor, centers: Tensor, dirs: Tensor, **options: Any) -> ViewRays:
    """ViewRays of [B, V] cameras that share the token rays ``dirs`` [P, 3], in the standing grid."""
    batch, views = centers.shape[:2]
    options = {"grid": GRID, **options}
    return ViewRays.from_poses(
        matrices(rotations.expand(batch, views, 3, 3), centers), dirs.expand(batch, views, -1, -1), **options
    )


def seen_through(lens: CameraModel, rotations: Tensor, centers: Tensor) -> ViewRays:
    """ViewRays of [B, V] cameras that share a lens whose raster has one pixel per token."""
    dirs, valid = lens.pixel_rays()
    valid = valid.flatten().expand(*centers.shape[:2], -1)
    grid = (lens.height, lens.width)
    return rays(rotations, centers, dirs.flatten(0, 1), valid=valid, grid=grid, camera=lens)


def straight_drive() -> ViewRays:
    """Straight ahead at 4 m per latent frame, no turn: every past camera lies at -e_z of the query."""
    return seen_through(pinhole_lens(), torch.eye(3, dtype=torch.float64), ahead(4.0))


def coincident_centres() -> ViewRays:
    """Cameras that turn on one spot: every baseline is zero."""
    return seen_through(pinhole_lens(), turned(), torch.zeros(BATCH, VIEWS, 3, dtype=torch.float64))


def ray_at_epipole() -> ViewRays:
    """One token of each view looks exactly along the direction of travel, towards the next cameras."""
    # The optical axis through the middle of token 1.
    lens = pinhole_lens(center=(1.5, 0.5))
    return seen_through(lens, torch.eye(3, dtype=torch.float64), ahead(4.0))


def ray_at_antipode() -> ViewRays:
    """One token of each view looks exactly back along the path, away from the next cameras.

    No lens that is not a full panorama has such a ray, so the scene has none.
    """
    dirs = pinhole_dirs()
    dirs[4] = torch.tensor([0.0, 0.0, -1.0])
    return rays(torch.eye(3, dtype=torch.float64), ahead(4.0), dirs)


def parked_with_jitter() -> ViewRays:
    """A parked car whose poses carry a millimetre and a tenth of a milliradian of noise."""
    noise = torch.Generator().manual_seed(5)
    centers = 1e-3 * torch.randn(BATCH, VIEWS, 3, generator=noise, dtype=torch.float64)
    turns = rotvec_to_matrix(1e-4 * torch.randn(BATCH, VIEWS, 3, generator=noise, dtype=torch.float64))
    return seen_through(pinhole_lens(), turns, centers)


def far_origin() -> ViewRays:
    """A turning drive in map coordinates five million metres from the origin."""
    origin = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    return seen_through(pinhole_lens(), turned(), ahead(3.0) + origin)


def fisheye_200deg() -> ViewRays:
    """A 200 degree equidistant fisheye: rays behind the image plane, some tokens without a ray."""
    rows, cols = GRID
    lens = KannalaBrandt(
        fx=0.6945,
        fy=0.6366,
        cx=1.591,
        cy=1.1667,
        width=cols,
        height=rows,
        pixel_origin="corner",
        max_theta=math.radians(100),
    )
    view_rays = seen_through(lens, turned(), ahead(2.0))
    assert (~view_rays.valid).any() and (view_rays.dirs_cam[..., 2] < 0).any()
    return view_rays


def ahead(step: float) -> Tensor:
    """Centres [B, V, 3] along +z, the second clip at half the speed."""
    z = torch.arange(VIEWS, dtype=torch.float64) * step
    centers = torch.zeros(BATCH, VIEWS, 3, dtype=torch.float64)
    centers[0, :, 2], centers[1, :, 2] = z, z / 2
    return centers


def turned() -> Tensor:
    """Different rotations for every view, [B, V, 3, 3]."""
    angles = torch.linspace(-0.6, 0.9, BATCH * VIEWS * 3, dtype=torch.float64).reshape(BATCH, VIEWS, 3)
    return rotvec_to_matrix(angles)


def random_drive(
    seed: int = 0, *, reach: float = 20.0, views: int = VIEWS, grid: tuple[int, int] = GRID
) -> ViewRays:
    """Cameras anywhere within ``reach`` metres, turned any way."""
    draw = torch.Generator().manual_seed(seed)
    centers = reach * (2 * torch.rand(BATCH, views, 3, generator=draw, dtype=torch.float64) - 1)
    turns = rotvec_to_matrix(1.5 * torch.randn(BATCH, views, 3, generator=draw, dtype=torch.float64))
    return seen_through(pinhole_lens(grid), turns, centers)


SCENES: dict[str, Callable[[], ViewRays]] = {
    build.__name__: build
    for build in (
        straight_drive,
        coincident_centres,
        ray_at_epipole,
        ray_at_antipode,
        parked_with_jitter,
        far_origin,
        fisheye_200deg,
    )
}


def scene(name: str) -> ViewRays:
    """The standing scene of this name."""
    return SCENES[name]()


def moved_rigidly(view_rays: ViewRays, rotvec: Tensor, offset: Tensor) -> ViewRays:
    """The same cameras in other world coordinates."""
    turn = rotvec_to_matrix(rotvec.to(torch.float64))
    return replace(
        view_rays,
        R_world_cam=turn @ view_rays.R_world_cam,
        center_world=view_rays.center_world @ turn.mT + offset,
    )
