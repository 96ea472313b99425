"""How much of what one camera sees another sees too: the share of points along its view rays, at stated depths.

Nothing is known of the scene, so nothing hides anything: the overlap is that of fields of view.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from merope.cameras import CameraModel

# Where rays go: centres of a grid over the image, as coarse as a score between 0 and 1 needs.
COLUMNS, ROWS = 8, 5
# Points that are projected together: 24 MB each way in float64.
_POINTS = 1 << 20


def view_points(lens: CameraModel, depths: Sequence[float]) -> Float[Tensor, "point 3"]:
    """Points along the view rays of a grid of 8 x 5 pixels, at each depth (metres along the ray), in the camera's frame.

    Pixels without a ray, as beyond the circle of a fisheye, give none.

    Raises:
        ValueError: if depths are missing or not positive, or no pixel of the grid has a ray.
    """
    if not depths or not all(0 < depth < float("inf") for depth in depths):
        raise ValueError(f"depths must be positive metres, at least one; got {tuple(depths)}.")
    u = (torch.arange(COLUMNS, dtype=torch.float64) + 0.5) * lens.width / COLUMNS
    v = (torch.arange(ROWS, dtype=torch.float64) + 0.5) * lens.height / ROWS
    pixels = torch.stack(torch.meshgrid(u, v, indexing="xy"), -1).reshape(-1, 2)
    dirs_cam, valid = lens.with_pixel_origin("corner").unproject(pixels)
    if not valid.any():
        raise ValueError("the lens gives no ray to any of 8 x 5 pixels spread over its image.")
    along = torch.tensor(depths, dtype=torch.float64)
    return (dirs_cam[valid][:, None] * along[:, None]).reshape(-1, 3)


def overlaps(
    points_query: Float[Tensor, "point 3"],
    R_cand_query: Float[Tensor, "cand 3 3"],
    offset_cand: Float[Tensor, "cand 3"],
    lens: CameraModel,
) -> Float[Tensor, "cand"]:
    """The share of the query's points that fall into the image of each candidate, all of one lens.

    ``offset_cand`` is the query's centre in the candidate's frame, so a point is at R_cand_query point + offset_cand.
    """
    shares = torch.empty(len(R_cand_query), dtype=torch.float64)
    step = max(1, _POINTS // len(points_query))
    for start in range(0, len(R_cand_query), step):
        part = slice(start, start + step)
        points_cand = points_query @ R_cand_query[part].mT + offset_cand[part, None]
        pixels, valid = lens.project(points_cand)
        shares[part] = (valid & lens.in_image(pixels)).double().mean(-1)
    return shares
