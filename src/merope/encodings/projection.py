"""Where a query view sees points of key rays: in its image, far outside it, and behind it.

Shared by the encodings that project (URoPE, RayRoPE, CRePE). A pinhole has no image of what lies behind it;
an encoding needs a number for every pair of tokens all the same.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.base import CameraModel
from merope.cameras.parameters import align
from merope.cameras.rays import ViewRays

# Cosine from the optical axis (87 degrees off it) below which a ray has no z-depth worth the name.
MIN_COSINE = 0.05
# Radians by which a direction that the lens does not see is brought inside its field: float32 still tells
# that from the edge.
_INSIDE = 1e-5
# Square of the distance from the optical axis below which a backward point has no azimuth.
_ON_AXIS_SQ = 1e-24


def axis_rays(dirs_cam: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3"]:
    """Rays whose z is 1, so that a multiple of one is a depth along the optical axis (K^-1 [u, v, 1]).

    Degenerate: from 87 degrees off the axis on, where z nears zero and turns negative, a ray has length
    20 instead, whatever its z.
    """
    return dirs_cam / dirs_cam[..., 2:].clamp(min=MIN_COSINE)


def turned_to_queries(
    queries: ViewRays, keys: ViewRays, vectors_key: Float[Tensor, "batch key_view *point 3"]
) -> Float[Tensor, "batch query_view key_view *point 3"]:
    """Vectors in each key camera's frame, in each query camera's (R_i^T R_j of Eq. 2)."""
    vectors_world = torch.einsum("bvxy,bv...y->bv...x", keys.R_world_cam, vectors_key)
    return torch.einsum("bgyx,bv...y->bgv...x", queries.R_world_cam, vectors_world)


def lens_limit(lens: CameraModel) -> Float[Tensor, "*view"]:
    """Largest angle from the optical axis, radians, up to which the lens sees every direction, float64.

    Found by bisection along sixteen meridians; what a lens sees is taken to be connected.
    """
    azimuth = torch.arange(16, dtype=torch.float64) * (math.pi / 8)
    across = torch.stack([azimuth.cos(), azimuth.sin(), torch.zeros_like(azimuth)], -1)
    along = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    low = torch.zeros(*lens.view_shape, 16, dtype=torch.float64)
    high = torch.full_like(low, math.pi)

    def seen(angle: Tensor) -> Tensor:
        return lens.project(angle.sin()[..., None] * across + angle.cos()[..., None] * along)[1]

    low = torch.where(seen(high), high, low)
    for _ in range(50):
        middle = (low + high) / 2
        inside = seen(middle)
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return low.amin(-1)


def bounded_pixels(
    lens: CameraModel,
    points_cam: Float[Tensor, "*batch 3"],
    *,
    limit: Tensor,
    near: float,
    margin: float,
) -> Float[Tensor, "*batch 2"]:
    """Pixels at which points are seen, at most ``margin`` image sizes outside the image, for every point.

    ``limit`` is the lens's `lens_limit`, ``points_cam`` is [*view, ..., 3]. Three rules, in this order:

    - a lens that sees nothing behind its plane (a pinhole) sees a point at no less than ``near`` in front of it,
      with x and y as they are;
    - a direction that the lens does not see still is brought to the edge of its field along its meridian;
    - coordinates are clamped to [-margin W, (1 + margin) W] and the same with H.

    Values and gradients are finite everywhere; where a rule acts, the gradient along it is zero.

    Degenerate: a point exactly behind a lens that does not see it has no meridian; it goes along +x.
    """
    x, y, z = points_cam.unbind(-1)
    edge = align(limit, z)
    z = torch.where(edge <= math.pi / 2, z.clamp(min=near), z)
    points_cam = torch.stack([x, y, z], -1)
    seen = lens.project(points_cam.detach())[1]
    radius_sq = x * x + y * y
    off_axis = radius_sq > _ON_AXIS_SQ
    radius = torch.where(off_axis, radius_sq, 1).sqrt()
    sine, cosine = (edge - _INSIDE).sin().expand_as(z), (edge - _INSIDE).cos().expand_as(z)
    at_edge = torch.stack(
        [sine * torch.where(off_axis, x / radius, 1), sine * torch.where(off_axis, y / radius, 0), cosine], -1
    )
    pixels = lens.project(torch.where(seen[..., None], points_cam, at_edge))[0]
    size = torch.tensor([lens.width, lens.height], dtype=pixels.dtype, device=pixels.device)
    return torch.minimum(torch.maximum(pixels, -margin * size), (1 + margin) * size)
