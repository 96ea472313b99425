"""World coordinates by convention: those of a clip's first view, for encodings that see one camera at a time."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras.rays import ViewRays


def in_first_view(view_rays: ViewRays, reference: ViewRays) -> ViewRays:
    """The same cameras in world coordinates whose origin and axes are those of ``reference``'s first view.

    Centres are subtracted before anything else: of map coordinates five million metres away nothing but
    their own rounding is left. The first view itself has its centre at exactly zero.
    """
    with torch.autocast("cpu", enabled=False):
        R_first_world = reference.R_world_cam[:, :1].mT
        offset_world = view_rays.center_world - reference.center_world[:, :1]
        return replace(
            view_rays,
            R_world_cam=R_first_world @ view_rays.R_world_cam,
            center_world=torch.einsum(
                "bvxy,bvy->bvx", R_first_world.expand_as(view_rays.R_world_cam), offset_world
            ),
        )


def dirs_world(view_rays: ViewRays) -> Float[Tensor, "batch view token 3"]:
    """Every token's ray in world coordinates: R_i d, camera-to-world (d^w of the paper)."""
    with torch.autocast("cpu", enabled=False):
        return torch.einsum("bvxy,bvpy->bvpx", view_rays.R_world_cam, view_rays.dirs_cam)


def moments(
    center_world: Float[Tensor, "*#batch 3"], dirs_world: Float[Tensor, "*#batch 3"]
) -> Float[Tensor, "*batch 3"]:
    """The Plücker moment o x d of lines through ``center_world``, metres: the same for every point of the line."""
    return torch.linalg.cross(center_world, dirs_world)
