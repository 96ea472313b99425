"""The standing scenes: the arrangements of cameras where camera encodings break, by name.

Each is a `ViewRays` with a batch of two clips, three views and a grid that is not square. Metres, OpenCV
axes. `SCENES` maps names to functions of nothing; `scene(name)` calls one.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.geometry.rotations import rotvec_to_matrix

GRID = (2, 3)
BATCH = 2
VIEWS = 3


def pinhole_dirs(grid: tuple[int, int] = GRID, *, half_width: float = 0.7) -> Tensor:
    """Unit rays of a grid's patch centres through a pinhole, [P, 3] float64; none is the optical axis."""
    rows, cols = grid
    x = (torch.arange(cols, dtype=torch.float64) + 0.5 - cols / 2 + 0.03) / (cols / 2) * half_width
    y = (torch.arange(rows, dtype=torch.float64) + 0.5 - rows / 2 + 0.01) / (cols / 2) * half_width
    rays = torch.stack([x.expand(rows, cols), y[:, None].expand(rows, cols), torch.ones(rows, cols)], -1)
    return (rays / rays.norm(dim=-1, keepdim=True)).flatten(0, 1)


def matrices(rotations: Tensor, centers: Tensor) -> Tensor:
    """Camera-to-world matrices of [..., 3, 3] rotations and [..., 3] centres."""
    out = torch.zeros(*centers.shape[:-1], 4, 4, dtype=torch.float64)
    out[..., :3, :3] = rotations
    out[..., :3, 3] = centers
    out[..., 3, 3] = 1
    return out


def rays(rotations: Tensor, centers: Tensor, dirs: Tensor, **options) -> ViewRays:
    """ViewRays of [B, V] cameras that share the token rays ``dirs`` [P, 3], in the standing grid."""
    batch, views = centers.shape[:2]
    options = {"grid": GRID, **options}
    return ViewRays.from_poses(
        matrices(rotations.expand(batch, views, 3, 3), centers), dirs.expand(batch, views, -1, -1), **options
    )


def straight_drive() -> ViewRays:
    """Straight ahead at 4 m per latent frame, no turn: every past camera lies at -e_z of the query."""
    return rays(torch.eye(3, dtype=torch.float64), ahead(4.0), pinhole_dirs())


def coincident_centres() -> ViewRays:
    """Cameras that turn on one spot: every baseline is zero."""
    return rays(turned(), torch.zeros(BATCH, VIEWS, 3, dtype=torch.float64), pinhole_dirs())


def ray_at_epipole() -> ViewRays:
    """One token of each view looks exactly along the direction of travel, towards the next cameras."""
    dirs = pinhole_dirs()
    dirs[1] = torch.tensor([0.0, 0.0, 1.0])
    return rays(torch.eye(3, dtype=torch.float64), ahead(4.0), dirs)


def ray_at_antipode() -> ViewRays:
    """One token of each view looks exactly back along the path, away from the next cameras."""
    dirs = pinhole_dirs()
    dirs[4] = torch.tensor([0.0, 0.0, -1.0])
    return rays(torch.eye(3, dtype=torch.float64), ahead(4.0), dirs)


def parked_with_jitter() -> ViewRays:
    """A parked car whose poses carry a millimetre and a tenth of a milliradian of noise."""
    noise = torch.Generator().manual_seed(5)
    centers = 1e-3 * torch.randn(BATCH, VIEWS, 3, generator=noise, dtype=torch.float64)
    turns = rotvec_to_matrix(1e-4 * torch.randn(BATCH, VIEWS, 3, generator=noise, dtype=torch.float64))
    return rays(turns, centers, pinhole_dirs())


def far_origin() -> ViewRays:
    """A turning drive in map coordinates five million metres from the origin."""
    origin = torch.tensor([5e6, -3e6, 120.0], dtype=torch.float64)
    return rays(turned(), ahead(3.0) + origin, pinhole_dirs())


def fisheye_200deg() -> ViewRays:
    """A 200 degree equidistant fisheye: rays behind the image plane, some tokens without a ray."""
    rows, cols = GRID
    u = torch.linspace(-0.9, 0.75, cols, dtype=torch.float64).expand(rows, cols)
    v = torch.linspace(-0.6, 0.3, rows, dtype=torch.float64)[:, None].expand(rows, cols)
    radius = torch.sqrt(u * u + v * v)
    angle = radius * math.radians(100)
    dirs = torch.stack([angle.sin() * u / radius, angle.sin() * v / radius, angle.cos()], -1).flatten(0, 1)
    valid = (radius <= 1).flatten()
    dirs[~valid] = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    assert (~valid).any() and (dirs[:, 2] < 0).any()
    return rays(turned(), ahead(2.0), dirs, valid=valid.expand(BATCH, VIEWS, -1))


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


def random_drive(seed: int = 0, *, reach: float = 20.0, views: int = VIEWS, grid=GRID) -> ViewRays:
    """Cameras anywhere within ``reach`` metres, turned any way."""
    draw = torch.Generator().manual_seed(seed)
    centers = reach * (2 * torch.rand(BATCH, views, 3, generator=draw, dtype=torch.float64) - 1)
    turns = rotvec_to_matrix(1.5 * torch.randn(BATCH, views, 3, generator=draw, dtype=torch.float64))
    return rays(turns, centers, pinhole_dirs(grid), grid=grid)


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
    return rays(
        turn @ view_rays.R_world_cam,
        view_rays.center_world @ turn.mT + offset,
        view_rays.dirs_cam[0, 0],
        valid=view_rays.valid,
    )
