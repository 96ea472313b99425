"""What the released PRoPE and UCPE code answered for random inputs, with the rays that it was asked for."""

import numpy as np
import torch
from torch import Tensor

from merope.attention import camera_attention
from merope.cameras import Pinhole, UnifiedCamera, ViewRays
from merope.encodings.projective import released_channel_order
from merope.operators import CameraOperator
from tests.support.shared import shared_file

GRID = (2, 4)
VIEWS = 3
HEAD_DIM = 32


def released() -> dict[str, Tensor]:
    """Every array of the file, float64; skips the calling test where it is missing."""
    return {
        name: torch.from_numpy(value) for name, value in np.load(shared_file("golden/attention.npz")).items()
    }


def pinhole_rays(arrays: dict[str, Tensor]) -> ViewRays:
    """The three cameras behind their pinholes."""
    width, height = arrays["image_size_wh"].tolist()
    lens = Pinhole.from_matrix(arrays["K"], height=height, width=width, pixel_origin="corner")
    return _seen(arrays, lens)


def unified_rays(arrays: dict[str, Tensor]) -> ViewRays:
    """The three cameras behind one unified lens; rays through patch centres."""
    lens = UnifiedCamera.from_fov(
        fov_x_deg=float(arrays["ucpe_x_fov_deg"]), xi=float(arrays["ucpe_xi"]), height=GRID[0], width=GRID[1]
    )
    return _seen(arrays, lens)


def _seen(arrays: dict[str, Tensor], lens: Pinhole | UnifiedCamera) -> ViewRays:
    dirs = lens.resize(height=GRID[0], width=GRID[1]).pixel_rays()[0].flatten(-3, -2)
    return ViewRays.from_poses(arrays["c2w"], dirs.expand(1, VIEWS, -1, -1), grid=GRID, camera=lens)


def attended(arrays: dict[str, Tensor], operator: CameraOperator, backend: str) -> Tensor:
    """Attention over the released inputs, brought into our order of channels and the answer back into theirs."""
    order = released_channel_order(HEAD_DIM)
    query, key, value = (arrays[name][..., order] for name in ("q", "k", "v"))
    out = camera_attention(query, key, value, operator, backend=backend)
    back = torch.empty_like(out)
    back[..., order] = out
    return back
